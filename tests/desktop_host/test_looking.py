"""observe, find, waitUntil, hotkey and the selectors and conditions beyond the contract."""

import json

import pytest
from desktop_rig import until
from host_process import Refused, route
from token_count import tokens
from x_recorder import Recorder

from patience import cpu_seconds


def selector(title, role="AXButton", **more):
    return {"byRole": role, "titleContains": title, **more}


@pytest.fixture(scope="module")
def app(desktop, shared_host):
    program = desktop.start("gtk3", "--rows", "40")
    yield program
    program.kill()


def titles(result):
    return [each["title"] for each in result["elementRefs"]]


# -- 5.3 --


@pytest.mark.req("DSK-5.3-1")
@pytest.mark.req("DSK-5.3-2")
def test_observe_answers_with_the_contracts_fields(host, app):
    result = host.call("desktop.observe", route=route(app), options={"axMaxDepth": 64})
    assert set(result) == {"executionId", "routeResolved", "evidence", "nodes"}
    assert set(result["routeResolved"]) == {"frontmostBundleId", "windowTitle"}
    assert result["routeResolved"]["windowTitle"] == app.title
    assert {name: result["evidence"][name] for name in ("screenshotPath", "axPath")} == {
        "screenshotPath": "observe.png",
        "axPath": "ax.json",
    }


@pytest.mark.req("DSK-5.3-3")
@pytest.mark.parametrize(("picture", "tree"), [(True, False), (False, True), (False, False)])
def test_observe_leaves_out_what_is_not_asked_for(host, app, picture, tree):
    options = {"includeScreenshot": picture, "includeAxTree": tree}
    result = host.call("desktop.observe", route=route(app), options=options)
    names = {each.name for each in host.evidence(result).iterdir()}
    assert ("observe.png" in names, "ax.json" in names) == (picture, tree)
    assert ("screenshotPath" in result["evidence"], "axPath" in result["evidence"]) == (picture, tree)


@pytest.mark.req("DSK-5.3-4")
def test_a_tree_that_is_cut_says_so(host, app):
    shallow = host.call("desktop.observe", route=route(app), options={"axMaxDepth": 3})
    assert shallow["partial"] == ["depth"]
    nodes = json.loads((host.evidence(shallow) / "ax.json").read_text())["nodes"]
    assert max(each["depth"] for each in nodes) == 3
    few = host.call("desktop.observe", route=route(app), options={"axMaxNodes": 10, "axMaxDepth": 64})
    assert "nodes" in few["partial"]
    assert few["nodes"] == 10


@pytest.mark.parametrize("options", [{"axMaxDepth": 0}, {"axMaxNodes": 0}, {"axMaxNodes": 10**9}, {"axMaxDepht": 3}])
def test_options_out_of_bounds_are_refused(host, options):
    with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
        host.call("desktop.observe", options=options)


@pytest.mark.req("DSK-4.3-2")
@pytest.mark.req("DSK-4.4-2")
def test_without_a_route_the_frontmost_app_is_meant(host, start):
    front = start("gtk3")
    front.until(active=True)
    assert host.call("desktop.observe")["routeResolved"]["windowTitle"] == front.title
    assert host.call("desktop.find", selector=selector("Press me"))["matched"] == 1


def test_reading_never_moves_the_focus(host, app, start):
    front = start("gtk3")
    front.until(active=True)
    host.call("desktop.observe", route=route(app))
    host.call("desktop.find", route=route(app), selector=selector("Press me"))
    host.call(
        "desktop.waitUntil", route=route(app), condition={"selectorExists": selector("Press me")}, timeoutMs=5_000
    )
    assert front.state["active"] is True


def test_a_snapshot_is_short_and_its_refs_work(host, app):
    before = app.state.get("pressed", 0)
    result = host.call("desktop.observe", route=route(app), options={"snapshot": True, "axMaxDepth": 64})
    line = next(each for each in result["snapshot"].splitlines() if "Press me" in each)
    ref = line.rpartition("[")[2].rstrip("]")
    host.act("desktop.click", target={"elementRef": {"elementId": ref}})
    app.until(pressed=before + 1)
    raw = (host.evidence(result) / "ax.json").stat().st_size
    assert len(result["snapshot"]) < raw / 8
    assert tokens(result["snapshot"]) < 1_500


