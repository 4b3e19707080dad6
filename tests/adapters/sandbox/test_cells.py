"""A cell and its pool: what a spawner may say, how many there are, who may not be root."""

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sandbox.cells import Folder, a_space, some_sandboxes
from bascule.foundation.emergency import EmergencyStop
from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.machine.sandbox import messages
from bascule.workspace.machine.sandbox.cell import Cell, CellState
from bascule.workspace.machine.sandbox.launch import Child
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.ports import Command, SandboxFault
from faults.lacking import missing_here
from gabp.codec import BadJson
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
READY = {"ready": {"seen": []}}
ENDED = {"ended": {"fault": None, "status": 0, "why": None, "left": 0, "cpu": 0.0, "clean": True, "moved": False}}
SETUP = messages.Setup(
    environment={}, watch=messages.Watch(cpu_seconds=1), rlimits=[], nice=0, look=[], workspace="", guarded=[], scope=0,
    filter="", listen=False, seccomp_number=0,
)  # fmt: skip


class Liar:
    """Stands where a spawner would: a process that does nothing, and a socket that says anything."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        complaints, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.close(end)
        pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {})
        self.child = Child(pid=pid, pidfd=os.pidfd_open(pid), control=ours, info=None, complaints=complaints)

    def say(self, message: object) -> None:
        self.theirs.send(message if isinstance(message, bytes) else json.dumps(message).encode())


LIES = [
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{" * 5000,
    b"x" * (messages.MAX_ANSWER_BYTES + 1),
    {"ended": {}},
    {"ready": {"seen": [[1]]}},
    {"ended": {**ENDED["ended"], "status": "0"}},
    {"ended": {**ENDED["ended"], "more": 1}},
    {"unheard": 1},
    READY,
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_a_spawner_that_says_anything_else_is_killed_and_its_command_lost(lie):
    async def story():
        liar = Liar()
        cell = Cell(liar.child, None, SandboxLimits(), EmergencyStop())
        liar.say(READY)
        await cell.start(SETUP, [])
        ended = []
        reader, writer = os.pipe()
        cell.run(b"{}", (writer, writer), lambda *outcome: ended.append(outcome))
        liar.say(lie)
        await cell.gone
        assert cell.state is CellState.GONE
        assert [outcome[0] for outcome in ended] == [None]
        for end in (reader, writer):
            os.close(end)
        liar.theirs.close()

    asyncio.run(story())


def test_an_end_that_nobody_waits_for_is_not_believed():
    async def story():
        liar = Liar()
        cell = Cell(liar.child, None, SandboxLimits(), EmergencyStop())
        liar.say(READY)
        await cell.start(SETUP, [])
        liar.say(ENDED)
        await cell.gone
        liar.theirs.close()

    asyncio.run(story())


def test_a_workspace_that_was_exchanged_while_it_started_is_not_used():
    async def story():
        liar = Liar()
        cell = Cell(liar.child, None, SandboxLimits(), EmergencyStop())
        liar.say({"ready": {"seen": [[1, 2]]}})
        with pytest.raises(SandboxFault, match="moved or replaced"):
            await cell.start(SETUP, [(1, 3)])
        assert cell.state is CellState.GONE
        liar.theirs.close()

    asyncio.run(story())


def test_a_spawner_that_never_answers_is_given_up():
    async def story():
        liar = Liar()
        cell = Cell(liar.child, None, SandboxLimits(start_seconds=0.05), EmergencyStop())
        with pytest.raises(SandboxFault, match=r"did not start within 0\.05 s; run `bascule doctor`"):
            await cell.start(SETUP, [])
        liar.theirs.close()

    asyncio.run(story())


def test_a_spawner_that_does_not_end_a_command_is_killed():
    async def story():
        liar = Liar()
        cell = Cell(liar.child, None, SandboxLimits(end_seconds=0.05), EmergencyStop())
        liar.say(READY)
        await cell.start(SETUP, [])
        reader, writer = os.pipe()
        cell.run(b"{}", (writer, writer), lambda *_: None)
        cell.end("timeout")
        await cell.gone
        for end in (reader, writer):
            os.close(end)
        liar.theirs.close()

    asyncio.run(story())


@given(st.binary(max_size=400))
def test_any_bytes_from_inside_are_read_or_refused(data):
    try:
        messages.ANSWER.decode(data)
    except BadJson:
        return


def test_commands_run_beside_each_other_up_to_a_limit(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, limits=SandboxLimits(cells=3)) as space:
            running = [await space.start("while ! [ -e go ]; do sleep 0.01; done", timeout=PATIENCE) for _ in range(3)]
            with pytest.raises(SandboxFault, match="3 commands are running in this space"):
                await space.start("true")
            (space.path / "go").touch()
            assert [(await each.wait()).exit_code for each in running] == [0, 0, 0]
            assert await space.output_of("echo room again") == "room again\n"

    asyncio.run(story())


def test_all_spaces_together_have_a_limit_too(tmp_path: Path):
    async def story():
        sandboxes = some_sandboxes(tmp_path, limits=SandboxLimits(all_cells=1))
        async with (
            a_space(tmp_path, "one", sandboxes=sandboxes) as one,
            a_space(tmp_path, "two", sandboxes=sandboxes) as two,
        ):
            running = await one.start("sleep 60")
            with pytest.raises(SandboxFault, match="1 sandboxes are in use on this machine"):
                await two.start("true")
            running.stop()
            await running.wait()

    asyncio.run(story())


def test_a_warm_cell_is_used_again_and_an_old_one_goes(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, limits=SandboxLimits(idle_seconds=0.2)) as space:
            namespace = "readlink /proc/self/ns/pid"
            first = await space.output_of(namespace)
            assert await space.output_of(namespace) == first
            (cell,) = space.sandbox._cells
            async with asyncio.timeout(PATIENCE):
                await cell.gone
            assert await space.output_of(namespace)

    asyncio.run(story())


def test_a_closed_space_runs_nothing(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            await space.output_of("true")
            await space.sandbox.close()
            with pytest.raises(SandboxFault, match="closed"):
                await space.start("true")
            space.sandbox.close = lambda: asyncio.sleep(0)

    asyncio.run(story())


def test_a_workspace_may_lie_anywhere(tmp_path: Path):
    """Also where a cell has things of its own, and under names that need quoting."""

    async def story():
        sandboxes = some_sandboxes(tmp_path)
        for number, name in enumerate(("with space", "naïve", "-dash", "new\nline")):
            folder = Folder(tmp_path / name)
            sandbox = sandboxes.open(f"spc_{number}", folder, network=False)
            running = await sandbox.start(
                Command(process_id=f"prc_{number}", command="touch here && pwd", programs=ProgramRules()),
                lambda *_: None,
            )
            assert (await running.wait()).stdout.text == f"{folder.path}\n"
            assert (tmp_path / name / "here").exists()
            await sandbox.close()
            folder.close()

    asyncio.run(story())


async def outcome_or_refusal(space) -> str:
    try:
        return await space.output_of("cat file")
    except SandboxFault as fault:
        return str(fault)


def test_a_moved_workspace_is_still_the_one_that_was_opened(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            await space.output_of("echo mine > file")
            space.path.rename(tmp_path / "moved")
            (tmp_path / "work").mkdir()
            (tmp_path / "work" / "file").write_text("another's")
            # A cell that runs has it bound; a new one is refused rather than given another directory.
            assert await space.output_of("cat file") == "mine\n"
            sleeper = await space.start("sleep 60")
            assert await outcome_or_refusal(space) != "another's"
            sleeper.stop()
            await sleeper.wait()

    asyncio.run(story())


AS_NOBODY = """
import asyncio, concurrent.futures.thread, os, pwd, sys, traceback
from pathlib import Path
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1] + "/tests"]
import _pytest.skipping, hypothesis, pytest, uvloop
from adapters.sandbox import test_commands, test_confinement, test_execs
# Everything is imported: from here on our own installation may be out of reach.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
# A process that changed its user is closed to it until it executes something, or says otherwise.
import ctypes; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
ran = 0
for module, name, more in (
    (test_commands, "test_a_command_says_what_it_says_and_its_exit_code_is_told", ("bubblewrap",)),
    (test_commands, "test_what_was_said_before_a_timeout_is_kept", ("bubblewrap",)),
    (test_commands, "test_a_stopped_command_ends_at_once_with_137", ("bubblewrap",)),
    (test_confinement, "test_no_socket_of_the_machine_can_be_reached", (None, False)),
    (test_confinement, "test_no_socket_of_the_machine_can_be_reached", (None, True)),
    (test_confinement, "test_the_files_of_the_machine_are_not_there", (None,)),
    (test_confinement, "test_no_setting_of_the_kernel_can_be_written", (None,)),
    (test_confinement, "test_the_spawner_and_the_kernels_corners_withstand", (None,)),
    (test_confinement, "test_what_git_would_run_and_what_others_left_cannot_be_written", ()),
    (test_execs, "test_what_is_denied_is_reported_with_its_rule", ()),
    (test_execs, "test_a_file_is_known_by_any_name", ()),
):
    place = Path(sys.argv[2]) / str(ran)
    place.mkdir()
    getattr(module, name)(place, *more)
    ran += 1
