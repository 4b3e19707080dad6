"""Three computers with a nats-server each, as a team's operator runs them: a cluster that knows its users by claims."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from living import eventually
from namespaces import Computer

from bascule.mesh.machine import hub_config
from nats_servers import SERVER
from operator_of_nats import Operator

_PORT, _ROUTES_PORT = 4222, 6222


@contextlib.contextmanager
def team_servers(folder: Path, operator: Operator, found: Sequence[Computer]) -> Iterator[None]:
    """Ready to make streams: the servers know each other, and have elected who makes them."""
    with contextlib.ExitStack() as stack:
        logs = []
        for computer in found:
            place = folder / f"nats-{computer.name}"
            place.mkdir()
            conf, log = place / "conf", place / "log"
            config = {
                "port": _PORT,
                "server_name": computer.name,
                "max_payload": hub_config.MAX_PAYLOAD,
                "jetstream": {"store_dir": str(place / "jetstream")},
                "cluster": {
                    "name": "team",
                    "port": _ROUTES_PORT,
                    "routes": [f"nats://{other.name}:{_ROUTES_PORT}" for other in found if other is not computer],
                },
                **operator.config(),
            }
            conf.write_text(json.dumps(config))
            logs.append(log)
            with log.open("wb") as shown:
                command = computer.entering(str(SERVER), "-c", str(conf))
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=shown, stderr=shown)
            # What it started ends with its computer; this is who waits for it.
            stack.callback(process.wait)
            stack.callback(computer.end)
        for log in logs:
            eventually(lambda log=log: b"metadata leader" in log.read_bytes(), f"{log} says who leads")
        yield
