"""confirm.resolved: the host looks once more when it acts, and does nothing when what it finds is something else."""

import subprocess

import pytest
from desktop_rig import until
from host_process import Refused, route

REQUIRED = "DESKTOP_CONFIRM_REQUIRED"


def titled(title, role="AXButton"):
    return {"selector": {"byRole": role, "titleContains": title}}


PAD = titled("Pad", "AXGroup")
NAME = titled("Name", "AXTextField")
# Every method that acts, and what the program says once it did.
ACTS = {
    "desktop.click": ({"target": titled("Press me")}, "pressed"),
    "desktop.doubleClick": ({"target": PAD}, "double"),
    "desktop.rightClick": ({"target": PAD}, "pad"),
    "desktop.scroll": ({"target": PAD, "direction": "down"}, "scrolled"),
    "desktop.drag": ({"target": PAD, "to": titled("Press me")}, "pad"),
    "desktop.setValue": ({"target": titled("Volume", "AXSlider"), "value": 7}, "volume"),
    "desktop.typeText": ({"target": NAME, "text": "typed"}, "name"),
    "desktop.hotkey": ({"keys": ["a"]}, "keys"),
    "desktop.focusWindow": ({}, None),
    "desktop.dismissModal": ({"button": "OK"}, "dialog"),
}


def resolve(host, method, /, **params):
    return host.call("desktop.resolve", intent={"method": method, "params": params})


def resolved(found, **more):
    """What the daemon sends of it."""
    identity = {name: found[name] for name in ("bundleId", "pid", "program", "windowId", "windowTitle")}
    for end in ("element", "to"):
        if end in found:
            identity[end] = {name: found[end][name] for name in ("fingerprint", "role", "nativeRole")}
    return {**identity, **more}


def act(host, method, found, confirmed=None, **more):
    confirm = {"resolved": confirmed or resolved(found)}
    return host.call(method, confirm=confirm, **found["params"], **more)


def refused(call, *arguments, **more):
    with pytest.raises(Refused) as refusal:
        call(*arguments, **more)
    return refusal.value


def xdotool(host_desktop, app, *command):
    search = ["xdotool", "search", "--onlyvisible", "--name", f"^{app.title}$", *command]
    subprocess.run(search, env=host_desktop.environment, check=True, capture_output=True)


def press(host, app, title):
    host.act("desktop.click", route={"app": {"pid": app.pid}}, target=titled(title))


def ready(host, method, app):
    """The call, resolved, with a dialog in front where it is about one."""
    params, _ = ACTS[method]
    if method == "desktop.dismissModal":
        press(host, app, "Ask")
        app.until(dialog="open")
        question = {"windowExists": {"titlePattern": "Question"}}
        by_pid = {"app": {"pid": app.pid}}
        host.call("desktop.waitUntil", route=by_pid, condition=question, timeoutMs=20_000)
        return resolve(host, method, route=by_pid, **params)
    return resolve(host, method, route=route(app), **params)


def test_the_table_has_every_method_that_acts(host):
    beyond = host.call("desktop.health")["extensions"]["methods"]
    reading = {"desktop.windows", "desktop.listModals", "desktop.resolve", "desktop.stop", "desktop.resume"}
    assert set(ACTS) == {"desktop.click", "desktop.typeText", "desktop.hotkey"} | (set(beyond) - reading)


@pytest.mark.parametrize("method", ACTS)
def test_an_act_that_would_be_about_anything_else_is_not_done_and_one_that_is_not_is(host, start, method):
    app = start("gtk3")
    found = ready(host, method, app)
    right = resolved(found)
    before = app.state
    wrongs = [{name: "other"} for name in ("bundleId", "program", "windowTitle")] + [{"pid": 1}, {"windowId": "w:1"}]
    for end in ("element", "to"):
        if end not in found:
            # A call that is about no element is not confirmed by one either.
            wrongs.append({end: {"fingerprint": "AXButton|x|x=0,y=0,w=1,h=1", "role": "AXButton", "nativeRole": "x"}})
            continue
        wrongs += [{end: {**right[end], name: "other"}} for name in ("fingerprint", "role", "nativeRole")]
        wrongs.append({end: None})
    for wrong in wrongs:
        refusal = refused(act, host, method, found, {**right, **wrong})
        assert refusal.code == REQUIRED, wrong
        assert refusal.details["reason"] == "changed"
        assert refusal.details["changed"] == list(wrong)
    assert app.state == before
    act(host, method, found)
    done = ACTS[method][1]
    if done is not None:
        until(lambda: app.state.get(done) != before.get(done), "it is done")


@pytest.mark.parametrize("method", [name for name, (params, _) in ACTS.items() if "target" in params])
@pytest.mark.parametrize("unmoved", [True, False])
def test_elements_are_where_they_were_unless_that_does_not_matter(host, desktop, start, method, unmoved):
    app = start("gtk3")
    found = ready(host, method, app)
    before = app.state
    frame = found["element"]["frame"]
    xdotool(desktop, app, "windowmove", "300", "200")
    until(lambda: ready(host, method, app)["element"]["frame"] != frame, "the window has moved")
    if unmoved:
        refusal = refused(act, host, method, found)
        assert refusal.details["changed"] == ["element"]
        assert app.state == before
        return
    act(host, method, found, resolved(found, unmoved=False))
    done = ACTS[method][1]
    until(lambda: app.state.get(done) != before.get(done), "it is done")


