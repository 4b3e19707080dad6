"""The same acts in every toolkit; the program's own state says whether they happened, not our reply."""

import pytest
from desktop_rig import until
from host_process import Refused, route

TOOLKITS = ("gtk3", "gtk4", "qt6", "qt5")
# Several scripts, a combining accent, an emoji of several code points, quotes and a tab's neighbour.
TEXT = '中文 é e\u0301 😀 👩‍💻 "quoted" & <tag> ÆØÅ'


@pytest.fixture(scope="module", params=TOOLKITS)
def app(request, desktop, shared_host):
    program = desktop.start(request.param)
    program.toolkit = request.param
    yield program
    program.kill()


def selector(title, role="AXButton"):
    return {"byRole": role, "titleContains": title}


@pytest.mark.req("DSK-5.5-1")
@pytest.mark.req("DSK-5.5-2")
@pytest.mark.req("DSK-5.5-4")
def test_a_button_is_pressed_by_its_own_action(host, app):
    before = app.state.get("pressed", 0)
    result = host.act("desktop.click", route=route(app), target={"selector": selector("Press me")})
    app.until(pressed=before + 1)
    assert result["clicked"] is True
    assert result["method"] == "action"
    assert result["evidence"]["beforeScreenshot"] == "before.png"
    assert result["evidence"]["afterScreenshot"] == "after.png"
    for name in ("before.png", "after.png"):
        assert (host.evidence(result) / name).read_bytes().startswith(b"\x89PNG")


def test_a_check_box_is_toggled_and_seen_to_be(host, app):
    """GTK 4's has no action: there the pointer does it, after a hit test."""
    before = app.state.get("agreed", False)
    result = host.act("desktop.click", route=route(app), target={"selector": selector("Agree", "AXCheckBox")})
    app.until(agreed=not before)
    assert result["effect"] == "confirmed"
    assert result["method"] == ("pointer" if app.toolkit == "gtk4" else "action")


@pytest.mark.req("DSK-5.6-1")
@pytest.mark.req("DSK-5.6-2")
@pytest.mark.req("DSK-5.6-3")
@pytest.mark.req("DSK-5.6-4")
@pytest.mark.req("DSK-5.6-6")
def test_any_text_is_typed_exactly(host, app):
    options = {"clearBefore": True}
    target = {"selector": selector("Name", "AXTextField")}
    result = host.act("desktop.typeText", route=route(app), target=target, text=TEXT, options=options)
    app.until(name=TEXT)
    assert result["typed"] is True
    assert result["effect"] == "confirmed"
    # And again over it: what was there is replaced, not added to.
    host.act("desktop.typeText", route=route(app), target=target, text="short", options=options)
    app.until(name="short")


def test_a_text_goes_behind_what_is_in_the_field(host, app):
    """Coming back to a field selects what is in it; typing must not replace that."""
    name, secret = (
        {"selector": selector(*each)} for each in (("Name", "AXTextField"), ("Secret", "AXSecureTextField"))
    )
    host.act("desktop.typeText", route=route(app), target=name, text="before", options={"clearBefore": True})
    host.act("desktop.typeText", route=route(app), target=secret, text="elsewhere")
    result = host.act("desktop.typeText", route=route(app), target=name, text=" after")
    app.until(name="before after")
    assert result["effect"] == "confirmed"


def test_a_password_is_typed_and_never_read_back(host, app):
    target = {"selector": {"byRole": "AXSecureTextField"}}
    result = host.act(
        "desktop.typeText", route=route(app), target=target, text="pass-Wört", options={"clearBefore": True}
    )
    app.until(secret="pass-Wört")
    assert result["effect"] == "unverified"
    found = host.call("desktop.find", route=route(app), selector={"byRole": "AXSecureTextField"})
    assert found["elementRefs"][0]["value"] is None


@pytest.mark.req("DSK-5.6-1")
def test_typing_without_a_target_goes_where_the_focus_is(host, app):
    field = {"selector": selector("Name", "AXTextField")}
    host.act("desktop.typeText", route=route(app), target=field, text="one ", options={"clearBefore": True})
    host.act("desktop.typeText", route=route(app), text="two")
    app.until(name="one two")


