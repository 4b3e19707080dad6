"""Commands that talk to other machines, and those among them that give away something of this one.

For what asks because nothing can take it back: a push, a publication, an upload. A program that is not here may use
the network all the same.
"""

from bascule.kernel.policy.shell.fields import Field
from bascule.kernel.policy.shell.options import Uncertain, has, options
from bascule.kernel.policy.shell.targets import is_remote
from bascule.kernel.policy.shell.traits import NETWORK, SENDS

_ALWAYS = frozenset(
    ["wget", "ftp", "lftp", "telnet", "ping", "dig", "nslookup", "host", "whois", "traceroute", "aria2c",
     "http", "https",
     "xh", "apt", "apt-get", "dnf", "yum", "brew", "pacman", "apk", "nmap", "yt-dlp", "mosh"]
)  # fmt: skip
# What is typed into these goes to the other side.
_TO_OTHERS = frozenset(
    ["ssh", "sftp", "nc", "ncat", "netcat", "socat", "sendmail", "mail", "mailx", "mutt", "ssh-copy-id"]
)
# program -> verbs that fetch, and verbs that send.
_VERBS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "git": (frozenset(["fetch", "pull", "clone", "ls-remote", "submodule"]), frozenset(["push", "send-email"])),
    "hg": (frozenset(["pull", "clone", "incoming"]), frozenset(["push", "email"])),
    "jj": (frozenset(), frozenset(["git push"])),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"),
        (
            frozenset(["install", "i", "ci", "add", "update", "view", "info", "outdated", "audit"]),
            frozenset(["publish", "unpublish", "deprecate", "dist-tag", "owner", "access", "login"]),
        ),
    ),
    **dict.fromkeys(("pip", "pip3", "pipx"), (frozenset(["install", "download", "index"]), frozenset(["upload"]))),
    "uv": (frozenset(["pip", "add", "sync", "lock", "tool"]), frozenset(["publish"])),
    "poetry": (frozenset(["install", "add", "update", "lock"]), frozenset(["publish"])),
    "twine": (frozenset(["check"]), frozenset(["upload", "register"])),
    "cargo": (
        frozenset(["fetch", "install", "add", "update", "search"]),
        frozenset(["publish", "yank", "owner", "login"]),
    ),
    "gem": (frozenset(["install", "fetch", "update"]), frozenset(["push", "yank", "owner"])),
    "go": (frozenset(["get", "install", "mod"]), frozenset()),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), (frozenset(["pull", "run", "build", "compose"]), frozenset(["push", "login"]))
    ),
    "gh": (
        frozenset(["repo", "run", "search", "status", "auth"]),
        frozenset(["pr", "issue", "release", "gist", "api", "secret", "workflow"]),
    ),
    "glab": (frozenset(), frozenset(["mr", "issue", "release", "api"])),
    **dict.fromkeys(("aws", "gcloud", "az", "gsutil", "s3cmd", "rclone"), (frozenset(), frozenset(["*"]))),
    **dict.fromkeys(("kubectl", "helm", "terraform", "tofu", "ansible-playbook"), (frozenset(), frozenset(["*"]))),
    **dict.fromkeys(
        ("vercel", "netlify", "fly", "flyctl", "heroku", "wrangler", "firebase"), (frozenset(), frozenset(["*"]))
    ),
}
# Of gh: what only looks.
_LOOKS = frozenset(["list", "view", "status", "diff", "checks", "checkout"])
_CURL_SENDS = ("d", "F", "T", "data", "data-raw", "data-binary", "data-urlencode", "form", "upload-file", "json")
_WGET_SENDS = ("post-data", "post-file", "body-data", "body-file")
_QUIET_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])


def reaches(name: str, args: list[Field]) -> tuple[str, ...]:
    """NETWORK, or NETWORK and SENDS, or nothing."""
    try:
        return _reaches(name, args)
    except Uncertain:
        return (NETWORK,)


def _reaches(name: str, args: list[Field]) -> tuple[str, ...]:
    if any(field.text in ("--help", "--version", "-V") for field in args):
        return ()
    if name in _TO_OTHERS:
        return NETWORK, SENDS
    if name == "curl":
        return _curl(args)
    if name == "wget":
        given, _ = options(args, "oOPUtTiaQ", (*_WGET_SENDS, "header", "method"), mixed=True)
        return (NETWORK, SENDS) if has(given, *_WGET_SENDS) else (NETWORK,)
    if name in _ALWAYS:
        return (NETWORK,)
    if name in ("scp", "rsync"):
        _, operands = options(args, "efBTMcFiJloPSX", ("rsh", "exclude", "include", "filter"), mixed=True)
        if operands and is_remote(operands[-1]):
            return NETWORK, SENDS
        return (NETWORK,) if any(is_remote(field) for field in operands) else ()
    return _by_verb(name, args) if name in _VERBS else ()


def _curl(args: list[Field]) -> tuple[str, ...]:
    given, _ = options(args, "dFTHoXAuebcEKmrwxzU", ("request", "header", "output", *_CURL_SENDS[3:]), mixed=True)
    methods = [option.value for option in given if option.name in ("X", "request") and option.value is not None]
    # With -G the data is a part of the address; a secret in it is gone all the same.
    sends = any(option.name in _CURL_SENDS for option in given)
    return (NETWORK, SENDS) if sends or any(method.text not in _QUIET_METHODS for method in methods) else (NETWORK,)


def _by_verb(name: str, args: list[Field]) -> tuple[str, ...]:
    fetches, sends = _VERBS[name]
    _, rest = options(args, "Cc", ("git-dir", "work-tree", "prefix", "context", "repo"))
    words = [field.text or "" for field in rest]
    if not words:
        return ()
    if name in ("gh", "glab") and len(words) > 1 and words[1] in _LOOKS:
        return (NETWORK,)
    if "*" in sends or words[0] in sends or " ".join(words[:2]) in sends:
        return NETWORK, SENDS
    return (NETWORK,) if words[0] in fetches else ()
