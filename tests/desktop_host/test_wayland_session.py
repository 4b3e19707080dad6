"""Wayland sessions under real compositors: what the tests of every rig do not say of them."""

import pytest
from desktop_rig import until
from host_process import HostProcess, Refused, route
from kwin_rig import KwinDesktop
from wayland_rig import X11, WaylandDesktop

# What each calls itself in `capabilities`.
SESSIONS = {"sway": WaylandDesktop, "KWin": KwinDesktop}


@pytest.fixture(scope="module", params=list(SESSIONS))
def wayland(request):
    desktop = SESSIONS[request.param]()
    desktop.session = request.param
    yield desktop
    desktop.close()


ON_SWAY = pytest.mark.parametrize("wayland", ["sway"], indirect=True)


@pytest.fixture(scope="module")
def wayland_host(wayland, tmp_path_factory):
    host = HostProcess(wayland, tmp_path_factory.mktemp("root"), stop_keys=True)
    yield host
    host.close()


@pytest.fixture
def start(wayland):
    started = []

    def start(app, **more):
        started.append(wayland.start(app, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def issues(host):
    found = host.call("desktop.doctor", programs=True)
    assert len(found["issues"]) == len(found["remedies"])
    assert found["healthy"] is (not found["issues"])
    return found["issues"]


def button(title):
    return {"target": {"selector": {"titleContains": title, "byRole": "AXButton"}}}


def test_everything_can_be_seen_and_nothing_is_wrong(wayland, wayland_host):
    assert issues(wayland_host) == []
    assert wayland_host.call("desktop.health")["permissions"] == {
        "accessibility": "granted",
        "screenRecording": "granted",
    }
    can = wayland_host.call("desktop.health")["capabilities"]
    assert (can["session"], can["keys"], can["clicks"], can["pictures"]) == (
        wayland.session,
        "held",
        "held",
        {"sway": "crop", "KWin": "own"}[wayland.session],
    )


def test_windows_of_wayland_and_of_xwayland_are_listed_and_used_alike(wayland_host, start):
    native, x11 = start("gtk3", title="speaks Wayland"), start("gtk3", title="speaks X11", env=X11)
    windows = {each["title"]: each for each in wayland_host.call("desktop.windows")["windows"]}
    assert {name: windows[name]["pid"] for name in (native.title, x11.title)} == {
        native.title: native.pid,
        x11.title: x11.pid,
    }
    # The one that has the focus, whichever kind it is.
    assert [name for name, each in windows.items() if each["active"]] == [x11.title]
    for app in (native, x11):
        # The pointer, so that places are shown to be right as well.
        wayland_host.act("desktop.doubleClick", route=route(app), target={"selector": {"titleContains": "pad"}})
        app.until(double=1)
        wayland_host.act("desktop.click", route=route(app), **button("Press me"))
        app.until(pressed=1)


def test_a_picture_shows_one_window_and_nothing_of_what_lies_over_it(wayland, wayland_host, start):
    from PIL import Image

    below, above = start("gtk3"), start("gtk3")
    for each in (below, above):
        wayland.move(each.title, 50, 50)
    result = wayland_host.call("desktop.observe", route=route(above))
    picture = Image.open(wayland_host.evidence(result) / "observe.png")
    assert len(picture.getcolors(1 << 20)) > 20, "the window is drawn"
    hidden = wayland_host.call("desktop.observe", route=route(below))
    covered = Image.open(wayland_host.evidence(hidden) / "observe.png")
    # The other one lies exactly over it: nothing of it is shown, or what it draws all the same.
    assert (len(covered.getcolors(1 << 20)) > 20) is (wayland.session == "KWin")
    below.kill()


def test_the_stop_keys_stop_everything_whatever_has_the_focus(wayland, wayland_host, start):
    app = start("gtk3")
    chord = until(lambda: wayland_host.call("desktop.health")["stopKeys"], "the keys are bound")
    assert chord == "Ctrl+Alt+Shift+Escape"
    wayland.keys("press ctrl alt shift escape")
    until(lambda: wayland_host.call("desktop.health")["stopped"], "everything is stopped")
    with pytest.raises(Refused) as refused:
        wayland_host.act("desktop.click", route=route(app), **button("Press me"))
    assert refused.value.code == "DESKTOP_HOST_STOPPED"
    wayland_host.act("desktop.resume")


@ON_SWAY
def test_the_stop_keys_are_bound_again_when_sway_reads_its_configuration_again(wayland, wayland_host):
    # It forgets what was bound.
    until(lambda: wayland_host.call("desktop.health")["stopKeys"], "the keys are bound")
    wayland.message("reload")
    until(lambda: wayland_host.call("desktop.health")["stopKeys"], "the keys are bound again")
    wayland.keys("press ctrl alt shift escape")
    until(lambda: wayland_host.call("desktop.health")["stopped"], "everything is stopped")
    wayland_host.act("desktop.resume")


def test_a_prompt_that_has_the_keyboard_for_itself_gets_nothing(wayland, wayland_host, start):
    app = start("gtk3")
    assert wayland_host.act("desktop.hotkey", route=route(app), keys=["x"])["sent"]
    app.until(keys=[["x", 0]])
    prompt = wayland.start_bare("prompt")
    try:
        for call in (
            lambda: wayland_host.act("desktop.hotkey", route=route(app), keys=["y"]),
            lambda: wayland_host.act(
                "desktop.typeText", route=route(app), target={"selector": {"byRole": "AXSecureTextField"}}, text="word"
            ),
            lambda: wayland_host.act(
                "desktop.rightClick", route=route(app), target={"selector": {"titleContains": "pad"}}
            ),
        ):
            with pytest.raises(Refused) as refused:
                call()
            assert refused.value.details["reason"] == "focus"
        # The control: a key of the person's goes there.
        wayland.keys("press z")
        prompt.until(text="z")
        assert prompt.state["keys"] == 1
        assert app.state["keys"] == [["x", 0]]
    finally:
        prompt.kill()


@ON_SWAY
def test_a_modifier_that_the_person_holds_does_not_join_our_keys(wayland, wayland_host, start):
    app = start("gtk3")
    wayland.keys("hold shift")
    try:
        wayland_host.act("desktop.hotkey", route=route(app), keys=["ctrl", "a"])
        until(lambda: app.state.get("keys"), "the keys arrive")
        assert [each for each in app.state["keys"] if each[0] in ("a", "A")] == [["a", 4]]
    finally:
        wayland.keys("release")


@ON_SWAY
def test_of_two_windows_with_one_name_the_one_meant_gets_the_keys(wayland, wayland_host, start):
    one, two = start("gtk3", title="alike"), start("gtk3", title="alike")
    for app in (one, two, one):
        wayland_host.act("desktop.hotkey", route={"app": {"pid": app.pid}}, keys=["x"])
    until(lambda: len(one.state.get("keys", [])) == 2, "both keys arrive")
    assert [len(each.state["keys"]) for each in (one, two)] == [2, 1]


def test_the_clipboard_is_given_back_after_a_paste(wayland, wayland_host, start):
    source, app = start("gtk3"), start("gtk3")
    name, secret = {"selector": {"titleContains": "Name"}}, {"selector": {"byRole": "AXSecureTextField"}}
    wayland_host.act("desktop.typeText", route=route(source), target=name, text="the person's own")
    for keys in (["ctrl", "a"], ["ctrl", "c"]):
        wayland_host.act("desktop.hotkey", route=route(source), keys=keys)
    typed = wayland_host.act("desktop.typeText", route=route(app), target=secret, text="ours")
    app.until(secret="ours")
    assert typed["clipboard"] == "restored"
    wayland_host.act("desktop.click", route=route(app), target=name)
    wayland_host.act("desktop.hotkey", route=route(app), keys=["ctrl", "v"])
    app.until(name="the person's own")


def test_several_outputs_and_a_scale_are_one_screen(tmp_path):
    from PIL import Image

    desktop = WaylandDesktop()
    try:
        desktop.message("create_output")
        desktop.message("output HEADLESS-2 resolution 1600x1800 position 1280 0 scale 2")
        app = desktop.start("gtk3")
        desktop.move(app.title, 1330, 20)
        host = HostProcess(desktop, tmp_path)
        try:
            result = host.call("desktop.observe", route=route(app))
            assert len(Image.open(host.evidence(result) / "observe.png").getcolors(1 << 20)) > 20
            host.act("desktop.doubleClick", route=route(app), target={"selector": {"titleContains": "pad"}})
            app.until(double=1)
        finally:
            host.close()
    finally:
        desktop.close()


@ON_SWAY
@pytest.mark.parametrize("lost", ["SWAYSOCK", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"])
def test_the_doctor_answers_whatever_is_missing(wayland, tmp_path, lost):
    host = HostProcess(wayland, tmp_path, env={lost: "", "DISPLAY": ""})
    try:
        assert issues(host)
    finally:
        host.close()


@ON_SWAY
def test_a_compositor_that_we_do_not_know_is_used_through_elements_alone(wayland, tmp_path, start):
    """As any that is neither sway nor KWin: nothing of X11 is used, although Xwayland is there."""
    app = start("gtk3")
    host = HostProcess(wayland, tmp_path, env={"SWAYSOCK": ""}, stop_keys=True)
    try:
        assert wayland.environment["DISPLAY"]
        assert [each for each in issues(host) if "Screen Recording" in each]
        assert [each for each in issues(host) if "No keys stop everything" in each]
        assert host.call("desktop.health")["stopKeys"] is None
        assert host.call("desktop.doctor")["capabilities"] == {
            "session": "Wayland",
            "places": False,
            "pictures": "none",
            "keys": "none",
            "clicks": "none",
            "elements": True,
            "text": "field",
        }
        (window,) = (each for each in host.call("desktop.windows")["windows"] if each["title"] == app.title)
        assert window["pid"] == app.pid
        seen = host.call("desktop.observe", route=route(app), options={"snapshot": True})
        assert "Press me" in seen["snapshot"]
        assert "screenshotPath" not in seen["evidence"]
        # What an element's own program does, it does without a picture, and that is said.
        clicked = host.act("desktop.click", route=route(app), **button("Press me"))
        app.until(pressed=1)
        assert clicked["method"] == "action"
        assert "beforeScreenshot" not in clicked["evidence"]
        name = {"selector": {"titleContains": "Name"}}
        typed = host.act("desktop.typeText", route=route(app), target=name, text="héllo 中文 😀")
        app.until(name="héllo 中文 😀")
        assert (typed["effect"], typed["clipboard"]) == ("confirmed", "untouched")
        intent = {"method": "desktop.click", "params": {"route": route(app), **button("Press me")}}
        resolved = host.call("desktop.resolve", intent=intent, picture=True)
        assert resolved["pictures"] is False
        assert "picture" not in resolved
        for method, more in (
            ("hotkey", {"keys": ["x"]}),
            ("rightClick", {"target": {"selector": {"titleContains": "pad"}}}),
            ("typeText", {"target": {"selector": {"byRole": "AXSecureTextField"}}, "text": "word"}),
        ):
            with pytest.raises(Refused) as refused:
                host.act(f"desktop.{method}", route=route(app), **more)
            assert refused.value.code in ("DESKTOP_PERMISSION_MISSING", "DESKTOP_ELEMENT_NOT_FOUND")
        with pytest.raises(Refused, match="no pictures"):
            host.call("desktop.observe", route=route(app), options={"inline": True})
        assert not {"keys", "pad", "secret"} & app.state.keys()
    finally:
        host.close()
