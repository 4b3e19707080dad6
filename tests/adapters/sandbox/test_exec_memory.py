"""What the supervisor remembers between execs, attacked: no verdict may outlive what it was about."""

import asyncio
import ctypes
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bascule
from adapters.sandbox.canary import NAME, RULES, canary_in
from adapters.sandbox.cells import a_space
from bascule.kernel.policy.programs import ProgramRule, ProgramRules
from bascule.workspace.machine.sandbox import execs, supervisor, wanted
from bascule.workspace.machine.sandbox.kernel import Memory
from patience import PATIENCE

# Every way changes a file that was executed before, without a change of its size. `how` says by what.
REPLACED = """
import mmap, os, subprocess, sys
how, first, second, path, mark = sys.argv[1:]

def run(*argv):
    try:
        return subprocess.run(argv, capture_output=True).returncode
    except PermissionError:
        return -1

content = [open(each, "rb").read() for each in (first, second)]
assert len(content[0]) == len(content[1])
with open(path, "wb") as file:
    file.write(content[0])
os.chmod(path, 0o755)
before = os.stat(path)
assert run(path, mark + ".before") == 0
if how == "mapped":
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:] = content[1]
elif how == "rewritten":
    with open(path, "r+b") as file:
        file.write(content[1])
elif how == "renamed":
    with open(path + ".new", "wb") as file:
        file.write(content[1])
    os.chmod(path + ".new", 0o755)
    os.rename(path + ".new", path)
os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
print(how, run(path, mark))
"""


def two_scripts(space_path: Path) -> None:
    """The same size; the second one's interpreter is the canary."""
    canary = space_path / "bin" / NAME
    for name, line in (("first", b"#!/usr/bin/true"), ("second", f"#!{canary}".encode())):
        (space_path / name).write_bytes(line.ljust(len(str(canary)) + 20) + b"\n")


def two_programs(space_path: Path) -> None:
    """The second is the canary's content; the first differs from it in a byte that nothing reads."""
    content = (space_path / "bin" / NAME).read_bytes()
    (space_path / "first").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (space_path / "second").write_bytes(content)


async def attack(space, how: str, place: str, rules: ProgramRules) -> bool:
    """Whether the canary ran."""
    mark = space.path / "mark"
    mark.unlink(missing_ok=True)
    env = {"PATH": f"{space.path}/bin:/usr/bin:/bin"}
    path = f"{place}/attacked" if place else f"{space.path}/attacked"
    command = f"/usr/bin/python3 replaced.py {how} first second {path} {mark}"
    outcome = await space.run(command, rules=rules, env=env)
    assert outcome.stdout.text.startswith(how), outcome
    return mark.exists()


def coarse_clock(monkeypatch) -> None:
    """As on a kernel whose tick is longer than the attack: what changed has the time that it had."""
    monkeypatch.setattr(execs.Version, "of", lambda found: execs.Version(found.st_dev, found.st_ino, 0, found.st_size))


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("place", ["", "/tmp", "/dev/shm"])
@pytest.mark.parametrize("prepare", [two_scripts, two_programs])
def test_a_file_that_became_a_denied_program_is_denied(tmp_path: Path, monkeypatch, prepare, place: str, coarse: bool):
    if coarse:
        coarse_clock(monkeypatch)

    async def story():
        async with a_space(tmp_path) as space:
            canary_in(space.path / "bin")
            (space.path / "replaced.py").write_text(REPLACED)
            prepare(space.path)
            for how in ("mapped", "rewritten", "renamed"):
                assert not await attack(space, how, place, RULES), how
            # The control: it would have run.
            assert await attack(space, "rewritten", place, ProgramRules())

    asyncio.run(story())


@pytest.mark.parametrize("prepare", [two_scripts, two_programs])
def test_a_file_remembered_by_its_times_alone_would_run(tmp_path: Path, monkeypatch, prepare):
    """The control of the attack itself."""
    coarse_clock(monkeypatch)
    monkeypatch.setattr(execs, "is_settled", lambda *_: True)
    monkeypatch.setattr(wanted, "is_settled", lambda *_: True)

    async def story():
        async with a_space(tmp_path) as space:
            canary_in(space.path / "bin")
            (space.path / "replaced.py").write_text(REPLACED)
            prepare(space.path)
            assert await attack(space, "rewritten", "", RULES)

    asyncio.run(story())


