"""What tests anywhere in the tree may use: real daemons, always cleaned up."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import quick
from daemon_process import DaemonProcess

# How fast a machine makes up examples, and how long one takes, is not what they are for.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

StartDaemon = Callable[..., DaemonProcess]

# The MCP SDK costs every daemon's start more than everything else together; who tests /mcp turns it on.
os.environ.setdefault("BASCULE_MCP", "off")
# Whoever runs the tests does not want to hear of their questions.
os.environ.setdefault("BASCULE_ANNOUNCE", "off")
# One port for all daemons of a machine: who tests the console names another.
os.environ.setdefault("BASCULE_CONSOLE_PORT", "off")
# Images of containers often set it. Thousands of processes are started here: each would compile all it imports again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# `make test &` in a script starts this process, and all it starts, deaf to Ctrl-C: tests of it would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """`start_daemon(tmp_path, *args, env=...)`: a daemon of the test's own; as many as it likes."""
    started: list[DaemonProcess] = []

    def start(
        directory: str | os.PathLike[str] | None = None, *args: str, env: dict[str, str] | None = None
    ) -> DaemonProcess:
        started.append(DaemonProcess(directory, *args, env=env))
        return started[-1]

    yield start
    for daemon in started:
        daemon.remove()


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    """One daemon that keeps nothing on disk, for the test alone."""
    return start_daemon(None, "--durability", "memory")


# -- make quick --

_running: list[pytest.Item] = []
quick.watch_processes(lambda: bool(_running) and quick.is_quick(_running[-1].path), pytest.fail)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if not os.environ.get("BASCULE_QUICK") or not collection_path.name.startswith("test_"):
        return None
    # None: the other reasons to leave a file out still count.
    return None if quick.is_quick(collection_path) else True


# -- the order --

# Files that take tens of seconds, the longest first: begun last, they would run on when all else is done.
_LONG_FILES = (
    "test_console_axe.py",
    "test_load_soak.py",
    "test_console_bad_days.py",
    "test_failpoints.py",
    "test_browser.py",
    "test_console_browser_attacks.py",
    "test_console_hostile_text.py",
    "test_console_hostile_fields.py",
    "test_console_story.py",
    "test_console_keys.py",
    "test_stopping.py",
    "test_toolkits.py",
    "test_daemon_desktop.py",
    "test_daemon_desktop_life.py",
    "test_looking.py",
    "test_desktop_user.py",
    "test_openapi_fuzz.py",
    "test_load_polls.py",
    "test_load_slow.py",
    "test_fuzz.py",
    "test_tmux.py",
    "test_host_life.py",
    "test_clients.py",
    "test_resolving.py",
    "test_execs.py",
    "test_survivors.py",
    "test_files_races.py",
    "test_nats_bad_days.py",
    "test_power_cut.py",
    "test_broker_ticket_model.py",
    "test_io_errors.py",
    "test_bench.py",
    "test_game_life.py",
    "test_game_fifty.py",
)


# With counts up to a hundred times as large the usual two minutes are no hang.
_LONG_SECONDS = 1_800.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    if os.environ.get("BASCULE_LONG"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_LONG_SECONDS))
