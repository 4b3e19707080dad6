"""Daemons by the thousand: each is forked from a process that has imported everything already.

What a fork skips is a quarter of a second of imports; from there on it is `bascule up`, with a process, a state
directory and sockets of its own, and it can be killed like any other.
"""

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Self

from patience import PATIENCE

# What a daemon had to import itself follows behind it, in what it writes at its end.
LATE = "imported after the fork:"


class Nursery:
    """The process that forks; one for all tests of a module."""

    def __init__(self) -> None:
        here = os.path.abspath(__file__)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "BRIDGE_"))}
        # Where `patience` lies.
        clean["PYTHONPATH"] = os.path.dirname(os.path.dirname(here))
        self._process = subprocess.Popen(
            [sys.executable, "-P", here], env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )

    def ask(self, **output: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(output).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


class Forked:
    """One daemon. It may be dead any moment: that is what it is for."""

    def __init__(
        self,
        nursery: Nursery,
        state: str,
        *,
        failpoint: str | None = None,
        plant: str | None = None,
        constants: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._nursery = nursery
        self.state = state
        self._ready_file = f"{state}.ready"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._ready_file)
        env = {f"BASCULE_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"BASCULE_MCP": "off", "BASCULE_CONFIG_DIR": f"{state}.config", "BASCULE_CALLS_PER_SECOND": "0"}
        if failpoint is not None:
            env["BASCULE_FAILPOINT"] = failpoint
        output = {"env": env, "plant": plant, "ready": self._ready_file, "constants": constants or {}}
        self.pid = nursery.ask(do="start", state=state, **output)
        # Readable once the process has ended, though it is not our child.
        self.gone = os.pidfd_open(self.pid)
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            self.signal(signal.SIGKILL)
            self.wait()
        os.close(self.gone)

    @property
    def alive(self) -> bool:
        return not select.select([self.gone], [], [], 0)[0]

    def ready(self) -> bool:
        """Whether it got that far; it may die on the way."""
        deadline = time.monotonic() + PATIENCE
        while not self._printed_ready():
            if not self.alive:
                return self._printed_ready()
            assert time.monotonic() < deadline, f"neither ready nor dead: {self.output()}"
            time.sleep(0.002)
        return True

    def _printed_ready(self) -> bool:
        return os.path.exists(self._ready_file) and os.path.getsize(self._ready_file) > 0

    def signal(self, number: int) -> None:
        if self.status is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Minus the signal that ended it, or its exit code."""
        if self.status is None:
            assert select.select([self.gone], [], [], PATIENCE)[0], f"it lives on: {self.output()}"
            self.status = self._nursery.ask(do="wait", pid=self.pid)
        assert self.status is not None
        return self.status

    def output(self) -> str:
        with open(f"{self.state}.stderr", encoding="utf-8", errors="replace") as file:
            return file.read()


# -- the forking process --


def _serve() -> None:
    import plants

    import bascule.cli.life
    import bascule.cli.main
    import bascule.client
    import bascule.daemon.lifecycle
    import bascule.testing.failpoints
    from bascule.bridge_list import BRIDGES
    from bascule.kernel.declared import named

    bascule.cli.main.build_parser()
    # A daemon imports each part of a bridge when it asks for it.
    for bridge in BRIDGES:
        named(bridge.made_by)
        for part in (bridge.rules, bridge.tables, bridge.settings, bridge.toolset, bridge.hooks):
            part()
    # What is here stays: no child looks through it again.
    gc.freeze()
    living: set[int] = set()
    for line in sys.stdin.buffer:
        output = json.loads(line)
        if output["do"] == "wait":
            _, status = os.waitpid(output["pid"], 0)
            living.discard(output["pid"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                _be_a_daemon(output, bascule.cli.main.main, plants.PLANTS)
            living.add(answer)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _be_a_daemon(output: dict[str, Any], main: Any, plants: dict[str, Any]) -> None:
    code = 70
    here = set(sys.modules)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        errors = os.open(output["state"] + ".stderr", flags, 0o600)
        for number in (1, 2):
            os.dup2(errors, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(output["env"])
        for name, value in output["constants"].items():
            module, _, attribute = name.rpartition(".")
            assert hasattr(sys.modules[module], attribute), name
            setattr(sys.modules[module], attribute, value)
        if output["plant"] is not None:
            plants[output["plant"]]()
        ready = os.open(output["ready"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        arguments = ["up", "--port", "0", "--log", "off", "--state-dir", output["state"], "--ready-fd", str(ready)]
        code = main(arguments)
    except BaseException:  # noqa: BLE001 - nothing of the forked process may go on in its parent's loop
        traceback.print_exc()
    finally:
        if late := sorted(name for name in set(sys.modules) - here if name.startswith("bascule")):
            sys.stderr.write(f"{LATE} {late}\n")
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    _serve()