def test_a_diff_says_what_changed_since_the_last_look(host, start):
    app = start("gtk3")
    first = host.call("desktop.observe", route=route(app), options={"diff": True})
    assert any("Agree" in each for each in first["diff"])
    assert host.call("desktop.observe", route=route(app), options={"diff": True})["diff"] == []
    host.act("desktop.click", route=route(app), target={"selector": selector("Agree", "AXCheckBox")})
    changed = host.call("desktop.observe", route=route(app), options={"diff": True})["diff"]
    assert [each[0] for each in changed if "Agree" in each] == ["-", "+"]
    assert "checked" in next(each for each in changed if each.startswith("+") and "Agree" in each)


def test_marks_are_drawn_beside_the_plain_picture(host, app):
    folder = host.evidence(host.call("desktop.observe", route=route(app), options={"marks": True}))
    assert (folder / "marks.png").read_bytes() != (folder / "observe.png").read_bytes()


# -- 4.4, 5.4 --


@pytest.mark.req("DSK-4.4-1")
@pytest.mark.req("DSK-5.4-2")
def test_find_matches_role_exactly_and_title_and_value_by_what_they_contain(host, app):
    find = lambda **chosen: host.call("desktop.find", route=route(app), selector=chosen)  # noqa: E731 - short to read
    assert titles(find(titleContains="ress m")) == ["Press me"]
    assert find(titleContains="press me")["matched"] == 0, "contains is case-sensitive"
    assert find(byRole="AXButto")["matched"] == 0, "a role is the whole word"
    assert find(byRole="AXCheckBox", titleContains="Press")["matched"] == 0, "all that is given must hold"
    host.act("desktop.typeText", route=route(app), target={"selector": selector("Name", "AXTextField")}, text="needle")
    assert titles(find(valueContains="needl")) == ["Name"]
    assert titles(find(byRole="push button", titleContains="Press")) == ["Press me"], "the toolkit's own role"


@pytest.mark.req("DSK-4.4-3")
def test_find_gives_ten_unless_asked_and_counts_all(host, app):
    assert len(host.call("desktop.find", route=route(app), selector=selector("Row "))["elementRefs"]) == 10
    result = host.call("desktop.find", route=route(app), selector=selector("Row ", limit=3))
    assert len(result["elementRefs"]) == 3
    assert result["matched"] == 40


@pytest.mark.req("DSK-5.4-3")
def test_find_with_no_hit_is_an_answer_not_an_error(host, app):
    result = host.call("desktop.find", route=route(app), selector=selector("No such thing"))
    assert result["elementRefs"] == []
    assert result["matched"] == 0
    assert result["evidence"]["axPath"] == "ax.json"


@pytest.mark.parametrize("chosen", [{}, {"limit": 5}, {"index": 0}, {"near": {"anchor": {}}}, {"titleContains": ""}])
def test_a_selector_that_chooses_nothing_is_refused(host, app, chosen):
    with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
        host.call("desktop.find", route=route(app), selector=chosen)


def test_selectors_by_place_neighbour_path_and_number(host, app):
    find = lambda **chosen: host.call("desktop.find", route=route(app), selector=chosen)  # noqa: E731 - short to read
    beside = {"anchor": selector("Ask"), "direction": "right", "maxDistance": 20}
    assert titles(find(byRole="AXButton", near=beside)) == ["Soon"]
    below = {"anchor": selector("Press me"), "direction": "below", "maxDistance": 10}
    assert titles(find(byRole="AXCheckBox", near=below)) == ["Agree"]
    frame = find(titleContains="Agree", byRole="AXCheckBox")["elementRefs"][0]["frame"]
    assert "Agree" in titles(find(byRole="AXCheckBox", byRect=frame))
    assert titles(find(byRole="AXButton", titleContains="Row ", index=7)) == ["Row 7"]
    assert titles(find(byPath=[0, 0, 0])) == ["Press me"]
    assert find(byPath=[0, 0, 99])["matched"] == 0