def test_a_window_that_got_another_title_is_not_clicked_in(host, desktop, start):
    app = start("gtk3")
    found = resolve(host, "desktop.click", route={"app": {"pid": app.pid}}, target=titled("Press me"))
    xdotool(desktop, app, "set_window", "--name", "Another letter")
    by_pid = {"app": {"pid": app.pid}}
    until(lambda: resolve(host, "desktop.observe", route=by_pid)["windowTitle"] == "Another letter", "the new title")
    refusal = refused(act, host, "desktop.click", found)
    assert refusal.details["changed"] == ["windowTitle"]
    # Which it is now is not for everybody who may act.
    assert "Another letter" not in str(refusal.details) + str(refusal)
    assert "pressed" not in app.state
    # The control: tied to the window alone, as a token confirms it, it is pressed.
    token = host.issue("desktop.click", found["params"])["token"]
    host.call("desktop.click", confirm={"token": token}, **found["params"])
    app.until(pressed=1)


def test_a_look_alike_that_took_the_elements_place_is_not_clicked(host, start):
    app = start("gtk3")
    found = resolve(host, "desktop.click", route=route(app), target=titled("Old"))
    press(host, app, "Replace")
    app.until(replaced=1)
    refusal = refused(act, host, "desktop.click", found)
    assert (refusal.code, refusal.details["reason"]) == ("DESKTOP_ELEMENT_NOT_FOUND", "stale")
    assert not {"old", "new"} & set(app.state)
    # The control: what is there now is confirmed by what it is.
    act(host, "desktop.click", resolve(host, "desktop.click", route=route(app), target=titled("Old")))
    app.until(new=1)


def test_another_process_with_the_same_title_is_not_clicked_in(host, start):
    first = start("gtk3", title="Same letter")
    found = resolve(host, "desktop.click", route=route(first), target=titled("Press me"))
    first.kill()
    second = start("gtk3", title="Same letter")
    again = resolve(host, "desktop.click", route=route(second), target=titled("Press me"))
    assert refused(act, host, "desktop.click", found).details["reason"] == "route"
    # Nor with the route and the target as they were first given.
    loose = {"route": route(second), "target": titled("Press me")}
    refusal = refused(host.call, "desktop.click", confirm={"resolved": resolved(found)}, **loose)
    assert refusal.details["changed"][0] == "pid"
    assert "pressed" not in second.state
    # The control.
    host.call("desktop.click", confirm={"resolved": resolved(again)}, **loose)
    second.until(pressed=1)


def test_a_text_for_whatever_has_the_focus_is_not_typed_into_a_field_that_got_it(host, start):
    app = start("gtk3")
    host.act("desktop.focusWindow", route=route(app))
    # A button has it at first.
    found = resolve(host, "desktop.typeText", route=route(app), text="lost")
    assert "element" not in found
    host.act("desktop.typeText", route=route(app), target=NAME, text="n")
    app.until(name="n")
    assert refused(act, host, "desktop.typeText", found).details["changed"] == ["element"]
    assert app.state["name"] == "n"


def test_a_token_or_a_phrase_is_limited_by_it(host, start):
    app = start("gtk3")
    found = resolve(host, "desktop.click", route=route(app), target=titled("Press me"))
    wrong = resolved(found, windowTitle="other")
    token = host.issue("desktop.click", found["params"])["token"]
    for confirm in ({"token": token}, {"phrase": "CONFIRM"}):
        refusal = refused(host.call, "desktop.click", confirm={**confirm, "resolved": wrong}, **found["params"])
        assert refusal.details["changed"] == ["windowTitle"]
    # A bad token is not made good by it.
    bad = {"token": token, "resolved": resolved(found)}
    assert refused(host.call, "desktop.click", confirm=bad, **found["params"]).code == REQUIRED
    assert "pressed" not in app.state


def test_taking_input_again_is_not_confirmed_by_it(host, start):
    app = start("gtk3")
    found = resolve(host, "desktop.focusWindow", route=route(app))
    assert refused(host.call, "desktop.resume", confirm={"resolved": resolved(found)}).code == REQUIRED


def test_a_refused_act_leaves_its_evidence_and_a_stopped_host_does_none(start_host, start):
    host, app = start_host(), start("gtk3")
    found = resolve(host, "desktop.click", route=route(app), target=titled("Press me"))
    refusal = refused(act, host, "desktop.click", found, resolved(found, windowTitle="other"))
    assert refusal.details["executionId"] in refusal.details["evidenceDir"]
    (result,) = host.workspace.rglob("result.json")
    assert '"changed"' in result.read_text()
    # Nothing was done, so there is no picture of before.
    assert not list(host.workspace.rglob("*.png"))
    host.call("desktop.stop")
    assert refused(act, host, "desktop.click", found).code == "DESKTOP_HOST_STOPPED"
    assert "pressed" not in app.state