print("ran", ran)
"""


def test_cells_work_for_a_user_who_is_not_root():
    """Some of the tests again as nobody, as most people's daemons are somebody."""
    if os.getuid() != 0:
        missing_here("only root can become nobody; this already is a run without root")
    place = Path(tempfile.mkdtemp(prefix="bsc-"))
    place.chmod(0o755)
    (place / "work").mkdir()
    os.chown(place / "work", 65534, 65534)
    # Where nobody can read it, too: the spawner's file is opened for every cell.
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        argv = [sys.executable, "-c", AS_NOBODY, str(place), str(place / "work")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=3 * PATIENCE, check=False, cwd="/")
        assert done.stdout == "ran 11\n", done.stdout[-3000:] + done.stderr[-3000:]
    finally:
        shutil.rmtree(place)


def test_ctrl_c_in_the_daemons_terminal_does_not_reach_a_command(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            running = await space.start("echo $$; sleep 0.3; echo done")
            (cell,) = space.sandbox._cells
            assert os.getsid(cell._child.pid) != os.getsid(0)
            os.kill(cell._child.pid, signal.SIGWINCH)
            assert (await running.wait()).stdout.text.endswith("done\n")

    asyncio.run(story())


def test_a_cell_that_died_while_idle_is_replaced(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            await space.output_of("true")
            (cell,) = space.sandbox._cells
            signal.pidfd_send_signal(cell._inner, signal.SIGKILL)
            # Dead, while the loop has had no turn to hear of it.
            dead = select.poll()
            dead.register(cell._inner, select.POLLIN)
            assert dead.poll(PATIENCE * 1000)
            assert await space.output_of("echo fine") == "fine\n"

    asyncio.run(story())


def test_a_listener_that_fails_keeps_nobody_waiting(tmp_path: Path):
    async def story():
        faults = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))

        def on_data(*_: object) -> None:
            raise RuntimeError("not me")

        async with a_space(tmp_path) as space:
            for command in ("echo short", "echo long; sleep 0.1; echo end"):
                outcome = await space.run(command, on_output=on_data)
                assert outcome.exit_code == 0
            assert {str(fault) for fault in faults} == {"not me"}
            assert await space.output_of("echo fine") == "fine\n"

    asyncio.run(story())
