"""A run's commands: started in the sandbox, followed, ended with the run, and answered as one event."""

from datetime import timedelta
from typing import Any

import msgspec

from bascule.kernel.gate import Gate
from bascule.workspace.acts import FAILED, OK, Acted
from bascule.workspace.events import EventFactory
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run
from bascule.workspace.paths import WorkspacePath, parse_path
from bascule.workspace.ports import FileFault, Outcome, SandboxFault
from bascule.workspace.previews import ABSENT
from bascule.workspace.processes import Process, Processes
from bascule.workspace.protocol import ShellOperation
from bascule.workspace.records import Step
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.validation import path_of
from gabp import codec

# Programs of one command that its record names.
MAX_RECORDED_PROGRAMS = 64


class Commands:
    def __init__(
        self, *, spaces: Spaces, processes: Processes, gate: Gate, limits: WorkspaceLimits, event_factory: EventFactory
    ) -> None:
        self._spaces = spaces
        self._processes = processes
        self._gate = gate
        self._limits = limits
        self._event_factory = event_factory

    async def execute(self, run: Run, space: Space, step: Step, operation: ShellOperation) -> Acted:
        try:
            sandbox = run.copy.sandbox if run.copy is not None else await self._spaces.sandbox_of(space)
            process = await self._processes.start(
                sandbox,
                space.space_id,
                run.principal,
                operation.command,
                run_id=run.run_id,
                cwd=path_of(operation),
                env=operation.env,
                limit=timedelta(milliseconds=operation.timeout),
                programs=self._gate.program_rules(run.principal),
                repositories=run.repositories,
                sealed=sealed_files(run.sealed),
                on_output=lambda stream, data: run.feed.output(step.id, stream, data),
            )
        except (SandboxFault, FileFault) as error:
            return self._not_run(step, error)
        run.process = process
        try:
            if run.stop is not None and process.running is not None:
                # The run was ended while the command was being started.
                process.running.stop()
            outcome = await self._processes.wait(process)
        except SandboxFault as error:
            return self._not_run(step, error)
        finally:
            run.process = None
        event = self._event_factory.shell(step, operation.command, process.process_id, outcome, kind=sandbox.kind)
        if len(codec.encode(event)) > run.max_event_bytes - run.event_bytes:
            event = msgspec.structs.replace(event, stdout="", stderr="", truncated=True)
        details = {**_record(process, outcome), "sandbox": sandbox.kind}
        return Acted(event, OK if event.success else FAILED, details)

    def _not_run(self, step: Step, error: Exception) -> Acted:
        return Acted(self._event_factory.error(step, "execution", str(error)), FAILED, {"error": str(error)})


def sealed_files(bound: dict[str, str]) -> dict[WorkspacePath, str]:
    """Of the files that an answer is bound to, those that can be bound over their paths: not what is not there."""
    return {parse_path(path): digest for path, digest in bound.items() if digest != ABSENT}


def _record(process: Process, outcome: Outcome) -> dict[str, Any]:
    """What the ledger says of a command: how it ended, and which programs ran."""
    details: dict[str, Any] = {
        "process": process.process_id,
        "exit": outcome.exit_code,
        "ended": outcome.ended_by,
        "ms": round(outcome.duration / timedelta(milliseconds=1)),
        "out": outcome.stdout.size,
        "err": outcome.stderr.size,
    }
    if outcome.programs:
        # Provenance: which programs ran, never with which arguments, for those may be secrets.
        details["programs"] = [
            f"{program.path} x{program.times}" + (f" denied by {program.denied}" if program.denied else "")
            for program in outcome.programs[:MAX_RECORDED_PROGRAMS]
        ]
    if len(outcome.programs) > MAX_RECORDED_PROGRAMS:
        details["more_programs"] = len(outcome.programs) - MAX_RECORDED_PROGRAMS
    return details
