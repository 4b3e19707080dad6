"""Machines that lack something: what is said, what is done instead, and what never becomes weaker unsaid."""

import asyncio
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.sandbox.cells import a_space, some_sandboxes
from bascule.cli.checks.patient import Mark, Patient
from bascule.kernel.policy.programs import ProgramRule, ProgramRules
from bascule.workspace.cli import checks
from bascule.workspace.machine.sandbox import groups, launch, probe
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.ports import SandboxFault

TOOLS = launch.Tools(bwrap="/usr/bin/bwrap", setpriv="/usr/bin/setpriv", python="/usr/bin/python3", prefix=None,
                     bind_by_descriptor=True)  # fmt: skip


def changed(tmp_path: Path, *, tools: dict | None = None, **machine):
    """Sandboxes on a machine that was found to be different."""
    made = some_sandboxes(tmp_path)
    found = made._found()
    made._machine = found._replace(tools=found.tools._replace(**(tools or {})), **machine)
    return made


def test_without_bubblewrap_no_command_runs_and_the_remedy_is_said(tmp_path: Path):
    made = changed(tmp_path, tools={"bwrap": None})
    assert made.problem().startswith("bubblewrap is not installed; install it: apt install bubblewrap")

    class Nowhere:
        path = str(tmp_path)

        def fileno(self) -> int:
            raise AssertionError("nothing is opened")

    with pytest.raises(SandboxFault, match="apt install bubblewrap"):
        made.open("spc_x", Nowhere(), network=False)


