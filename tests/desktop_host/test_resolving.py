"""desktop.resolve: what a call would be about, and that the tied call then does exactly that or nothing."""

import base64
import io
import os

import pytest
from desktop_rig import SYSTEM_PYTHON, until
from host_process import Refused, route
from PIL import Image

MARK, BLANK = (220, 30, 30), (20, 20, 20)


def selector(title, role="AXButton"):
    return {"byRole": role, "titleContains": title}


def resolve(host, method, /, meta=None, picture=False, **params):
    return host.call("desktop.resolve", meta=meta, intent={"method": method, "params": params}, picture=picture)


def refusal(call, *arguments, **more):
    with pytest.raises(Refused) as refused:
        call(*arguments, **more)
    return refused.value.code, refused.value.details.get("reason")


def press(host, app, title):
    host.act("desktop.click", route=route(app), target={"selector": selector(title)})


def evidence_of(host):
    return sorted(each.name for each in host.workspace.rglob("*"))


# -- what it says --


def test_a_look_is_resolved_to_its_program_and_leaves_no_files(host, start):
    app = start("gtk3")
    found = resolve(host, "desktop.observe", route=route(app), options={"snapshot": True})
    assert found["pid"] == app.pid
    assert found["program"] == os.path.realpath(SYSTEM_PYTHON)
    assert found["windowTitle"] == app.title
    assert "element" not in found
    assert "picture" not in found
    assert found["params"] == {
        "route": {
            "app": {"pid": app.pid, "bundleId": found["bundleId"]},
            "window": {"windowId": found["windowId"], "titlePattern": route(app)["window"]["titlePattern"]},
        },
        "options": {"snapshot": True},
    }
    assert evidence_of(host) == []
    # And the tied call is one.
    assert host.call("desktop.observe", **found["params"])["routeResolved"]["windowTitle"] == app.title


def test_a_look_at_a_program_stays_one_at_all_its_windows(host, start):
    app = start("gtk3")
    press(host, app, "Ask")
    app.until(dialog="open")
    resolved = resolve(host, "desktop.find", route={"app": {"pid": app.pid}}, selector=selector("Press me"))["params"]
    assert "window" not in resolved["route"]
    assert resolved["route"]["app"]["pid"] == app.pid
    assert host.call("desktop.find", **resolved)["matched"] == 1


def test_an_act_is_resolved_to_the_object_and_the_window_that_holds_it(host, start):
    app = start("gtk3")
    press(host, app, "Ask")
    app.until(dialog="open")
    by_pid = {"app": {"pid": app.pid}}
    host.call(
        "desktop.waitUntil", route=by_pid, condition={"windowExists": {"titlePattern": "Question"}}, timeoutMs=20_000
    )
    found = resolve(host, "desktop.click", route=by_pid, target={"selector": selector("Press me")})
    # The dialog is in front; the button is in the other window.
    assert found["windowTitle"] == app.title
    assert found["element"]["title"] == "Press me"
    resolved = found["params"]
    assert resolved["route"]["window"] == {"windowId": found["windowId"]}
    assert resolved["target"]["rematch"] is False
    assert resolved["target"]["elementRef"]["elementId"] == found["element"]["elementId"]
    question = resolve(host, "desktop.dismissModal", route=by_pid, button="OK")
    assert question["windowTitle"] == "Question"
    assert question["element"]["title"] == "OK"
    assert question["windowId"] != found["windowId"]
    host.act("desktop.dismissModal", **question["params"])
    app.until(dialog="ok")


def test_both_ends_of_a_drag_are_resolved(host, start):
    app = start("gtk3")
    found = resolve(
        host,
        "desktop.drag",
        route=route(app),
        target={"selector": selector("Pad", "AXGroup")},
        to={"selector": selector("Press me")},
    )
    assert found["to"]["title"] == "Press me"
    assert found["params"]["to"]["elementRef"]["elementId"] == found["to"]["elementId"]
    assert found["params"]["to"]["rematch"] is False


def test_a_text_without_a_target_is_resolved_to_the_field_that_has_the_focus(host, start):
    app = start("gtk3")
    host.act("desktop.typeText", route=route(app), target={"selector": selector("Name", "AXTextField")}, text="a")
    app.until(name="a")
    found = resolve(host, "desktop.typeText", route=route(app), text="b")
    assert found["element"]["title"] == "Name"
    # The person is asked, and meanwhile the focus goes elsewhere.
    host.act("desktop.typeText", route=route(app), target={"selector": selector("Notes", "AXTextArea")}, text="n")
    app.until(notes="n")
    host.act("desktop.typeText", **found["params"])
    app.until(name="ab")
    assert app.state["notes"] == "n"


