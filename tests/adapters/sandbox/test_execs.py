"""Deny rules as programs are really executed: every way to a denied program, with a canary that exists."""

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path

from adapters.sandbox.canary import NAME, RULES, canary_in
from adapters.sandbox.cells import a_space
from bascule.kernel.call import agent_principal
from bascule.kernel.policy.programs import ProgramRule, ProgramRules
from bascule.testing.policies import standard
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from policy.corpus import denied, fill, harmless

LONG = bool(os.environ.get("BASCULE_LONG"))
# Copies too: what is denied is known by its content.
WAYS = denied()
# How many run without rules, to show that with rules they would have; all of them in the long run.
CONTROLS = len(WAYS) if LONG else 60


async def tried(space, way, number, rules):
    """Whether the canary ran."""
    canary = space.path / "bin" / NAME
    place = space.path / f"way{number}"
    place.mkdir(exist_ok=True)
    mark = place / "mark"
    command = way.filled(str(canary), str(mark))
    if way.setup:
        command = f"{fill(way.setup, str(canary), str(mark))}\n{command}"
    # From a file, where nobody reads it before it runs: what is proved here is the supervisor's own.
    (place / "way").write_text(command)
    env = {"PATH": f"{canary.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    timeout = 10 if way.real else 0.5
    command = f"{way.only or 'sh'} ./way"
    outcome = await space.run(command, rules=rules, timeout=timeout, env=env, cwd=f"way{number}")
    ran = mark.exists()
    shutil.rmtree(place)
    return ran, outcome


def test_no_way_to_a_denied_program_leads_there(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            canary_in(space.path / "bin")
            ran = []
            for number, way in enumerate(WAYS):
                there, outcome = await tried(space, way, number, RULES)
                if there:
                    ran.append((way.name, way.filled("/x/bin/zanary", "mark"), outcome.programs))
            assert ran == []

    asyncio.run(story())


def test_without_the_rule_the_same_ways_do_lead_there(tmp_path: Path):
    """The control: a way that leads nowhere would prove nothing."""

    async def story():
        async with a_space(tmp_path) as space:
            canary_in(space.path / "bin")
            real = [way for way in WAYS if way.real]
            chosen = real[:: max(1, len(real) // CONTROLS)]
            nowhere = []
            for number, way in enumerate(chosen):
                there, outcome = await tried(space, way, number, ProgramRules())
                if not there:
                    nowhere.append((way.name, outcome.stderr.text))
            assert len(nowhere) <= len(chosen) // 20, nowhere

    asyncio.run(story())


def test_harmless_commands_are_not_taken_for_denied_ones(tmp_path: Path):
    rules = ProgramRules(tuple(ProgramRule("standard", name) for name in ("sudo", "su", "doas")))
    chosen = harmless() if LONG else harmless()[::6]

    async def story():
        async with a_space(tmp_path) as space:
            ran = 0
            for case in chosen:
                outcome = await space.run(case.command, rules=rules, timeout=1)
                assert [each for each in outcome.programs if each.denied] == [], case
                ran += len(outcome.programs) > 1
            assert ran > len(chosen) // 3, "enough of them execute something that is there"

    asyncio.run(story())


def test_what_ran_is_reported_with_its_words_and_how_often(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "tool").write_text("#!/bin/sh\nexec true\n")
            (space.path / "tool").chmod(0o755)
            outcome = await space.run("./tool; ./tool; /usr/bin/env ./tool; nowhere; env nowhere")
            runs: Counter[tuple[str, str]] = Counter()
            for run in outcome.programs:
                runs[run.path, run.argv[0]] += run.times
            assert runs[str(space.path / "tool"), "./tool"] == 3
            # A script's interpreter is a program that ran, though nobody executed it by name.
            assert runs["/usr/bin/dash", "/bin/sh"] == 4
            assert runs["/usr/bin/true", "true"] == 3
            assert not any("nowhere" in run.path for run in outcome.programs)
            assert outcome.exit_code == 127

    asyncio.run(story())


def test_what_is_denied_is_reported_with_its_rule(tmp_path: Path):
    rules = ProgramRules((ProgramRule("no-git-push", "git", ("push",)), ProgramRule("no-env", "printenv")))

    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "steps").write_text("git --version && git push; printenv; sh -c 'exec printenv'")
            outcome = await space.run("sh steps", rules=rules)
            assert outcome.exit_code == 126
            assert "git version" in outcome.stdout.text
            assert "Permission denied" in outcome.stderr.text
            assert outcome.note == "'git' is blocked by rule no-git-push; 'printenv' is blocked by rule no-env"
            denied = [(run.argv[0], run.denied) for run in outcome.programs if run.denied]
            assert denied[:2] == [("git", "no-git-push"), ("printenv", "no-env")]

    asyncio.run(story())


def test_what_only_asks_is_not_stopped_when_code_executes_it(tmp_path: Path):
    """The supervisor knows the rules that deny: a delete that code starts runs, and the sandbox holds it."""
    rules = standard().program_rules(agent_principal("Jerry"))
    code = "import subprocess as s; s.run(['rm', '-rf', 'gone']); s.run(['sudo', 'id'])"

    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "gone").mkdir()
            outcome = await space.run(f'python3 -c "{code}"', rules=rules)
            assert not (space.path / "gone").exists()
            assert any(run.argv[:2] == ("rm", "-rf") and run.denied is None for run in outcome.programs)
            # The control: what is denied is denied here as well, where there is such a program.
            assert all(run.denied == "no-superuser" for run in outcome.programs if run.path.endswith("/sudo"))

    asyncio.run(story())


# What a process calls itself is not what we would call it.
OWN_NAMES = (
    "exec 5</usr/bin/printenv; /proc/self/fd/5",
    "exec 5</usr/bin/printenv; /dev/fd/5",
    "cd /usr/bin; /proc/self/cwd/printenv",
    "/proc/self/root/usr/bin/printenv",
    "exec 5</usr/bin; /proc/self/fd/5/printenv",
    "ln -s /proc/self/fd/5 link; exec 5</usr/bin/printenv; ./link",
    "ln -s /usr/bin ubin; ./ubin/printenv",
    "ln -s /../../usr/bin/printenv up; ./up",
    "cd /usr/bin && exec 5</tmp && ./printenv",
    "cd /usr/lib && ../bin/printenv",
    "printf '#!/usr/bin/printenv\n' > s; chmod +x s; ./s",
    "printf '#! /usr/bin/env printenv\n' > s; chmod +x s; ./s",
    "ln -s /usr/bin/printenv p; printf '#!./p\n' > s; chmod +x s; ./s",
    "ln -s /usr/bin/printenv p; /lib64/ld-linux-x86-64.so.2 ./p",
    "/lib64/ld-linux-x86-64.so.2 --library-path /lib /proc/self/root/usr/bin/printenv",
    "/usr/bin/python3 by_descriptor.py",
    "/usr/bin/python3 from_memory.py",
    'perl -e \'exec {"/usr/bin/printenv"} "harmless"\'',
)


BY_DESCRIPTOR = """import os
os.execve(os.open("/usr/bin/printenv", os.O_RDONLY), ["harmless"], {"MARKED": "1"})
"""
FROM_MEMORY = """import os
memory = os.memfd_create("harmless")
os.sendfile(memory, os.open("/usr/bin/printenv", os.O_RDONLY), 0, 1 << 20)
os.execve(memory, ["harmless"], {"MARKED": "1"})
"""


def test_a_file_is_known_by_any_name(tmp_path: Path):
    rules = ProgramRules((ProgramRule("no-env", "printenv"),))

    async def story():
        async with a_space(tmp_path) as space:
            for number, way in enumerate(OWN_NAMES):
                outcomes = []
                for name, applied in (("allowed", ProgramRules()), ("denied", rules)):
                    place = space.path / f"{number}-{name}"
                    place.mkdir()
                    (place / "way").write_text(way)
                    (place / "by_descriptor.py").write_text(BY_DESCRIPTOR)
                    (place / "from_memory.py").write_text(FROM_MEMORY)
                    outcomes.append(await space.run("sh way", env={"MARKED": "1"}, cwd=place.name, rules=applied))
                allowed, denied = outcomes
                assert "MARKED=1" not in denied.stdout.text, way
                # Through a link to what only the process itself can see nobody runs: we cannot say what it is.
                if "/proc/self/fd/5 link" not in way:
                    ran = any(run.path == "/usr/bin/printenv" for run in allowed.programs)
                    assert ran or "MARKED=1" in allowed.stdout.text, (way, allowed)
                    assert [run.denied for run in denied.programs if run.denied] == ["no-env"], (way, denied)

    asyncio.run(story())


def test_programs_that_execute_themselves_may(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            (space.path / "own.py").write_text(
                "import os, sys\n"
                "if len(sys.argv) > 1: sys.exit(print('again'))\n"
                "os.execv('/proc/self/exe', ['python3', 'own.py', 'x'])\n"
            )
            assert await space.output_of("/usr/bin/python3 own.py") == "again\n"

    asyncio.run(story())


def test_more_programs_than_are_listed_are_counted(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, limits=SandboxLimits(programs=5)) as space:
            outcome = await space.run("for i in 1 2 3 4 5 6 7 8 9; do /bin/true $i; done")
            assert len(outcome.programs) == 5
            assert outcome.note == "5 more programs ran than are listed"

    asyncio.run(story())


# A path in shared memory that another process keeps exchanging: what is judged and what is executed may differ.
RACE = """
import ctypes, mmap, os, signal, sys, time
libc = ctypes.CDLL(None)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
names = [b"/usr/bin/true\\0" + b"x" * 8, b"/usr/bin/printenv\\0"]
names = [name.ljust(24, b"\\0") for name in names]
page[:24] = names[0]
argv = (ctypes.c_char_p * 2)(b"x", None)
envp = (ctypes.c_char_p * 2)(b"MARKED=1", None)
flipper = os.fork()
if flipper == 0:
    while True:
        page[:24] = names[1]
        page[:24] = names[0]
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        libc.execve(ctypes.c_void_p(address), argv, envp)
        os._exit(0)
    os.waitpid(child, 0)
os.kill(flipper, signal.SIGKILL)
"""


def test_a_path_that_is_exchanged_while_it_is_judged_leads_to_no_denied_program(tmp_path: Path, monkeypatch):
    rules = ProgramRules((ProgramRule("no-env", "printenv"),))

    async def story(tries: int) -> int:
        async with a_space(tmp_path) as space:
            (space.path / "race.py").write_text(RACE)
            outcome = await space.run(f"/usr/bin/python3 race.py {tries}", rules=rules)
            assert any(run.path == "/usr/bin/true" for run in outcome.programs)
            return outcome.stdout.text.count("MARKED=1")

    assert asyncio.run(story(2_000 if LONG else 200)) == 0
    # The control: with the supervisor alone, the exchange does succeed now and then.
    monkeypatch.setattr("bascule.workspace.machine.sandbox.layout.masked", lambda *_: ())
    assert any(asyncio.run(story(400)) for _ in range(20))
