"""Programs that run text: shells, builtins that evaluate, and tools with a command inside one of their arguments.

A shell's text is read like the line itself. Code in other languages is not: `python -c 'print(1)'` is harmless and
`python -c 'os.system(...)'` is not, and only running tells them apart. What such code executes meets the supervisor.
"""

import re
from itertools import pairwise

import msgspec

from bascule.kernel.policy.shell.fields import Field, known
from bascule.kernel.policy.shell.options import Found, Uncertain, from_input, has, options, value_of
from bascule.kernel.policy.shell.wrappers import Handler

_SHELLS = frozenset(
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "oksh", "loksh", "rbash", "posh", "yash"]
)
# Their own languages: the text is looked at, and asked about all the same.
_OTHER_SHELLS = frozenset(["fish", "csh", "tcsh", "pwsh", "nu", "xonsh", "elvish", "rc", "es"])
_VERSIONED = re.compile(r"(python|pypy|perl|ruby|php|lua|luajit|tclsh|node|guile|julia)[0-9.]*t?")


class Interpreter(msgspec.Struct, frozen=True):
    """Which options take a value, which of them are code (so that no file is run), and which name a file to load."""

    short: str = ""
    code: str = ""
    long: tuple[str, ...] = ()
    long_code: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    # A word that stands before the script: `bun run x.ts`.
    verbs: tuple[str, ...] = ()


_NODE = Interpreter(
    "eprC", "ep", ("eval", "print", "require", "import", "loader", "conditions", "env-file"), ("eval", "print"),
    ("r", "require", "import", "loader"),
)  # fmt: skip
INTERPRETERS: dict[str, Interpreter] = {
    "python": Interpreter("cmWXQ", "cm", ("check-hash-based-pycs",)),
    "pypy": Interpreter("cmWX", "cm"),
    "perl": Interpreter("eEIMmCx", "eE"),
    "ruby": Interpreter("eIrECFKTW", "e"),
    "php": Interpreter("rfdczBREFS", "rBRE", (), (), ("f",)),
    "lua": Interpreter("el", "e"),
    "luajit": Interpreter("elj", "e"),
    "tclsh": Interpreter(),
    "wish": Interpreter(),
    "guile": Interpreter("celLxs", "c", (), (), ("s", "l")),
    "julia": Interpreter("eELpJ", "eE"),
    "Rscript": Interpreter("e", "e"),
    "osascript": Interpreter("els", "e"),
    "node": _NODE,
    "nodejs": _NODE,
    "tsx": _NODE,
    "ts-node": _NODE,
    "bun": Interpreter(
        "eprc", "ep", ("eval", "print", "preload", "cwd"), ("eval", "print"), ("r", "preload"), ("run",)
    ),
    "deno": Interpreter("c", "", ("config", "import-map"), (), (), ("run", "test", "bench", "task")),
}

# Modules of one command line whose files are looked for: `python -c "import a, b, ..."`.
MAX_MODULES = 8
_IMPORTS = re.compile(r"\b(?:import|from)\s+([\w.]+(?:\s*,\s*[\w.]+)*)")
_NAMES = re.compile(r"[\w.]+")
# Longer programs for awk and sed are files.
MAX_PROGRAM_CHARS = 8 * 1024

# Parts of an awk or sed program that start other programs.
_AWK_RUNS = re.compile(r"\bsystem\s*\(|\|\s*&?\s*getline|@load|@include")
# What has no end goes to the end of its line: the search must not begin anew at each quote of it.
_AWK_STRING = re.compile(r"\"((?:[^\"\\\n]|\\.)*+)(?:\"|(?=\n)|\Z)")
_AWK_REGEX = re.compile(r"/(?:[^/\\\n]|\\.)++(?:/|(?=\n)|\Z)")
_AWK_PIPE = re.compile(r"(?<!\|)\|(?!\|)")
_SED_IN_PLACE = re.compile(r"-[nErsuz]*i.*", re.DOTALL)
_SED_SUBSTITUTE = re.compile(
    r"s([^\w\s\\])((?:\\.|(?!\1)[^\\\n])*)\1((?:\\.|(?!\1)[^\\\n])*)\1([0-9a-zA-Z]*)", re.DOTALL
)
_SED_EXECUTES = re.compile(r"(?:^|[;{}\n]|[0-9$/!,])\s*e(?:\s+(.*)|$)", re.MULTILINE)
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_MAKE_PROGRAMS = frozenset(["SHELL", "CC", "CXX", "LD", "AR", "MAKE"])
_MAKE_ASSIGNED = re.compile(r"([A-Za-z_.][A-Za-z0-9_.]*)\s*[:?+!]*=(.*)", re.DOTALL)