def test_resolving_refuses_what_the_act_itself_refuses(host, start):
    app = start("gtk3")
    twins = {"elementRef": {"elementId": "e:999999", "fingerprint": "AXButton|Twin|x=0,y=0,w=1,h=1"}}
    press_me = {"selector": selector("Press me")}
    for method, params in (
        ("desktop.click", {"target": {"selector": {}}}),
        ("desktop.click", {"target": {"selector": selector("No such")}}),
        ("desktop.click", {"target": twins}),
        ("desktop.click", {"target": {"selector": selector("Disabled")}}),
        ("desktop.setValue", {"target": {"selector": selector("Disabled")}, "value": "x"}),
        ("desktop.drag", {"target": press_me, "to": {"selector": selector("No such")}}),
        ("desktop.dismissModal", {}),
        ("desktop.hotkey", {"keys": ["nokey"]}),
    ):
        here = {"route": route(app), **params}
        asked = refusal(resolve, host, method, **here)
        assert asked == refusal(host.act, method, **here), method
        assert asked[0] in ("DESKTOP_ELEMENT_NOT_FOUND", "DESKTOP_INVALID_REQUEST")
    gone = {"route": {"app": {"pid": 1}}}
    assert refusal(resolve, host, "desktop.observe", **gone) == refusal(host.call, "desktop.observe", **gone)


@pytest.mark.parametrize(
    "method", ["desktop.windows", "desktop.health", "desktop.resume", "desktop.resolve", "no.such"]
)
def test_what_is_about_no_window_is_not_resolved(host, method):
    assert refusal(resolve, host, method)[0] == "DESKTOP_INVALID_REQUEST"


def test_bad_parameters_are_refused_before_anything_is_looked_for(host):
    assert refusal(resolve, host, "desktop.click", target=7)[0] == "DESKTOP_INVALID_REQUEST"
    assert refusal(resolve, host, "desktop.find")[0] == "DESKTOP_INVALID_REQUEST"


def test_after_a_stop_nobody_is_asked_about_an_act(start_host, start):
    host, app = start_host(), start("gtk3")
    host.call("desktop.stop")
    assert refusal(resolve, host, "desktop.hotkey", route=route(app), keys=["a"])[0] == "DESKTOP_HOST_STOPPED"
    assert resolve(host, "desktop.observe", route=route(app))["pid"] == app.pid


# -- that it is tied --


def test_a_resolved_call_does_not_press_what_got_another_name_nor_what_looks_like_it(host, start):
    app = start("gtk3")
    resolved = resolve(host, "desktop.click", route=route(app), target={"selector": selector("Old")})["params"]
    loose = {**resolved, "target": {"elementRef": resolved["target"]["elementRef"]}}
    # The object is now called "Delete all", and another one "Old".
    press(host, app, "Impersonate")
    app.until(impersonated=1)
    assert refusal(host.act, "desktop.click", **resolved) == ("DESKTOP_ELEMENT_NOT_FOUND", "stale")
    assert not {"old", "impostor"} & set(app.state)
    # The control: a ref that is not tied is found again, as the contract has it, and that is another button.
    assert host.act("desktop.click", **loose)["rematched"] is True
    app.until(impostor=1)


def test_a_resolved_call_whose_element_was_replaced_is_refused(host, start):
    app = start("gtk3")
    resolved = resolve(host, "desktop.click", route=route(app), target={"selector": selector("Old")})["params"]
    press(host, app, "Replace")
    app.until(replaced=1)
    assert refusal(host.act, "desktop.click", **resolved) == ("DESKTOP_ELEMENT_NOT_FOUND", "stale")
    assert not {"old", "new"} & set(app.state)


def test_a_resolved_call_does_what_was_resolved_when_nothing_changed(host, start):
    app = start("gtk3")
    found = resolve(host, "desktop.click", route=route(app), target={"selector": selector("Old")})
    token = host.issue("desktop.click", found["params"])["token"]
    host.call("desktop.click", confirm={"token": token}, **found["params"])
    app.until(old=1)


def test_keys_resolved_to_a_window_do_not_reach_the_one_that_took_its_place(host, start):
    first = start("gtk3", title="Same name")
    resolved = resolve(host, "desktop.hotkey", route=route(first), keys=["a"])["params"]
    first.kill()
    second = start("gtk3", title="Same name")
    assert refusal(host.act, "desktop.hotkey", **resolved) == ("DESKTOP_ELEMENT_NOT_FOUND", "route")
    assert "keys" not in second.state
    # The control: the route as it was given means the new one.
    host.act("desktop.hotkey", route=route(second), keys=["a"])
    until(lambda: second.state.get("keys"), "the key arrives")


