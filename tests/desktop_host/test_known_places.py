"""A picture alone reads a window again as soon as anything may have changed, and not otherwise."""

import asyncio

import pytest
from element_making import element
from test_watching import AREA, WINDOW, ScriptedDesktop, Trace

from bascule.programs.desktop_host.elements import Key
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.redaction import Typed
from bascule.programs.desktop_host.routes import Routed

SECRET = element("PIN", role="AXSecureTextField", path="/2", rect=(2, 2, 10, 10))
OTHER_PIXELS = b"\x09\x08\x07\x00" * (AREA.width * AREA.height)


class Screen(ScriptedDesktop):
    def __init__(self):
        super().__init__(element("OK"))
        self.during_tree = None

    def root_of(self, _window):
        return Key("app", "/")

    def program_of(self, _window):
        return "app"

    async def tree(self, windows, **more):
        tree = await super().tree(windows, **more)
        if self.during_tree is not None:
            self.during_tree()
        return tree


class Scene:
    """Pictures alone, one after the other, on one loop."""

    def __init__(self):
        self.screen = Screen()
        self.typed = Typed()

    def run(self, story):
        async def whole():
            self.looking = Looking(self.screen, None, self.typed)
            try:
                await story(self)
            finally:
                await self.looking.close()

        asyncio.run(whole())

    async def picture(self):
        """How many places of it are blanked."""
        trace = Trace()
        trace.timeout_ms = 60_000
        await self.looking._picture_alone(trace, Routed(WINDOW, (WINDOW,), exact=False))
        return next(each["blanked"] for each in trace.steps if each["step"] == "picture")


def test_a_window_in_which_nothing_changed_is_read_once():
    async def story(scene):
        scene.screen.elements = (element("OK"), SECRET)
        assert [await scene.picture() for _ in range(3)] == [1, 1, 1]
        assert scene.screen.trees == 1

    Scene().run(story)


@pytest.mark.parametrize("sign", ["pixels", "report", "typed", "report while it answers", "it is gone"])
def test_a_password_field_that_appears_is_blanked_whatever_tells_of_it(sign):
    def appear(screen, typed):
        screen.elements = (element("OK"), SECRET)
        if sign == "pixels":
            screen.pixels = OTHER_PIXELS
        elif sign == "report":
            screen.report()
        elif sign == "typed":
            typed.remember("a text of some length")
        elif sign == "it is gone":
            screen.answers = [None]
        else:
            # Sent before the answer to our question, and read before it.
            screen.while_answering = screen.report

    async def story(scene):
        assert await scene.picture() == 0
        appear(scene.screen, scene.typed)
        assert await scene.picture() == 1
        assert scene.screen.trees == 2

    Scene().run(story)


@pytest.mark.parametrize("change", ["pixels", "report"])
def test_what_was_read_while_the_window_changed_is_not_used_again(change):
    async def story(scene):
        screen = scene.screen

        def meanwhile():
            screen.elements = (element("OK"), SECRET)
            screen.during_tree = None
            if change == "pixels":
                screen.pixels = OTHER_PIXELS
            else:
                screen.report()

        screen.during_tree = meanwhile
        # As before: what is in this picture was read a moment before it appeared.
        assert await scene.picture() == 0
        assert await scene.picture() == 1

    Scene().run(story)


def test_a_report_of_another_program_does_not_count():
    async def story(scene):
        await scene.picture()
        scene.screen.on_change("another", "PropertyChange:accessible-name")
        await scene.picture()
        assert scene.screen.trees == 1

    Scene().run(story)
