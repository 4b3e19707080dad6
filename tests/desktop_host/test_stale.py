"""Refs that are not what they were, windows that cover each other, dialogs in the way."""

import pytest
from host_process import Refused, route


def selector(title, role="AXButton"):
    return {"byRole": role, "titleContains": title}


def ref(host, app, title, role="AXButton", at=0):
    return host.call("desktop.find", route=route(app), selector=selector(title, role))["elementRefs"][at]


def press(host, app, title):
    host.act("desktop.click", route=route(app), target={"selector": selector(title)})


@pytest.mark.req("DSK-4.5-2")
def test_a_ref_whose_element_was_replaced_finds_the_one_that_looks_the_same(host, start):
    app = start("gtk3")
    old = ref(host, app, "Old")
    press(host, app, "Replace")
    app.until(replaced=1)
    result = host.act("desktop.click", route=route(app), target={"elementRef": old})
    app.until(new=1)
    assert result["rematched"] is True
    assert "old" not in app.state


def test_a_ref_whose_element_got_another_name_is_not_pressed(host, start):
    """The same object, now called "Delete all": what was approved is not what is there."""
    app = start("gtk3")
    old = ref(host, app, "Old")
    press(host, app, "Rename")
    app.until(renamed=1)
    with pytest.raises(Refused) as refused:
        host.act("desktop.click", route=route(app), target={"elementRef": old})
    assert refused.value.code == "DESKTOP_ELEMENT_NOT_FOUND"
    assert refused.value.details["reason"] == "stale"
    assert "old" not in app.state


def test_a_fingerprint_that_fits_two_elements_is_said_to_be_ambiguous(host, start):
    app = start("gtk3")
    frameless = {"elementId": "e:999999", "fingerprint": "AXButton|Twin|x=0,y=0,w=1,h=1"}
    with pytest.raises(Refused) as refused:
        host.act("desktop.click", route=route(app), target={"elementRef": frameless})
    assert refused.value.details["reason"] == "ambiguous"
    assert refused.value.details["candidates"] == 2
    assert "twins" not in app.state
    # With the place of one of them it is not.
    second = ref(host, app, "Twin", at=1)
    again = {"elementId": "e:999999", "fingerprint": second["fingerprint"]}
    assert host.act("desktop.click", route=route(app), target={"elementRef": again})["rematched"] is True
    app.until(twins=[2])


@pytest.mark.req("DSK-5.5-5")
@pytest.mark.req("DSK-6-5")
def test_what_is_not_there_is_not_found(host, start):
    app = start("gtk3")
    for target in ({"selector": selector("No such")}, {"elementRef": {"elementId": "e:999999"}}):
        with pytest.raises(Refused, match="DESKTOP_ELEMENT_NOT_FOUND"):
            host.act("desktop.click", route=route(app), target=target)
    with pytest.raises(Refused, match="DESKTOP_ELEMENT_NOT_FOUND"):
        host.act("desktop.typeText", route=route(app), target={"selector": selector("No such")}, text="x")


@pytest.mark.req("DSK-5.6-7")
def test_a_text_whose_ref_is_gone_falls_back_to_its_selector(host, start):
    app = start("gtk3")
    field = ref(host, app, "Name", "AXTextField")
    gone = {**field, "elementId": "e:999999", "fingerprint": "AXTextField|Gone|x=0,y=0,w=1,h=1"}
    target = {"elementRef": gone, "selector": selector("Name", "AXTextField")}
    params = {"route": route(app), "target": target, "text": "fallback"}
    token = host.issue("desktop.typeText", params)["token"]
    assert host.call("desktop.typeText", confirm={"token": token}, **params)["typed"] is True
    app.until(name="fallback")
    # The ref comes first where it is good, whatever the selector would find.
    target = {"elementRef": field, "selector": selector("No such")}
    host.act("desktop.typeText", route=route(app), target=target, text="ref", options={"clearBefore": True})
    app.until(name="ref")
    # A click has no such fallback: which of the two was meant is not guessed.
    with pytest.raises(Refused, match="either elementRef or selector"):
        host.act("desktop.click", route=route(app), target=target)


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"selector": {}},
        {"selector": {"limit": 3}},
        {"selector": selector("Press"), "elementRef": {"elementId": "e:1"}},
    ],
)
def test_a_target_is_one_thing(host, target):
    with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
        host.act("desktop.click", target=target)


