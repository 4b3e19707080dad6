"""A bridge that the daemon does not come with: everything it declares is served by a real daemon process.

One line of `bridge_list` is edited for it, in every process that reads the list: the daemon's and the commands'.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from living import Living, run_command
from wires import Caller, LinkWire

from patience import PATIENCE

sys.path.insert(0, str(Path(__file__).parent.parent / "mcp"))

from speaking import Agent

# Run before anything else of ours is imported: `bascule.bridge_list` is its own source with one line more.
ONE_LINE_MORE = f"""
import importlib.util, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
found = importlib.util.find_spec("bascule.bridge_list")
before = found.loader.get_source(found.name)
last = "    DesktopDeclared(),\\n"
after = before.replace(last, last + "    __import__('toy_bridge').ToyDeclared(),\\n")
assert len(after.splitlines()) == len(before.splitlines()) + 1
sys.modules[found.name] = importlib.util.module_from_spec(found)
exec(compile(after, found.origin, "exec"), sys.modules[found.name].__dict__)
"""
# `bascule`, edited.
EDITED = [
    *(sys.executable, "-P", "-c"),
    ONE_LINE_MORE + "from bascule.cli.main import main\nsys.exit(main(sys.argv[1:]))\n",
]


@pytest.fixture
def live(state):
    """A daemon with the fifth bridge; `mcp` serves its tool, too."""
    opened = []

    def start(**config):
        opened.append(Living(state, bug=ONE_LINE_MORE, **config))
        return opened[-1]

    yield start
    for daemon in opened:
        if daemon.process.poll() is None:
            daemon.kill()


def edited(*arguments, config_dir):
    """A command that ends by itself."""
    return subprocess.run(
        [*EDITED, *arguments],
        env={"PATH": os.environ["PATH"], "BASCULE_CONFIG_DIR": str(config_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_method_of_a_fifth_bridge_is_served_over_http_and_the_link(live):
    daemon = live()
    jerry = Caller(daemon).register("Jerry")
    assert jerry.post("/v1/marks/oak", {}).json == {"name": "oak", "count": 1, "agents": 1}
    with LinkWire(daemon.link_socket) as link:
        assert link.hello().call("marks.put", {"name": "oak"}) == {"name": "oak", "count": 2, "agents": 1}
        assert [each["outcome"] for each in link.call("ledger.show", {"what": "marks.put"})] == ["ok", "ok"]
    assert jerry.gauge("bascule_marks") == 1
    described = Caller(daemon).get("/openapi.json").json["paths"]["/v1/marks/{name}"]["post"]
    assert described["summary"] == "Make a mark."


def test_the_tool_of_a_fifth_bridge_is_listed_and_called_over_mcp(live):
    jerry = Agent(live(mcp="on"), "Jerry")
    client = jerry.modern()
    assert "put_mark" in {tool["name"] for tool in client.ask("tools/list")["tools"]}
    answer = client.call("put_mark", name="elm")
    assert answer["structuredContent"] == {"name": "elm", "count": 1, "agents": 1}


def test_the_toolset_of_a_fifth_bridge_can_be_left_out_of_mcp(live):
    client = Agent(live(mcp="on", mcp_toolsets="agents"), "Jerry").modern()
    assert "put_mark" not in {tool["name"] for tool in client.ask("tools/list")["tools"]}


@pytest.mark.parametrize("toolset", ["marks", "agents"])
def test_the_tool_of_a_fifth_bridge_is_called_over_the_link_with_its_toolset_open(live, toolset):
    daemon = live()
    token = Caller(daemon).register("Jerry").token
    call = {"id": 1, "method": "tools/call", "params": {"name": "put_mark", "arguments": {"name": "ash"}}}
    with LinkWire(daemon.link_socket) as link:
        link.hello(token).call("mcp.open", {"toolsets": [toolset], "trust": "peer"})
        answer = link.call("mcp.request", {"call": "c-1", "leftMs": 60_000, "message": call})["message"]
    if toolset == "marks":
        assert answer["result"]["structuredContent"]["count"] == 1
    else:
        assert answer["error"]["message"] == "there is no tool put_mark"


def test_the_setting_of_a_fifth_bridge_is_read_and_its_check_is_a_line_of_the_doctors(state, tmp_path):
    (tmp_path / "config.toml").write_text('max_marks = 1\nmcp = "off"\nannounce = "off"\n')
    before = edited("doctor", "--state-dir", state, "--port", "0", config_dir=tmp_path)
    assert re.search("marks +at most 1, daemon stopped", before.stdout), before.stderr
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*EDITED, "up", "--state-dir", state, "--port", "0", "--log", "off", "--ready-fd", str(writing)],
        env={"PATH": os.environ["PATH"], "BASCULE_CONFIG_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        pass_fds=[writing],
    ) as daemon:
        try:
            os.close(writing)
            with open(reading, "rb") as ready:
                assert ready.readline() == b"ready\n"
            with LinkWire(f"{state}/link.sock") as link:
                assert link.hello().call("marks.put", {"name": "oak"})["count"] == 1
                assert link.refusal("marks.put", {"name": "elm"})["message"] == "there are 1 marks already"
            after = edited("doctor", "--state-dir", state, config_dir=tmp_path)
            assert re.search("marks +at most 1, daemon running", after.stdout), after.stderr
        finally:
            daemon.terminate()
            assert daemon.wait(PATIENCE) == 0


def test_the_command_of_a_fifth_bridge_calls_its_method_and_is_in_the_help(live, state, tmp_path):
    live()
    for count in (1, 2):
        done = edited("marks", "oak", "--state-dir", state, config_dir=tmp_path)
        assert (done.stdout, done.returncode) == (f"oak: {count}\n", 0), done.stderr
    refused = edited("marks", "secret", "--state-dir", state, config_dir=tmp_path)
    assert "a secret mark is not a mark" in refused.stderr
    assert refused.returncode == 4
    assert "make a mark" in edited("--help", config_dir=tmp_path).stdout
    assert "invalid choice: 'marks'" in run_command("marks", "oak", "--state-dir", state).stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('max_marks = "many"', "config.toml: `max_marks`: expected `int`"),
        ("max_mark = 1", "config.toml: unknown key 'max_mark'\n  did you mean 'max_marks'?"),
    ],
)
def test_a_wrong_value_and_a_wrong_name_of_its_setting_are_said(state, tmp_path, text, expected):
    (tmp_path / "config.toml").write_text(text)
    done = edited("up", "--state-dir", state, config_dir=tmp_path)
    assert expected in done.stderr
    assert done.returncode == 2


def test_a_daemon_without_the_bridge_knows_no_such_setting(state, tmp_path):
    (tmp_path / "config.toml").write_text("max_marks = 1")
    done = run_command("up", "--state-dir", state, environment={"BASCULE_CONFIG_DIR": str(tmp_path)})
    assert "unknown key 'max_marks'" in done.stderr


def test_the_rule_of_a_fifth_bridge_is_part_of_the_preset_and_explained_by_the_cli(live, state):
    daemon = live()
    refused = Caller(daemon).post("/v1/marks/secret", {})
    assert refused.status == 403
    assert refused.error["details"]["rule"] == "no-secret-marks"
    explained = run_command("policy", "explain", "marks.put", '{"name": "secret"}', "--state-dir", state)
    assert "no-secret-marks" in explained.stdout, explained.stderr
    shown = run_command("policy", "show", "--state-dir", state)
    assert 'name = "no-secret-marks"' in shown.stdout


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_the_table_of_a_fifth_bridge_is_there_after_a_restart(live, clean):
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