def handler_of(name: str) -> Handler | None:
    if name in _SHELLS:
        return lambda args, found: _shell(name, args, found)
    if name in _OTHER_SHELLS:
        return lambda args, found: _other_shell(name, args, found)
    if name in _SPECIAL:
        return _SPECIAL[name]
    interpreter = INTERPRETERS.get(name)
    if interpreter is None and (versioned := _VERSIONED.fullmatch(name)):
        interpreter = INTERPRETERS.get(versioned.group(1))
    if interpreter is None:
        return None
    known_interpreter = interpreter
    return lambda args, found: _interpreter(name, known_interpreter, args, found)


# -- shells ---------------------------------------------------------------------------------------


def _shell(name: str, args: list[Field], found: Found) -> None:
    letters, rest = _shell_options(args, found)
    if "c" in letters:
        if rest:
            found.text(rest[0], f"{name} -c")
    elif "s" in letters or not rest:
        found.reads, found.reads_shell = name, True
    else:
        found.reads_shell = True
        found.script(rest[0], name)


def _shell_options(args: list[Field], found: Found) -> tuple[set[str], list[Field]]:
    """The letters that are switched on, and what stands after all options: `sh -c -e text` has its text at the end."""
    letters: set[str] = set()
    at = 0
    while at < len(args):
        field = args[at]
        text = field.text
        if text is None or field.pattern:
            if "c" not in letters and field.base is None and (text is None or text.startswith("-")):
                raise Uncertain(field.source)
            break
        if text in ("--", "-"):
            at += 1
            break
        if text in ("--rcfile", "--init-file"):
            found.scripts.extend(file.text for file in args[at + 1 : at + 2] if file.text)
            at += 1
        elif not text.startswith("--"):
            if text[:1] not in ("-", "+") or len(text) < 2:
                break
            if text.startswith("-"):
                letters.update(text[1:])
            # Each takes a name from the arguments that follow: `sh -oc pipefail text`.
            at += text.count("o") + text.count("O")
        at += 1
    return letters, args[at:]


def _other_shell(name: str, args: list[Field], found: Found) -> None:
    if any(
        field.text is None or re.fullmatch(r"-\w*c|--command|-Command|-EncodedCommand", field.text) for field in args
    ):
        found.opaque.append(f"{name} has a language of its own")
        for value in args:
            if value.text is not None and not value.text.startswith("-"):
                found.text(value, f"{name} -c")
    elif args and args[-1].certain:
        found.script(args[-1], name)
    else:
        found.reads = name


def _eval(args: list[Field], found: Found) -> None:
    operands = args[1:] if args and args[0].text == "--" else args
    found.taints = True
    found.joined(operands, "eval")


def _trap(args: list[Field], found: Found) -> None:
    _, operands = options(args)
    if operands and operands[0].text not in ("-", ""):
        found.text(operands[0], "trap")


def _source(args: list[Field], found: Found) -> None:
    found.taints = True
    operands = args[1:] if args and args[0].text == "--" else args
    if operands:
        found.script(operands[0], ".")
        found.reads_shell = True


def _alias(args: list[Field], found: Found) -> None:
    for field in args:
        if field.text is None:
            found.opaque.append(f"alias {field.source}, which is not known before it runs")
            continue
        name, equals, value = field.text.partition("=")
        if equals:
            found.aliases.append((name, value))
            found.text(known(value), "alias")


