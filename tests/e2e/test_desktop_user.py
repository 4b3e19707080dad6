"""The desktop as a user and their agents have it: a real daemon, its host, a real program, a passphrase on a terminal.

What was done is read from the program's own state file, never from our answer.
"""

import base64
import json
import re
from types import SimpleNamespace

import pytest
from desktop_rig import Desktop
from exit_codes import APPROVAL, NOT_FOUND, NOTHING_CAME, REFUSED, USAGE
from living import Living, eventually, forked, short_dir
from pricing import tokens_in
from raw_client import RawClient
from speaking import Agent, Stream
from wires import LinkWire

from inside import SESSION_VARIABLES
from terminal import on_a_terminal

PASSPHRASE = "correct horse battery staple"
TYPED = [("Passphrase: ", PASSPHRASE)]
# What only a hang reaches.
SECONDS = 90.0
TEXT = "中文 é 😀"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def house():
    """One desktop, one daemon of that desktop's user, and the person with the passphrase."""
    desktop = Desktop()
    session = {name: desktop.environment[name] for name in SESSION_VARIABLES if name in desktop.environment}
    try:
        with (
            short_dir() as folder,
            Living(f"{folder}/s", desktop_root=folder, mcp="on", mcp_toolsets="agents,desktop") as daemon,
            LinkWire(daemon.link_socket).hello() as person,
        ):
            person.call("person.set", {"passphrase": PASSPHRASE})
            person.call("person.unlock", {"passphrase": PASSPHRASE})
            yield SimpleNamespace(desktop=desktop, session=session, folder=folder, daemon=daemon, person=person)
    finally:
        desktop.close()


@pytest.fixture(autouse=True)
def elsewhere(house, monkeypatch):
    """Below a home directory the commands would name the working directory: a checkout may be there."""
    monkeypatch.chdir(house.folder)


@pytest.fixture
def enabled(house):
    house.person.call("desktop.enable", {"environment": house.session})
    yield house
    house.person.call("desktop.resume")
    house.person.call("desktop.disable")


@pytest.fixture
def app(house):
    program = house.desktop.start("gtk3")
    yield program
    program.kill()


@pytest.fixture
def agent(house):
    """`bascule mcp` as a client starts it."""
    options = ("--no-start", "--agent", "Painter", "--toolset", "desktop")
    with RawClient(house.daemon.state, *options, cwd=house.folder) as client:
        client.initialize()
        yield client


def run(house, *arguments):
    environment = {**house.session, "BASCULE_DESKTOP_ROOT": house.folder}
    state = ("--state-dir", house.daemon.state)
    return forked("desktop", *arguments, *state, environment=environment, seconds=SECONDS)


def on_tty(house, *arguments, typed, monkeypatch=None):
    if monkeypatch is not None:
        for name in SESSION_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in house.session.items():
            monkeypatch.setenv(name, value)
    return on_a_terminal(*arguments, "--state-dir", house.daemon.state, typed=typed, seconds=SECONDS)


def question(house, method):
    """The id of what waits for the person."""

    def look():
        waiting = house.person.call("approvals.list")
        return [each["approvalId"] for each in waiting if each["method"] == method and each.get("waiting")]

    return eventually(look, f"a question about {method}", SECONDS)[0]


def approve(house, method, **how):
    answer = {"approvalId": question(house, method), "decision": "approved", **how}
    house.person.call("approvals.decide", answer)


def text_of(answer):
    assert not answer["isError"], answer
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    return answer["structuredContent"]


def result(client, number):
    return text_of(client.answer_to(number)["result"])


def refused(answer):
    assert answer["isError"], answer
    return answer["content"][0]["text"]


def ref_of(snapshot, words):
    return re.search(rf"{words}.*\[(e:\d+)\]", snapshot)[1]


def look_once(house, client, program):
    """After this the agent may look at the program."""
    looking = client.start_call("desktop_observe", window=f"^{program.title}$")
    approve(house, "desktop.observe")
    return client.answer_to(looking)["result"]