def test_the_first_lines_of_what_commands_cannot_write_are_remembered(tmp_path: Path, monkeypatch):
    read = []
    first_line = execs._first_line
    monkeypatch.setattr(execs, "_first_line", lambda descriptor: read.append(1) or first_line(descriptor))

    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "tool").write_text("#!/bin/sh\nexec /usr/bin/true\n")
            (space.path / "tool").chmod(0o755)
            for command, most in (("/usr/bin/true", 0), ("./tool", 1)):
                await space.run(command)
                read.clear()
                await space.run(command)
                assert len(read) == most, command

    asyncio.run(story())


def test_a_verdict_is_about_these_words_and_these_rules(tmp_path: Path):
    """One warm cell, one file: each exec is judged by its own words and by the rules of its own command."""
    rules = ProgramRules((ProgramRule("no-b", "cp", ("b",)),))
    other = ProgramRules((ProgramRule("no-a", "cp", ("a",)),))

    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "steps").write_text("cp a x; cp b y; cp a z")
            for applied, denied in ((rules, "b"), (other, "a"), (rules, "b"), (ProgramRules(), None)):
                outcome = await space.run("sh steps", rules=applied)
                found = {run.argv[1]: run.denied for run in outcome.programs if run.path == "/usr/bin/cp"}
                assert found == {"a": "no-a" if denied == "a" else None, "b": "no-b" if denied == "b" else None}
                assert (await space.run("cp b y", rules=applied)).programs[-1].denied == found["b"]

    asyncio.run(story())


