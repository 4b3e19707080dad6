"""An agent, a person and a daemon on GNOME. Long, as every test that needs a GNOME Shell."""

import pytest
from gnome_rig import GnomeDesktop
from living import short_dir
from screened import Screened

pytestmark = pytest.mark.long

TEXT = "héllo 中文 😀"


def test_a_click_and_a_text_are_asked_about_shown_and_done_on_gnome(monkeypatch):
    gnome = GnomeDesktop()
    try:
        # The daemon of a session has the home of its person, and there is the token.
        monkeypatch.setenv("HOME", gnome.environment["HOME"])
        app = gnome.start("gtk4")
        route = {"app": {"pid": app.pid}}
        with short_dir() as folder, Screened(gnome, folder) as house:
            house.new_agent()
            assert "Press me" in house.approved("observe", route=route, options={"snapshot": True})["snapshot"]
            windows = house.person.call("desktop.windows", {})["windows"]
            assert app.pid in [each["pid"] for each in windows]
            assert house.person.call("desktop.status")["stopKeys"] == "Ctrl+Alt+Shift+F12"
            click = {"route": route, "target": {"selector": {"byRole": "AXButton", "titleContains": "Press me"}}}
            question = house.asks("click", **click)
            assert 'AXButton "Press me"' in question["preview"]
            assert "checked just before they are sent" in question["preview"]
            with open(question["picture"], "rb") as file:
                assert file.read().startswith(b"\x89PNG")
            assert "pressed" not in app.state
            house.decide(question)
            assert house.done("click", **click)["clicked"]
            app.until(pressed=1)
            name = {"selector": {"titleContains": "Name"}}
            assert house.approved("typeText", route=route, target=name, text=TEXT)["effect"] == "confirmed"
            app.until(name=TEXT)
            gnome.keys("press ctrl alt shift f12")
            while not house.person.call("desktop.status")["stopped"]:
                continue
            assert house.call("click", **click).status != 200
            assert app.state["pressed"] == 1
    finally:
        gnome.close()