def _mapfile(args: list[Field], found: Found) -> None:
    given, _ = options(args, "cCdnOsu", mixed=True)
    for value in value_of(given, "C"):
        found.text(value, "mapfile -C")


# -- other languages ------------------------------------------------------------------------------


def _interpreter(name: str, interpreter: Interpreter, args: list[Field], found: Found) -> None:
    if not args:
        found.reads = name
        return
    try:
        given, operands = options(args, interpreter.short, interpreter.long)
    except Uncertain:
        # Which file it runs is not known, and neither would be what is in it.
        return
    for value in value_of(given, *interpreter.loads):
        if value.text and value.text.startswith("."):
            found.scripts.append(value.text)
    if has(given, *interpreter.code, *interpreter.long_code):
        # python -m names a module.
        modules = value_of(given, "m") if "m" in interpreter.code else []
        code = value_of(given, *(letter for letter in interpreter.code if letter != "m"), *interpreter.long_code)
        found.code.extend(value.text if value.text is not None else value.source for value in code)
        names = [module.text for module in modules if module.text is not None]
        names.extend(
            each for value in code for line in _IMPORTS.findall(value.text or "") for each in _NAMES.findall(line)
        )
        for module_name in names[:MAX_MODULES]:
            found.loads.extend(_module_files(module_name))
        found.more.append(f"{name} loads what its {'module' if modules else 'code'} imports")
        return
    if operands and operands[0].text in interpreter.verbs:
        _, operands = options(operands[1:], interpreter.short, interpreter.long)
    if operands and operands[0].text is not None:
        found.script(operands[0], name)
    elif not operands and not interpreter.verbs and not has(given, "V", "v", "h", "version", "help"):
        found.reads = name


def _awk(args: list[Field], found: Found) -> None:
    given, operands = options(
        args, "FvfilEe", ("field-separator", "assign", "file", "include", "load", "exec", "source")
    )
    files = value_of(given, "f", "E", "file", "exec")
    for file in files:
        found.script(file, "awk")
    if has(given, "l", "load"):
        found.opaque.append("awk loads an extension")
    programs = value_of(given, "e", "source")
    if not files and not programs:
        programs = operands[:1]
    for program in programs:
        if program.text is None:
            continue
        if len(program.text) > MAX_PROGRAM_CHARS:
            found.opaque.append(f"an awk program of more than {MAX_PROGRAM_CHARS} characters")
        elif _awk_runs(program.text):
            found.opaque.append("awk runs other programs")
            for string in _AWK_STRING.findall(program.text):
                found.text(known(string), "awk")


def _awk_runs(program: str) -> bool:
    """By `system`, or by a pipe: a bar that stands neither in a string nor in a regular expression."""
    if _AWK_RUNS.search(program):
        return True
    if any('"' in expression for expression in _AWK_REGEX.findall(_AWK_STRING.sub('""', program))):
        # Where strings end is then anybody's guess.
        return "|" in program
    return _AWK_PIPE.search(_AWK_REGEX.sub("//", _AWK_STRING.sub('""', program))) is not None


def _sed(args: list[Field], found: Found) -> None:
    # A suffix for backups is no option: -i.f
    args = [field for field in args if not _SED_IN_PLACE.fullmatch(field.text or "")]
    given, operands = options(args, "efl", ("expression", "file", "line-length"), mixed=True)
    for file in value_of(given, "f", "file"):
        found.script(file, "sed")
    scripts = value_of(given, "e", "expression")
    if not scripts and not value_of(given, "f", "file"):
        scripts = operands[:1]
    for script in scripts:
        if script.text is None:
            continue
        if len(script.text) > MAX_PROGRAM_CHARS:
            found.opaque.append(f"a sed program of more than {MAX_PROGRAM_CHARS} characters")
            continue
        substitutions, rest = _substitutions(script.text)
        for replacement, flags in substitutions:
            if "e" in flags:
                found.opaque.append("sed runs what it substitutes")
                found.text(known(replacement), "sed e")
        for executed in _SED_EXECUTES.finditer(rest):
            found.opaque.append("sed runs a command")
            found.text(known(executed.group(1) or ""), "sed e")


