"""What a command does, as far as its arguments show: delete by force, steer other programs."""

import re
from collections.abc import Callable
from itertools import pairwise

from bascule.kernel.policy.shell import git
from bascule.kernel.policy.shell.fields import Field
from bascule.kernel.policy.shell.options import Option, Uncertain, has, options

OPAQUE = "opaque"
DESTRUCTIVE = "destructive"
ENVIRONMENT = "environment"
# It talks to other machines; it gives them something of this one.
NETWORK = "network"
SENDS = "sends"
# What it deletes or overwrites is not known before it runs.
UNPLACED = "unplaced"
# Code in another language stands in the line itself.
CODE = "code"
# Where it writes, or what it reads, seen from the project (`kernel.policy.zones`); only where a project is known.
OUTSIDE = "outside"
GROUND = "ground"
SECRET = "secret"  # noqa: S105 - the name of a trait
TRAITS = (OPAQUE, DESTRUCTIVE, ENVIRONMENT, NETWORK, SENDS, UNPLACED, CODE, OUTSIDE, GROUND, SECRET)
# What a rule that allows need not name: it was written before there was a word for these.
UNSAID = frozenset([NETWORK, SENDS, UNPLACED, CODE, OUTSIDE, GROUND, SECRET])

# -- the environment ------------------------------------------------------------------------------

# What loaders, interpreters and shells obey before the program's own first line: with one of these any harmless
# command runs something else. Proxies, locales, DEBUG and the like are not among them.
_STEERING = re.compile(
    r"LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|MALLOC_.*|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN|LOCPATH|NLSPATH"
    r"|PATH|SHELL|IFS|ENV|BASH_ENV|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|FPATH|CDPATH|GLOBIGNORE|BASH_FUNC_.*"
    r"|PYTHON.*|NODE_OPTIONS|NODE_PATH|PERL5.*|PERLLIB|PERL_.*|RUBYOPT|RUBYLIB|LUA_.*|PHPRC|PHP_INI_SCAN_DIR|R_PROFILE.*"
    r"|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|CLASSPATH|DOTNET_STARTUP_HOOKS|GEM_PATH|GEM_HOME|BUNDLE_GEMFILE"
    r"|GIT_.*|SSH_ASKPASS|SUDO_ASKPASS|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESSOPEN|LESSCLOSE|MAKEFLAGS|MAKEFILES"
    r"|RUSTC_WRAPPER|CARGO_BUILD_RUSTC_WRAPPER|RUSTC|GOFLAGS|CC|CXX|LDSHARED|NPM_CONFIG_.*|PIP_.*|AWKPATH|AWKLIBPATH"
    r"|HOME|XDG_CONFIG_HOME|TERMINFO|TERMCAP|TAR_OPTIONS|GREP_OPTIONS|RSYNC_RSH|CVS_RSH|npm_config_.*"
    r"|FCEDIT|SUDO_EDITOR|SYSTEMD_EDITOR|SYSTEMD_PAGER|BAT_PAGER|DELTA_PAGER|PSQL_EDITOR|PSQL_PAGER|HGEDITOR|SVN_EDITOR"
    r"|FZF_DEFAULT_COMMAND|FZF_DEFAULT_OPTS|RIPGREP_CONFIG_PATH",
)
# Steering by their names, harmless by what they say.
_HARMLESS = re.compile(
    r"PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER|WARNINGS|NOUSERSITE|SAFEPATH|OPTIMIZE"
    r"|TRACEMALLOC|DEVMODE|ASYNCIODEBUG|LEGACYWINDOWSSTDIO|PROFILEIMPORTTIME)|PYTHON_COLORS|PYTHON_VERSION"
    r"|GIT_(?:TERMINAL_PROMPT|PAGER_IN_USE|OPTIONAL_LOCKS|ADVICE|TRACE[A-Z0-9_]*|(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)"
    r"|MERGE_AUTOEDIT|COMMIT|SHA|BRANCH|REF|TAG|LFS_SKIP_SMUDGE)"
    r"|NPM_CONFIG_(?:LOGLEVEL|AUDIT|FUND|UPDATE_NOTIFIER|PROGRESS|YES)|MALLOC_(?:ARENA_MAX|CHECK_|PERTURB_)"
    r"|PIP_(?:DISABLE_PIP_VERSION_CHECK|NO_INPUT|NO_CACHE_DIR|ROOT_USER_ACTION|QUIET|PROGRESS_BAR|NO_COLOR)",
)  # fmt: skip
_PAGERS = frozenset(["", "cat", "less", "more", "true", ":", "false"])
_COMPILERS = re.compile(r"(?:ccache )?(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[0-9.]+)?")
_NODE_OPTIONS = re.compile(
    r"--(?:max-old-space-size|max-semi-space-size|stack-trace-limit|unhandled-rejections|dns-result-order|openssl-legacy-provider"
    r"|enable-source-maps|no-warnings|no-deprecation|trace-[a-z-]+|expose-gc|experimental-vm-modules|experimental-strip-types"
    r"|no-experimental-[a-z-]+)(?:[= ][\w.:-]+)?"
)
_SEARCH_PATHS = frozenset(["PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB", "CLASSPATH"])


