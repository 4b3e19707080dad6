"""One open workspace directory. A path is resolved beneath its descriptor once; nothing is opened by its name again.

A root that is renamed stays the root: its descriptor is the directory, whatever it is called now, and commands see
the same one. What is written becomes visible by a rename, so a reader sees the old content or the new, and so does
whoever comes after a crash. A power cut may bring back the old content: nothing here waits for the disk.
"""

import contextlib
import errno
import hashlib
import heapq
import os
import stat
from collections.abc import Iterator

from bascule.workspace.machine.files import sentences, temporary
from bascule.workspace.machine.files.beneath import O_PATH, Found, Opener
from bascule.workspace.machine.files.extents import extent_of
from bascule.workspace.machine.files.syscalls import path_of, rename_new
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.ports import Extent, FileFault, ResolvedPath
from bascule.workspace.protocol import MAX_CONTENT_BYTES, FileEntry

# Evidence: outside checkpoints, and read-only for commands and for file operations alike.
ARTIFACTS = "artifacts"
# A directory of more names is read no further: the listing says that there are more.
MAX_NAMES = 100_000

_DIRECTORY = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a FIFO must not wait for its writer, nor a terminal become ours.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1024 * 1024


class WorkspaceRoot:
    def __init__(
        self,
        descriptor: int,
        path: str,
        opener: Opener,
        *,
        umask: int,
        max_content: int = MAX_CONTENT_BYTES,
        lasting: bool = True,
    ) -> None:
        self.path = path
        # Not a copy that goes with the run that needed it.
        self.lasting = lasting
        self.opener = opener
        self._descriptor = descriptor
        self._umask = umask
        self._max_content = max_content
        found = os.fstat(descriptor)
        self.identity = (found.st_dev, found.st_ino)
        # Commands run as the directory's owner and must be able to change what we make.
        self.owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 and found.st_uid else None

    def fileno(self) -> int:
        return self._descriptor

    def extent(self) -> Extent:
        return extent_of(self._descriptor, self.path)

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def is_in_place(self) -> bool:
        return self._is_at(self.path)

    def place(self) -> str | None:
        try:
            path = path_of(self._descriptor)
        except OSError:
            return None
        # A directory that was removed has a name still, of which the kernel says that it is gone.
        return path if self._is_at(path) else None

    def _is_at(self, path: str) -> bool:
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    @property
    def mode(self) -> int:
        return stat.S_IMODE(os.fstat(self._descriptor).st_mode)

    def set_mode(self, mode: int) -> None:
        os.fchmod(self._descriptor, mode)

    @property
    def owned_by(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_uid, found.st_gid

    def duplicate(self) -> "WorkspaceRoot":
        return WorkspaceRoot(
            os.dup(self._descriptor),
            self.path,
            self.opener,
            umask=self._umask,
            max_content=self._max_content,
            lasting=self.lasting,
        )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # -- resolving --------------------------------------------------------------------------------

    def resolve(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath:
        try:
            return _resolved(path, self.opener.resolve(self._descriptor, path, follow=follow))
        except OSError as error:
            raise self._fault(error, path) from error

    def resolve_cached(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath | None:
        found = self.opener.resolve_cached(self._descriptor, path, follow=follow)
        return None if found is None else _resolved(path, found)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, place: ResolvedPath, max_bytes: int) -> bytes:
        with self._sentences(place):
            descriptor, found = self._open_regular(place)
            try:
                if found.st_size > max_bytes:
                    raise sentences.too_large(place.written, found.st_size, max_bytes)
                return self._read_all(descriptor, place.written, max_bytes, found.st_size)
            finally:
                os.close(descriptor)

    def digest(self, place: ResolvedPath, max_bytes: int) -> str | None:
        try:
            descriptor, _ = self._open_regular(place)
        except (OSError, FileFault):
            return None
        try:
            digest, left = hashlib.sha256(), max_bytes
            while piece := os.read(descriptor, _CHUNK):
                left -= len(piece)
                if left < 0:
                    return None
                digest.update(piece)
            return digest.hexdigest()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def entries(self, place: ResolvedPath | None, limit: int) -> tuple[list[FileEntry], bool]:
        with self._sentences(place):
            descriptor = self._open(place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                names: list[str] = []
                more = False
                with os.scandir(descriptor) as found:
                    for entry in found:
                        if len(names) >= MAX_NAMES:
                            more = True
                            break
                        names.append(entry.name)
                chosen = heapq.nsmallest(limit, names)
                return [_entry(descriptor, name) for name in chosen], more or len(names) > limit
            finally:
                os.close(descriptor)

    # -- writing ----------------------------------------------------------------------------------

    def create(self, place: ResolvedPath, data: bytes, *, overwrite: bool) -> None:
        self._check_write(place, data)
        with self._sentences(place), self._directory(place) as directory:
            before = _found(directory, place.name)
            if before is not None:
                if stat.S_ISDIR(before.st_mode):
                    raise FileFault(f"`{place.written}` is a directory; choose another name for the file")
                if not overwrite:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                _check_writable(place.written, before.st_mode)
            name = self._write(directory, data, like=before)
            try:
                if overwrite:
                    os.rename(name, place.name, src_dir_fd=directory, dst_dir_fd=directory)
                else:
                    rename_new(directory, name, place.name)
            except BaseException:
                _discard(directory, name)
                raise
            temporary.give_back(name)

    def replace(self, place: ResolvedPath, data: bytes, *, expected: bytes) -> None:
        self._check_write(place, data)
        with self._sentences(place):
            before = self._check_content(place, expected)
            name = self._write(place.directory, data, like=before)
            try:
                _check_version(place, before)
                os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            except BaseException:
                _discard(place.directory, name)
                raise
            temporary.give_back(name)

    def delete(self, place: ResolvedPath) -> None:
        self._check_write(place)
        with self._sentences(place):
            _check_present(place)
            found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                raise FileFault(f"`{place.written}` is a directory; deleteFile deletes files only")
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                raise sentences.not_regular(place.written, found.st_mode)
            os.unlink(place.name, dir_fd=place.directory)

    def _write(self, directory: int, data: bytes, *, like: os.stat_result | None) -> str:
        """A finished file under a temporary name, with the mode and owner of the one it will replace."""
        name = temporary.new_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=directory)
        except BaseException:
            temporary.give_back(name)
            raise
        try:
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            self._dress(descriptor, 0o666 & ~self._umask, like)
        except BaseException:
            _discard(directory, name)
            raise
        finally:
            os.close(descriptor)
        return name

    def _dress(self, descriptor: int, mode: int, like: os.stat_result | None) -> None:
        owner = self.owner
        if like is not None:
            # As write(2) does, a change drops setuid and setgid.
            mode = like.st_mode & 0o777
            ours = os.fstat(descriptor)
            owner = (like.st_uid, like.st_gid)
            if owner == (ours.st_uid, ours.st_gid):
                owner = None
        if owner is not None:
            # Only root may give files away; a group of ours we may keep.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)

    # -- opening ----------------------------------------------------------------------------------

    def _open(self, place: ResolvedPath | None, flags: int) -> int:
        """What is there, if it is not a link by now; None is the workspace itself."""
        if place is None:
            return self.opener.open(self._descriptor, ".", flags, links=False)
        _check_present(place)
        return self.opener.open(place.directory, place.name, flags, links=False)

    def _open_regular(self, place: ResolvedPath) -> tuple[int, os.stat_result]:
        descriptor = self._open(place, _READ)
        try:
            found = os.fstat(descriptor)
            _check_regular(place.written, found.st_mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found

    def _read_all(self, descriptor: int, path: str, max_bytes: int, size: int) -> bytes:
        # One byte more than it should have: a regular file that gives less than asked for has ended.
        piece = os.read(descriptor, size + 1)
        if len(piece) <= size < _CHUNK:
            return piece
        pieces, total = [piece], len(piece)
        while piece and total <= max_bytes:
            piece = os.read(descriptor, _CHUNK)
            pieces.append(piece)
            total += len(piece)
        if total > max_bytes:
            raise sentences.too_large(path, total, max_bytes)
        return b"".join(pieces)

    def _check_content(self, place: ResolvedPath, expected: bytes) -> os.stat_result:
        descriptor, before = self._open_regular(place)
        try:
            _check_writable(place.written, before.st_mode)
            if before.st_size != len(expected):
                raise _changed(place.written)
            if self._read_all(descriptor, place.written, len(expected), len(expected)) != expected:
                raise _changed(place.written)
        finally:
            os.close(descriptor)
        return before

    @contextlib.contextmanager
    def _directory(self, place: ResolvedPath) -> Iterator[int]:
        """Of the name. Directories that are missing are made, and removed again when the write fails."""
        held = [place.directory]
        made: list[tuple[int, str]] = []
        try:
            for step in place.missing:
                held.append(self._make_directory(held[-1], step, made))
            yield held[-1]
        except BaseException:
            for parent, step in reversed(made):
                # Not empty: somebody else uses it by now.
                with contextlib.suppress(OSError):
                    os.rmdir(step, dir_fd=parent)
            raise
        finally:
            for descriptor in held[1:]:
                os.close(descriptor)

    def _make_directory(self, parent: int, step: str, made: list[tuple[int, str]]) -> int:
        try:
            os.mkdir(step, 0o700, dir_fd=parent)
        except FileExistsError:
            # Another writer was faster; a link that was put there is refused.
            return self.opener.open(parent, step, _DIRECTORY, links=False)
        made.append((parent, step))
        # Not chmod by name: that would follow a link put in its place.
        below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            self._dress(below, 0o777 & ~self._umask, None)
        except BaseException:
            os.close(below)
            raise
        return below

    # -- checking ---------------------------------------------------------------------------------

    def _check_write(self, place: ResolvedPath, data: bytes = b"") -> None:
        if len(data) > self._max_content:
            raise FileFault(
                f"`{place.written}` would have {len(data):,} bytes; a file operation writes {self._max_content:,}"
            )
        first = place.path.partition("/")[0]
        if first == ARTIFACTS or (first.casefold() == ARTIFACTS and self._is_artifacts(first)):
            raise sentences.in_artifacts(place.written)

    def _is_artifacts(self, name: str) -> bool:
        """`Artifacts` is another directory, unless the file system thinks otherwise."""
        both = [_found(self._descriptor, each) for each in (name, ARTIFACTS)]
        return None not in both and len({(found.st_dev, found.st_ino) for found in both if found}) == 1

    @contextlib.contextmanager
    def _sentences(self, place: ResolvedPath | None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            written = place.written if place is not None else "."
            if error.errno == errno.ELOOP:
                # The name was not a link when it was resolved, and is not followed.
                raise FileFault(f"`{written}` was replaced by a link meanwhile; try again") from error
            raise self._fault(error, written) from error

    def _fault(self, error: OSError, path: str) -> FileFault:
        if self._descriptor < 0:
            return FileFault("the workspace is closed; open the space again")
        return sentences.fault_of(error, self._descriptor, path)


def _resolved(path: WorkspacePath, found: Found) -> ResolvedPath:
    return ResolvedPath(path, found.path, directory=found.directory, missing=found.missing, name=found.name)


def _found(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _version(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_present(place: ResolvedPath) -> None:
    if place.missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _check_regular(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise sentences.not_regular(path, mode)


def _check_writable(path: str, mode: int) -> None:
    _check_regular(path, mode)
    if not mode & 0o222:
        raise sentences.read_only(path, mode)


def _check_version(place: ResolvedPath, before: os.stat_result) -> None:
    """Once more just before the rename; what is left of the window is microseconds."""
    now = _found(place.directory, place.name)
    if now is None or _version(now) != _version(before):
        raise _changed(place.written)


def _changed(path: str) -> FileFault:
    return FileFault(f"`{path}` was changed by something else meanwhile; read it again and repeat the edit")


def _discard(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
    temporary.give_back(name)


def _entry(directory: int, name: str) -> FileEntry:
    # Names are bytes; those that are no UTF-8 are shown escaped, and no file operation can name them.
    shown = os.fsencode(name).decode("utf-8", "backslashreplace")
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return FileEntry(name=shown, type="other")
    if stat.S_ISREG(found.st_mode):
        return FileEntry(name=shown, type="file", size=found.st_size)
    if stat.S_ISDIR(found.st_mode):
        return FileEntry(name=shown, type="directory")
    return FileEntry(name=shown, type="link" if stat.S_ISLNK(found.st_mode) else "other")
