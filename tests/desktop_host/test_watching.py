"""How long an act is looked after, and what is said of it: never more than was seen."""

import asyncio
import contextlib
import signal
import time

import msgspec
import pytest
from desktop_rig import until
from element_making import element, tree_of
from host_process import route

from bascule.desktop.extensions import SetValueCall
from bascule.desktop.protocol import ElementRef, Target
from bascule.programs.desktop_host import acting
from bascule.programs.desktop_host.acting import Acting, Aim
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.pointing import Pointing
from bascule.programs.desktop_host.ports import NotAnswering, Pace, Shot, Window
from bascule.programs.desktop_host.redaction import Typed
from bascule.programs.desktop_host.routes import Routed

AREA = Rect(0, 0, 20, 20)
WINDOW = Window(handle=1, pid=7, bundle_id="app", names=frozenset(("app",)), title="t", rect=AREA, outer=AREA)
# Long enough that a test which waits for all of it is over its patience, were it ever waited for.
FOREVER = 3600.0
AT_ONCE = Pace(0.0, 0.0)


class ScriptedDesktop:
    """One window with one element. `answers`: what it says each time that it is read back, the last one for good."""

    has_pictures = True

    def __init__(self, shown, *answers, pace=AT_ONCE):
        self.shown = shown
        self.answers = list(answers) or [shown]
        self.pace = pace
        self.elements = (shown,)
        self.pixels = b"\x01\x02\x03\x00" * (AREA.width * AREA.height)
        self.trees = 0
        self.read_back = 0
        self.on_change = None
        self.while_answering = None

    async def windows(self):
        return [WINDOW]

    async def screen(self):
        return AREA

    async def tree(self, _windows, **_):
        self.trees += 1
        return tree_of(*self.elements)

    async def grab(self, rect, of=()):
        return Shot(rect=rect, pixels=self.pixels)

    async def refreshed(self, _element):
        self.read_back += 1
        if self.while_answering is not None:
            self.while_answering()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextlib.asynccontextmanager
    async def changes(self, on_change):
        self.on_change = on_change
        yield

    def pace_of(self, _program):
        return self.pace

    def report(self, kind="PropertyChange:accessible-name"):
        self.on_change("app", kind)


class Trace:
    """Of an execution, what an act writes into."""

    expected = None

    def __init__(self):
        self.steps = []
        self.files = {}
        self.halt = self
        self.folder = self

    def check(self):
        pass

    def note(self, step, **fields):
        self.steps.append({"step": step, **fields})

    def write(self, name, data):
        self.files[name] = data


def watched(desktop, act=None):
    """What is said of an act, and what it left behind."""
    trace = Trace()
    looking = Looking(desktop, None, Typed())

    async def nothing():
        return True

    async def run():
        async with asyncio.timeout(FOREVER):
            aim = Aim(Routed(WINDOW, (WINDOW,), exact=False), desktop.shown, None)
            return await Acting(looking).seen(trace, aim, act or nothing)

    seen = asyncio.run(run())
    return seen.effect, seen.watched_ms, trace


BUTTON = element("OK")
BOX = element("Agree", role="AXCheckBox", value="0")
TICKED = msgspec.structs.replace(BOX, value="1")


FIELD = element("Name", role="AXTextField", value="old")
EMPTIED = msgspec.structs.replace(FIELD, value="")
FILLED = msgspec.structs.replace(FIELD, value="new")


@pytest.mark.parametrize(
    ("answers", "effect"),
    [
        ((EMPTIED, EMPTIED, EMPTIED, FILLED), "confirmed"),
        ((FILLED,), "confirmed"),
        ((EMPTIED,), "none"),
        ((FIELD,), "none"),
    ],
    ids=["emptied first", "at once", "emptied only", "never"],
)
def test_a_value_is_looked_for_until_it_is_there(monkeypatch, answers, effect):
    monkeypatch.setattr(acting, "folder_of", str)
    desktop = ScriptedDesktop(FIELD, *answers)
    trace, acts = Trace(), Acting(Looking(desktop, None, Typed()))
    trace.id = "x"

    async def aim(*_):
        return Aim(Routed(WINDOW, (WINDOW,), exact=False), FIELD, None)

    async def set_value(*_):
        return True

    acts.aim, desktop.set_value = aim, set_value
    call = SetValueCall(target=Target(element_ref=ElementRef(element_id="e")), value="new")
    assert asyncio.run(Pointing(acts, acts._looking).set_value(trace, call)).effect == effect


def test_a_program_that_says_nothing_is_looked_at_for_its_own_time_and_no_longer(monkeypatch):
    monkeypatch.setattr(acting, "CONFIRM_SECONDS", FOREVER)
    effect, ms, _ = watched(ScriptedDesktop(BUTTON, pace=Pace(0.0, 0.02)))
    assert effect == "unverified"
    assert ms >= 19


def test_the_first_report_ends_the_watch():
    desktop = ScriptedDesktop(BUTTON, pace=Pace(FOREVER, FOREVER))

    async def act():
        desktop.report()
        return True

    assert watched(desktop, act)[:2] == ("confirmed", None)


