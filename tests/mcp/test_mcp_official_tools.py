"""The protocol's own tools against our surfaces: the conformance suite, the Inspector, the TypeScript clients."""

import contextlib
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from living import eventually, free_port, short_dir

from npm_tools import node_tools
from patience import PATIENCE

HERE = Path(__file__).parent
PACKAGES = HERE / "npm_packages.json"
BASCULE = str(Path(sys.executable).parent / "bascule")
CONFORMANCE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = ".bin/mcp-inspector"
# What the suite found to check at these revisions; less would mean that it looked at less.
REVISIONS = {"2025-11-25": 80, "2026-07-28": 160}

# The first of these tests may have to install what it runs.


@pytest.fixture(scope="module")
def tools():
    return node_tools(PACKAGES)


# -- the suite ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fixture_url(tools):
    port = free_port()
    with short_dir() as folder, contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, HERE / "conformance" / "fixture_daemon.py", f"{folder}/s", str(port)],
                stdout=subprocess.PIPE,
            )
        )
        stack.callback(process.terminate)
        assert process.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_conformance_suite_passes(tools, fixture_url, revision, record_property):
    baseline = HERE / "conformance" / "expected-failures.yml"
    wanted = ("--requirements", revision, "--expected-failures", str(baseline))
    ended = tools.run(CONFORMANCE, "server", "--url", fixture_url, *wanted, seconds=PATIENCE)
    summary = ended.stdout[ended.stdout.find("=== SUMMARY ===") :]
    assert ended.returncode == 0, summary + ended.stderr[-2000:]
    passed, failed = map(int, re.search(r"Total: (\d+) passed, (\d+) failed", summary).groups())
    record_property("checks", f"{passed} passed, {failed} failed or not scored")
    assert passed >= REVISIONS[revision], summary


# Of the tasks extension, with the number of their checks. What it says of notifications is not written yet: a skip.
TASK_SCENARIOS = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-status-notifications": 0,
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
}


def test_the_conformance_suite_passes_for_the_tasks_extension(tools, fixture_url, record_property):
    def run(scenario):
        ended = tools.run(CONFORMANCE, "server", "--url", fixture_url, "--scenario", scenario, seconds=PATIENCE)
        assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
        return int(re.search(r"Passed: (\d+)/\d+, 0 failed", ended.stdout)[1])

    # They mostly wait, for tasks that take a second or two.
    with ThreadPoolExecutor(4) as beside:
        passed = dict(zip(TASK_SCENARIOS, beside.map(run, TASK_SCENARIOS), strict=True))
    record_property("checks", f"{sum(passed.values())} passed")
    assert passed == TASK_SCENARIOS


# -- the Inspector --------------------------------------------------------------------------------------


@pytest.fixture(params=["stdio", "http"])
def target(request, daemon, agent):
    if request.param == "stdio":
        return [BASCULE, "mcp", "--no-start", "--state-dir", daemon.state]
    return [
        *(f"http://{daemon.host}/mcp", "--transport", "http"),
        *("--header", f"Authorization: Bearer {agent('Inspector').token}"),
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_our_tools_in_strict_mode(tools, target, era):
    strict = ("--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json")
    ended = tools.run(INSPECTOR, "--cli", *target, *strict, seconds=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert "Error: tool" not in ended.stderr
    assert "send_message" in ended.stdout


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_one_of_our_tools(tools, target, era):
    call = ("--protocol-era", era, "--method", "tools/call", "--tool-name", "co_workers", "--format", "json")
    ended = tools.run(INSPECTOR, "--cli", *target, *call, seconds=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    output = json.loads(ended.stdout)
    assert output.get("result", output)["structuredContent"]["you"].lower().startswith("inspector")


# -- the TypeScript clients -----------------------------------------------------------------------------

CLIENTS = {
    "first generation": ("sdk", None),
    "second, legacy": ("client", "legacy"),
    "second, auto": ("client", "auto"),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_typescript_client_asks_and_is_answered(tools, daemon, agent, client, transport):
    library, mode = CLIENTS[client]
    worker = agent("Worker")
    if transport == "stdio":
        server = {"command": BASCULE, "args": ["mcp", "--no-start", "--state-dir", daemon.state]}
    else:
        server = {"url": f"http://{daemon.host}/mcp", "token": agent("Asker").token}
    output = {
        "packages": str(tools.package_file),
        "library": library,
        "mode": mode,
        "server": server,
        "ask": {"agentId": worker.handle, "payload": "What is 6 x 7?"},
    }

    def answer() -> None:
        taken = worker.caller
        message = eventually(
            lambda: taken.get(f"/agents/{worker.handle}/inbox?waitMs=1000").body, "the question", PATIENCE
        )
        ticket = json.loads(message)["messages"][0]["ticketId"]
        assert worker.caller.post("/replies", {"ticketId": ticket, "payload": {"answer": 42}}).status == 204

    answering = threading.Thread(target=answer)
    answering.start()
    ended = tools.run(HERE / "ask.mjs", json.dumps(output), seconds=PATIENCE)
    answering.join(PATIENCE)
    assert ended.returncode == 0, ended.stderr
    received = json.loads(ended.stdout)
    assert received["reply"]["payload"] == {"answer": 42}
    assert received["reply"]["from"] == worker.handle
    assert "send_message" in received["tools"]
    if mode == "auto":
        assert received["version"] == "2026-07-28"


# -- where they are not installed ----------------------------------------------------------------------


def test_without_a_registry_a_laptop_skips_and_ci_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("BASCULE_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("BASCULE_TEST_INSTALL", "1")
    # Nobody listens there.
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="`npm install` failed"):
        node_tools.__wrapped__(PACKAGES)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI nothing may be skipped"):
        node_tools.__wrapped__(PACKAGES)