def test_a_hostile_title_pattern_is_refused_and_costs_nothing(host):
    began = cpu_seconds(host.process.pid)
    for pattern in ("(a+)+$", "(a|aa)*$", ".*.*.*.*.*x", "[", "a" * 300):
        with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
            host.call("desktop.observe", route={"window": {"titlePattern": pattern}})
    assert cpu_seconds(host.process.pid) - began < 20


# -- 5.7 --


@pytest.mark.req("DSK-5.7-1")
@pytest.mark.req("DSK-5.7-2")
@pytest.mark.req("DSK-5.7-4")
@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        (["enter"], [["Return", 0]]),
        (["cmd", "v"], [["Control_L", 0], ["v", 4]]),
        (["cmd", "enter"], [["Control_L", 0], ["Return", 4]]),
        (["ctrl", "shift", "F5"], [["Control_L", 0], ["Shift_L", 4], ["F5", 5]]),
        (["super"], [["Super_L", 0]]),
        (["+"], [["Shift_L", 0], ["plus", 1]]),
        (["A"], [["Shift_L", 0], ["A", 1]]),
        (["pagedown"], [["Page_Down", 0]]),
    ],
)
def test_keys_arrive_as_they_are_named(host, start, keys, seen):
    program = start("gtk3")
    result = host.act("desktop.hotkey", route=route(program), keys=keys)
    program.until(keys=seen)
    assert result["sent"] is True
    assert set(result["evidence"]) >= {"dir"}


@pytest.mark.parametrize("keys", [[], ["nokey"], ["中"], ["ctrl"] * 6])
def test_keys_that_are_none_are_refused_before_any_is_pressed(host, app, desktop, keys):
    with Recorder(desktop.display) as events:
        with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
            host.act("desktop.hotkey", route=route(app), keys=keys)
        assert events.count("key down") == 0


# -- 5.8 --


@pytest.mark.req("DSK-5.8-3")
@pytest.mark.req("DSK-5.8-4")
def test_a_wait_ends_at_its_own_timeout_or_the_requests(host, app):
    condition = {"selectorExists": selector("Never")}
    for meta, own in ((60_000, 300), (300, 60_000)):
        with pytest.raises(Refused) as refused:
            host.call(
                "desktop.waitUntil",
                meta=host.meta(timeoutMs=meta),
                route=route(app),
                condition=condition,
                timeoutMs=own,
            )
        assert refused.value.code == "DESKTOP_TIMEOUT"
        assert refused.value.error["retryable"] is True


@pytest.mark.req("DSK-5.8-4")
def test_a_wait_needs_a_timeout_and_exactly_one_condition(host):
    with pytest.raises(Refused, match="timeoutMs"):
        host.call("desktop.waitUntil", condition={"selectorExists": selector("x")})
    for condition in ({}, {"selectorExists": selector("x"), "selectorGone": selector("x")}):
        with pytest.raises(Refused, match="exactly one"):
            host.call("desktop.waitUntil", condition=condition, timeoutMs=100)


def test_a_wait_is_woken_by_the_program_not_by_the_poll(host, start):
    """With a poll of a minute it still ends when the button comes."""
    program = start("gtk3")
    waiting = host.later(
        "desktop.waitUntil",
        route=route(program),
        condition={"selectorExists": selector("Arrived")},
        timeoutMs=60_000,
        pollMs=60_000,
    )
    host.act("desktop.click", route=route(program), target={"selector": selector("Soon")})
    assert waiting.result()["elapsedMs"] < 30_000


def test_a_wait_survives_a_window_that_is_not_there_yet(host, desktop, start):
    waiting = host.later(
        "desktop.waitUntil",
        route={"window": {"titlePattern": "^late comer$"}},
        condition={"selectorExists": selector("Press me")},
        timeoutMs=60_000,
    )
    until(lambda: host.call("desktop.health") and not waiting.done, "it waits")
    start("gtk3", title="late comer")
    assert waiting.result()["ok"] is True