@pytest.mark.parametrize("kind", ["StateChanged:focused", "StateChanged:pressed", "StateChanged:armed"])
def test_what_a_click_brings_by_itself_is_not_an_effect(kind):
    desktop = ScriptedDesktop(BUTTON)

    async def act():
        desktop.report(kind)
        return True

    assert watched(desktop, act)[0] == "unverified"


def test_a_report_that_comes_before_the_answer_counts_however_long_the_answer_takes():
    """A busy program answers late; its time to report begins when it does."""
    desktop = ScriptedDesktop(BUTTON)
    desktop.while_answering = desktop.report
    assert watched(desktop)[0] == "confirmed"


def test_an_element_that_shows_something_else_needs_no_report():
    """GTK 4 changes a check box and says nothing."""
    desktop = ScriptedDesktop(BOX, TICKED, pace=Pace(0.0, FOREVER))
    assert watched(desktop)[:2] == ("confirmed", None)
    assert desktop.read_back == 2


def test_a_box_that_is_ticked_late_is_not_said_to_be_unchanged():
    desktop = ScriptedDesktop(BOX, BOX, BOX, BOX, TICKED, pace=Pace(0.0, 0.001))
    assert watched(desktop)[:2] == ("confirmed", None)


def test_a_change_elsewhere_does_not_make_a_box_that_is_ticked_late_unchanged():
    desktop = ScriptedDesktop(BOX, BOX, BOX, BOX, TICKED, pace=Pace(0.0, 0.001))

    async def act():
        desktop.report("ChildrenChanged:add")
        return True

    assert watched(desktop, act)[:2] == ("confirmed", None)


def test_none_is_answered_after_the_longest_watch_only():
    began = time.monotonic()
    effect, ms, trace = watched(ScriptedDesktop(BOX, pace=Pace(0.0, 0.001)))
    assert (effect, ms) == ("none", None)
    assert time.monotonic() - began >= acting.CONFIRM_SECONDS - 0.001
    assert {"step": "watched", "change": False} in trace.steps


def test_a_program_that_does_not_answer_is_not_waited_for_any_longer_than_before(monkeypatch):
    monkeypatch.setattr(acting, "CONFIRM_SECONDS", 0.02)
    effect, ms, _ = watched(ScriptedDesktop(BUTTON, NotAnswering("it hangs"), pace=Pace(0.0, FOREVER)))
    assert effect == "unverified"
    assert ms is not None


def test_a_screen_that_did_not_change_is_not_read_again():
    desktop = ScriptedDesktop(BUTTON)
    _, _, trace = watched(desktop)
    assert desktop.trees == 1
    assert {"step": "picture", "unchanged": True} in trace.steps
    # The mark is on the first alone.
    assert trace.files["after.png"].startswith(b"\x89PNG")
    assert trace.files["after.png"] != trace.files["before.png"]


def test_a_screen_that_changed_is_looked_through_for_secrets_again():
    """Also where no program said that anything changed."""
    secret = element("Secret", role="AXSecureTextField", path="/1", rect=(0, 0, 20, 20))

    def pictured(*, moves):
        desktop = ScriptedDesktop(BUTTON)

        async def act():
            desktop.pixels = b"\x09\x08\x07\x00" * (AREA.width * AREA.height)
            if moves:
                desktop.elements = (BUTTON, secret)
            return True

        _, _, trace = watched(desktop, act)
        assert desktop.trees == 2
        return trace

    hidden, plain = pictured(moves=True), pictured(moves=False)
    assert [each.get("blanked") for each in hidden.steps if each["step"] == "picture"] == [0, 1]
    assert hidden.files["after.png"] != plain.files["after.png"]


# -- real programs --


def test_a_change_that_comes_late_is_not_claimed_and_a_wait_finds_it(host, start):
    """The program changes when the test says so: long after the click was answered."""
    program = start("gtk3")
    target = {"selector": {"byRole": "AXButton", "titleContains": "Press me"}}
    result = host.act("desktop.click", route=route(program), target=target)
    assert result["effect"] == "unverified"
    assert result["watchedMs"] > 0
    arrived = {"selectorExists": {"byRole": "AXButton", "titleContains": "Arrived"}}
    assert host.call("desktop.find", route=route(program), selector=arrived["selectorExists"])["matched"] == 0
    waiting = host.later("desktop.waitUntil", route=route(program), condition=arrived, timeoutMs=60_000)
    program.process.send_signal(signal.SIGUSR1)
    assert waiting.result()["matched"] == 1


@pytest.mark.parametrize("toolkit", ["gtk3", "gtk4", "qt6", "qt5"])
def test_a_change_that_comes_at_once_is_claimed_and_nothing_is_said_of_the_time(host, start, toolkit):
    program = start(toolkit)
    target = {"selector": {"byRole": "AXCheckBox", "titleContains": "Agree"}}
    result = host.act("desktop.click", route=route(program), target=target)
    until(lambda: program.state.get("agreed"), "the box is ticked")
    assert result["effect"] == "confirmed"
    assert "watchedMs" not in result


def test_a_dialog_that_a_button_opens_is_seen(host, start):
    program = start("gtk3")
    target = {"selector": {"byRole": "AXButton", "titleContains": "Ask"}}
    assert host.act("desktop.click", route=route(program), target=target)["effect"] == "confirmed"
    program.until(dialog="open")
