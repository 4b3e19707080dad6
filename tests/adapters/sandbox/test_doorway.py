"""`space.sock` as the sandbox sees it: where there is one, how often it is opened, and that it closes."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from adapters.sandbox.cells import NO_RULES, Folder
from bascule.workspace.machine.sandbox.doorway import Doorway
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from bascule.workspace.ports import Command, SandboxFault
from faults.lacking import missing_here
from patience import PATIENCE

LOOK = 'echo "[$BASCULE_SPACE_SOCK $BASCULE_SPACE_AGENT]"; ls /run/bascule 2>/dev/null'
HERE = "[/run/bascule/space.sock spc_work]\nspace.sock\n"


class OneDoor:
    def __init__(self, path: str) -> None:
        self.path = path
        self.agent = "spc_work"
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen()

    async def close(self) -> None:
        self._sock.close()
        os.unlink(self.path)


class FakeDoors:
    """Sockets that nobody answers at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[tuple[str, int]] = []
        self.fault: OSError | None = None

    async def open(self, space_id: str, user: int) -> OneDoor:
        self.opened.append((space_id, user))
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return OneDoor(str(self.folder / f"{len(self.opened)}"))


class Scene:
    def __init__(self, folder: Path) -> None:
        self.doors = FakeDoors(folder)
        limits = SandboxLimits(warm_cells=2)
        self.sandboxes = Sandboxes(str(folder / "ours"), log=lambda *_, **__: None, doors=self.doors, limits=limits)
        self.folder = Folder(folder / "work")
        self._number = 0

    async def output(self, sandbox: Any, command: str = LOOK) -> str:
        self._number += 1
        running = await sandbox.start(
            Command(process_id=f"prc_{self._number}", command=command, programs=NO_RULES), lambda *_: None
        )
        outcome = await running.wait()
        output: str = outcome.stdout.text
        return output


@pytest.fixture
def scene(outside):
    scene = Scene(outside)
    if (problem := scene.sandboxes.problem()) is not None:
        missing_here(problem)
    yield scene
    scene.folder.close()


def play(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await act()

    asyncio.run(bounded())


def test_all_cells_of_a_space_share_one_door_which_closes_with_it(scene):
    async def act() -> None:
        sandbox = scene.sandboxes.open("spc_work", scene.folder, network=False, door=True)
        assert await asyncio.gather(*(scene.output(sandbox, f"{LOOK}; sleep 0.1") for _ in range(2))) == [HERE, HERE]
        assert scene.doors.opened == [("spc_work", os.getuid())]
        assert (scene.doors.folder / "1").exists()
        await sandbox.close()
        assert not (scene.doors.folder / "1").exists()

    play(act)


@pytest.mark.parametrize("how", [{"kind": "none", "door": True}, {"kind": "bubblewrap"}])
def test_without_a_sandbox_or_without_being_asked_for_there_is_no_door(scene, how):
    async def act() -> None:
        sandbox = scene.sandboxes.open("spc_work", scene.folder, network=False, **how)
        assert (await scene.output(sandbox)).startswith("[ ]\n")
        assert scene.doors.opened == []
        await sandbox.close()

    play(act)


def test_where_a_cell_gets_no_unix_sockets_there_is_no_door_to_promise(scene, monkeypatch):
    async def act() -> None:
        machine = scene.sandboxes._found()
        monkeypatch.setattr(scene.sandboxes, "_machine", machine._replace(scope=0))
        sandbox = scene.sandboxes.open("spc_work", scene.folder, network=True, door=True)
        assert await scene.output(sandbox) == "[ ]\n"
        assert scene.doors.opened == []
        await sandbox.close()

    play(act)


def test_a_door_that_cannot_be_opened_is_said_and_the_next_command_tries_again(scene):
    async def act() -> None:
        scene.doors.fault = OSError(24, "Too many open files")
        sandbox = scene.sandboxes.open("spc_work", scene.folder, network=False, door=True)
        with pytest.raises(SandboxFault, match=r"space.sock could not be opened: .*Too many open files"):
            await scene.output(sandbox)
        scene.doors.fault = None
        assert await scene.output(sandbox) == HERE
        await sandbox.close()

    play(act)


def test_a_space_that_closes_while_its_door_opens_leaves_none(tmp_path):
    async def act() -> None:
        doors = FakeDoors(tmp_path)
        doorway = Doorway(doors, "spc_work")
        opened, _ = await asyncio.gather(doorway.open(os.getuid()), doorway.close())
        assert opened is not None
        assert not (tmp_path / "1").exists()
        assert await doorway.open(os.getuid()) is None

    play(act)