def test_a_ref_of_a_closed_window_is_stale(host, start, desktop):
    app = start("gtk3")
    button = ref(host, app, "Press me")
    app.kill()
    with pytest.raises(Refused, match="DESKTOP_ELEMENT_NOT_FOUND"):
        host.act("desktop.click", target={"elementRef": button})


def test_the_pointer_brings_a_covered_window_to_the_front_first(host, start):
    below, above = start("gtk4"), start("gtk3")
    check = {"selector": selector("Agree", "AXCheckBox")}
    assert host.act("desktop.click", route=route(below), target=check)["method"] == "pointer"
    below.until(agreed=True)
    assert "agreed" not in above.state


def test_where_the_focus_may_not_be_taken_it_is_not(host, start):
    below, above = start("gtk4"), start("gtk3")
    check = {"selector": selector("Agree", "AXCheckBox")}
    above.until(active=True)
    with pytest.raises(Refused) as refused:
        host.act("desktop.click", route=route(below, focusPolicy="requireFocused"), target=check)
    assert refused.value.details["reason"] == "focus"
    assert "agreed" not in below.state
    assert above.state["active"] is True


@pytest.mark.req("DSK-4.3-1")
def test_the_action_of_a_window_behind_leaves_the_front_one_in_front(host, start):
    """The program's own action needs no focus, so the person's is not taken."""
    below, above = start("gtk3"), start("gtk3")
    above.until(active=True)
    host.act("desktop.click", route=route(below), target={"selector": selector("Press me")})
    below.until(pressed=1)
    assert above.state["active"] is True
    assert "pressed" not in above.state


# -- dialogs --


@pytest.mark.parametrize(("toolkit", "answer"), [("gtk3", "ok"), ("qt6", 1024)])
def test_a_dialog_is_listed_and_answered_by_its_button(host, start, toolkit, answer):
    app = start(toolkit)
    by_pid = {"app": {"pid": app.pid}}
    assert host.call("desktop.listModals", route=by_pid)["modals"] == []
    press(host, app, "Ask")
    app.until(dialog="open")
    host.call(
        "desktop.waitUntil", route=by_pid, condition={"windowExists": {"titlePattern": "Question"}}, timeoutMs=20_000
    )
    condition = {"selectorExists": {"titleContains": "Really?"}}
    host.call("desktop.waitUntil", route=by_pid, condition=condition, timeoutMs=20_000)
    (modal,) = host.call("desktop.listModals", route=by_pid)["modals"]
    assert "Really?" in modal["text"]
    ok = next(each for each in modal["buttons"] if "OK" in each.upper())
    result = host.act("desktop.dismissModal", route=by_pid, button=ok)
    app.until(dialog=answer)
    assert result["effect"] == "confirmed"


def test_a_dialog_is_left_with_escape(host, start):
    app = start("gtk3")
    by_pid = {"app": {"pid": app.pid}}
    press(host, app, "Ask")
    app.until(dialog="open")
    host.call("desktop.waitUntil", condition={"windowExists": {"titlePattern": "Question"}}, timeoutMs=20_000)
    host.act("desktop.dismissModal", route=by_pid)
    app.until(dialog="delete-event")


def test_without_a_dialog_there_is_none_to_dismiss(host, start):
    app = start("gtk3")
    with pytest.raises(Refused) as refused:
        host.act("desktop.dismissModal", route=route(app))
    assert refused.value.details["reason"] == "modal"
