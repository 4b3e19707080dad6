"""A bridge that the daemon does not come with: everything it declares is served by a real daemon process.

Nothing of ours is edited for it. A bridge of our own would be one line of `bridge_list.BRIDGES`.
"""

import sys
from pathlib import Path

import pytest
from living import Living, run_command
from wires import Caller, LinkWire

sys.path.insert(0, str(Path(__file__).parent.parent / "mcp"))

from speaking import Agent

# The list of a daemon with one more bridge.
ONE_MORE = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
from toy_bridge import ToyDeclared
more_bridges.append(ToyDeclared())
"""


@pytest.fixture
def live(state):
    """A daemon with the fifth bridge; `mcp=True` serves its tool, too."""
    opened = []

    def start(*, mcp=False):
        opened.append(Living(state, bug=ONE_MORE, mcp="on" if mcp else "off"))
        return opened[-1]

    yield start
    for daemon in opened:
        if daemon.process.poll() is None:
            daemon.kill()


def test_its_method_is_served_over_http_and_the_link_and_counts_in_one_table(live):
    daemon = live()
    jerry = Caller(daemon).register("Jerry")
    assert jerry.post("/v1/marks/oak", {}).json == {"name": "oak", "count": 1, "agents": 1}
    with LinkWire(daemon.link_socket) as link:
        assert link.hello().call("marks.put", {"name": "oak"}) == {"name": "oak", "count": 2, "agents": 1}
        assert [each["outcome"] for each in link.call("ledger.show", {"what": "marks.put"})] == ["ok", "ok"]
    assert jerry.gauge("bascule_marks") == 1
    described = Caller(daemon).get("/openapi.json").json["paths"]["/v1/marks/{name}"]["post"]
    assert described["summary"] == "Make a mark."


def test_its_tool_is_listed_and_called_over_mcp(live):
    jerry = Agent(live(mcp=True), "Jerry")
    client = jerry.modern()
    assert "put_mark" in {tool["name"] for tool in client.ask("tools/list")["tools"]}
    answer = client.call("put_mark", name="elm")
    assert answer["structuredContent"] == {"name": "elm", "count": 1, "agents": 1}


def test_its_rule_is_part_of_the_preset_and_is_explained_by_the_cli(live, state):
    daemon = live()
    refused = Caller(daemon).post("/v1/marks/secret", {})
    assert refused.status == 403
    assert refused.error["details"]["rule"] == "no-secret-marks"
    explained = run_command("policy", "explain", "marks.put", '{"name": "secret"}', "--state-dir", state)
    assert "no-secret-marks" in explained.stdout, explained.stderr
    shown = run_command("policy", "show", "--state-dir", state)
    assert 'name = "no-secret-marks"' in shown.stdout


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_its_table_is_there_in_the_next_life(live, clean):
    first = live()
    assert Caller(first).post("/v1/marks/oak", {}).json["count"] == 1
    first.stop() if clean else first.kill()
    assert Caller(live()).post("/v1/marks/oak", {}).json["count"] == 2


def test_a_daemon_without_the_bridge_leaves_its_table_alone(live, state):
    first = live()
    assert Caller(first).post("/v1/marks/oak", {}).json["count"] == 1
    first.stop()
    with Living(state) as without:
        assert Caller(without).post("/v1/marks/oak", {}).status == 404
        assert without.stop() == 0
    assert run_command("ledger", "verify", "--state-dir", state).returncode == 0
    assert Caller(live()).post("/v1/marks/oak", {}).json["count"] == 2
