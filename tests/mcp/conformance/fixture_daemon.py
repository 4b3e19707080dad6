"""The daemon as it is (gate, application, doors, sessions), with the suite's fixtures behind /mcp instead of our tools.

The suite cannot send an Authorization header, so one is added between the socket and the application, as if the
client had. Nothing else is different. Usage: fixture_daemon.py STATE_DIR PORT
"""

import sys
import warnings
from pathlib import Path

import fixtures
from mcp.shared.exceptions import MCPDeprecationWarning

# A program of its own: nobody else has named the directory of the tests.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from inside import run_daemon_with_mcp_server

# The suite tests what the newest revision has deprecated, too.
warnings.simplefilter("ignore", MCPDeprecationWarning)


def main() -> int:
    state, port = sys.argv[1:]
    server, body = fixtures.server(), fixtures.task_body
    return run_daemon_with_mcp_server(server, state, int(port), token="the-token-of-the-suite", task_body=body)


if __name__ == "__main__":
    sys.exit(main())
