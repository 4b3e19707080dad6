"""How often the real host is asked for one act, and that it acts on what the person saw or not at all."""

import contextlib
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from desktop_rig import until
from living import short_dir
from screened import Screened

from patience import PATIENCE

HELD_MS = 30_000


def route(program):
    return {"app": {"pid": program.pid}}


def titled(title, role="AXButton"):
    return {"selector": {"byRole": role, "titleContains": title}}


ACTS = {
    "click": ({"target": titled("Press me")}, {"pressed": 1}, {"pressed": 2}),
    "typeText": (
        {"target": titled("Name", "AXTextField"), "text": "ab", "options": {"clearBefore": True}},
        {"name": "ab"},
        {"name": "ab"},
    ),
    "drag": ({"target": titled("Pad", "AXGroup"), "to": titled("Press me")}, {}, {}),
}


@pytest.fixture(scope="module")
def patient_house(desktop):
    """Callers are held until the person has answered."""
    with short_dir() as folder, Screened(desktop, folder, approval_hold_ms=HELD_MS) as made:
        # Starts the host.
        made.person.call("desktop.health")
        yield made


@pytest.fixture
def house(patient_house):
    patient_house.new_agent()
    return patient_house


def requests(house):
    """What the host was asked so far: its own log, which the daemon's standard error holds."""
    calls = []
    for line in house.daemon.terminal().split("\n"):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if entry.get("event") == "call" and "pid" in entry:
                calls.append(entry["method"])
    return calls


@contextlib.contextmanager
def asked(house, method, **params):
    """A call that waits for the person, and the question about it."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(house.call, method, **params)
        (question,) = until(lambda: house.person.call("approvals.list"), "the question")
        yield answer, question


@pytest.mark.parametrize("method", ACTS)
def test_an_approved_act_is_three_requests_and_an_allowed_one_two(house, start, method):
    app = start("gtk3")
    params, once, twice = ACTS[method]
    before = len(requests(house))
    with asked(house, method, route=route(app), **params) as (answer, question):
        house.decide(question)
        assert answer.result(PATIENCE).status == 200
    assert requests(house)[before:] == ["desktop.resolve", "desktop.resolve", f"desktop.{method}"]
    app.until(**once)
    with asked(house, method, route=route(app), **params) as (answer, question):
        house.decide(question, scope="rule", offer=1)
        assert answer.result(PATIENCE).status == 200
    app.until(**twice)
    before = len(requests(house))
    house.done(method, route=route(app), **params)
    assert requests(house)[before:] == ["desktop.resolve", f"desktop.{method}"]


@pytest.mark.parametrize("change", ["nothing", "title", "element", "process"])
def test_what_changes_after_the_question_gets_nothing_of_the_yes(house, start, change):
    app = start("gtk3", title=f"Letter {change}")
    window = {"window": {"titlePattern": f"^Letter {change}"}}
    click = {"route": window, "target": titled("Old")}
    other = None
    with asked(house, "click", **click) as (answer, question):
        match change:
            case "title":
                search = ["xdotool", "search", "--onlyvisible", "--name", f"^{app.title}$"]
                renamed = [*search, "set_window", "--name", f"{app.title} to the bank"]
                subprocess.run(renamed, env=house.desktop.environment, check=True, capture_output=True)
            case "element":
                house.person.call("desktop.click", {"route": route(app), "target": titled("Replace")})
                app.until(replaced=1)
            case "process":
                app.kill()
                other = start("gtk3", title=app.title)
        house.decide(question)
        answered = answer.result(PATIENCE)
    if change == "nothing":
        assert answered.status == 200, answered.json
        app.until(old=1)
        return
    desktop = answered.error["details"]["desktop"]
    if change == "title":
        assert answered.status == 409
        assert answered.error["details"]["executed"] == "no"
        assert (desktop["code"], desktop["details"]["changed"]) == ("DESKTOP_CONFIRM_REQUIRED", ["windowTitle"])
        assert f"has changed since {question['approvalId']} was approved" in answered.error["message"]
    else:
        assert answered.status == 404
        assert desktop["code"] == "DESKTOP_ELEMENT_NOT_FOUND"
        assert desktop["details"]["reason"] == {"element": "stale", "process": "route"}[change]
    for each in (app, other):
        assert each is None or not {"old", "new"} & set(each.state)
    assert [each["outcome"] for each in house.records("click")][:2] == ["approval_required", "begun"]
