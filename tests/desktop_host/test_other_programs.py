"""Programs we did not write, judged by what they themselves show or save."""

import re
import shutil

import pytest
from desktop_rig import until
from host_process import Refused
from lacking_desktop import missing_here
from token_count import tokens

# What a model is to pay for a look at a typical window.
MAX_TOKENS = 1_500


def snapshot(host, window):
    """With refs of three digits, as in a session of the first thousand elements; this host serves many tests."""
    seen = host.call("desktop.observe", route=window, options={"snapshot": True, "axMaxDepth": 64})["snapshot"]
    return re.sub(r"\[e:\d+\]", "[e:999]", seen)


def open_program(desktop, host, title, *command):
    if shutil.which(command[0]) is None:
        missing_here(f"{command[0]} is not installed: sh tools/setup.sh packages")
    process = desktop.spawn(*command)
    until(lambda: any(title in each["title"] for each in host.call("desktop.windows")["windows"]), title)
    return process


@pytest.fixture
def kill():
    started = []
    yield started.append
    for each in started:
        each.kill()
        each.wait()


def test_mousepad_takes_a_text_and_saves_it(host, desktop, tmp_path, kill):
    file = tmp_path / "note.txt"
    file.write_text("")
    kill(open_program(desktop, host, "note.txt", "mousepad", "--disable-server", str(file)))
    window = {"window": {"titlePattern": "note.txt"}}
    host.call(
        "desktop.waitUntil", route=window, condition={"selectorExists": {"byRole": "AXTextArea"}}, timeoutMs=30_000
    )
    seen = snapshot(host, window)
    assert 'menu "File"' in seen
    assert tokens(seen) < MAX_TOKENS
    text = "Zeile eins\n中文 é 😀\nlast"
    typed = host.act("desktop.typeText", route=window, target={"selector": {"byRole": "AXTextArea"}}, text=text)
    assert typed["typed"] is True
    assert typed["effect"] == "confirmed"
    host.act("desktop.hotkey", route=window, keys=["cmd", "s"])
    until(lambda: file.read_text("utf-8").rstrip("\n") == text, "the file holds the text")


def test_the_pointer_reaches_mousepads_text_though_its_notebook_does_not_say_what_is_there(host, desktop, kill):
    kill(open_program(desktop, host, "Mousepad", "mousepad", "--disable-server"))
    window = {"window": {"titlePattern": "Mousepad"}}
    text = {"byRole": "AXTextArea"}
    host.call("desktop.waitUntil", route=window, condition={"selectorExists": text}, timeoutMs=30_000)
    assert host.act("desktop.click", route=window, target={"selector": text})["method"] == "pointer"


def test_what_can_be_seen_is_found_before_what_is_hidden(host, desktop, kill):
    """Mousepad's hidden tool bar and closed menus come first in its window."""
    kill(open_program(desktop, host, "Mousepad", "mousepad", "--disable-server"))
    window = {"window": {"titlePattern": "Mousepad"}}
    text = {"selectorExists": {"byRole": "AXTextArea"}}
    host.call("desktop.waitUntil", route=window, condition=text, timeoutMs=30_000)
    found = host.call("desktop.find", route=window, selector={"titleContains": "e", "limit": 200})
    seen = [each["visible"] for each in found["elementRefs"]]
    assert {True, False} == set(seen)
    assert seen == sorted(seen, reverse=True)


def test_a_dialog_of_mousepad_is_of_the_app_that_its_other_window_is_of(host, desktop, start_host, kill):
    process = open_program(desktop, host, "Mousepad", "mousepad", "--disable-server")
    kill(process)
    main = {"window": {"titlePattern": "Mousepad"}}
    text = {"selectorExists": {"byRole": "AXTextArea"}}
    host.call("desktop.waitUntil", route=main, condition=text, timeoutMs=30_000)
    host.act("desktop.hotkey", route=main, keys=["cmd", "o"])

    def windows(host):
        return [each for each in host.call("desktop.windows")["windows"] if each["pid"] == process.pid]

    until(lambda: len(windows(host)) == 2, "the dialog is open")
    (app,) = {each["bundleId"] for each in windows(host)}
    (title,) = (each["title"] for each in windows(host) if "Mousepad" not in each["title"])
    dialog = {"app": {"bundleId": app}, "window": {"titlePattern": "^" + re.escape(title) + "$"}}
    assert host.call("desktop.observe", route=dialog)["routeResolved"]["windowTitle"] == title
    # What is kept out is kept out with its dialogs.
    strict = start_host("--keep-out", app.lower())
    assert [each["forbidden"] for each in windows(strict)] == [True, True]
    with pytest.raises(Refused, match="APP_FORBIDDEN"):
        strict.call("desktop.observe", route={"app": {"bundleId": app}})


def test_gnome_calculator_computes_what_its_buttons_say(host, desktop, kill):
    kill(open_program(desktop, host, "Calculator", "gnome-calculator", "--mode=programming"))
    window = {"window": {"titlePattern": "Calculator"}}
    ready = {"selectorExists": {"byRole": "AXButton", "titleContains": "XOR"}}
    host.call("desktop.waitUntil", route=window, condition=ready, timeoutMs=30_000)
    # The fullest window it has: 311 elements.
    seen = snapshot(host, window)
    assert 'button "XOR"' in seen
    assert tokens(seen) < MAX_TOKENS
    # It shows the digit elsewhere, and its elements report nothing.
    result = host.act("desktop.click", route=window, target={"selector": {"byRole": "AXButton", "titleContains": "6"}})
    assert (result["effect"], result["by"]) == ("confirmed", "window")
    for key in ("multiply", "7", "enter"):
        keys = {"multiply": ["*"], "enter": ["enter"]}.get(key, [key])
        host.act("desktop.hotkey", route=window, keys=keys)
    shown = {"valueContains": {"selector": {"byRole": "AXTextArea"}, "text": "42"}}
    assert host.call("desktop.waitUntil", route=window, condition=shown, timeoutMs=30_000)["ok"]


def test_a_program_of_the_contracts_example_form_is_found_by_its_bundle_id(host, start):
    program = start("gtk4")
    by_id = {"app": {"bundleId": "org.bascule.fixture.Gtk4", "pid": program.pid}}
    seen = host.call("desktop.observe", route=by_id)
    assert seen["routeResolved"] == {
        "frontmostBundleId": "org.bascule.fixture.Gtk4",
        "windowTitle": program.title,
    }
    with pytest.raises(Refused, match="ELEMENT_NOT_FOUND"):
        host.call("desktop.observe", route={"app": {"bundleId": "com.apple.Safari"}})
