"""What is not looked at: other programs' windows, password managers, typed texts. Files and pixels are searched."""

import base64
import io
import json

import mss
import pytest
from host_process import Refused, route
from PIL import Image

BLANK = (20, 20, 20)
SECRET = "Correct-Horse-9431"


def selector(title, role="AXTextField"):
    return {"byRole": role, "titleContains": title}


def forms(secret):
    """The ways a text may lie in a file."""
    return {
        secret.encode(),
        secret.encode("utf-16-le"),
        base64.b64encode(secret.encode()).rstrip(b"=")[:-2],
        secret.encode().hex().encode(),
        json.dumps(secret).encode()[1:-1],
    }


def where_found(secret, *places):
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    assert files, "nothing was searched"
    return [file.name for file in files if any(form in file.read_bytes() for form in forms(secret))]


def shown(image, frame, origin):
    """The colours within a frame, its edge left out."""
    left, top = frame["x"] - origin[0], frame["y"] - origin[1]
    inner = (left + 3, top + 3, left + frame["width"] - 3, top + frame["height"] - 3)
    return {colour for _, colour in image.convert("RGB").crop(inner).getcolors(1 << 20)}


def colours(image, frame, origin):
    return len(shown(image, frame, origin))


def origin_of(folder):
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    picture = next(line for line in lines if line["step"] == "picture")
    return picture["x"], picture["y"]


@pytest.mark.parametrize("toolkit", ["gtk3", "gtk4", "qt6"])
def test_a_typed_text_is_in_no_file_and_in_no_picture(host, start, desktop, toolkit):
    app = start(toolkit)
    field = host.call("desktop.find", route=route(app), selector=selector("Name"))["elementRefs"][0]
    result = host.act("desktop.typeText", route=route(app), target={"selector": selector("Name")}, text=SECRET)
    app.until(name=SECRET)
    assert where_found(SECRET, host.workspace, host.log) == []
    folder = host.evidence(result)
    for name in ("before.png", "after.png"):
        assert colours(Image.open(folder / name), field["frame"], origin_of(folder)) == 1
    # The control: on the screen itself it can be read.
    with mss.MSS(display=desktop.display) as screen:
        shot = screen.grab(screen.monitors[0])
    assert colours(Image.frombytes("RGB", shot.size, shot.bgra, "raw", "BGRX"), field["frame"], (0, 0)) > 1
    # And in what the program says of itself.
    seen = host.call("desktop.find", route=route(app), selector=selector("Name"))["elementRefs"][0]
    assert seen["value"] == SECRET


def test_a_typed_text_stays_out_of_later_evidence_too(host, start):
    app = start("gtk3")
    host.act("desktop.typeText", route=route(app), target={"selector": selector("Name")}, text=SECRET)
    options = {"snapshot": True, "diff": True, "marks": True}
    result = host.call("desktop.observe", route=route(app), options=options)
    host.call("desktop.find", route=route(app), selector={"valueContains": SECRET})
    host.call(
        "desktop.waitUntil", route=route(app), condition={"selectorExists": {"valueContains": SECRET}}, timeoutMs=5_000
    )
    host.act("desktop.click", route=route(app), target={"selector": selector("Press me", "AXButton")})
    with pytest.raises(Refused):
        host.call("desktop.find", route={"window": {"titlePattern": SECRET}}, selector=selector("x"))
    assert SECRET in result["snapshot"], "whoever typed it may read it"
    assert where_found(SECRET, host.workspace, host.log) == []


def test_the_search_finds_a_text_that_is_there(host, tmp_path):
    """The control of the searches above."""
    for number, form in enumerate(forms(SECRET)):
        (tmp_path / f"{number}").write_bytes(b"before " + form + b" after")
    assert len(where_found(SECRET, tmp_path)) == len(forms(SECRET))


def test_a_password_field_is_blank_in_every_picture(host, start):
    app = start("gtk3")
    target = {"selector": {"byRole": "AXSecureTextField"}}
    host.act("desktop.typeText", route=route(app), target=target, text=SECRET)
    app.until(secret=SECRET)
    field = host.call("desktop.find", route=route(app), selector=target["selector"])["elementRefs"][0]
    observed = host.evidence(host.call("desktop.observe", route=route(app)))
    assert colours(Image.open(observed / "observe.png"), field["frame"], origin_of(observed)) == 1
    nodes = json.loads((observed / "ax.json").read_text())["nodes"]
    assert [each["value"] for each in nodes if each["role"] == "AXSecureTextField"] == [None]


def test_a_fault_names_its_place_and_not_what_was_typed(host, start):
    app = start("gtk3")
    with pytest.raises(Refused):
        host.act("desktop.typeText", route=route(app), target={"selector": selector(SECRET)}, text=SECRET)
    assert where_found(SECRET, host.workspace, host.log) == []


def test_the_clipboard_is_given_back(host, start, desktop):
    from bascule.programs.desktop_host.linux.clipboard import ClipboardThread, Saved

    app = start("gtk3")
    person = ClipboardThread(desktop.display)
    try:
        person.offer("what the person copied")
        result = host.act("desktop.typeText", route=route(app), target={"selector": selector("Name")}, text="typed")
        app.until(name="typed")
        assert result["clipboard"] == "restored"
        assert person.save().contents["UTF8_STRING"][1] == b"what the person copied"
        person.restore(Saved({}))
        result = host.act("desktop.typeText", route=route(app), target={"selector": selector("Name")}, text=" more")
        assert result["clipboard"] in ("empty", "restored")
    finally:
        person.close()