def _substitutions(script: str) -> tuple[list[tuple[str, str]], str]:
    """Replacements with their flags, and the script without them."""
    found: list[tuple[str, str]] = []
    rest: list[str] = []
    at = 0
    while (start := script.find("s", at)) >= 0:
        rest.append(script[at:start])
        # Most are no substitution: without two more of its delimiter in the line it has no end to look for.
        delimiter = script[start + 1 : start + 2]
        end = script.find("\n", start)
        match = None
        if script.count(delimiter, start + 2, None if delimiter == "\n" or end < 0 else end) >= 2:
            match = _SED_SUBSTITUTE.match(script, start)
        rest.append("s")
        at = start + 1
        if match is not None:
            found.append((match.group(3), match.group(4)))
            at = match.end()
    return found, "".join(rest) + script[at:]


def _module_files(name: str) -> list[str]:
    place = name.strip(".").replace(".", "/")
    return [f"{place}.py", f"{place}/__init__.py", f"{place}/__main__.py"] if place else []


# -- tools with commands in their arguments -------------------------------------------------------


def _make(args: list[Field], found: Found) -> None:
    given, operands = options(
        args, "CfIWoE", ("directory", "file", "makefile", "include-dir", "what-if", "old-file", "eval"), mixed=True
    )
    if has(given, "E", "eval"):
        found.opaque.append("make --eval runs rules that are not in a file")
    files = value_of(given, "f", "file", "makefile")
    for file in files:
        found.script(file, "make")
    place = next((value.text for value in value_of(given, "C", "directory") if value.text), "")
    if not files:
        found.loads.extend(f"{place}/{file}" if place else file for file in _MAKEFILES)
    found.more.append("make runs what its files say, and the programs and files these name")
    for operand in operands:
        assigned = _MAKE_ASSIGNED.fullmatch(operand.text or "")
        if assigned is not None and assigned.group(1) in _MAKE_PROGRAMS:
            found.text(known(assigned.group(2)), f"make {assigned.group(1)}=")


_TAR_PROGRAMS = ("use-compress-program", "to-command", "info-script", "new-volume-script", "rsh-command", "rmt-command")


def _tar(args: list[Field], found: Found) -> None:
    given, _ = options(args, "IFfCTXbgHKLNV", (*_TAR_PROGRAMS, "checkpoint-action", "file", "directory"), mixed=True)
    for value in value_of(given, "I", "F", *_TAR_PROGRAMS):
        found.text(value, "tar")
    if args and args[0].text is not None and not args[0].text.startswith("-") and set("IF") & set(args[0].text):
        # `tar cIf program archive`: values in the order of the letters.
        for value in args[1 : 1 + len(args[0].text)]:
            found.text(value, "tar")
    for value in value_of(given, "checkpoint-action"):
        if value.text is None or value.text.startswith("exec="):
            found.text(known((value.text or "").removeprefix("exec=")), "tar --checkpoint-action")


def _rsync(args: list[Field], found: Found) -> None:
    given, _ = options(args, "eBTf", ("rsh", "rsync-path"), mixed=True)
    for value in value_of(given, "e", "rsh", "rsync-path"):
        found.text(value, "rsync -e")


def _vim(args: list[Field], found: Found) -> None:
    given, operands = options(args, "cSuUTirsw", ("cmd",), mixed=True)
    for value in [*value_of(given, "c", "cmd"), *operands]:
        command = (value.text or "").removeprefix("+").removeprefix(":").strip()
        if command.startswith("!"):
            found.text(known(command[1:]), "vim")
    for value in value_of(given, "S", "s"):
        found.script(value, "vim")


def _gdb(args: list[Field], found: Found) -> None:
    for at, field in enumerate(args):
        if field.text == "--args":
            found.command(args[at + 1 :], "gdb")
            return
        command = (field.text or "").strip()
        if command.startswith(("!", "shell ")):
            found.text(known(command.removeprefix("!").removeprefix("shell ")), "gdb")


