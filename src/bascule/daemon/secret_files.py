"""Keys of the daemon's own: one private file each, made on first use."""

import os
import re

from bascule.foundation import paths
from bascule.foundation.ids import new_token
from bascule.foundation.paths import UnsafePlace

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def read_or_make_secret(state_dir: str, name: str) -> str:
    """256 bits in a private file, made on first use."""
    path = os.path.join(state_dir, name)
    try:
        text = paths.read_private_file(path).strip()
    except FileNotFoundError:
        text = ""
    if not text:
        text = new_token()
        # Always by the same name: what a crash leaves of it is written over by the next start.
        paths.write_synced(f"{path}.new", text)
        paths.put_in_place(f"{path}.new", path)
    elif _SECRET.fullmatch(text) is None:
        raise UnsafePlace(
            f"{path} is damaged: it holds no key of ours; move it away, and the next start makes a new one"
        )
    return text
