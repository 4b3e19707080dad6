"""Agents of another machine, as people and agents of this one see them: a real mesh of two daemons, and every screen.

`near` has a console and holds the mesh; `far` is the other machine.
"""

import contextlib
import json
import re

import pytest
from live_nodes import LiveNode
from living import eventually, run_command, short_dir
from playwright.sync_api import expect
from raw_client import RawClient
from scenes import Scene
from wires import Caller

from bascule.client import SyncClient
from gabp.text import is_hidden
from ports import free_port

FAR = "Jerry@far"
# The console looks again this often, see live.js.
LOOK_MS = 30_000
AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Keys of a terminal, a new row, the direction of reading, nothing at all; then as long as a type may be.
HOSTILE = "\x1b[2J\x1b]0;x\x07\x9b31m\r\n\u202eedoc\u2066\u200b\x00<img src=x onerror=hit()>".ljust(64, "\u202e")


@pytest.fixture(scope="module")
def near():
    with short_dir() as folder:
        scene = Scene(folder)
        try:
            scene.people()
            with scene.person() as link:
                link.call("mesh.new", {"mesh": "home", "node": "near", "listen": f"127.0.0.1:{free_port()}"})
            yield scene
        finally:
            # Its last life: it is started again.
            scene.daemon.kill()


@pytest.fixture(scope="module")
def far(near):
    with short_dir() as folder:
        node = LiveNode(folder, "far")
        try:
            with near.person() as link:
                node.join(link.call("mesh.invite")["code"])
                asking = eventually(lambda: asks(link), "far asks")
                link.call("mesh.accept", {"node": "far", "words": asking["words"]})
            node.await_standing("member")
            yield node
        finally:
            node.close()


def asks(link):
    return next((each for each in link.call("mesh.nodes")["nodes"] if each["standing"] == "waiting"), None)


@pytest.fixture(scope="module")
def reader(near):
    """An agent of near in a client of its own."""
    with RawClient(near.daemon.state, "--agent", "Reader") as client:
        client.initialize()
        yield client


@pytest.fixture
def live(near, browser):
    """The console's page of agents, on a clock that can be put forward."""
    with near.browser(browser) as (context, faults):
        context.clock.install()
        yield near.signed_in(context, "live")
        assert faults.unnamed() == []


# -- the screens: what each says of one agent --


def by_tool(client, tool, agent=FAR, **arguments):
    answer = client.call(tool, **arguments)
    assert not answer["isError"], answer
    return next((each for each in answer["structuredContent"]["agents"] if each["agentId"] == agent), None)


def by_command(near, *command, agent=FAR):
    done = run_command(*command, "--state-dir", near.daemon.state)
    assert done.returncode == 0, done
    return next((line for line in done.stdout.splitlines() if line.startswith(f"{agent} ")), "")


def row_of(live, agent=FAR):
    return live.page.get_by_role("table", name="Table of agents").locator("tbody tr").filter(has_text=agent)


def every_screen_shows(status, near, reader, live):
    """And since when, of one that is unreachable."""
    eventually(lambda: (by_tool(reader, "co_workers") or {}).get("status") == status, f"co_workers: {status}")
    listed = by_tool(reader, "list_agents", status=status)
    assert listed is not None, "the filter knows it"
    for other in {"online", "offline", "unknown", "unreachable"} - {status}:
        assert by_tool(reader, "list_agents", status=other) is None
    lines = [by_command(near, "agents"), by_command(near, "top", "--once")]
    assert re.match(rf"Jerry@far +{status} +script", lines[0]), lines
    assert re.match(rf"Jerry@far +script +{status}\b", lines[1]), lines
    # Nothing happens here that would make the page look: it looks by itself.
    live.page.clock.fast_forward(LOOK_MS)
    expect(row_of(live).locator(".badge")).to_have_text(status)
    if status == "unreachable":
        since = listed["lastHeartbeat"]
        assert by_tool(reader, "co_workers")["lastHeartbeat"] == since
        assert all(f"last seen {since}" in line for line in lines), lines
        expect(row_of(live).locator("time")).to_have_attribute("datetime", since)
    else:
        assert not any(AT.search(line) for line in lines), "since when is said of who is away"


