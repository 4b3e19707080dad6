"""Programs that run the program named in their arguments: a table, and the few that need more than a line of it."""

import re
from collections.abc import Callable

import msgspec

from bascule.kernel.policy.shell.fields import Field, known
from bascule.kernel.policy.shell.options import Found, Uncertain, from_input, has, options, value_of
from bascule.kernel.policy.shell.targets import find_roots

Handler = Callable[[list[Field], Found], None]

# Starting points of one find that are followed one by one; nobody names more by hand.
MAX_ROOTS = 16

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.DOTALL)
_LOADER = re.compile(r"ld(?:-[A-Za-z0-9._-]+)?\.so(?:\.[0-9]+)*")


class Wrapper(msgspec.Struct, frozen=True):
    """Options that take a value, and how many operands stand before the program."""

    short: str = ""
    long: tuple[str, ...] = ()
    operands: int = 0
    assignments: bool = False


_PLAIN = Wrapper()
_SUDO = Wrapper(
    "ugpChRrtTUD", ("user", "group", "prompt", "host", "chroot", "role", "type", "chdir"), 0, assignments=True
)

WRAPPERS: dict[str, Wrapper] = {
    "nice": Wrapper("n", ("adjustment",)),
    "timeout": Wrapper("sk", ("signal", "kill-after"), 1),
    "time": Wrapper("fo", ("format", "output"), 0, assignments=True),
    "coproc": Wrapper("", (), 0, assignments=True),
    "exec": Wrapper("a"),
    "stdbuf": Wrapper("ioe", ("input", "output", "error")),
    "ionice": Wrapper("cnpPu", ("class", "classdata", "pid", "pgid", "uid")),
    "chrt": Wrapper("TPDp", ("sched-runtime", "sched-period", "sched-deadline"), 1),
    "taskset": Wrapper("", (), 1),
    "chroot": Wrapper("", ("userspec", "groups"), 1),
    "unshare": Wrapper("RwSG", ("root", "wd", "setuid", "setgid", "map-user", "map-users", "map-group", "map-groups",
                                 "propagation", "setgroups", "monotonic", "boottime", "load-interp")),
    "nsenter": Wrapper("tSG", ("target", "setuid", "setgid")),
    "setpriv": Wrapper("", ("reuid", "regid", "ruid", "euid", "rgid", "egid", "groups", "inh-caps", "ambient-caps",
                            "bounding-set", "securebits", "pdeathsig", "selinux-label", "apparmor-profile")),
    "prlimit": Wrapper("p", ("pid",)),
    "choom": Wrapper("np", ("adjust", "pid")),
    "faketime": Wrapper("", (), 1),
    "xvfb-run": Wrapper("efnspw", ("error-file", "auth-file", "server-num", "server-args", "xauth-protocol",
                                    "wait")),
    "strace": Wrapper("abeEIoOpPsSuUX"),
    "ltrace": Wrapper("aADeEFlnopsuwxX"),
    "fakeroot": Wrapper("lsib"),
    "rlwrap": Wrapper("bCDfgHlOPqsStwz"),
    "cpulimit": Wrapper("lpe", ("limit", "pid", "exe")),
    "setuidgid": Wrapper("", (), 1),
    "envdir": Wrapper("", (), 1),
    "gosu": Wrapper("", (), 1),
    "su-exec": Wrapper("", (), 1),
    "pkexec": Wrapper("", ("user",)),
    "doas": Wrapper("uCa"),
    "sudo": _SUDO,
    "sudo-rs": _SUDO,
    "run0": Wrapper("ugDE", ("user", "group", "chdir", "setenv", "unit", "property", "nice")),
    "systemd-run": Wrapper("pEuHM", ("property", "setenv", "unit", "uid", "gid", "nice", "slice", "working-directory")),
    "systemd-inhibit": Wrapper("", ("what", "who", "why", "mode")),
    **dict.fromkeys(
        ("builtin", "nohup", "setsid", "noglob", "nocorrect", "eatmydata", "catchsegv", "dbus-run-session",
         "torsocks", "proxychains", "proxychains4", "unbuffer", "valgrind", "dumb-init", "tini", "linux32", "linux64",
         "i386", "i686", "x86_64", "uname26", "entr", "chronic", "vfork", "doas-rs", "-"),
        _PLAIN,
    ),
}  # fmt: skip

