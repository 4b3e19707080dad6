"""A workspace, its sandbox, and commands in it."""

import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.machine.files.extents import extent_of
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from bascule.workspace.machine.sandbox.space import SpaceSandbox
from bascule.workspace.ports import Command, Extent, OnOutput, Outcome, RunningCommand
from faults.lacking import missing_here
from patience import PATIENCE

NO_RULES = ProgramRules()
# Ids of processes: no two of one shelf are alike.
NUMBERS = itertools.count(1)


class Folder:
    """As much of the port's `Root` as a sandbox needs."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = os.path.realpath(path)
        self._descriptor = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def extent(self) -> Extent:
        return extent_of(self._descriptor, self.path)

    def close(self) -> None:
        os.close(self._descriptor)


class Space:
    """One space's sandbox with short words for what tests do."""

    def __init__(self, sandboxes: Sandboxes, sandbox: SpaceSandbox, folder: Folder) -> None:
        self.sandboxes = sandboxes
        self.sandbox = sandbox
        self.path = Path(folder.path)
        # Of the last command.
        self.process_id = ""

    async def start(
        self,
        command: str,
        *,
        timeout: float | None = PATIENCE,  # noqa: ASYNC109 - the command's own, not the call's
        env: Mapping[str, str] | None = None,
        cwd: Any = None,
        rules: ProgramRules = NO_RULES,
        on_output: OnOutput = lambda *_: None,
        **more: Any,
    ) -> RunningCommand:
        self.process_id = f"prc_{next(NUMBERS)}"
        return await self.sandbox.start(
            Command(
                process_id=self.process_id,
                command=command,
                cwd=cwd,
                env=env or {},
                timeout=None if timeout is None else timedelta(seconds=timeout),
                programs=rules,
                **more,
            ),
            on_output,
        )

    async def run(self, command: str, **more: Any) -> Outcome:
        return await (await self.start(command, **more)).wait()

    async def output_of(self, command: str, **more: Any) -> str:
        """Both streams of a command that succeeds."""
        outcome = await self.run(command, **more)
        assert outcome.exit_code == 0, outcome
        return outcome.stdout.text + outcome.stderr.text


@asynccontextmanager
async def a_space(
    tmp_path: Path,
    name: str = "work",
    *,
    kind: Any = "bubblewrap",
    network: bool = False,
    limits: SandboxLimits | None = None,
    sandboxes: Sandboxes | None = None,
    owner: int | None = None,
    readable: tuple[str, ...] = (),
) -> AsyncIterator[Space]:
    ours = sandboxes or some_sandboxes(tmp_path, limits=limits, readable=readable)
    if kind == "bubblewrap" and (problem := ours.problem()) is not None:
        missing_here(problem)
    folder = Folder(tmp_path / name)
    if owner is not None:
        os.chown(folder.path, owner, owner)
    sandbox = ours.open(f"spc_{name.replace('/', '-')}", folder, network=network, kind=kind)
    try:
        yield Space(ours, sandbox, folder)
    finally:
        await sandbox.close()
        folder.close()


def some_sandboxes(tmp_path: Path, *, limits: SandboxLimits | None = None, readable: tuple[str, ...] = ()) -> Sandboxes:
    return Sandboxes(str(tmp_path / "ours"), log=lambda *_, **__: None, limits=limits, readable=readable)