def test_a_user_enables_the_desktop_acts_and_reads_the_report(house, app, agent, monkeypatch):
    here = {"window": f"^{app.title}$"}

    # Off: the tools are listed, and say what the user is to do.
    listed = agent.request("tools/list")["result"]["tools"]
    assert len(listed) == 9
    assert "bascule desktop enable" in refused(agent.call("desktop_windows"))
    shown = on_tty(house, "desktop", "enable", typed=TYPED, monkeypatch=monkeypatch)
    assert shown.code == 0, shown
    for words in (
        "asks you once for each app",
        "Ctrl+Alt+Shift+Escape",
        "the desktop can be seen and used",
        "--toolset",
    ):
        assert words in shown.shown

    # Looking asks once.
    looking = agent.start_call("desktop_observe", **here)
    approval_id = question(house, "desktop.observe")
    assert app.title in forked("approvals", "show", approval_id, "--state-dir", house.daemon.state).output
    assert on_tty(house, "approvals", "approve", approval_id, "--once", typed=TYPED).code == 0
    seen = result(agent, looking)
    assert seen["window"] == app.title
    snapshot = seen["snapshot"]
    assert 'button "Press me"' in snapshot
    again = agent.call("desktop_observe", **here)
    assert [each["type"] for each in again["content"]] == ["text"]
    pictured = agent.call("desktop_observe", image=True, marks=True, **here)
    picture = pictured["content"][1]
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(picture["data"]).startswith(PNG)
    assert picture["data"] not in pictured["content"][0]["text"]

    # Acting asks each time, or once for ten minutes.
    clicking = agent.start_call("desktop_click", ref=ref_of(snapshot, 'button "Press me"'))
    approval_id = question(house, "desktop.click")
    assert app.state.get("pressed", 0) == 0
    typed = [("Enter = not now: ", "1"), ("Enter for 10)? ", ""), *TYPED]
    assert on_tty(house, "approvals", "approve", approval_id, typed=typed).code == 0
    clicked = result(agent, clicking)
    app.until(pressed=1)
    assert text_of(agent.call("desktop_type", text=TEXT, ref=ref_of(snapshot, 'textfield "Name"')))["status"] == "ok"
    app.until(name=TEXT)
    changed = text_of(agent.call("desktop_observe", diff=True, **here))
    assert any(TEXT in line for line in changed["changes"])

    # The switch.
    assert run(house, "stop").code == 0
    assert "bascule desktop resume" in refused(agent.call("desktop_click", title="Press me", **here))
    assert "STOPPED" in run(house, "status").output
    assert on_tty(house, "desktop", "resume", typed=TYPED).code == 0
    assert text_of(agent.call("desktop_click", title="Press me", **here))["status"] == "ok"
    app.until(pressed=2)

    # Afterwards.
    page = run(house, "report", clicked["executionId"], "-o", "-")
    assert page.code == 0, page.output
    assert page.output.count("data:image/png;base64,") == 2
    assert "desktop.click" in page.output

    assert run(house, "disable").code == 0
    assert "bascule desktop enable" in refused(agent.call("desktop_observe", **here))
    for log in (house.daemon.log(), forked("ledger", "show", "--state-dir", house.daemon.state).output):
        assert TEXT not in log


def test_a_window_costs_a_model_at_most_1500_tokens(enabled, app, agent):
    text = look_once(enabled, agent, app)["content"][0]["text"]
    assert len(json.loads(text)["snapshot"].split("\n")) > 15
    assert tokens_in(text) <= 1_500


def test_a_wait_is_ended_by_the_id_it_was_given_and_by_its_time(enabled, app, agent):
    look_once(enabled, agent, app)
    here = {"window": f"^{app.title}$", "title": "never there"}
    waiting = agent.start_call("desktop_wait", until="exists", timeoutMs=45_000, requestId="my-wait", **here)
    assert text_of(agent.call("desktop_wait", until="exists", timeoutMs=50, **here))["status"] == "timeout"
    assert text_of(agent.call("desktop_wait", until="gone", **here))["status"] == "ok"
    assert text_of(agent.call("desktop_abort", id="my-wait"))["status"] == "aborted"
    assert refused(agent.answer_to(waiting)["result"])