# `uv run x`, `bundle exec x`: the program stands after this word, and after options that may take a value.
_RUNNERS: dict[str, tuple[tuple[str, ...], str]] = {
    "uv": (("run",), "pwmPCfi"), "poetry": (("run",), ""), "pipenv": (("run",), ""), "pdm": (("run",), "p"),
    "rye": (("run",), ""), "hatch": (("run",), "e"), "pipx": (("run",), ""), "bundle": (("exec",), ""),
    "mise": (("exec", "x"), "cjC"), "rbenv": (("exec",), ""), "pyenv": (("exec",), ""), "asdf": (("exec",), ""),
    "npm": (("exec", "x"), "cpw"), "pnpm": (("exec", "dlx"), "cC"), "yarn": (("exec", "dlx"), "p"),
    "direnv": (("exec",), ""), "tox": (("exec",), "e"), "op": (("run",), ""), "aws-vault": (("exec",), "dn"),
    "conda": (("run",), "np"), "mamba": (("run",), "np"), "micromamba": (("run",), "np"), "dotenv": (("run",), "fe"),
    "perf": (("stat", "record", "trace"), "eoCpturFcmGDkI"),
}  # fmt: skip
_RUNNER_VALUES = ("package", "with", "python", "group", "extra", "from", "call", "env-file", "directory", "project",
                  "prefix", "name", "cwd", "module", "file", "command")  # fmt: skip
_PACKAGE_RUNNERS = frozenset(["npx", "bunx", "pnpx", "uvx"])
_MULTICALL = frozenset(["busybox", "toybox", "busybox-static", "coreutils", "sbase-box"])


def is_multicall(name: str) -> bool:
    """One file that is many programs, chosen by its first argument or by the name it was called by."""
    return name in _MULTICALL


def is_loader(name: str) -> bool:
    """The dynamic loader runs the program it is given, whatever rules say about that program's own file."""
    return _LOADER.fullmatch(name) is not None


def handler_of(name: str) -> Handler | None:
    if (wrapper := WRAPPERS.get(name)) is not None:
        return lambda args, found: _wrapped(name, wrapper, args, found)
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name in _RUNNERS:
        return lambda args, found: _runner(name, args, found)
    if name in _PACKAGE_RUNNERS:
        return lambda args, found: _package_runner(name, args, found)
    if is_multicall(name):
        return lambda args, found: found.command(_program(args), name)
    if is_loader(name):
        return lambda args, found: _loader(name, args, found)
    return None


def _program(fields: list[Field]) -> list[Field]:
    """From the first field that is no option on."""
    for at, field in enumerate(fields):
        if field.text is None or not field.text.startswith("-"):
            return fields[at:]
    return []


def _wrapped(name: str, wrapper: Wrapper, args: list[Field], found: Found) -> None:
    given, operands = options(args, wrapper.short, wrapper.long)
    if name == "exec" and operands and operands[0].certain and not operands[0].text:
        raise Uncertain("exec of nothing")
    if any(field.splits for field in operands[: wrapper.operands]):
        raise Uncertain(operands[0].source)
    rest = operands[wrapper.operands :]
    if wrapper.operands and rest and (rest[0].text or "").startswith("-"):
        # No program's name begins so: options may stand behind the operand too.
        _, rest = options(rest, wrapper.short, wrapper.long)
    if name in ("time", "coproc"):
        # Keywords of bash: what follows is a command of the shell's, with all that may stand before one.
        rest = rest[next((at for at, field in enumerate(rest) if field.text != "!"), len(rest)) :]
    if wrapper.assignments:
        rest = _assignments(rest, found)
    if name == "entr" and has(given, "s"):
        found.joined(rest[:1], "entr -s")
    else:
        found.command(rest, name)


def _assignments(fields: list[Field], found: Found) -> list[Field]:
    """Past the `NAME=value` that stand before a program, which they are the environment of."""
    for at, field in enumerate(fields):
        assigned = _ASSIGNED.match(field.text if field.text is not None else field.source)
        if assigned is None:
            return fields[at:]
        value = known(field.text[assigned.end() :]) if field.text is not None else None
        found.assignments.append((assigned.group(1), value))
    return []


def _loader(name: str, args: list[Field], found: Found) -> None:
    given, operands = options(
        args, "", ("library-path", "inhibit-rpath", "audit", "preload", "argv0", "glibc-hwcaps-prepend")
    )
    if has(given, "preload", "audit", "library-path"):
        found.assignments.append(("LD_PRELOAD", None))
    found.command(operands, name)


