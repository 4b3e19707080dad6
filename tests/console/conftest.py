import os
import sys

import pytest

# The daemon process and the wires to it are shared with the tests of the daemon itself, the terminal with `e2e`, the
# browser with `web`, the trees whose felling asks with `approval`, the screen
# with `desktop_host`, other machines with `mesh`, clients of MCP with `shim`.
for folder in ("daemon", "e2e", "web", "approval", "desktop_host", "mesh", "shim"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), folder))


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    from living import short_dir

    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="module")
def daemon():
    """One daemon with a console for all tests of a module."""
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s", console_port=0) as living:
        yield living


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests of a module.

    Not for more: while Playwright is there, asyncio counts as running, and tests elsewhere start loops of their own.
    """
    from browsing import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def scene():
    """A daemon with a console, a person with a key and an agent whose calls ask, for all tests of a module."""
    from living import short_dir
    from scenes import NO_WAIT, Scene

    with short_dir() as folder:
        scene = Scene(folder, **NO_WAIT)
        with scene.daemon:
            yield scene.people()


@pytest.fixture
def person(scene, browser):
    """A tab in which the person is signed in; whatever goes wrong in it fails the test."""
    scene.clear()
    with scene.browser(browser) as (context, faults):
        console = scene.signed_in(context)
        console.faults = faults
        yield console
