"""A disk of its own for a state directory, whose power can be cut: a loop-mounted ext4."""

import fcntl
import os
import shutil
import struct
import subprocess

from patience import PATIENCE

IMAGE_BYTES = 96 * 1024 * 1024
# _IOR('X', 125, __u32) of linux/ext4.h, and the flag that throws the journal's unwritten part away: nothing of what
# was not synced reaches the disk any more, as when the plug is pulled.
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
# Unmounts when the other end of its input is gone, also when the test run was killed.
_KEEPER = 'cat >/dev/null; while umount -l "$0" 2>/dev/null; do :; done'


class NoDisk(Exception):
    """This machine, or this user, cannot make one."""


class CutDisk:
    """Mounted when made. `cut` ends its writing for good; `replug` shows what was on it."""

    def __init__(self, folder: str) -> None:
        if os.getuid() != 0:
            raise NoDisk("only root can mount one")
        if shutil.which("mkfs.ext4") is None:
            raise NoDisk("there is no mkfs.ext4 (Debian: e2fsprogs)")
        self.image = os.path.join(folder, "image")
        self.mount_point = os.path.join(folder, "m")
        self.state = os.path.join(self.mount_point, "s")
        os.mkdir(self.mount_point)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0", self.image)
        self._mounted = False
        # The pipe is closed by `remove`, or by the end of this process.
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, self.mount_point], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self.plug()
        except BaseException:
            self.remove()
            raise

    def plug(self) -> None:
        # The loop device goes with its mount: `-o loop` makes it detach itself.
        _run("mount", "-t", "ext4", "-o", "loop", self.image, self.mount_point)
        self._mounted = True

    def cut(self) -> None:
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def replug(self) -> None:
        """After a cut, and after every process that had files open there has ended.

        A copy of the image is mounted, as the cut left it. A process elsewhere that copied our mounts, as every
        sandbox does when it starts, keeps the old file system alive: mounting the same image again would only bring
        that one back, which answers everything with EIO.
        """
        _run("umount", self.mount_point)
        self._mounted = False
        copy = self.image + ".copy"
        _run("cp", "--sparse=always", self.image, copy)
        os.unlink(self.image)
        os.rename(copy, self.image)
        self.plug()

    @property
    def errors(self) -> str:
        """Where a daemon on this disk can write its standard error: not on it, so that it can be read after a cut."""
        return self.image + ".stderr"

    def remove(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", self.mount_point], check=False)
            self._mounted = False
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait(PATIENCE)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise NoDisk(f"{command[0]}: {done.stderr.strip()}")
