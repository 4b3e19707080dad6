"""Schemathesis reads the API description and tries to catch the daemon at something else, as every kind of caller.

No answer is a fault of the server, every answer is one that the description names in the form it gives, what the
description forbids is refused and what it allows is taken, and nothing works without the right token.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from living import Living, short_dir
from wires import Caller

from patience import PATIENCE

HERE = Path(__file__).resolve().parent
LONG = os.environ.get("BASCULE_LONG") == "1"
# A hundred times what the longest run takes; only one that hangs reaches it.
RUN_SECONDS = 7_200.0

# Waits are answered at once, and nobody calls too often.
SETTINGS: dict[str, Any] = {
    "mcp": "on",
    "calls_per_second": 0,
    "constants": {f"bascule.broker.{module}.MAX_WAIT_MS": 5 for module in ("bells", "waits")},
}
pytestmark = pytest.mark.timeout(RUN_SECONDS + 60)

# A wrong token is always told so: its throttle has tests of its own.
UNTHROTTLED = """
from bascule.kernel.identity.tokens import WrongTokenThrottle
assert callable(WrongTokenThrottle.failed)
WrongTokenThrottle.failed = lambda self, now: None
"""

# The same cases every time; the long run looks at others every time, and names its seed where it fails.
SAME = ("--generation-database", "none") if LONG else ("--generation-deterministic",)
FULL = (
    "--phases",
    "coverage,fuzzing,stateful" if LONG else "coverage,stateful",
    "--max-examples",
    "200" if LONG else "2",
)
SOME = ("--phases", "coverage,fuzzing" if LONG else "fuzzing", "--max-examples", "100" if LONG else "2")
FEW = ("--phases", "fuzzing", "--max-examples", "20" if LONG else "1", "--mode", "positive")
CALLERS = {"an agent": FULL, "the user": SOME, "a wrong token": FEW, "no token": FEW}


def fuzz(daemon: Living, token: str | None, *how: str, only: str = "") -> dict[str, Any]:
    """Schemathesis' own account of a run."""
    folder = Path(daemon.state).parent
    (folder / "openapi.json").write_bytes(Caller(daemon).get("/openapi.json").body)
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += ["--config-file", str(HERE / "schemathesis.toml"), "run", "openapi.json", "--no-color"]
    command += ["--url", f"http://{daemon.host}", "--report", "json", "--report-json-path", "report.json"]
    # Behind it everything would be refused.
    command += ["--exclude-path", "/v1/stop", "--request-timeout", str(PATIENCE), *SAME, *how]
    if token is not None:
        command += ["--header", f"Authorization: Bearer {token}"]
    environment = {"SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(HERE), "BASCULE_FUZZ_ONLY": only}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert report["complete"], done.stdout
    assert report["operations"]["tested"] == report["operations"]["selected"], done.stdout
    assert report["errors"] == [], done.stdout
    report["text"] = done.stdout
    return report


@pytest.fixture(scope="module")
def daemon() -> Iterator[Living]:
    with short_dir() as folder, Living(f"{folder}/s", **SETTINGS, bug=UNTHROTTLED) as living:
        yield living


@pytest.fixture(scope="module")
def jerry(daemon: Living) -> Caller:
    """Who and what fuzz_hooks.py knows of."""
    agent = Caller(daemon).register("Jerry")
    agent.send("Jerry", ticketId="t-1", conversationId="c-1")
    return agent


@pytest.mark.parametrize("caller", CALLERS)
def test_the_daemon_does_what_its_description_says(daemon, jerry, caller):
    tokens = {"an agent": jerry.token, "the user": daemon.token, "a wrong token": "wrong", "no token": None}
    report = fuzz(daemon, tokens[caller], *CALLERS[caller], only="401" if "token" in caller else "")
    assert report["failures"] == [], report["text"]
    assert report["test_cases"]["generated"] >= (500 if caller == "an agent" else 26)
    assert 'bascule_http_responses_total{status="50' not in jerry.get("/metrics").body.decode()


BUGS = """
import msgspec
from bascule.broker.agents import Agents
from bascule.admin.service import Admin
from bascule.foundation.errors import Unauthenticated
from bascule.surfaces.http.admission import Admission

def fails(*args):
    raise RuntimeError("on purpose")

assert callable(Agents.list_agents)
Agents.list_agents = fails
status, admit = Admin.status, Admission.admit
Admin.status = lambda *args: msgspec.structs.replace(status(*args), pid="a word")

def lenient(self, headers):
    try:
        return admit(self, headers)
    except Unauthenticated:
        return "local"

Admission.admit = lenient
"""


def test_a_fault_a_wrong_answer_and_a_needless_token_are_found():
    with short_dir() as folder, Living(f"{folder}/s", **SETTINGS, bug=BUGS) as daemon:
        paths = [text for path in ("/agents", "/status", "/tickets") for text in ("--include-path", path)]
        report = fuzz(daemon, daemon.token, *FEW, *paths)
    found = {(failure["type"], label) for failure in report["failures"] for label in failure["operations"]}
    assert found >= {
        ("ServerError", "GET /agents"),
        ("JsonSchemaError", "GET /status"),
        ("IgnoredAuth", "GET /tickets"),
    }