def test_a_command_s_own_shell_is_judged_too(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            # Words of the shell's own command line are policy's to read; its name is not.
            for rules, denied in (
                (ProgramRules((ProgramRule("no-shell", "dash", ("-c",)),)), None),
                (ProgramRules((ProgramRule("no-shell", "dash"),)), "no-shell"),
                (ProgramRules(), None),
            ):
                for _ in range(2):
                    outcome = await space.run("echo hi", rules=rules)
                    assert [run.denied for run in outcome.programs] == [denied], rules
                    assert outcome.programs[0].argv == ("/bin/sh", "-c", "echo hi")
                    assert (outcome.stdout.text == "hi\n") is (denied is None)

    asyncio.run(story())


def test_only_the_first_exec_is_taken_for_the_shell(tmp_path: Path):
    """A second exec with the very words of the first is read and judged as what it is."""
    rules = ProgramRules((ProgramRule("no-shells-in-shells", "dash", ("-c",)),))

    async def story():
        async with a_space(tmp_path) as space:
            outcome = await space.run("echo one; /bin/sh -c 'echo two'; exec /bin/sh -c 'echo three'", rules=rules)
            assert outcome.stdout.text == "one\n"
            assert [run.denied for run in outcome.programs] == [None, "no-shells-in-shells", "no-shells-in-shells"]

    asyncio.run(story())


LEFT = """
import os, sys
# Two generations away from the command, in a session of its own, and it never stops trying.
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                child = os.fork()
                if child == 0:
                    try:
                        os.execv(sys.argv[1], sys.argv[1:])
                    except OSError:
                        os._exit(1)
                os.waitpid(child, 0)
        os._exit(0)
os.wait()
print("left")
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_what_a_command_leaves_behind_cannot_ask_in_the_place_of_the_next_one(tmp_path: Path, kind: str):
    """The first who asks is taken for the spawner: by then nobody else may be there."""

    async def story():
        async with a_space(tmp_path, kind=kind) as space:
            canary = canary_in(space.path / "bin")
            (space.path / "left.py").write_text(LEFT)
            mark = space.path / "mark"
            leave = f"/usr/bin/python3 left.py {canary} {mark}"
            for _ in range(10):
                assert "left" in await space.output_of(leave, rules=RULES)
                outcome = await space.run("echo next; sleep 0.01", rules=RULES)
                assert outcome.programs[0].argv == ("/bin/sh", "-c", "echo next; sleep 0.01")
                assert not any(NAME in run.path for run in outcome.programs)
            assert not mark.exists()
            # The control: it does try.
            await space.output_of(f"{leave}; until [ -e {mark} ]; do sleep 0.01; done")

    asyncio.run(story())


# In a process of its own: as a user who is not root, and who may look into what is his, as after an exec.
AS_NOBODY = """
import asyncio, ctypes, os, sys
from pathlib import Path
import concurrent.futures.thread, encodings.idna
from adapters.sandbox.cells import a_space
from bascule.kernel.policy.programs import ProgramRule, ProgramRules

async def story(kind, folder):
    rules = ProgramRules((ProgramRule("no-env", "printenv"),))
    async with a_space(Path(folder), kind=kind) as space:
        for _ in range(2):
            outcome = await space.run("echo hi; /usr/bin/printenv HOME; /usr/bin/true", rules=rules)
            print(outcome.stdout.text.strip(), [(run.argv[0], run.denied) for run in outcome.programs])

if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
asyncio.run(story(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_programs_are_judged_where_the_daemon_is_not_root(outside: Path, kind: str):
    place = [sys.executable, "-c", AS_NOBODY, kind, str(outside / "inner")]
    (outside / "inner").mkdir()
    (outside / "inner").chmod(0o777)
    # Ours may lie where only root looks.
    shutil.copytree(os.path.dirname(bascule.__file__), outside / "code" / "bascule")
    found = ":".join([str(outside / "code"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": found, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(place, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    expected = [("/bin/sh", None), ("/usr/bin/printenv", "no-env"), ("/usr/bin/true", None)]
    assert done.stdout == f"hi {expected}\n" * 2, done.stderr


def test_verdicts_about_long_command_lines_are_not_kept():
    supervisor._known_verdict.cache_clear()
    for argv in (("zanary", "x"), ("zanary", "x" * supervisor.MAX_KNOWN_CHARS)):
        assert supervisor._verdict(RULES, "/usr/bin/touch", argv, (NAME,)) == RULES.denied[0]
        assert supervisor._verdict(RULES, "/usr/bin/touch", argv, ()) is None
    assert supervisor._known_verdict.cache_info().currsize == 2


# -- what is read of another process


def address_of(data: ctypes.Array) -> int:
    return ctypes.addressof(data)


def read_back(path: bytes, words: list[bytes]) -> tuple[str, tuple[str, ...]]:
    memory = Memory()
    name = ctypes.create_string_buffer(path)
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    return execs.read_request(memory, os.getpid(), address_of(name), address_of(argv))


@pytest.mark.parametrize(
    "words",
    [
        [],
        [b""],
        [b"a", b"b"],
        [b"x" * (execs.SHORT_BYTES - 1), b"x" * execs.SHORT_BYTES, b"x" * (execs.SHORT_BYTES + 1)],
        [b"x" * 20_000, b"after"],
        [b"%d" % number for number in range(execs.FEW_ARGUMENTS - 1)],
        [b"%d" % number for number in range(execs.FEW_ARGUMENTS)],
        [b"%d" % number for number in range(execs.FEW_ARGUMENTS + 1)],
        [b"%d" % number for number in range(execs.MAX_ARGUMENTS + 10)],
        [b"x" * 10_000 for _ in range(40)],
        ["ä€".encode(), b"\xff\xfe"],
    ],
)
def test_a_command_line_is_read_as_far_as_its_limits(words: list[bytes]):
    expected: list[str] = []
    left = execs.MAX_ARGV_BYTES
    for word in words[: execs.MAX_ARGUMENTS]:
        if left > 0:
            expected.append(os.fsdecode(word[: min(left, execs.MAX_ARGUMENT_BYTES)]))
            left -= len(expected[-1]) + 1
    assert read_back(b"/bin/sh", words) == ("/bin/sh", tuple(expected))


@pytest.mark.parametrize("length", [1, 255, 256, 257, 4_095, 4_096, 5_000])
def test_a_path_is_read_as_far_as_its_limit(length: int):
    assert read_back(b"p" * length, [b"x"]) == ("p" * min(length, execs.MAX_PATH_BYTES), ("x",))


def test_words_at_the_end_of_memory_and_beyond_it_are_read_as_far_as_they_are_there():
    size = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * size) as pages:
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        # The second page is not there.
        assert ctypes.CDLL(None).munmap(ctypes.c_void_p(start + size), ctypes.c_size_t(size)) == 0
        pages[size - 4 : size] = b"end\0"
        pages[size - 8 : size - 5] = b"cut"
        for number, pointer in enumerate((start + size - 4, start + size, 2**64 - 1, 0)):
            pages[8 * number : 8 * number + 8] = pointer.to_bytes(8, "little")
        memory = Memory()
        found = execs.read_request(memory, os.getpid(), start + size - 4, start)
        assert found == ("end", ("end", "", ""))
        assert execs.read_request(memory, os.getpid(), 2**64 - 1, 0) == ("", ())
        assert execs.read_request(memory, os.getpid(), start + size - 4, start + size) == ("end", ())
        # Put back, for the mapping's own end.
        again = ctypes.CDLL(None).mmap
        again.restype = ctypes.c_void_p
        again.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
        assert again(start + size, size, mmap.PROT_READ, fixed, -1, 0) == start + size
