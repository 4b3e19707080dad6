"""This machine, as the native bridge sees it."""

import os
from collections.abc import Collection, Sequence

from bascule.native.machine.processes import gone, has_terminal, is_silenced, left_by, start_of, ticks_now
from bascule.native.machine.projects import Projects
from bascule.native.machine.transcripts import calls_in
from bascule.native.ports import Left, ProcessStart


class LocalMachine:
    def __init__(self, home: str) -> None:
        self._projects = Projects(home)
        self.home = self._projects.home

    def project(self, directory: str) -> str:
        return self._projects.find(directory)

    def resolved(self, paths: Sequence[str], *, follow: bool) -> list[str]:
        if follow:
            return [os.path.realpath(path) for path in paths]
        return [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths]

    def start_of(self, pid: int) -> ProcessStart | None:
        return start_of(pid)

    def ticks_now(self) -> int:
        return ticks_now()

    def left_by(
        self, client: ProcessStart, since: int, root: str, *, others: Collection[ProcessStart], orphans_only: bool
    ) -> list[Left]:
        return left_by(client, since, root, others=others, orphans_only=orphans_only)

    def is_silenced(self, client: ProcessStart, since: int, directory: str) -> bool:
        return is_silenced(client, since, directory)

    async def gone(self, process: ProcessStart) -> None:
        await gone(process)

    def has_terminal(self, pid: int) -> bool:
        return has_terminal(pid)

    def calls_in(self, transcript: str) -> frozenset[str]:
        return calls_in(transcript)
