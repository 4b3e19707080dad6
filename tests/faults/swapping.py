"""Two names that are exchanged as fast as it goes, by a process of their own."""

import contextlib
import subprocess
import sys
from pathlib import Path

# renameat2(RENAME_EXCHANGE), as fast as it goes: at every moment each name is one of the two things. A name that an
# operation has just removed comes back. The pauses are uneven: locks would bring both processes into step.
SWAPPER = """
import ctypes, errno, os, sys
rename = ctypes.CDLL(None, use_errno=True).renameat2
first, second = map(os.fsencode, sys.argv[1:])
print("started", flush=True)
pause = 1
while True:
    pause = pause * 1103515245 + 12345 & 0xFFFFFF
    for _ in range(pause >> 16):
        pass
    if rename(-100, first, -100, second, 2) and ctypes.get_errno() != errno.ENOENT:
        sys.exit(os.strerror(ctypes.get_errno()))
"""


@contextlib.contextmanager
def swapping(first: Path, second: Path):
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SWAPPER, first, second], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        yield
        assert process.poll() is None, "the swapper died"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