@pytest.mark.parametrize(
    ("settings", "line", "remedy"),
    [
        ({probe.APPARMOR: "1"}, "setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns=0"),
        ({probe.CLONE: "0"}, "No permissions to create new namespace", "kernel.unprivileged_userns_clone=1"),
        ({probe.MOST: "0"}, "Creating new namespace failed", "user.max_user_namespaces=10000"),
        ({}, "Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ({}, "Creating new namespace failed: Operation not permitted", "seccomp=unconfined"),
    ],
)
def test_what_keeps_bubblewrap_from_working_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch, settings, line, remedy
):
    broken = tmp_path / "bwrap"
    broken.write_text(f'#!/bin/sh\necho "bwrap: {line}" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setattr(probe, "_setting", settings.get)
    problem = probe.bubblewrap_problem(TOOLS._replace(bwrap=str(broken)))
    assert problem.startswith(f"bubblewrap cannot make a sandbox here (bwrap: {line}); ")
    assert remedy in problem


def test_root_without_setpriv_would_run_commands_as_root(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert "install util-linux" in probe.bubblewrap_problem(TOOLS._replace(setpriv=None))


def test_a_bubblewrap_that_fails_later_is_quoted(tmp_path: Path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: no more mounts' >&2\nexit 1\n")
    broken.chmod(0o755)

    async def story():
        made = changed(tmp_path)
        assert made.problem() is None
        made._machine = made._machine._replace(tools=made._machine.tools._replace(bwrap=str(broken)))
        async with a_space(tmp_path, sandboxes=made) as space:
            with pytest.raises(SandboxFault, match="could not be started: bwrap: no more mounts; run `bascule doctor`"):
                await space.start("true")

    asyncio.run(story())


def test_an_older_bubblewrap_binds_by_name_and_is_checked_afterwards(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, sandboxes=changed(tmp_path, tools={"bind_by_descriptor": False})) as space:
            assert await space.output_of("echo x > file; cat file; pwd") == f"x\n{space.path}\n"

    asyncio.run(story())


def interpreter_outside_usr(place: Path) -> tuple[str, str]:
    """Ours and its prefix; where ours is in /usr, a copy of the program with the same library beside it."""
    python, prefix = list(launch.pythons())[-1]
    if prefix is not None:
        return python, prefix
    copy = place / "bin" / os.path.basename(python)
    copy.parent.mkdir(parents=True)
    shutil.copy(python, copy)
    library = Path(os.__file__).parent
    (place / "lib").mkdir()
    (place / "lib" / library.name).symlink_to(library)
    return str(copy), str(place)


@pytest.fixture
def outside_tmp() -> Iterator[Path]:
    """Cells have a /tmp of their own, so nothing of ours below it is seen there."""
    with tempfile.TemporaryDirectory(prefix="bsc-", dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        yield Path(place)


def test_our_own_interpreter_does_where_there_is_none_in_usr(tmp_path: Path, outside_tmp: Path):
    python, prefix = interpreter_outside_usr(outside_tmp)

    async def story():
        made = changed(tmp_path, tools={"python": python, "prefix": prefix})
        async with a_space(tmp_path, sandboxes=made) as space:
            assert await space.output_of("echo fine") == "fine\n"

    asyncio.run(story())


def test_where_execs_cannot_be_supervised_every_outcome_says_so(tmp_path: Path):
    rules = ProgramRules((ProgramRule("no-git-push", "git", ("push",)),))

    async def story():
        made = changed(tmp_path, supervisor=None, unsupervised="the kernel is too old")
        async with a_space(tmp_path, sandboxes=made) as space:
            outcome = await space.run("true", rules=rules)
            assert outcome.note == "programs were not supervised as they ran: the kernel is too old"
            assert (await space.output_of("grep Seccomp: /proc/self/status")).split() == ["Seccomp:", "2"]

    asyncio.run(story())


NETWORK = '/usr/bin/python3 -c \'import socket; socket.create_connection(("127.0.0.1", {}), 5); print("reached")\''
ABSTRACT = """/usr/bin/python3 -c '
import socket
import threading
try:
    server = socket.socket(socket.AF_UNIX); server.bind("\\0of-this-cell"); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect("\\0of-this-cell"); print("between ourselves")
except OSError as error:
    print(error)'"""


def test_there_is_a_network_only_where_it_is_allowed(tmp_path: Path):
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as server:
            ask = NETWORK.format(server.getsockname()[1])
            async with a_space(tmp_path, network=False) as space:
                assert "Connection refused" in (await space.run(ask)).stderr.text
            async with a_space(tmp_path, "other", network=True) as space:
                assert await space.output_of(ask) == "reached\n"
                assert await space.output_of(ABSTRACT) == "between ourselves\n"

    asyncio.run(story())


def test_without_landlock_a_cell_on_the_network_has_no_unix_sockets(tmp_path: Path):
    """Abstract sockets belong to the network: X11 and D-Bus would be reached through it."""

    async def story():
        async with a_space(tmp_path, network=True, sandboxes=changed(tmp_path, scope=0)) as space:
            assert "Address family not supported" in await space.output_of(ABSTRACT)

    asyncio.run(story())


def test_groups_are_found_where_they_can_be_made_and_nowhere_else(tmp_path: Path, monkeypatch):
    """A machine's files, laid out as a delegated session's are."""
    mount, own = tmp_path / "cgroup", "/user.slice/app.slice/terminal.scope"
    scope = mount / own[1:]
    scope.mkdir(parents=True)
    for folder, offered, handed in ((scope, "memory pids", ""), (scope.parent, "cpu memory pids", "cpu memory pids")):
        (folder / "cgroup.controllers").write_text(offered)
        (folder / "cgroup.subtree_control").write_text(handed)
        (folder / "cgroup.procs").write_text("")
    mounts, mine = tmp_path / "mountinfo", tmp_path / "own"
    mounts.write_text(f"30 25 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    mine.write_text(f"0::{own}\n")
    monkeypatch.setattr(groups, "MOUNTS", str(mounts))
    monkeypatch.setattr(groups, "OWN", str(mine))
    # A group with processes cannot hand controllers down; writing there fails on a real machine.
    monkeypatch.setattr(groups, "write", refuse_below(str(scope)))
    assert groups._version_2() == {name: str(scope.parent) for name in ("memory", "pids", "cpu")}
    mine.write_text("0::/elsewhere\n")
    assert groups._version_2() == {}
    mounts.write_text("")
    assert groups.find_groups(SandboxLimits()).kept == frozenset()


def refuse_below(folder: str):
    def write(path: str, text: str) -> None:
        if path.startswith(folder):
            raise OSError(16, "Device or resource busy")
        Path(path).write_text(text)

    return write


def test_the_doctor_says_what_is_enforced(monkeypatch):
    patient = Patient("/nowhere", port=0)
    if probe.bubblewrap_problem(probe.find_tools()) is None:
        assert checks.check_sandbox(patient).mark is Mark.OK
    limits = checks.check_limits(patient)
    assert "4,096 MiB and 512 processes per command, by " in limits.what
    monkeypatch.setattr(groups, "MOUNTS", "/nowhere")
    assert "by resource limits" in checks.check_limits(patient).what
    monkeypatch.setattr(launch, "find", lambda _: None)
    missing = checks.check_sandbox(patient)
    assert (missing.mark, missing.what) == (
        Mark.WARN,
        "no command can run in a workspace: bubblewrap is not installed",
    )
    assert missing.fix.startswith("install it: apt install bubblewrap")
    monkeypatch.setattr("platform.machine", lambda: "vax")
    unsupervised = checks.check_supervisor(patient)
    assert unsupervised.mark is Mark.WARN
    assert "programs are not supervised" in unsupervised.what


def test_what_an_earlier_daemon_left_is_cleared(tmp_path: Path):
    left = tmp_path / "ours" / "tmp" / "spc_old"
    left.mkdir(parents=True)
    (left / "file").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    os.symlink(elsewhere, tmp_path / "ours" / "tmp" / "spc_other")
    some_sandboxes(tmp_path)

    for thread in threading.enumerate():
        if thread.name == "bascule-sandbox-tidy":
            thread.join()
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["spool", "tmp"]
    assert list((tmp_path / "ours" / "tmp").iterdir()) == []
    assert not elsewhere.exists()


def test_a_young_group_without_members_is_left_alone(tmp_path: Path):
    """A daemon in another process namespace is not in our /proc, and its group is empty until its first process."""
    nobody = 2**22 + 1
    young, old = tmp_path / f"bascule-{nobody}-1", tmp_path / f"bascule-{nobody}-2"
    young.mkdir()
    old.mkdir()
    os.utime(old, (0, 0))
    groups._tidy(str(tmp_path))
    assert (young.exists(), old.exists()) == (True, False)
