"""Pages in the browsers that people use; the page itself says over loopback what reached it."""

import json

import pytest
from browsers import TITLE, open_browser
from desktop_rig import until
from test_toolkits import TEXT

PAGE = {"window": {"titlePattern": TITLE}}


@pytest.fixture(scope="module", params=("chromium", "firefox"))
def app(request, desktop, shared_host):
    browser = open_browser(desktop, request.param)
    # A browser reads the page's elements after it has drawn it.
    shared_host.call(
        "desktop.waitUntil",
        route=PAGE,
        condition={"selectorExists": selector("Press me", "AXButton")},
        timeoutMs=30_000,
    )
    yield browser
    browser.kill()


def selector(title, role="AXTextField"):
    return {"byRole": role, "titleContains": title}


def target(title, role="AXTextField"):
    return {"selector": selector(title, role)}


def type_over(host, name, text, role="AXTextField"):
    field = target(name, role)
    return host.act("desktop.typeText", route=PAGE, target=field, text=text, options={"clearBefore": True})


def test_a_page_is_read_with_its_fields_its_buttons_and_its_text(host, app):
    seen = host.call("desktop.observe", route=PAGE, options={"snapshot": True, "axMaxDepth": 64})["snapshot"]
    for words in ('heading "Order form"', 'textfield "Name"', 'securetextfield "Secret"', 'button "Press me"'):
        assert words in seen
    # Firefox gives its paragraphs no names.
    assert '"Nothing happens here"' in seen


@pytest.mark.parametrize("field", ["Name", "Notes"])
def test_any_text_is_typed_into_a_page_exactly(host, app, field):
    """Chromium on X11 fetches the clipboard twice and inserts the second."""
    for text in (TEXT, "and over it"):
        result = type_over(host, field, text)
        assert (result["typed"], result["effect"]) == (True, "confirmed"), result
        app.until(**{field.lower(): text})


def test_a_text_without_a_target_goes_into_the_field_of_the_page_that_has_the_focus(host, app):
    type_over(host, "Name", "one ")
    host.act("desktop.typeText", route=PAGE, text="two")
    app.until(name="one two")


def test_what_is_copied_in_a_page_is_pasted_into_another_field_of_it(host, app):
    type_over(host, "Notes", "over this")
    type_over(host, "Name", "copied")
    host.act("desktop.hotkey", route=PAGE, keys=["cmd", "a"])
    host.act("desktop.hotkey", route=PAGE, keys=["cmd", "c"])
    # The pointer gives the other field the focus.
    host.act("desktop.doubleClick", route=PAGE, target=target("Notes"))
    host.act("desktop.hotkey", route=PAGE, keys=["cmd", "a"])
    host.act("desktop.hotkey", route=PAGE, keys=["cmd", "v"])
    app.until(notes="copied")


def test_a_password_typed_into_a_page_is_not_read_back(host, app):
    result = type_over(host, "Secret", "pass-Wört", "AXSecureTextField")
    app.until(secret="pass-Wört")
    assert (result["typed"], result["effect"]) == (True, "unverified")
    found = host.call("desktop.find", route=PAGE, selector={"byRole": "AXSecureTextField"})
    assert found["elementRefs"][0]["value"] is None


@pytest.mark.parametrize(("method", "times"), [("desktop.click", 1), ("desktop.doubleClick", 2)])
def test_a_button_of_a_page_is_clicked_by_its_own_action_or_with_the_pointer(host, app, method, times):
    before = app.state.get("pressed", 0)
    result = host.act(method, route=PAGE, target=target("Press me", "AXButton"))
    app.until(pressed=before + times)
    assert result["effect"] == "confirmed"
    shown = {"selectorExists": {"titleContains": f"pressed {before + times} times"}}
    assert host.call("desktop.waitUntil", route=PAGE, condition=shown, timeoutMs=30_000)["ok"]


def test_the_password_field_of_a_page_is_black_in_pictures(host, app):
    from PIL import Image

    def look():
        """A picture of the page, the control; all is black while a busy browser does not say what is secret."""
        result = host.call("desktop.observe", route=PAGE)
        picture = Image.open(host.evidence(result) / "observe.png").convert("RGB")
        return (result, picture) if len(picture.getcolors(1 << 20)) > 20 else None

    (field,) = host.call("desktop.find", route=PAGE, selector=selector("Secret", "AXSecureTextField"))["elementRefs"]
    result, picture = until(look, "a picture of the page")
    steps = (host.evidence(result) / "trace.jsonl").read_text().splitlines()
    (area,) = (each for each in map(json.loads, steps) if each["step"] == "picture")
    frame = field["frame"]
    x, y = frame["x"] - area["x"], frame["y"] - area["y"]
    inside = picture.crop((x, y, x + frame["width"], y + frame["height"]))
    assert len(inside.getcolors()) == 1


def test_a_password_field_that_appears_in_a_page_is_black_in_a_picture_alone(host, app):
    from PIL import Image

    alone = {"includeAxTree": False}

    def steps(result):
        return [json.loads(each) for each in (host.evidence(result) / "trace.jsonl").read_text().splitlines()]

    def is_known():
        """Nothing changes, and the window is not read again."""
        return "tree" not in [each["step"] for each in steps(host.call("desktop.observe", route=PAGE, options=alone))]

    until(is_known, "a picture of a window that is known")
    host.act("desktop.click", route=PAGE, target=target("Ask for a PIN", "AXButton"))
    pin = selector("PIN", "AXSecureTextField")
    host.call("desktop.waitUntil", route=PAGE, condition={"selectorExists": pin}, timeoutMs=30_000)
    result = host.call("desktop.observe", route=PAGE, options=alone)
    (field,) = host.call("desktop.find", route=PAGE, selector=pin)["elementRefs"]
    (area,) = (each for each in steps(result) if each["step"] == "picture")
    frame = field["frame"]
    x, y = frame["x"] - area["x"], frame["y"] - area["y"]
    picture = Image.open(host.evidence(result) / "observe.png").convert("RGB")
    assert len(picture.crop((x, y, x + frame["width"], y + frame["height"])).getcolors(1 << 20)) == 1
    host.act("desktop.click", route=PAGE, target=target("Ask for a PIN", "AXButton"))
    host.call("desktop.waitUntil", route=PAGE, condition={"selectorGone": pin}, timeoutMs=30_000)