# -- other programs' windows --


def test_a_picture_shows_the_one_program_and_nobody_elses_pixels(host, start, desktop):
    """The window in front lies over the one that is observed: its part is covered, not shown."""
    below, above = start("gtk3"), start("gtk4")
    desktop.move(below.title, 100, 100)
    desktop.move(above.title, 150, 150)
    front = host.call("desktop.observe", route=route(above))
    behind = host.call("desktop.observe", route=route(below))
    frame = next(each for each in host.call("desktop.windows")["windows"] if each["title"] == above.title)["frame"]
    folder = host.evidence(behind)
    image = Image.open(folder / "observe.png").convert("RGB")
    # One colour covers what is not its own, another its own password field.
    assert shown(image, frame, origin_of(folder)) <= {(90, 90, 90), (20, 20, 20)}
    folder = host.evidence(front)
    # The control: it is not of one colour by itself.
    assert colours(Image.open(folder / "observe.png").convert("RGB"), frame, origin_of(folder)) > 1
    title = below.title.encode()
    assert title not in (folder / "ax.json").read_bytes()


def test_a_program_on_the_list_is_neither_seen_nor_acted_in(start_host, start):
    app = start("gtk4")
    host = start_host("--keep-out", "org.bascule.fixture.*")
    here = {"app": {"pid": app.pid}}
    agree = {"selector": selector("Agree", "AXCheckBox")}
    for act in (
        lambda: host.call("desktop.observe", route=here),
        lambda: host.call("desktop.find", route=here, selector=selector("Name")),
        lambda: host.act("desktop.click", route=here, target=agree),
        lambda: host.act("desktop.hotkey", route=here, keys=["a"]),
        lambda: host.call(
            "desktop.waitUntil", route=here, condition={"selectorExists": selector("Name")}, timeoutMs=5_000
        ),
        lambda: host.call("desktop.resolve", intent={"method": "desktop.observe", "params": {"route": here}}),
        lambda: host.call(
            "desktop.resolve", intent={"method": "desktop.click", "params": {"route": here, "target": agree}}
        ),
    ):
        with pytest.raises(Refused, match="DESKTOP_APP_FORBIDDEN"):
            act()
    assert "agreed" not in app.state
    window = next(each for each in host.call("desktop.windows")["windows"] if each["pid"] == app.pid)
    assert window["forbidden"] is True
    assert window["title"] == ""


def test_nothing_tells_the_title_of_a_program_on_the_list(start_host, host, start):
    """Whether a pattern matches would tell it letter by letter; `windows` does not say it at all."""
    app = start("gtk4")
    strict = start_host("--keep-out", "org.bascule.fixture.*")

    def asked(host, pattern, **more):
        outcomes = []
        for call in (
            lambda: host.call("desktop.observe", route={"window": {"titlePattern": pattern}, **more}),
            lambda: host.call(
                "desktop.waitUntil",
                route=more or None,
                condition={"windowExists": {"titlePattern": pattern}},
                timeoutMs=50,
            ),
        ):
            try:
                outcomes.append(call() and "seen")
            except Refused as refused:
                outcomes.append(refused.code)
        return outcomes

    right, wrong = f"^{app.title}$", "^no window is called so$"
    assert asked(strict, right) == asked(strict, wrong) == ["DESKTOP_ELEMENT_NOT_FOUND", "DESKTOP_TIMEOUT"]
    by_name = {"app": {"pid": app.pid}}
    assert asked(strict, right, **by_name) == asked(strict, wrong, **by_name)
    assert asked(strict, right, **by_name)[0] == "DESKTOP_APP_FORBIDDEN"
    # The control: without the list both are told apart.
    assert asked(host, right) == ["seen", "seen"]


def test_a_typed_text_is_blanked_however_little_of_the_tree_is_asked_for(host, start):
    app = start("gtk3")
    field = host.call("desktop.find", route=route(app), selector=selector("Name"))["elementRefs"][0]
    before = host.call("desktop.observe", route=route(app), options={"axMaxDepth": 1, "axMaxNodes": 1})
    host.act("desktop.typeText", route=route(app), target={"selector": selector("Name")}, text=SECRET)
    app.until(name=SECRET)
    after = host.call("desktop.observe", route=route(app), options={"axMaxDepth": 1, "axMaxNodes": 1, "inline": True})
    assert after["nodes"] == 1
    assert after["partial"] == ["depth", "nodes"]
    sent = Image.open(io.BytesIO(base64.b64decode(after["image"]["data"])))
    for image in (Image.open(host.evidence(after) / "observe.png"), sent):
        assert shown(image, field["frame"], origin_of(host.evidence(after))) == {BLANK}
    # The control: nothing was typed, nothing is blanked.
    image = Image.open(host.evidence(before) / "observe.png")
    assert BLANK not in shown(image, field["frame"], origin_of(host.evidence(before)))


def test_a_ref_from_before_does_not_open_a_program_on_the_list(start_host, host, start):
    app = start("gtk4")
    found = host.call("desktop.find", route=route(app), selector=selector("Press me", "AXButton"))["elementRefs"][0]
    strict = start_host("--keep-out", "org.bascule.fixture.*")
    with pytest.raises(Refused, match=r"DESKTOP_APP_FORBIDDEN|DESKTOP_ELEMENT_NOT_FOUND"):
        strict.act("desktop.click", route=route(app), target={"elementRef": found})
    assert "pressed" not in app.state
