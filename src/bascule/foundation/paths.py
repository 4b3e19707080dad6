"""Where Bascule keeps its things, and the checks that nobody else can put theirs there.

Standard library only and cheap: the helpers import this. Everything is found from the home directory and not from
`XDG_*` or `BRIDGE_*`, because agent clients strip those from what they start; `BASCULE_STATE_DIR` and `--state-dir`
are for people and tests who say so.
"""

import os
import stat

# sun_path holds 108 bytes on Linux and 104 on macOS, the final NUL included.
MAX_SOCKET_PATH_BYTES = 103
# Tokens and keys have 43 characters.
MAX_PRIVATE_FILE_BYTES = 4_096


class UnsafePlace(Exception):
    """A directory or file that others could have prepared or can read."""


def home() -> str:
    """`$HOME` when it is absolute and ours, else the passwd entry's: `sudo -E` keeps the variable of another user."""
    named = os.environ.get("HOME", "")
    return os.path.abspath(named) if os.path.isabs(named) and _is_our_directory(named) else passwd_home()


def passwd_home() -> str:
    import pwd  # noqa: PLC0415 - only where HOME does not count

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        # A container that runs as a number nobody gave a name.
        raise UnsafePlace(
            f"user id {os.getuid()} has no passwd entry and HOME is not a directory of yours; set HOME to one"
        ) from None


def expand(path: str) -> str:
    """`~/x` as a person writes it in a setting; the same home as everywhere."""
    return home() + path[1:] if path == "~" or path.startswith("~/") else os.path.expanduser(path)


def _is_our_directory(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def state_dir(override: str | None = None) -> str:
    chosen = override or os.environ.get("BASCULE_STATE_DIR")
    return os.path.abspath(chosen) if chosen else default_state_dir()


def default_state_dir(beneath: str | None = None) -> str:
    return os.path.join(beneath or home(), ".local", "state", "bascule")


def config_dir(override: str | None = None) -> str:
    chosen = override or os.environ.get("BASCULE_CONFIG_DIR")
    return os.path.abspath(chosen) if chosen else os.path.join(home(), ".config", "bascule")


def link_socket(state: str) -> str:
    return os.path.join(state, "link.sock")


def stop_socket(state: str) -> str:
    """For `bascule stop`: a thread listens there, not the loop."""
    return os.path.join(state, "stop.sock")


def halt_file(state: str) -> str:
    """A stop that the loop could not store yet; see `daemon/stop_door.py`."""
    return os.path.join(state, "stopped.json")


def http_socket(state: str) -> str:
    return os.path.join(state, "http.sock")


def local_token_file(state: str) -> str:
    return os.path.join(state, "local.token")


def lock_file(state: str) -> str:
    return os.path.join(state, "daemon.lock")


def database_file(state: str) -> str:
    return os.path.join(state, "bascule.db")


def anchors_file(state: str) -> str:
    return os.path.join(state, "anchors.jsonl")


def workspace_dir(state: str) -> str:
    """Checkpoints, output of commands, copies of workspaces: everything of it can be large."""
    return os.path.join(state, "workspace")


def aside_dir(state: str) -> str:
    """What another Bascule kept in a format that this one does not read; see `daemon/moving_aside.py`."""
    return os.path.join(state, "aside")


def desktop_dir(state: str) -> str:
    """Evidence of what was done on the desktop, where a call names no place for it."""
    return os.path.join(state, "desktop")


def pictures_dir(state: str) -> str:
    """What questions to the person are about, as pictures; each is gone with its question."""
    return os.path.join(state, "pictures")


def log_file(state: str) -> str:
    return os.path.join(state, "log", "daemon.log")


def tokens_dir(state: str) -> str:
    return os.path.join(state, "tokens")


def seen_dir(state: str) -> str:
    """`bridge-recv` remembers here which handle received which ticket."""
    return os.path.join(state, "seen")


def wrap_dir(state: str) -> str:
    """Of `bridge-wrap`: what the hooks of a wrapped program say about its turns."""
    return os.path.join(state, "wrap")


def native_record(state: str) -> str:
    """What `bascule on` put into which file."""
    return os.path.join(state, "native-setup.json")


def turn_file(state: str, agent_id: str) -> str:
    return os.path.join(wrap_dir(state), _file_name(agent_id) + ".turn")


def token_file(state: str, agent_id: str) -> str:
    """One file per handle. Handles are case-sensitive, some file systems are not: `J` becomes `+j`."""
    return os.path.join(tokens_dir(state), _file_name(agent_id) + ".token")


def _file_name(agent_id: str) -> str:
    return "".join("+" + letter.lower() if letter.isupper() else letter for letter in agent_id)


def check_private_dir(path: str) -> None:
    """Refuse a directory that is a link, not ours, or open to others."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePlace(f"{path} is a symbolic link; remove it, or name its target with --state-dir")
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafePlace(f"{path} is not a directory; move it away")
    _check_owner(path, status)


def make_private_dir(path: str) -> None:
    """Make `path` (0700) and its parents, then check that what is there is ours alone."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        os.makedirs(parent, mode=0o700, exist_ok=True)
    if not os.path.lexists(path):
        # 0700 from the first moment, whatever the umask adds.
        os.mkdir(path, 0o700)
    check_private_dir(path)


def read_unreachable_file(path: str) -> str:
    """Like `read_private_file`, also where a directory above the file is closed to others and the file itself is not.

    GABS writes its bridge.json 0644; in a home directory of mode 0700 nobody else reaches it.
    """
    # Without links: what counts is where the file really lies.
    path = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
    return read_private_file(path, open_to_others=_is_closed_above(path))


def _is_closed_above(path: str) -> bool:
    while (parent := os.path.dirname(path)) != path:
        path = parent
        status = os.lstat(path)
        if status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            return True
    return False


def read_private_file(path: str, *, open_to_others: bool = False) -> str:
    """The text of a 0600 file of ours; refuses links and files others can read, unless `open_to_others` says they may.

    What others can write is refused in any case.
    """
    # O_NONBLOCK: a pipe somebody put there must not make us wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePlace(f"{path} is not a regular file; move it away")
        _check_owner(path, status, 0o022 if open_to_others else 0o077)
        return os.read(descriptor, MAX_PRIVATE_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise UnsafePlace(f"{path} is damaged: it holds no text; move it away") from None
    finally:
        os.close(descriptor)


def write_private_file(path: str, text: str) -> None:
    """Replace a 0600 file so that after a crash it holds the old or the new text, never half."""
    temporary = f"{path}.{os.getpid()}.new"
    write_synced(temporary, text)
    put_in_place(temporary, path)


def write_synced(path: str, text: str) -> None:
    """A new 0600 file whose text is on disk; its name is not yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        # Left by one of us that was killed half-way; nobody else may write here.
        os.unlink(path)
        descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def put_in_place(temporary: str, path: str) -> None:
    os.rename(temporary, path)
    sync_dir(os.path.dirname(path))


def sync_dir(path: str) -> None:
    """A rename is on disk only when its directory is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_owner(path: str, status: os.stat_result, forbidden: int = 0o077) -> None:
    if status.st_uid != os.getuid():
        raise UnsafePlace(f"{path} belongs to uid {status.st_uid}, not to you (uid {os.getuid()}); move it away")
    if stat.S_IMODE(status.st_mode) & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise UnsafePlace(f"{path} is open to other users (mode {mode:04o}); run: chmod go= '{path}'")


def program_file(pid: int) -> str | None:
    """The file that a process runs; None when it is gone, another user's, or not on Linux."""
    try:
        # What was updated under a running program is still that program.
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return None
