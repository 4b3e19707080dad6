"""A file's attributes that a checkpoint holds: the user's own, and access control lists.

Never `security.*` and `trusted.*`: what a program may do is not ours to give.
"""

import errno
import os

_OWN = "user."
_LISTS = ("system.posix_acl_access", "system.nfs4_acl")
# ext4 gives all of a file one block; others take 64 KiB for each.
MAX_BYTES = 64 * 1024
_UNKNOWN_HERE = (errno.ENOTSUP, errno.ENODATA, errno.EPERM, errno.EACCES)


class TooMany(Exception):
    """More than a checkpoint holds of one file."""


def read(descriptor: int) -> dict[str, bytes]:
    """Of a file that is open; nothing where the file system has none."""
    if not hasattr(os, "listxattr"):
        return {}
    found: dict[str, bytes] = {}
    size = 0
    try:
        for name in os.listxattr(descriptor):
            if name.startswith(_OWN) or name in _LISTS:
                found[name] = os.getxattr(descriptor, name)
                size += len(name) + len(found[name])
                if size > MAX_BYTES:
                    raise TooMany
    except OSError as error:
        if error.errno not in _UNKNOWN_HERE:
            raise
    return found


def write(descriptor: int, attributes: dict[str, bytes]) -> None:
    """What the file system does not take is found by who looks afterwards."""
    for name, value in attributes.items():
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if error.errno not in (*_UNKNOWN_HERE, errno.EINVAL):
                raise
