"""Where a path lies, seen from a project: inside it, in a place for temporary files, outside, or on what holds it all.

For tools that work without our sandbox (`native.*`). Text alone: what a link leads to is not known here.
"""

import re
from enum import IntEnum
from posixpath import normpath

from bascule.kernel.policy.paths import matches_any, normal, path_matches, shell_path


class Zone(IntEnum):
    """The stricter, the larger."""

    INSIDE = 0
    TEMPORARY = 1
    OUTSIDE = 2
    # The system's own directories, the home itself, and whatever holds the home or the project.
    GROUND = 3


_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/dev/shm")  # noqa: S108 - compared, not made
_NO_FILES = frozenset(["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/stdin", "/dev/zero"])
_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin",
    "/snap", "/srv",
    "/sys", "/usr", "/var", "/System", "/Library", "/Applications", "/private", "/cores", "/Volumes/Macintosh HD",
)  # fmt: skip
# What lies in the others may be somebody's project: `/opt/site`, `/var/www`.
_NEVER_PROJECTS = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr/bin",
    "/usr/lib", "/usr/sbin", "/System",
)  # fmt: skip
# A name with one of these stands for every name of its directory.
_GLOB = re.compile(r"[*?\[{]")

# Files that hold keys, tokens and passwords. Public halves and examples do not.
SECRET_FILES = (
    ".ssh/**", ".gnupg/**", ".aws/**", ".azure/**", ".kube/config", ".docker/config.json", ".netrc", ".pgpass",
    ".my.cnf", ".git-credentials", ".config/gh/**", ".config/gcloud/**", ".config/op/**", ".npmrc", ".pypirc",
    ".password-store/**", ".local/share/keyrings/**", ".mozilla/**", ".config/google-chrome/**", ".vault-token",
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".terraform.d/credentials.tfrc.json",
    ".env", ".env.*", "*.pem", "*.p12", "*.pfx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.kdbx", "*.keystore",
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/*/environ", "local.token", "Library/Keychains/**",
)  # fmt: skip
_NOT_SECRET = (
    "*.pub", "known_hosts", "known_hosts.*", ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.test",
    ".ssh/config",
)  # fmt: skip


def is_secret(path: str) -> bool:
    return matches_any(SECRET_FILES, path) and not any(path_matches(glob, path, exact=True) for glob in _NOT_SECRET)


class Project:
    """A project's directory and its user's home, both absolute; an empty home is one that is not known."""

    def __init__(self, root: str, home: str) -> None:
        self.root = normal(root)
        self.home = normal(home) if home else ""
        self._is_one = not self._is_no_project()

    def _is_no_project(self) -> bool:
        """An agent goes where it likes with `cd`: that does not make the home, or `/etc`, its own."""
        root = self.root
        if root == "/" or root in _SYSTEM:
            return True
        if any(root == place or _is_beneath(root, place) for place in _NEVER_PROJECTS):
            return True
        return bool(self.home) and (root == self.home or _is_beneath(self.home, root) or is_secret(f"{root}/x"))

    def absolute(self, path: str, place: str) -> str:
        """As one absolute path; `~` stays where no home is known, and `~name` always."""
        joined = shell_path(path, place)
        if self.home and (joined == "~" or joined.startswith("~/")):
            joined = normpath(self.home + joined[1:])
        return "/" + joined.lstrip("/") if joined.startswith("/") else joined

    def zone(self, path: str) -> Zone:
        """Of an absolute path; a pattern stands for the directory that it looks in."""
        path = _without_patterns(path)
        if path in _NO_FILES:
            return Zone.TEMPORARY
        if path.startswith("~"):
            _, _, rest = path.partition("/")
            return Zone.GROUND if not rest or rest.startswith("..") else Zone.OUTSIDE
        if not path.startswith("/"):
            # The project's own directory is not known to be above it: `../x` from nowhere.
            return Zone.OUTSIDE if path.startswith("..") else Zone.INSIDE
        if self._is_one and (path == self.root or _is_beneath(path, self.root)):
            return Zone.INSIDE
        if path == self.home or _is_beneath(self.root, path) or (self.home and _is_beneath(self.home, path)):
            return Zone.GROUND
        if any(_is_beneath(path, place) for place in _TEMPORARY):
            return Zone.TEMPORARY
        if self.home and _is_beneath(path, self.home):
            return Zone.OUTSIDE
        if path == "/" or path in _TEMPORARY or any(path == place or _is_beneath(path, place) for place in _SYSTEM):
            return Zone.GROUND
        return Zone.OUTSIDE

    def shown(self, path: str) -> str:
        """Relative where it is inside, so that rules on a project's files hold."""
        if path == self.root:
            return "."
        if not _is_beneath(path, self.root):
            return path
        inside = path[len(self.root) + 1 :]
        return f"./{inside}" if inside.startswith("~") else inside


def _is_beneath(path: str, directory: str) -> bool:
    return path.startswith("/") if directory == "/" and path != "/" else path.startswith(directory + "/")


def _without_patterns(path: str) -> str:
    steps = path.split("/")
    for number, step in enumerate(steps):
        if _GLOB.search(step):
            return "/".join(steps[:number]) or ("/" if path.startswith("/") else ".")
    return path
