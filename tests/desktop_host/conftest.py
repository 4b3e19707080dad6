"""One desktop and one host per worker and rig; programs and workspaces are each test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desktop_rig import Desktop, Program
from gnome_rig import GnomeDesktop
from host_process import HostProcess
from kwin_rig import KwinDesktop
from wayland_rig import WaylandDesktop

Start = Callable[..., Program]


# Files whose tests say nothing of X11: they are run on every rig.
ON_EVERY_RIG = frozenset({"test_toolkits", "test_stale", "test_other_programs", "test_browsers"})
RIGS = {"xvfb": Desktop, "sway": WaylandDesktop, "kwin": KwinDesktop, "gnome": GnomeDesktop}
# GNOME has tests of its own, and these as well.
ON_GNOME_TOO = frozenset({"test_browsers"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if "desktop" in metafunc.fixturenames and module in ON_EVERY_RIG:
        rigs = [each for each in RIGS if each != "gnome" or module in ON_GNOME_TOO]
        metafunc.parametrize("desktop", rigs, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """KWin draws on the processor here, and the parts that it shares with sway are tried there: one of each toolkit.

    GNOME Shell takes longer to install than everything here to run.
    """
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        few = values.get("desktop") == "kwin" and values.get("app") not in ("gtk4", "qt6", "chromium", "firefox")
        if few or values.get("desktop") == "gnome":
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def desktop(request: pytest.FixtureRequest) -> Iterator[Desktop]:
    desktop = RIGS[getattr(request, "param", "xvfb")]()
    yield desktop
    desktop.close()


@pytest.fixture(scope="session")
def shared_host(desktop: Desktop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    host = HostProcess(desktop, tmp_path_factory.mktemp("root"))
    yield host
    host.close()


@pytest.fixture
def host(shared_host: HostProcess) -> HostProcess:
    """A workspace of the test's own on the worker's host."""
    shared_host.new_workspace()
    return shared_host


@pytest.fixture
def start_host(desktop: Desktop, tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    started: list[HostProcess] = []

    def start(*options: str, **more: object) -> HostProcess:
        started.append(HostProcess(desktop, tmp_path, *options, **more))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def start(desktop: Desktop) -> Iterator[Start]:
    """`start("gtk3", ...)`: a program with a title of its own, gone when the test is over."""
    started: list[Program] = []

    def start(app: str, *options: str, **more: object) -> Program:
        started.append(desktop.start(app, *options, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()
