"""Evidence behind its rows: for the user of the machine, from the places that calls have named."""

import asyncio

import pytest
from desktop_scene import CLICK, JERRY, Desktop

from bascule.desktop.evidence import MAX_PLACES, NOTED_EVERY_MS
from bascule.desktop.ports import EvidenceGone, Execution, Shown
from bascule.foundation.errors import Forbidden, NotFound

PNG = b"\x89PNG\r\n\x1a\nrest"


class Shelf:
    """A reader that answers with one execution, and remembers where it was asked to look."""

    def __init__(self):
        self.looked_in = []
        self.execution = Execution(
            execution_id="x", workspace="/home/me/p", day="2026-01-01", method="desktop.click\x1b[2J", app="a\u202eb"
        )

    def newest(self, workspaces, before, limit):
        self.looked_in.append(list(workspaces))
        return [self.execution][:limit]

    def show(self, workspaces, execution_id):
        if execution_id != "x":
            raise EvidenceGone(execution_id)
        return Shown(
            about=self.execution, result={"ok": True}, trace=[{"step": "\x1b"}], tree=None, left_out=[], changed=[]
        )

    def picture(self, workspaces, execution_id, name):
        if name != "after.png":
            raise EvidenceGone(name)
        return PNG


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def desktop(shelf):
    made = Desktop(evidence=shelf)
    with made.house:
        yield made


def listed(desktop, who="local", **params):
    return desktop.house.call(who, "evidence.list", params)


def test_the_places_that_calls_have_named_are_looked_in_also_after_a_restart(desktop, shelf):
    desktop.approved("click", **CLICK)
    listed(desktop)
    for name in ("one", "two", "one"):
        desktop.approved("click", **CLICK, workspacePath=f"/home/me/{name}")
    listed(desktop)
    desktop.house.restart()
    listed(desktop)
    named = ["/home/me/one", "/home/me/two"]
    assert shelf.looked_in == [[], named, named]


def test_the_place_that_was_not_used_for_longest_is_forgotten(desktop, shelf):
    for number in range(MAX_PLACES + 1):
        desktop.house.advance(1)
        desktop.approved("click", **CLICK, workspacePath=f"/home/me/{number}")
    listed(desktop)
    assert sorted(shelf.looked_in[-1]) == sorted(f"/home/me/{number}" for number in range(1, MAX_PLACES + 1))


def test_the_time_of_a_place_is_written_once_a_day(desktop):
    table = desktop.house.desktop._evidence.table
    desktop.approved("click", **CLICK, workspacePath="/home/me/one")
    first = table.rows["/home/me/one"]
    desktop.house.advance(60)
    desktop.approved("click", **CLICK, workspacePath="/home/me/one")
    assert table.rows["/home/me/one"] == first
    desktop.house.advance(NOTED_EVERY_MS / 1000)
    desktop.approved("click", **CLICK, workspacePath="/home/me/one")
    assert table.rows["/home/me/one"].used_at > first.used_at


def test_a_list_has_one_visible_line_in_each_field(desktop):
    (found,) = listed(desktop)
    assert found["method"] == "desktop.click⟨ESC⟩[2J"
    assert found["app"] == "a⟨U+202E⟩b"
    assert found["at"] == "2026-01-01"


def test_one_execution_has_its_files_as_json_and_its_pictures_as_bytes(desktop):
    shown = desktop.house.call("local", "evidence.show", {"executionId": "x"})
    assert (shown["result"], shown["trace"]) == ({"ok": True}, [{"step": "\x1b"}])
    picture = desktop.house.call("person", "evidence.file", {"executionId": "x", "name": "after.png"})
    assert picture["contentType"] == "image/png"


@pytest.mark.parametrize(
    ("method", "params"),
    [("evidence.show", {"executionId": "nobody"}), ("evidence.file", {"executionId": "x", "name": "no\x1b.png"})],
)
def test_what_is_not_there_is_not_found_and_named_in_visible_letters(desktop, method, params):
    with pytest.raises(NotFound) as refused:
        desktop.house.call("local", method, params)
    assert refused.value.message.isprintable()


@pytest.mark.parametrize("method", ["evidence.list", "evidence.show", "evidence.file"])
def test_no_agent_sees_evidence_of_others(desktop, method):
    params = {"evidence.list": {}, "evidence.show": {"executionId": "x"}}.get(method)
    with pytest.raises(Forbidden):
        desktop.house.call(JERRY, method, params if params is not None else {"executionId": "x", "name": "after.png"})


def test_evidence_is_read_on_a_thread(desktop, shelf):
    """The control is that the loop is there in a handler: on it a large folder would hold everybody up."""
    loops = []

    def newest(_workspaces, _before, _limit):
        try:
            loops.append(asyncio.get_running_loop())
        except RuntimeError:
            loops.append(None)
        return []

    shelf.newest = newest
    listed(desktop)
    desktop.house.run(lambda: newest([], None, 1))
    assert loops[0] is None
    assert loops[1] is not None