@pytest.mark.parametrize(
    "condition",
    [
        {"selectorGone": selector("Never there")},
        {"windowExists": {"titlePattern": "^gtk3"}},
        {"titleMatches": "^gtk3"},
        {"stable": {"forMs": 100}},
        {"valueContains": {"selector": {"byRole": "AXSlider"}, "text": "0"}},
    ],
)
def test_conditions_beyond_the_contract_hold(host, app, condition):
    result = host.call("desktop.waitUntil", route=route(app), condition=condition, timeoutMs=30_000)
    assert result["ok"] is True


@pytest.mark.parametrize(
    "condition",
    [
        {"selectorGone": selector("Press me")},
        {"windowExists": {"titlePattern": "^no such"}},
        {"titleMatches": "^no such"},
        {"valueContains": {"selector": {"byRole": "AXSlider"}, "text": "77"}},
    ],
)
def test_conditions_beyond_the_contract_do_not_hold_when_they_do_not(host, app, condition):
    with pytest.raises(Refused, match="DESKTOP_TIMEOUT"):
        host.call("desktop.waitUntil", route=route(app), condition=condition, timeoutMs=150)


def test_what_goes_away_is_waited_for(host, start):
    program = start("gtk3")
    by_pid = {"app": {"pid": program.pid}}
    waiting = host.later(
        "desktop.waitUntil", route=by_pid, condition={"selectorGone": selector("Old")}, timeoutMs=60_000
    )
    host.act("desktop.click", route=route(program), target={"selector": selector("Rename")})
    assert waiting.result()["ok"] is True


# -- beyond the contract --


def test_the_pointer_does_what_it_is_told(host, start):
    program = start("gtk3")
    pad = {"selector": {"byRole": "AXGroup", "titleContains": "Pad"}}
    host.act("desktop.rightClick", route=route(program), target=pad)
    until(lambda: [each[0] for each in program.state.get("pad", [])] == [3], "one right press")
    host.act("desktop.doubleClick", route=route(program), target=pad)
    program.until(double=1)
    host.act("desktop.scroll", route=route(program), target=pad, direction="down", steps=4)
    until(lambda: program.state.get("scrolled") == [1, 1, 1, 1], "four steps down")
    host.act("desktop.drag", route=route(program), target=pad, to={"selector": selector("Press me")})
    until(lambda: len(program.state.get("pad", [])) == 4, "the drag's press")
    until(lambda: program.state["released"][-1][2] < 0, "released above the pad, where the button is")


def test_windows_are_listed_from_the_front_and_can_be_brought_there(host, start):
    first, second = start("gtk3"), start("gtk3")
    second.until(active=True)
    listed = [each["title"] for each in host.call("desktop.windows")["windows"]]
    assert listed.index(second.title) < listed.index(first.title)
    result = host.act("desktop.focusWindow", route=route(first))
    first.until(active=True)
    assert result["effect"] == "confirmed"


def test_a_text_is_set_as_a_value(host, start):
    program = start("gtk3")
    target = {"selector": selector("Name", "AXTextField")}
    assert host.act("desktop.setValue", route=route(program), target=target, value="set 中")["effect"] == "confirmed"
    program.until(name="set 中")
    with pytest.raises(Refused) as refused:
        host.act("desktop.setValue", route=route(program), target={"selector": selector("Press me")}, value="x")
    assert refused.value.details["reason"] == "action"


def test_a_wait_for_a_window_of_an_app_does_not_look_at_the_windows_of_others(host, start):
    mine, other = start("gtk3"), start("gtk3")

    def exists(pattern, **more):
        condition = {"windowExists": {"titlePattern": pattern}}
        try:
            return host.call("desktop.waitUntil", condition=condition, timeoutMs=50, **more)["matched"]
        except Refused as refused:
            return refused.code

    theirs = f"^{other.title}$"
    here = {"route": {"app": {"pid": mine.pid}}}
    assert exists(theirs) == 1
    assert exists(theirs, **here) == "DESKTOP_TIMEOUT"
    assert exists(f"^{mine.title}$", **here) == 1
    assert exists(theirs, route={"app": {"bundleId": "org.example.not-there"}}) == "DESKTOP_TIMEOUT"
    assert exists(theirs, route={"app": {}}) == "DESKTOP_INVALID_REQUEST"