def _emacs(args: list[Field], found: Found) -> None:
    given, _ = options(args, "lf", ("load", "eval", "execute", "script", "funcall", "directory", "chdir"), mixed=True)
    for value in value_of(given, "l", "load", "script"):
        found.script(value, "emacs")
    code = [
        *value_of(given, "eval", "execute"),
        # With one dash the letters look like options of their own.
        *(value for flag, value in pairwise(args) if flag.text in ("-eval", "-execute")),
    ]
    found.code.extend(value.text if value.text is not None else value.source for value in code)


def _sqlite(args: list[Field], found: Found) -> None:
    for field in args:
        words = (field.text or "").split(maxsplit=1)
        if len(words) == 2 and words[0] in (".shell", ".system"):
            found.text(known(words[1]), "sqlite3 .shell")


def _ripgrep(args: list[Field], found: Found) -> None:
    given, _ = options(args, "efgtTABCmjM", ("pre", "pre-glob", "hostname-bin", "regexp", "file", "glob"), mixed=True)
    for value in value_of(given, "pre", "hostname-bin"):
        found.opaque.append(f"rg runs {value} for what it searches")
        found.command([value, from_input()], "rg --pre")


def _netcat(args: list[Field], found: Found) -> None:
    given, _ = options(args, "ecpswiqgGIMmOTVXx", ("exec", "sh-exec", "lua-exec"), mixed=True)
    for value in value_of(given, "e", "c", "exec", "sh-exec", "lua-exec"):
        found.opaque.append(f"it gives {value} to another machine")
        found.text(value, "nc -e")


def _socat(args: list[Field], found: Found) -> None:
    for field in args:
        kind, _, text = (field.text or "").partition(":")
        if kind.lower() in ("exec", "system", "shell"):
            found.opaque.append("socat runs a program")
            found.text(known(text), "socat")


def _fetching(args: list[Field], found: Found) -> None:
    """What wget asks for a password by, and what scp and sftp connect by."""
    given, _ = options(args, "eSDoOPUtTiaQcFilJRbBs", ("use-askpass", "execute"), mixed=True)
    for value in value_of(given, "use-askpass"):
        found.opaque.append(f"wget runs {value}")
    if any("askpass" in (value.text or "askpass") for value in value_of(given, "e", "execute")):
        found.opaque.append("wget runs a program for a password")


def _copying(args: list[Field], found: Found) -> None:
    given, _ = options(args, "SDoiFlcJPXbBRs", mixed=True)
    for value in value_of(given, "S", "D"):
        found.opaque.append(f"it connects by {value}")
        found.text(value, "scp -S")


def _coded(args: list[Field], found: Found) -> None:
    """at, batch, crontab: they run what they read, later, elsewhere."""
    del args
    found.reads, found.reads_shell = "at", True


def _nix(args: list[Field], found: Found) -> None:
    for at, field in enumerate(args):
        if field.text in ("--run", "--command") and at + 1 < len(args):
            found.joined(args[at + 1 : at + 2], "nix-shell --run")
        elif field.text == "-c":
            found.command(args[at + 1 :], "nix -c")


_SPECIAL: dict[str, Handler] = {
    "eval": _eval,
    "trap": _trap,
    ".": _source,
    "source": _source,
    "alias": _alias,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _tar),
    "rsync": _rsync,
    **dict.fromkeys(("vim", "vi", "nvim", "ex", "view", "gvim"), _vim),
    "gdb": _gdb,
    "emacs": _emacs,
    **dict.fromkeys(("sqlite3", "sqlite"), _sqlite),
    "rg": _ripgrep,
    **dict.fromkeys(("nc", "ncat", "netcat"), _netcat),
    "socat": _socat,
    "wget": _fetching,
    **dict.fromkeys(("scp", "sftp"), _copying),
    **dict.fromkeys(("at", "batch"), _coded),
    **dict.fromkeys(("nix-shell", "nix"), _nix),
}
