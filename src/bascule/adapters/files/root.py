"""One open workspace directory. Every path is resolved beneath its descriptor; nothing is opened by its name again.

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

from bascule.adapters.files import sentences, temporary
from bascule.adapters.files.beneath import MAX_LINKS, O_PATH, Opener
from bascule.adapters.files.syscalls import rename_new
from bascule.bridges.workspace.ports import FileFault
from bascule.protocols.workspace import MAX_CONTENT_BYTES, FileEntry
from bascule.protocols.workspace_paths import WorkspacePath

# Evidence: outside checkpoints, and read-only for commands and for file operations alike.
ARTIFACTS = "artifacts"
# A directory of more names is read no further: whoever lists it is told that there are more.
MAX_NAMES = 100_000

_DIRECTORY = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a FIFO must not wait for its writer, nor a terminal become ours.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1024 * 1024


class _Place:
    """A name in an open directory: what a write or delete acts on."""

    def __init__(self, directory: int, name: str) -> None:
        self.directory = directory
        self.name = name
        # Directories made for it, outermost first, each in its parent.
        self.made: list[tuple[int, str]] = []

    def found(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def unmake(self) -> None:
        for parent, name in reversed(self.made):
            # Not empty: somebody else uses it by now.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=parent)

    def close(self) -> None:
        os.close(self.directory)
        for parent, _ in self.made:
            os.close(parent)


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

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # -- reading ----------------------------------------------------------------------------------

    def read(self, path: WorkspacePath, max_bytes: int) -> bytes:
        # The one operation that is as fast as the rest of the call, so without a context manager.
        try:
            descriptor, found = self._open_regular(path)
            try:
                if found.st_size > max_bytes:
                    raise sentences.too_large(path, found.st_size, max_bytes)
                return self._read_all(descriptor, path, max_bytes, found.st_size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._fault(error, path) from error

    def digest(self, path: WorkspacePath, max_bytes: int) -> str | None:
        try:
            descriptor, _ = self._open_regular(path)
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

    def entries(self, path: WorkspacePath | None, limit: int) -> tuple[list[FileEntry], bool]:
        shown = path or "."
        with self._sentences(shown):
            descriptor = self.opener.open(self._descriptor, shown, os.O_RDONLY | os.O_DIRECTORY)
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

    def create(self, path: WorkspacePath, data: bytes, *, overwrite: bool) -> None:
        self._check_size(path, data)
        with self._sentences(path):
            place = self._locate(path, follow=overwrite, make=True)
            try:
                try:
                    self._create_at(place, path, data, overwrite=overwrite)
                except BaseException:
                    place.unmake()
                    raise
            finally:
                place.close()

    def replace(self, path: WorkspacePath, data: bytes, *, expected: bytes) -> None:
        self._check_size(path, data)
        with self._sentences(path):
            place = self._locate(path, follow=True, make=False)
            try:
                before = self._check_content(place, path, expected)
                name = self._write(place.directory, data, like=before)
                try:
                    _check_version(place, path, before)
                    os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
                except BaseException:
                    _discard(place.directory, name)
                    raise
            finally:
                place.close()

    def delete(self, path: WorkspacePath) -> None:
        with self._sentences(path):
            place = self._locate(path, follow=False, make=False)
            try:
                found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    raise FileFault(f"`{path}` is a directory; deleteFile deletes files only")
                if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                    raise sentences.not_regular(path, found.st_mode)
                os.unlink(place.name, dir_fd=place.directory)
            finally:
                place.close()

    def _create_at(self, place: _Place, path: str, data: bytes, *, overwrite: bool) -> None:
        before = place.found()
        if before is not None:
            if stat.S_ISDIR(before.st_mode):
                raise FileFault(f"`{path}` is a directory; choose another name for the file")
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            _check_regular(path, before.st_mode)
            if not before.st_mode & 0o222:
                raise sentences.read_only(path, before.st_mode)
        name = self._write(place.directory, data, like=before)
        try:
            if overwrite:
                os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            else:
                rename_new(place.directory, name, place.name)
        except BaseException:
            _discard(place.directory, name)
            raise

    def _write(self, directory: int, data: bytes, *, like: os.stat_result | None) -> str:
        """A finished file under a temporary name, with the mode and owner of the one it will replace."""
        name = temporary.new_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
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

    # -- finding ----------------------------------------------------------------------------------

    def _open_regular(self, path: str) -> tuple[int, os.stat_result]:
        descriptor = self.opener.open(self._descriptor, path, _READ)
        try:
            found = os.fstat(descriptor)
            _check_regular(path, found.st_mode)
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

    def _check_content(self, place: _Place, path: str, expected: bytes) -> os.stat_result:
        descriptor = os.open(place.name, _READ | os.O_NOFOLLOW, dir_fd=place.directory)
        try:
            before = os.fstat(descriptor)
            _check_regular(path, before.st_mode)
            if not before.st_mode & 0o222:
                raise sentences.read_only(path, before.st_mode)
            if before.st_size != len(expected):
                raise _changed(path)
            if self._read_all(descriptor, path, len(expected), len(expected)) != expected:
                raise _changed(path)
        finally:
            os.close(descriptor)
        return before

    def _locate(self, path: str, *, follow: bool, make: bool) -> _Place:
        """Where a write goes: through links in the directories, and through one at the end when `follow`.

        The last link is read by hand, because a rename replaces the name it is given and never what that points to.
        """
        text, linked = path, False
        for _ in range(MAX_LINKS):
            head, _, name = text.rpartition("/")
            place, through = self._directory(head, name, make=make)
            try:
                target = _link(place) if follow else None
                if target is None:
                    self._keep_artifacts(place, path, text, linked=linked or through)
                    return place
            except BaseException:
                place.unmake()
                place.close()
                raise
            place.close()
            text, linked = f"{head}/{target}" if head else target, True
            if text.rpartition("/")[2] in ("", ".", ".."):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _directory(self, head: str, name: str, *, make: bool) -> tuple[_Place, bool]:
        """The directory of a path, and whether a link was on the way."""
        head = head or "."
        try:
            return _Place(self.opener.open(self._descriptor, head, _DIRECTORY, links=False), name), False
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        try:
            return _Place(self.opener.open(self._descriptor, head, _DIRECTORY), name), True
        except FileNotFoundError:
            if not make:
                raise
        return self._make_directories(head, name), True

    def _make_directories(self, head: str, name: str) -> _Place:
        place = _Place(os.dup(self._descriptor), name)
        try:
            done = ""
            for step in head.split("/"):
                done = f"{done}/{step}" if done else step
                try:
                    below = self.opener.open(self._descriptor, done, _DIRECTORY)
                except FileNotFoundError:
                    below = self._make_directory(place, step, done)
                os.close(place.directory)
                place.directory = below
        except BaseException:
            place.unmake()
            place.close()
            raise
        return place

    def _make_directory(self, place: _Place, step: str, path: str) -> int:
        if path == ARTIFACTS:
            raise sentences.in_artifacts(path)
        try:
            os.mkdir(step, 0o700, dir_fd=place.directory)
        except FileExistsError:
            # A link that points nowhere, or another writer that was faster.
            return self.opener.open(self._descriptor, path, _DIRECTORY)
        place.made.append((os.dup(place.directory), step))
        # Not chmod by name: that would follow a link put in its place.
        below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
        try:
            self._dress(below, 0o777 & ~self._umask, None)
        except BaseException:
            os.close(below)
            raise
        return below

    def _keep_artifacts(self, place: _Place, path: str, text: str, *, linked: bool) -> None:
        first = text.partition("/")[0]
        if first == ARTIFACTS or (linked and self._is_in_artifacts(place.directory)):
            raise sentences.in_artifacts(path)
        # `Artifacts` is another directory, unless the file system thinks otherwise.
        if first.casefold() == ARTIFACTS and self._is_in_artifacts(place.directory):
            raise sentences.in_artifacts(path)

    def _is_in_artifacts(self, directory: int) -> bool:
        try:
            artifacts = os.stat(ARTIFACTS, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        here = os.dup(directory)
        try:
            while (found := _identity(os.fstat(here))) != self.identity:
                if found == _identity(artifacts):
                    return True
                above = os.open("..", _DIRECTORY, dir_fd=here)
                os.close(here)
                here = above
                if _identity(os.fstat(here)) == found:
                    # `/`: the directory has been moved out of the workspace meanwhile.
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        finally:
            os.close(here)
        return False

    def _check_size(self, path: str, data: bytes) -> None:
        if len(data) > self._max_content:
            raise FileFault(f"`{path}` would have {len(data):,} bytes; a file operation writes {self._max_content:,}")

    @contextlib.contextmanager
    def _sentences(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._fault(error, path) from error

    def _fault(self, error: OSError, path: str) -> FileFault:
        if self._descriptor < 0:
            return FileFault("the workspace is closed; open the space again")
        return sentences.fault_of(error, self._descriptor, path)


def _link(place: _Place) -> str | None:
    """Where the name points, if it is a link."""
    try:
        target = os.readlink(place.name, dir_fd=place.directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise
    if target.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return target


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _version(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_regular(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise sentences.not_regular(path, mode)


def _check_version(place: _Place, path: str, before: os.stat_result) -> None:
    """Once more just before the rename; what is left of the window is microseconds."""
    now = place.found()
    if now is None or _version(now) != _version(before):
        raise _changed(path)


def _changed(path: str) -> FileFault:
    return FileFault(f"`{path}` was changed by something else meanwhile; read it again and repeat the edit")


def _discard(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)


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