def test_windows_are_listed_and_brought_to_the_front(enabled, app, agent):
    other = enabled.desktop.start("gtk3")
    try:
        look_once(enabled, agent, app)
        listed = text_of(agent.call("desktop_windows"))["windows"]
        (mine,) = [each for each in listed if each["title"] == app.title]
        focusing = agent.start_call("desktop_windows", focus=mine["windowId"])
        approve(enabled, "desktop.focusWindow")
        assert result(agent, focusing)["effect"] == "confirmed"
        app.until(active=True)
    finally:
        other.kill()


def test_over_http_the_tools_are_the_same_and_a_picture_is_one(enabled, app, agent):
    over_http = Agent(enabled.daemon, "Webber").modern()
    mine = {tool["name"] for tool in over_http.ask("tools/list")["tools"]}
    assert {name for name in mine if name.startswith("desktop_")} == {
        tool["name"] for tool in agent.request("tools/list")["result"]["tools"]
    }
    arguments = {"window": f"^{app.title}$", "image": True}
    wire = over_http.begin_call("desktop_observe", **arguments)
    approve(enabled, "desktop.observe")
    with Stream(wire) as stream:
        answer = stream.result()
    assert answer["structuredContent"]["window"] == app.title
    assert base64.b64decode(answer["content"][1]["data"]).startswith(PNG)


def test_behind_a_broker_url_the_tools_do_the_same(enabled, app):
    options = ("--agent", "Distant", "--toolset", "desktop")
    url = f"http://{enabled.daemon.host}"
    with RawClient(enabled.daemon.state, *options, BRIDGE_BROKER_URL=url) as client:
        client.initialize()
        assert text_of(client.call("desktop_windows"))["windows"]
        looking = client.start_call("desktop_observe", window=f"^{app.title}$", image=True)
        approve(enabled, "desktop.observe")
        seen = client.answer_to(looking)["result"]
        assert base64.b64decode(seen["content"][1]["data"]).startswith(PNG)
        clicking = client.start_call("desktop_click", ref=ref_of(text_of(seen)["snapshot"], 'checkbox "Agree"'))
        approve(enabled, "desktop.click")
        result(client, clicking)
        app.until(agreed=True)


def test_a_person_who_takes_longer_than_a_call_answers_the_next_one(house, app):
    """The model hears `awaiting_approval`, goes on with something else, and calls again with the same arguments."""
    with (
        Living(f"{house.folder}/slow", desktop_root=house.folder, approval_hold_ms=50) as daemon,
        LinkWire(daemon.link_socket).hello() as person,
        RawClient(daemon.state, "--no-start", "--toolset", "desktop") as client,
    ):
        client.initialize()
        person.call("person.set", {"passphrase": PASSPHRASE})
        person.call("person.unlock", {"passphrase": PASSPHRASE})
        person.call("desktop.enable", {"environment": house.session})
        click = {"title": "Press me", "window": f"^{app.title}$"}
        waits = text_of(client.call("desktop_click", **click))
        assert (waits["status"], waits["next"]) == ("awaiting_approval", "desktop_click")
        assert "bascule approvals" in waits["hint"]
        again = text_of(client.call("desktop_click", **click))
        assert again["approvalId"] == waits["approvalId"]
        assert app.state.get("pressed", 0) == 0
        person.call("approvals.decide", {"approvalId": waits["approvalId"], "decision": "approved"})
        assert text_of(client.call("desktop_click", **click))["status"] == "ok"
        app.until(pressed=1)
        assert text_of(client.call("desktop_click", **click))["status"] == "awaiting_approval", "a yes is for one click"
        person.call("desktop.disable")


# -- the command line --


def test_the_question_comes_up_in_the_terminal_that_waits_for_it(enabled, app):
    here = ("--title", "Press me", "--window", f"^{app.title}$")
    typed = [("Enter = not now: ", "y"), *TYPED]
    session = on_tty(enabled, "desktop", "click", *here, typed=typed)
    assert session.code == 0, session
    assert 'AXButton "Press me"' in session.shown
    assert "bascule desktop report " in session.shown
    app.until(pressed=1)
    denied = on_tty(enabled, "desktop", "click", *here, typed=[("Enter = not now: ", "n"), *TYPED])
    assert denied.code == REFUSED
    assert app.state["pressed"] == 1


