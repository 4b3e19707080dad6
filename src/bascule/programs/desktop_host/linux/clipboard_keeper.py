"""Has the person's clipboard ready while ours lies over it, in a process that outlives the host.

On X11 a clipboard is a process that answers. A host that is killed in the middle of a paste, or that ends while it
answers for what the person copied, takes that with it: then this one answers in its place.

    host    starts it with what is there, and keeps its standard input open
            the person copies something else: it is killed, for what it has is not wanted any more
    keeper  its input ends: the host is gone. Nobody has the clipboard: it takes it, until somebody else does
"""

import sys
import time
from typing import Final

import msgspec

from bascule.programs.desktop_host.linux.clipboard import KEEPER_SIZE_BYTES, ClipboardThread, Saved

# How long the X server may take to see that the host is gone.
GONE_SECONDS: Final = 5.0


def main() -> int:
    name, window = sys.argv[1:]
    given = sys.stdin.buffer
    size = int.from_bytes(given.read(KEEPER_SIZE_BYTES))
    data = given.read(size)
    # The end of the host.
    given.read()
    if len(data) < size or not size:
        return 1
    clipboard = ClipboardThread(name)
    try:
        if _is_free(clipboard, int(window)):
            clipboard.restore(msgspec.msgpack.decode(data, type=Saved))
            clipboard.wait_replaced()
    finally:
        clipboard.close()
    return 0


def _is_free(clipboard: ClipboardThread, window: int) -> bool:
    end = time.monotonic() + GONE_SECONDS
    while (owner := clipboard.owner()) == window and time.monotonic() < end:
        time.sleep(0.02)
    return owner == 0


if __name__ == "__main__":
    sys.exit(main())