@pytest.mark.req("DSK-5.8-1")
@pytest.mark.req("DSK-5.8-2")
def test_what_appears_later_is_waited_for(host, app):
    waiting = host.later(
        "desktop.waitUntil",
        route=route(app),
        condition={"selectorExists": selector("Arrived")},
        timeoutMs=20_000,
    )
    host.act("desktop.click", route=route(app), target={"selector": selector("Soon")})
    result = waiting.result()
    assert result["ok"] is True
    assert result["matched"] >= 1
    assert result["elapsedMs"] > 0
    assert (host.evidence(result) / result["evidence"]["axPath"]).exists()


@pytest.mark.req("DSK-5.4-1")
@pytest.mark.req("DSK-4.5-1")
def test_an_element_found_can_be_clicked_by_its_ref(host, app):
    before = app.state.get("pressed", 0)
    found = host.call("desktop.find", route=route(app), selector=selector("Press me"))
    (element,) = found["elementRefs"]
    assert element["role"] == "AXButton"
    assert element["title"] == "Press me"
    frame = element["frame"]
    assert element["fingerprint"] == "AXButton|Press me|x={x},y={y},w={width},h={height}".format(**frame)
    result = host.act("desktop.click", target={"elementRef": element})
    app.until(pressed=before + 1)
    assert "rematched" not in result


@pytest.mark.parametrize("toolkit", ["gtk3", "qt6"])
def test_a_slider_takes_a_value(host, start, toolkit):
    program = start(toolkit)
    target = {"selector": selector("Volume", "AXSlider")}
    result = host.act("desktop.setValue", route=route(program), target=target, value=40)
    program.until(volume=40)
    assert result["effect"] == "confirmed"


@pytest.mark.parametrize("toolkit", ["gtk3", "gtk4", "qt6"])
def test_a_window_of_many_rows_is_read_whole_and_says_what_can_be_seen(host, start, toolkit):
    many = start(toolkit, "--rows", "300")

    def whole():
        """GTK 4 is asked object by object: on a busy machine one reading may run out of time, and says so."""
        found = host.call("desktop.find", route=route(many), selector={**selector("Row "), "limit": 500})
        return found if found.get("partial") != ["time"] else None

    found = until(whole, "a reading that ends in its time")
    assert found["matched"] == 300
    assert "partial" not in found
    seen = [each for each in found["elementRefs"] if each["visible"]]
    # A few rows fit into the window; the rest is scrolled away, whatever the toolkit's flags say.
    assert 1 <= len(seen) < 60
    assert seen[0]["title"] == "Row 0"
    # The control: one of those that are not visible cannot be reached with the pointer.
    with pytest.raises(Refused) as refused:
        host.act("desktop.doubleClick", route=route(many), target={"selector": {"titleContains": "Row 299"}})
    assert refused.value.details["reason"] == "offscreen"


@pytest.mark.parametrize("method", ["desktop.click", "desktop.doubleClick"])
def test_a_click_that_changes_another_part_of_the_window_is_confirmed_by_the_window(host, start, method):
    """GTK 4's elements report nothing; that a label has changed is seen in the window."""
    program = start("gtk4")
    result = host.act(method, route=route(program), target={"selector": selector("Count")})
    assert (result["effect"], result["by"]) == ("confirmed", "window")
    assert "watchedMs" not in result
    # The control: a click on what does nothing confirms nothing.
    dead = {"selector": {"titleContains": "Nothing happens here"}}
    result = host.act("desktop.doubleClick", route=route(program), target=dead)
    assert result["effect"] == "unverified"
    assert result["watchedMs"] > 0
    assert "by" not in result


def test_what_an_element_says_of_itself_comes_before_what_its_window_shows(host, app):
    result = host.act("desktop.click", route=route(app), target={"selector": selector("Agree", "AXCheckBox")})
    assert (result["effect"], result["by"]) == ("confirmed", "element")