def test_a_ref_does_not_lead_out_of_the_program_that_the_route_names(host, start):
    """Otherwise an agent that may act in one program would act in another with a ref from there."""
    mine, other = start("gtk3"), start("gtk3")
    theirs = host.call("desktop.find", route=route(other), selector=selector("Press me"))["elementRefs"][0]
    found = resolve(host, "desktop.click", route=route(mine), target={"elementRef": theirs})
    assert found["pid"] == mine.pid
    assert found["element"]["elementId"] != theirs["elementId"]
    host.act("desktop.click", route=route(mine), target={"elementRef": theirs})
    mine.until(pressed=1)
    resolved = {"elementRef": theirs, "rematch": False}
    assert refusal(host.act, "desktop.click", route=route(mine), target=resolved)[1] == "stale"
    assert "pressed" not in other.state


def test_a_window_is_named_by_its_id(host, start):
    one, two = start("gtk3", title="Twin windows"), start("gtk3", title="Twin windows")

    def listed():
        return {each["pid"]: each["windowId"] for each in host.call("desktop.windows")["windows"]}

    # A window of that title was there before the second one's.
    until(lambda: {one.pid, two.pid} <= set(listed()), "both have windows")
    ids = listed()
    for app in (one, two):
        named = {"window": {"windowId": ids[app.pid]}}
        assert resolve(host, "desktop.observe", route=named)["pid"] == app.pid
        host.act("desktop.click", route=named, target={"selector": selector("Press me")})
        app.until(pressed=1)
    for wrong in (
        {"window": {"windowId": "w:1"}},
        {"window": {"windowId": ids[one.pid]}, "app": {"pid": two.pid}},
        {"window": {"windowId": ids[one.pid], "titlePattern": "^Another$"}},
    ):
        assert refusal(resolve, host, "desktop.observe", route=wrong) == ("DESKTOP_ELEMENT_NOT_FOUND", "route")
    for bad in ({"window": {}}, {"window": {"windowId": "1"}}, {"window": {"windowId": "w:1\n"}}):
        assert refusal(resolve, host, "desktop.observe", route=bad)[0] == "DESKTOP_INVALID_REQUEST"


# -- pictures --


def image_of(sent):
    return Image.open(io.BytesIO(base64.b64decode(sent["data"]))).convert("RGB")


def pixels(image, colour):
    return sum(count for count, each in image.getcolors(1 << 24) if each == colour)


def test_the_picture_shows_the_target_marked_and_what_is_around_it(host, start):
    app = start("gtk3", "--rows", "30")
    found = resolve(host, "desktop.click", route=route(app), target={"selector": selector("Press me")}, picture=True)
    picture, image = found["picture"], image_of(found["picture"])
    assert picture["mimeType"] == "image/png"
    assert (picture["width"], picture["height"]) == image.size
    assert picture["scale"] == 1
    frame = found["element"]["frame"]
    # Around it, and not the whole window.
    assert image.size[1] <= frame["height"] + 2 * 160
    assert pixels(image, MARK) >= 2 * (frame["width"] + frame["height"])
    plain = resolve(host, "desktop.hotkey", route=route(app), keys=["a"], picture=True)["picture"]
    assert pixels(image_of(plain), MARK) == 0
    assert plain["height"] > image.size[1]
    assert evidence_of(host) == []


def test_typed_texts_and_passwords_are_blank_in_the_picture(host, start):
    app = start("gtk3")
    shown = resolve(
        host, "desktop.click", route=route(app), target={"selector": selector("Name", "AXTextField")}, picture=True
    )
    host.act(
        "desktop.typeText", route=route(app), target={"selector": selector("Name", "AXTextField")}, text="Not for eyes"
    )
    app.until(name="Not for eyes")
    blank = resolve(
        host, "desktop.click", route=route(app), target={"selector": selector("Name", "AXTextField")}, picture=True
    )

    def dark(found):
        return pixels(image_of(found["picture"]), BLANK)

    frame = blank["element"]["frame"]
    area = (frame["width"] - 4) * (frame["height"] - 4)
    # The password field beside it is blank in both.
    assert dark(blank) - dark(shown) >= area


def test_a_picture_in_the_answer_needs_none_on_disk(host, start):
    app = start("gtk3")
    seen = host.call("desktop.observe", route=route(app), options={"inline": True, "includeScreenshot": False})
    assert "screenshotPath" not in seen["evidence"]
    assert not (host.evidence(seen) / "observe.png").exists()
    assert image_of(seen["image"]).size == (seen["image"]["width"], seen["image"]["height"])
    assert seen["image"]["data"] not in (host.evidence(seen) / "result.json").read_text()
    marked = host.call("desktop.observe", route=route(app), options={"inline": True, "marks": True})
    assert pixels(image_of(marked["image"]), MARK) > 0
    assert pixels(Image.open(host.evidence(marked) / "observe.png").convert("RGB"), MARK) == 0
