"""Denied programs as files: the same file under another name is the same program, and so is a copy of it.

A changed copy is another program; it is contained by the sandbox like everything else.
"""

import contextlib
import hashlib
import os
import stat

from bascule.kernel.policy.programs import ProgramRules
from bascule.kernel.policy.shell.wrappers import is_multicall
from bascule.workspace.machine.sandbox.execs import Version, is_settled
from bascule.workspace.machine.sandbox.kernel import open_in_root

# Larger programs are not compared by content: reading them would hold up the exec.
MAX_COMPARED_BYTES = 32 * 1024 * 1024
# Digests of files that have a denied program's size: few, unless somebody makes many.
MAX_KNOWN_DIGESTS = 256


class Wanted:
    """Names of denied programs by what their files are."""

    def __init__(self) -> None:
        self.by_file: dict[tuple[int, int], set[str]] = {}
        # Size, then digest.
        self.by_content: dict[int, dict[bytes, set[str]]] = {}
        self._digests: dict[Version, bytes] = {}

    @classmethod
    def of(cls, rules: ProgramRules, folders: tuple[str, ...], root: int) -> "Wanted":
        found = cls()
        for name in {rule.name for rule in rules.denied if "/" not in rule.name}:
            for folder in folders:
                with contextlib.suppress(OSError):
                    descriptor = open_in_root(root, f"{folder}/{name}")
                    try:
                        found._add(name, descriptor)
                    finally:
                        os.close(descriptor)
        return found

    def and_also(self, other: "Wanted") -> "Wanted":
        both = Wanted()
        for each in (self, other):
            for identity, names in each.by_file.items():
                both.by_file.setdefault(identity, set()).update(names)
            for size, digests in each.by_content.items():
                for digest, names in digests.items():
                    both.by_content.setdefault(size, {}).setdefault(digest, set()).update(names)
        return both

    def names(self, descriptor: int, found: os.stat_result) -> tuple[str, ...]:
        names = self.by_file.get((found.st_dev, found.st_ino))
        if names is None and (digests := self.by_content.get(found.st_size)) is not None:
            names = digests.get(self._digest(descriptor, found))
        return tuple(sorted(names)) if names else ()

    def _add(self, name: str, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.by_file.setdefault((found.st_dev, found.st_ino), set()).add(name)
        # One file that is many programs is none of them by its content.
        if is_multicall(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))):
            return
        if stat.S_ISREG(found.st_mode) and 0 < found.st_size <= MAX_COMPARED_BYTES:
            digest = self._digest(descriptor, found)
            self.by_content.setdefault(found.st_size, {}).setdefault(digest, set()).add(name)

    def _digest(self, descriptor: int, found: os.stat_result) -> bytes:
        version = Version.of(found)
        digest = self._digests.get(version)
        if digest is None:
            digest = _digest(descriptor)
            if is_settled(descriptor, found):
                if len(self._digests) >= MAX_KNOWN_DIGESTS:
                    self._digests.clear()
                self._digests[version] = digest
        return digest


def _digest(descriptor: int) -> bytes:
    """Empty when it cannot be read: then it cannot have been copied either."""
    try:
        with open(f"/proc/self/fd/{descriptor}", "rb", opener=_without_waiting) as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
