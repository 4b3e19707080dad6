"""Keys and clicks reach the window they are for, or nothing: also when another comes up in the last moment."""

import threading

import pytest
from desktop_rig import until
from x_recorder import Recorder
from Xlib import XK, X, display
from Xlib.ext import xtest

from bascule.programs.desktop_host.linux.input import Input
from bascule.programs.desktop_host.linux.x11 import X11
from bascule.programs.desktop_host.ports import Aborted, Elsewhere, Halt, Onto
from patience import PATIENCE


@pytest.fixture
def x11(desktop):
    """The last step alone: whatever was checked before it, the other window has come up by now."""
    connection = X11(desktop.display)
    yield connection
    connection.close()


@pytest.fixture
def seen(desktop):
    with Recorder(desktop.display) as recorder:
        yield recorder


def window_of(x11, app):
    return until(lambda: next((each for each in x11.windows() if each.pid == app.pid), None), app.title)


def test_a_key_does_not_reach_a_window_that_came_up_before_it(x11, start, seen):
    meant, other = start("gtk3"), start("gtk3")
    other.until(active=True)
    with pytest.raises(Elsewhere, match="focus"):
        Input(x11).chord(["ctrl", "v"], Halt(), window_of(x11, meant).handle)
    # The control: for the window that has the focus it is sent.
    Input(x11).chord(["b"], Halt(), window_of(x11, other).handle)
    until(lambda: seen.count("key up") == 1, "the key is seen")
    assert seen.count("key down") == 1
    until(lambda: other.state.get("keys"), "the key arrives")
    assert [name for name, _ in other.state["keys"]] == ["b"]
    assert "keys" not in meant.state


def test_a_modifier_that_the_person_holds_does_not_join_our_keys(x11, start, desktop):
    app = start("gtk3")
    app.until(active=True)
    window = window_of(x11, app)
    person = display.Display(desktop.display)
    shift = person.keysym_to_keycode(XK.string_to_keysym("Shift_L"))
    given = Input(x11)
    xtest.fake_input(person, X.KeyPress, shift)
    person.sync()
    try:
        with pytest.raises(Elsewhere, match="held down") as refused:
            given.chord(["ctrl", "a"], Halt(), window.handle)
        assert refused.value.reason == "modifier"
    finally:
        xtest.fake_input(person, X.KeyRelease, shift)
        person.sync()
        person.close()
    # The control: once it is let go of, the same keys are sent.
    given.chord(["ctrl", "a"], Halt(), window.handle)
    until(lambda: ["a", 4] in app.state.get("keys", []), "the keys arrive")
    assert [each for each in app.state["keys"] if each[0].lower() == "a"] == [["a", 4]]


def test_keys_end_where_the_focus_goes_away_between_two_of_them(x11, start, seen):
    other, meant = start("gtk3"), start("gtk3")
    meant.until(active=True)
    mine, theirs = window_of(x11, meant), window_of(x11, other)
    second = X11(x11.display.get_display_name())
    outcome = []

    def press():
        try:
            Input(x11).chord(["shift", "a", "b", "c", "d"], Halt(), mine.handle, 1.0)
        except Elsewhere as error:
            outcome.append(error.reason)

    pressing = threading.Thread(target=press)
    pressing.start()
    until(lambda: seen.count("key down") == 1, "the first key is down")
    second.activate(theirs.handle)
    pressing.join(PATIENCE)
    second.close()
    assert outcome == ["focus"]
    # The recorder reads in its own time what the server did before the answer.
    until(lambda: seen.down() == set(), "every key is up")
    assert [name for name, _ in other.state.get("keys", [])] == []


def test_a_click_does_not_reach_a_window_that_covers_what_it_is_for(x11, start, desktop, seen):
    meant, other = start("gtk3"), start("gtk3")
    for app in (meant, other):
        desktop.move(app.title, 100, 100)
    below, above = window_of(x11, meant), window_of(x11, other)
    x, y = above.rect.centre
    onto = Onto(below.pid, frozenset({below.handle}))
    given = Input(x11)
    for act in (
        lambda: given.click(x, y, Halt(), onto),
        lambda: given.click(x, y, Halt(), onto, button=3, count=2),
        lambda: given.scroll(x, y, Halt(), onto, direction="down", steps=3),
        lambda: given.drag((x, y), (x + 50, y), Halt(), onto),
    ):
        with pytest.raises(Elsewhere, match="covers"):
            act()
    assert seen.count("button down") == 0
    # The control.
    given.click(x, y, Halt(), Onto(above.pid, frozenset({above.handle})))
    until(lambda: seen.count("button down") == 1, "it is clicked")


def test_what_is_dragged_is_not_dropped_on_another_program(x11, start, desktop, seen):
    meant, other = start("gtk3"), start("gtk3")
    desktop.move(meant.title, 0, 0)
    desktop.move(other.title, 640, 0)
    mine, theirs = window_of(x11, meant), window_of(x11, other)
    beginning, end = mine.rect.centre, theirs.rect.centre
    with pytest.raises(Elsewhere):
        Input(x11).drag(beginning, end, Halt(), Onto(mine.pid, frozenset({mine.handle})))
    pointer = x11.root.query_pointer()
    assert (pointer.root_x, pointer.root_y) == beginning
    until(lambda: seen.down() == set(), "nothing is held down")
    assert "released" not in other.state


def test_an_aborted_drag_ends_where_it_began(x11, start, monkeypatch, seen):
    monkeypatch.setattr("bascule.programs.desktop_host.linux.input.DRAG_STEP_SECONDS", 1.0)
    meant = start("gtk3")
    mine = window_of(x11, meant)
    beginning = mine.rect.centre
    halt = Halt()
    outcome = []

    def drag():
        try:
            Input(x11).drag(beginning, (5, 5), halt, Onto(mine.pid, frozenset({mine.handle})))
        except Aborted:
            outcome.append("aborted")

    dragging = threading.Thread(target=drag)
    dragging.start()
    until(lambda: seen.count("button down") == 1, "it is dragged")
    halt.set()
    dragging.join(PATIENCE)
    pointer = x11.root.query_pointer()
    assert (outcome, (pointer.root_x, pointer.root_y)) == (["aborted"], beginning)
    until(lambda: seen.down() == set(), "nothing is held down")
