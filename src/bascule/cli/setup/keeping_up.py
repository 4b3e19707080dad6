"""How `bascule on` keeps the daemon running: a service of the user, or a daemon in the background."""

import os
import subprocess
from pathlib import Path

from bascule.cli import paste, service
from bascule.cli.setup.record import Entry, Record
from bascule.foundation import paths

PART = "service"
# The daemon is ready within a second; a store with a hundred thousand tickets takes a few.
START_SECONDS = 60


class KeepingUp:
    """What is to be done is known before anything is written: `shown`, then `do`."""

    def __init__(self, state: str, manager: service.Service | None, record: Record, *, undo: bool) -> None:
        self._state = state
        self._record = record
        self._undo = undo
        self._manager = manager if manager is not None and service.answers(manager) else None
        self._installed = manager is not None and PART in record.of(str(manager.file)).parts
        self._file = manager.file if manager is not None else None

    def shown(self) -> list[str]:
        if self._undo:
            return [f"stop the service and remove {self._file}"] if self._installed else []
        if self._manager is None:
            started = "start the daemon now; there is no service manager here, so `bascule up -d` starts it next time"
            return [] if service.listens(paths.link_socket(self._state)) else [started]
        if service.is_current(self._manager):
            return []
        return [f"install and start a service of yours: {self._manager.file}"]

    def details(self) -> str:
        """The text of the service that is to be installed."""
        manager = self._manager
        return "" if self._undo or manager is None or service.is_current(manager) else manager.text

    def do(self) -> str | None:
        """What went otherwise than shown."""
        if not self.shown():
            return None
        if self._undo:
            return self._remove()
        if self._manager is not None:
            fault = self._install(self._manager)
            return fault and f"{fault} {self._start() or 'The daemon runs in the background until then.'}"
        return self._start()

    def _install(self, manager: service.Service) -> str | None:
        target, before = str(manager.file), manager.file.exists()
        missing = [str(each) for each in manager.file.parents if not each.exists()]
        done = service.put_in_force(manager, state=self._state)
        if not before:
            self._record.add(target, Entry(file=True, dirs=missing[::-1], parts=[PART]))
            self._record.save()
        return None if done else f"The service could not be started; its file is {target}."

    def _remove(self) -> str | None:
        assert self._file is not None
        manager = self._manager
        done = manager is not None and service.take_down(manager)
        if manager is None:
            self._file.unlink(missing_ok=True)
        self._record.forget(str(self._file))
        self._record.save()
        return None if done else "The service manager did not answer; the service is gone with the next login."

    def _start(self) -> str | None:
        if service.listens(paths.link_socket(self._state)):
            return None
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [paste.command(), "up", "-d", "--tcp-optional", "--state-dir", self._state],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=START_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            return f"The daemon could not be started: {fault}."
        return None if done.returncode == 0 else f"The daemon did not start: {done.stderr.strip()[-500:]}"


def service_of(state_dir: str | None, home: str) -> service.Service | None:
    """The user's service manager, if this is a system that has one."""
    try:
        return service.for_platform(Path(home), service.environment_of(state_dir))
    except service.CannotInstall:
        return None


def is_own_home(home: str) -> bool:
    """Root may set up somebody else's clients, but not their services."""
    return os.path.realpath(home) == os.path.realpath(paths.home())