@contextlib.contextmanager
def jerry(far):
    """On far, as long as it is there."""
    with SyncClient.connect(far.state) as client:
        client.register("Jerry", type="script")
        yield client


def test_every_screen_shows_an_agent_elsewhere_online_offline_and_unreachable_since_when(near, far, reader, live):
    with jerry(far):
        every_screen_shows("online", near, reader, live)
    every_screen_shows("offline", near, reader, live)
    far.stop()
    every_screen_shows("unreachable", near, reader, live)
    far.start()
    with jerry(far):
        eventually(lambda: by_tool(reader, "co_workers")["status"] == "online", "it is back")


def test_who_was_not_heard_of_since_the_start_has_no_time_at_all(near, far, reader):
    with jerry(far):
        eventually(lambda: (by_tool(reader, "co_workers") or {}).get("status") == "online", "it is there")
    # Its list of agents stays with the server.
    far.stop()
    eventually(lambda: by_tool(reader, "co_workers")["status"] == "unreachable", "it is away")
    assert near.daemon.stop() == 0
    near.start_again()
    line = eventually(lambda: by_command(near, "agents"), "its agents are listed")
    assert re.fullmatch(r"Jerry@far +unreachable +script +not heard of yet", line)
    assert "not heard of yet" in by_command(near, "top", "--once")
    listed = {each["agentId"]: each for each in near.local().get("/agents").json}
    assert "lastHeartbeat" not in listed[FAR]
    assert listed["Jerry"]["lastHeartbeat"] > "2026", "the control: one of here has one"
    far.start()
    eventually(lambda: AT.search(json.dumps(seen(near))), "heard of again, and when")


def seen(near):
    return next(each for each in near.local().get("/agents").json if each["agentId"] == FAR).get("lastHeartbeat", "")


def test_a_hostile_type_of_an_agent_elsewhere_is_shown_by_the_names_of_its_letters(near, far, reader, live):
    long = "L" * 64
    for handle, type_ in (("Mallory", HOSTILE), (long, "x" * 64), ("Plain", "script")):
        Caller(far.daemon).register(handle, type=type_)
    eventually(lambda: by_tool(reader, "co_workers", "Plain@far"), "far lists them")
    # The control: every letter is there to be shown.
    for tool in ("co_workers", "list_agents"):
        assert by_tool(reader, tool, "Mallory@far")["type"] == HOSTILE
    for command in (("agents",), ("top", "--once"), ("agents", "--json")):
        shown = run_command(*command, "--state-dir", near.daemon.state).stdout
        assert not [letter for letter in shown if is_hidden(letter) and letter != "\n"], command
        assert len([line for line in shown.splitlines() if "Mallory@far" in line]) == 1, "it begins no row"
        assert f"{long}@far" in shown, "a long handle hides no machine"
    for command in (("agents",), ("top", "--once")):
        assert "⟨ESC⟩[2J⟨ESC⟩]0;x" in by_command(near, *command, agent="Mallory@far")
        assert by_command(near, *command, agent="Plain@far").split()[1:3] in (
            ["online", "script"],
            ["script", "online"],
        )
    live.page.reload()
    row = row_of(live, "Mallory@far")
    expect(row).to_have_count(1)
    expect(row.locator(".hidden-letter").first).to_have_text("⟨ESC⟩")
    assert not [letter for letter in row.inner_text() if is_hidden(letter) and letter not in "\n\t"]
    assert row.locator("img").count() == 0
    expect(row_of(live, "LLL").locator("td").first).to_have_text(re.compile("^L+…L+@far$"))
