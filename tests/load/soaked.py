"""A daemon whose kept data reaches a steady state within seconds, and that says what it holds. Run as a program.

SIGUSR1 writes how many objects of each type are alive, and how long its tables are, beside the state directory.
"""

import asyncio
import collections
import gc
import json
import os
import signal
import sys

import msgspec

from bascule.broker.limits import BrokerLimits
from bascule.broker.settings import BrokerSettings
from bascule.daemon import composition, lifecycle
from bascule.daemon.compose import Daemon
from bascule.daemon.config import from_values
from bascule.kernel.settings import Config

# Days and hours as seconds: what is kept for a while is kept for a moment.
SECONDS = {"remember_ms": 2_000, "agent_retention_ms": 1_500, "silence_ms": 500, "max_remembered": 2_000}


class Hasty(BrokerSettings, frozen=True, kw_only=True):
    def limits(self) -> BrokerLimits:
        return msgspec.structs.replace(super().limits(), **SECONDS)


def hasty(config: Config) -> Config:
    broker = config.of(BrokerSettings)
    return Config((Hasty(**msgspec.structs.asdict(broker)), *(part for part in config.parts if part is not broker)))


def held(daemon: Daemon) -> dict[str, int]:
    broker = daemon.bridges["broker"].service
    state = broker.state
    return {
        "tickets": len(state.tickets.rows),
        "messages": len(state.messages.rows),
        "agents": len(state.agents.rows),
        "inboxes": len(state.inboxes),
        "deadlines": len(daemon.timers),
        "remembered": len(state.remembered.rows),
        "conversations": len(state.conversations),
        "waits": broker.waits.count(),
        "links": len(daemon.connections.all),
        "tasks": len(asyncio.all_tasks()),
    }


def main() -> None:
    options = json.loads(sys.argv[1])
    composition.SWEEP_EVERY_MS = 500

    def report(daemon: Daemon) -> None:
        gc.collect()
        types = collections.Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
        path = options["state"] + ".held"
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"tables": held(daemon), "types": types}, file)
        os.replace(path + ".new", path)

    def ready(daemon: Daemon) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report, daemon)
        if options["leak"]:
            plant(daemon, options["leak"])
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    sys.exit(lifecycle.run(hasty(from_values(options["config"])), options["state"], on_ready=ready))


def plant(daemon: Daemon, size: int) -> None:
    """The control: every call leaves something behind."""
    kept: list[bytearray] = []
    observe = daemon.gate.call_log._observe

    def leak(*seen: object) -> None:
        kept.append(bytearray(size))
        observe(*seen)

    daemon.gate.call_log._observe = leak


if __name__ == "__main__":
    main()