# Splits within a split: nobody writes one.
_MAX_SPLIT = 4


def _env(args: list[Field], found: Found) -> None:
    for _ in range(_MAX_SPLIT):
        given, operands = options(args, "uCSaP", ("unset", "chdir", "split-string", "argv0"))
        value = next(iter(value_of(given, "S", "split-string")), None)
        if value is None:
            while operands and operands[0].text == "-":
                operands = operands[1:]
            found.command(_assignments(operands, found), "env")
            return
        if value.text is None:
            break
        # Not a shell's text, but quoted like one. Its words, options among them, stand in its place.
        if any(character in value.text for character in "'\"\\$"):
            found.text(value, "env -S")
        at = next(at for at, each in enumerate(args) if each is value or _ends_with(each, value.text))
        args = [*map(known, value.text.split()), *args[at + 1 :]]
    found.opaque.append("env -S splits what cannot be read")


def _ends_with(field: Field, value: str) -> bool:
    return field.text is not None and field.text.startswith("-") and field.text.endswith(value)


def _command(args: list[Field], found: Found) -> None:
    given, operands = options(args)
    if not has(given, "v", "V"):
        found.command(operands, "command")


def _xargs(args: list[Field], found: Found) -> None:
    given, operands = options(
        args,
        "adEIJLnPRsS",
        ("arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars", "process-slot-var"),
    )
    if not operands:
        return
    replaced = [value.text for value in value_of(given, "I", "replace") if value.text]
    if has(given, "i", "replace") and not replaced:
        replaced = ["{}"]
    filled = [_filled(field, replaced[0]) for field in operands] if replaced else [*operands, from_input()]
    found.command(filled, "xargs")


def _filled(field: Field, mark: str) -> Field:
    """An argument with a place for what comes later."""
    if field.text is not None and mark in field.text:
        return Field(
            None, field.source, base=field.text.rpartition("/")[2] if field.text.startswith(mark + "/") else None
        )
    return field


def _find(args: list[Field], found: Found) -> None:
    roots = find_roots(args)[:MAX_ROOTS]
    at = 0
    while at < len(args):
        flag = args[at].text
        at += 1
        if flag not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        inner: list[Field] = []
        while at < len(args) and args[at].text != ";" and not (args[at].text == "+" and inner):
            inner.append(args[at])
            at += 1
        for root in roots if any(field.text == "{}" for field in inner) else roots[:1]:
            program, arguments = inner[:1], inner[1:]
            filled = [_filled(field, "{}") for field in program] + [_found_beneath(root, field) for field in arguments]
            found.command(filled, f"find {flag}")


def _found_beneath(root: Field, field: Field) -> Field:
    """`{}` is something beneath the place where find began, or that place itself."""
    if field.text != "{}" or root.path is None:
        return _filled(field, "{}")
    return Field(f"{root.path.rstrip('/')}/*" if root.path != "/" else "/", field.source, pattern=True)


def _fd(args: list[Field], found: Found) -> None:
    for at, field in enumerate(args):
        if field.text in ("-x", "--exec", "-X", "--exec-batch"):
            inner = [_filled(each, "{}") for each in args[at + 1 :] if each.text != ";"]
            found.command([*inner, from_input()], f"fd {field.text}")
            return


def _parallel(args: list[Field], found: Found) -> None:
    _, operands = options(
        args,
        "jJNnLlIaSsdP",
        (
            "jobs",
            "max-args",
            "arg-file",
            "sshlogin",
            "delay",
            "colsep",
            "retries",
            "joblog",
            "results",
            "timeout",
            "halt",
            "tmpdir",
            "tagstring",
            "load",
            "memfree",
            "nice",
            "workdir",
        ),
    )
    command: list[Field] = []
    for field in operands:
        if field.text is not None and field.text.startswith(":::"):
            break
        command.append(field)
    if not command:
        found.opaque.append("parallel runs the lines of its input")
        return
    found.command([_filled(field, "{}") for field in command] + [from_input()], "parallel")
    if any(field.text is not None and re.search(r"[\s;&|<>()$`]", field.text) for field in command):
        found.joined(command, "parallel")


