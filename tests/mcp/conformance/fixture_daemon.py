"""The daemon as it is (gate, application, doors, sessions), with the suite's fixtures behind /mcp instead of our tools.

The suite cannot send an Authorization header, so one is added between the socket and the application, as if the
client had. Nothing else is different. Usage: fixture_daemon.py STATE_DIR PORT
"""

import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import fixtures
from mcp.shared.exceptions import MCPDeprecationWarning

from bascule.daemon.compose import Daemon
from bascule.daemon.config import Config
from bascule.daemon.lifecycle import run
from bascule.identity.tokens import hash_token
from bascule.mcp import mount
from bascule.mcp.door import McpDoor
from bascule.mcp.sessions import Sessions

TOKEN = "the-token-of-the-suite"

# The suite tests what the newest revision has deprecated, too.
warnings.simplefilter("ignore", MCPDeprecationWarning)


class Fixture(Daemon):
    def web_app(self, *arguments: Any, **options: Any) -> Any:
        self.tokens.add("Suite", hash_token(TOKEN))
        app = super().web_app(*arguments, **options)

        async def with_bearer(scope: Any, receive: Any, send: Any) -> None:
            bearer = (b"authorization", b"Bearer " + TOKEN.encode())
            await app({**scope, "headers": [*scope["headers"], bearer]}, receive, send)

        return with_bearer


def main() -> int:
    from bascule.daemon import lifecycle

    state, port = sys.argv[1:]
    lifecycle.Daemon = Fixture  # type: ignore[misc] # the one class this program is about
    mount.load = lambda: SimpleNamespace(open_door=lambda *_, **__: McpDoor(fixtures.server(), Sessions()))
    config = Config(port=int(port), durability="memory", log="off")
    return run(config, state, on_ready=lambda _: os.write(1, b"ready\n"))


if __name__ == "__main__":
    sys.exit(main())