def test_a_command_without_a_terminal_prints_where_to_answer(enabled, app):
    here = ("--window", f"^{app.title}$")
    asked = run(enabled, "click", "--title", "Press me", "--no-wait", *here)
    assert asked.code == APPROVAL
    assert "bascule approvals approve apr_" in asked.output
    assert app.state.get("pressed", 0) == 0
    (waits,) = enabled.person.call("approvals.list")
    enabled.person.call("approvals.decide", {"approvalId": waits["approvalId"], "decision": "approved"})
    done = run(enabled, "click", "--title", "Press me", "--no-wait", *here)
    assert done.code == 0, done.output
    app.until(pressed=1)


def test_every_verb_of_the_command_line_does_what_it_says(enabled, app):
    here = ("--window", f"^{app.title}$")
    window = {"window": {"titlePattern": here[1]}}
    # The person is not asked about their own calls, and says yes to the terminal's for ten minutes.
    for method, params in (
        ("desktop.observe", {}),
        ("desktop.click", {"target": {"selector": {"titleContains": "Press me"}}}),
    ):
        with LinkWire(enabled.daemon.link_socket).hello() as local:
            number = local.request(method, {"route": window, **params})
            approve(enabled, method, scope="rule", offer=1, minutes=10)
            assert "result" in local.answer(number)
    app.until(pressed=1)
    observed = run(enabled, "observe", *here)
    assert 'checkbox "Agree"' in observed.output
    assert "evidence: " in observed.output
    ref = ref_of(observed.output, 'checkbox "Agree"')
    assert run(enabled, "click", "--ref", ref, *here).code == 0
    app.until(agreed=True)
    assert "1 matched" in run(enabled, "find", "--title", "Agree", *here).output
    assert run(enabled, "find", "--title", "no such thing", *here).code == NOT_FOUND
    typed = run(enabled, "type", TEXT, "--role", "AXTextField", "--title", "Name", "--json", *here)
    assert json.loads(typed.output)["typed"] is True
    app.until(name=TEXT)
    assert TEXT in run(enabled, "observe", "--diff", *here).output
    waited = run(enabled, "wait", "--title", "Name", "--contains", TEXT, *here)
    assert waited.code == 0, waited.output
    assert run(enabled, "wait", "--stable", *here).code == 0
    assert run(enabled, "wait", "--title", "Name", "--gone", "--timeout", "0.1", *here).code == NOTHING_CAME
    assert run(enabled, "hotkey", "ctrl", "a", *here).code == 0
    assert app.title in run(enabled, "windows").output
    assert run(enabled, "focus", *here).code == 0
    nowhere = run(enabled, "observe", "--window", "^no such window$")
    assert nowhere.code == NOT_FOUND
    status = json.loads(run(enabled, "status", "--json").output)
    assert (status["enabled"], status["display"]) == (True, enabled.session["DISPLAY"])
    assert run(enabled, "doctor").output.strip().splitlines()[-1] == "the desktop can be seen and used"


def test_a_terminal_of_no_desktop_cannot_enable_one(house, monkeypatch):
    for name in SESSION_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    session = on_a_terminal("desktop", "enable", "--state-dir", house.daemon.state, typed=[], seconds=SECONDS)
    assert session.code == USAGE
    assert "neither WAYLAND_DISPLAY nor DISPLAY is set" in session.shown
    assert "--daemon-session" in session.shown


def test_without_the_passphrase_nothing_is_enabled(house, monkeypatch):
    wrong = on_tty(house, "desktop", "enable", typed=[("Passphrase: ", "guessed")], monkeypatch=monkeypatch)
    assert wrong.code == REFUSED
    piped = run(house, "enable")
    assert piped.code == USAGE
    assert "no terminal" in piped.output
    assert run(house, "status").output.strip() == "not enabled: bascule desktop enable"
    found = run(house, "doctor")
    assert "not enabled" in found.output
    assert f"X11 at {house.session['DISPLAY']}" in found.output