def steers(name: str, value: str | None) -> bool:
    """Whether a variable makes other programs run or load something; None is a value nobody knows."""
    if not _STEERING.fullmatch(name) or _HARMLESS.fullmatch(name):
        return False
    if value is None:
        return True
    match name:
        case (
            "PAGER" | "MANPAGER" | "GIT_PAGER" | "EDITOR" | "VISUAL" | "GIT_EDITOR" | "GIT_SEQUENCE_EDITOR" | "BROWSER"
        ):
            return value not in _PAGERS
        case "CC" | "CXX":
            return not _COMPILERS.fullmatch(value)
        case "NODE_OPTIONS":
            return not all(_NODE_OPTIONS.fullmatch(option) for option in value.split())
        case "MAKEFLAGS":
            return re.fullmatch(r"-?j ?[0-9]*", value) is None
        case "ENV":
            # A file to interactive shells; `ENV=test` is what every other program reads.
            return re.fullmatch(r"[A-Za-z0-9_-]*", value) is None
        case "GOFLAGS":
            return "-toolexec" in value or "-exec" in value or "=" in value.replace("-mod=", "").replace("-tags=", "")
    if name in _SEARCH_PATHS:
        # The workspace's own modules can be imported without it; only other places are news.
        return not all(_is_inside(entry) for entry in value.split(":"))
    return True


def _is_inside(path: str) -> bool:
    return bool(path) and not path.startswith(("/", "~")) and ".." not in path.split("/")


# -- destruction ----------------------------------------------------------------------------------


def destroys(name: str, args: list[Field]) -> bool:
    """A recursive or forced delete, or the overwriting of a file or device as a whole."""
    judge = _DESTROYERS.get(name)
    if judge is None:
        return name.startswith("mkfs.") or (name in _COPIERS and _copies_a_destroyer(args))
    try:
        return judge(args)
    except Uncertain:
        return False


def names_a_destroyer(name: str) -> bool:
    """Whether a program of this name may destroy, by its arguments or always."""
    return name in _DESTROYERS or name.startswith("mkfs.")


_COPIERS = frozenset(["cp", "ln", "mv", "install"])
_SYSTEM = ("/bin/", "/usr/", "/sbin/")


def _copies_a_destroyer(args: list[Field]) -> bool:
    """`cp /bin/rm ./z`: the same program under a name that says nothing."""
    return any(
        (field.text or "").startswith(_SYSTEM) and names_a_destroyer((field.text or "").rpartition("/")[2])
        for field in args
    )


def _rm(args: list[Field]) -> bool:
    if any(field.text is None and _may_be_options(field, alone=len(args) == 1) for field in args):
        return True
    given, _ = options(args, mixed=True)
    return any(
        option.name in ("r", "R", "f") or (len(option.name) > 1 and _begins(option, "recursive", "force"))
        for option in given
    )


def _may_be_options(field: Field, *, alone: bool) -> bool:
    """`rm $FLAGS x`, `rm "$@"`, `rm -$x f`; `rm $file` and `rm "$file" x` name files."""
    source = field.source
    return "$@" in source or source.startswith("-") or not (alone or source.startswith(('"', "'")))


def _begins(option: Option, *names: str) -> bool:
    return any(name.startswith(option.name) for name in names)


def _find(args: list[Field]) -> bool:
    return any(field.text == "-delete" for field in args)


def _dd(args: list[Field]) -> bool:
    return any(
        field.source.startswith("of=") and field.text not in ("of=/dev/null", "of=/dev/stdout", "of=/dev/stderr")
        for field in args
    )


def _rsync(args: list[Field]) -> bool:
    return any((field.text or "").startswith(("--del", "--remove-source-files")) for field in args)


def _tar(args: list[Field]) -> bool:
    return any((field.text or "").startswith("--remove-f") for field in args)


def _zip(args: list[Field]) -> bool:
    given, _ = options(args, "xibtPO", ("exclude", "include", "password", "output-file"), mixed=True)
    return has(given, "m", "move")


def _sevenzip(args: list[Field]) -> bool:
    return any(field.text == "-sdel" for field in args)


def _cmake(args: list[Field]) -> bool:
    return any(flag.text == "-E" and verb.text in ("rm", "remove", "remove_directory") for flag, verb in pairwise(args))


def _always(args: list[Field]) -> bool:
    return not any(field.text in ("--help", "--version") for field in args)


_DESTROYERS: dict[str, Callable[[list[Field]], bool]] = {
    "rm": _rm,
    "grm": _rm,
    "srm": _always,
    "find": _find,
    "gfind": _find,
    "git": git.destroys,
    "dd": _dd,
    "rsync": _rsync,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _tar),
    "zip": _zip,
    **dict.fromkeys(("7z", "7za", "7zr"), _sevenzip),
    "cmake": _cmake,
    **dict.fromkeys(
        (
            "unlink",
            "rimraf",
            "del-cli",
            "shred",
            "truncate",
            "mkfs",
            "mke2fs",
            "wipefs",
            "mkswap",
            "fdisk",
            "sfdisk",
            "parted",
            "blkdiscard",
        ),
        _always,
    ),
}