def _watch(args: list[Field], found: Found) -> None:
    given, operands = options(args, "nqs", ("interval", "equexit", "shotsdir"))
    if has(given, "x", "exec"):
        found.command(operands, "watch")
    else:
        found.joined(operands, "watch")


def _script(args: list[Field], found: Found) -> None:
    given, operands = options(
        args, "cEIOBTmo", ("command", "echo", "log-in", "log-out", "log-io", "log-timing"), mixed=True
    )
    for value in value_of(given, "c", "command"):
        found.text(value, "script -c")
    if not value_of(given, "c", "command") and len(operands) > 1:
        # The BSD form: script file command.
        found.command(operands[1:], "script")


def _flock(args: list[Field], found: Found) -> None:
    given, operands = options(args, "wEc", ("timeout", "wait", "conflict-exit-code", "command"))
    rest = operands[1:]
    if rest and rest[0].text in ("-c", "--command"):
        found.joined(rest[1:2], "flock -c")
    else:
        found.command(rest, "flock")
    for value in value_of(given, "c", "command"):
        found.text(value, "flock -c")


def _setarch(args: list[Field], found: Found) -> None:
    """With the architecture or, in newer versions, without."""
    _, operands = options(args)
    found.command(operands, "setarch")
    _, behind = options(operands[1:])
    found.command(behind, "setarch")


def _su(args: list[Field], found: Found) -> None:
    given, operands = options(args, "cCsgGuw", ("command", "session-command", "shell", "group", "user"), mixed=True)
    for value in value_of(given, "c", "C", "command", "session-command"):
        found.text(value, "su -c")
    if value_of(given, "u", "user"):
        found.command(operands, "runuser")


def _ssh(args: list[Field], found: Found) -> None:
    given, operands = options(args, "BbcDEeFIiJLlmOoPpQRSWw")
    for value in value_of(given, "o"):
        name, _, text = (value.text or "").partition("=")
        if name.strip().lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            found.text(known(text), "ssh -o")
    found.joined(operands[1:], "ssh")


def _runner(name: str, args: list[Field], found: Found) -> None:
    verbs, short = _RUNNERS[name]
    _, operands = options(args, "", _RUNNER_VALUES)
    if not operands or operands[0].text not in verbs:
        return
    via = f"{name} {operands[0].text}"
    given, rest = options(operands[2:] if name == "direnv" else operands[1:], short, _RUNNER_VALUES)
    for value in value_of(given, "call", "command", *("c" if "c" in short else "")):
        found.text(value, via)
    found.command(rest, via)
    texts = [field.text for field in rest]
    if "--" in texts:
        # `mise exec node@20 -- x`: what stands before are not programs.
        found.command(rest[texts.index("--") + 1 :], via)


def _package_runner(name: str, args: list[Field], found: Found) -> None:
    given, operands = options(args, "pc", ("package", "call", "from", "with", "python"))
    for value in value_of(given, "c", "call"):
        found.text(value, f"{name} -c")
    found.command(operands, name)


def _hyperfine(args: list[Field], found: Found) -> None:
    given, operands = options(
        args,
        "wmMrpcnSuL",
        ("warmup", "min-runs", "max-runs", "runs", "prepare", "cleanup", "setup", "shell"),
        mixed=True,
    )
    for value in [*operands, *value_of(given, "p", "c", "s", "prepare", "cleanup", "setup")]:
        found.text(value, "hyperfine")


def _hash(args: list[Field], found: Found) -> None:
    if any(field.text is not None and field.text.startswith("-p") for field in args):
        found.opaque.append("hash -p gives a program another file")


def _enable(args: list[Field], found: Found) -> None:
    if any(field.text is not None and field.text.startswith("-f") for field in args):
        found.opaque.append("enable -f loads code into the shell")


def _capsh(args: list[Field], found: Found) -> None:
    for at, field in enumerate(args):
        if field.text in ("--", "=="):
            found.command([known("bash"), *args[at + 1 :]], "capsh")
            return


_SPECIAL: dict[str, Handler] = {
    "env": _env,
    "command": _command,
    "xargs": _xargs,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "parallel": _parallel,
    "sem": _parallel,
    "watch": _watch,
    "script": _script,
    "flock": _flock,
    "setarch": _setarch,
    "su": _su,
    "runuser": _su,
    "ssh": _ssh,
    "hyperfine": _hyperfine,
    "hash": _hash,
    "enable": _enable,
    "capsh": _capsh,
}
