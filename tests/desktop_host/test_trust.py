"""`desktop_trust = "held"`: keys and clicks that a session only checks are refused, and nothing else is."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from bascule.desktop.machine.launcher import HostLauncher
from bascule.programs.desktop_host.linux import backend
from bascule.programs.desktop_host.linux.held_only import NOTE
from bascule.programs.desktop_host.linux.x11_session import X11Session
from bascule.programs.desktop_host.ports import Halt, NotReachable, Onto

HELD = X11Session.capabilities
CHECKED = msgspec.structs.replace(HELD, session="GNOME", keys="checked", clicks="checked")
AT = (Halt(), Onto(1, frozenset({1})))
# Every way in which an event is sent, and what it is called with.
SENDS = {
    "click_at": lambda each: each.click_at(1, 1, *AT),
    "scroll_at": lambda each: each.scroll_at(1, 1, *AT, direction="up", steps=1),
    "drag": lambda each: each.drag((1, 1), (2, 2), *AT),
    "chord": lambda each: each.chord(("a",), Halt(), None),
    "check_keys": lambda each: each.check_keys(("a",)),
    "paste": lambda each: each.paste("text", Halt(), None),
}


class Sent:
    """Hands that write down what reaches them."""

    def __init__(self):
        self.names = []

    def __getattr__(self, name):
        async def send(*_, **__):
            self.names.append(name)

        return send


class ScriptedSession:
    notes = ()
    picture_remedy = ""
    windows = stop_keys = SimpleNamespace(chord=lambda: None, finding=lambda: None)

    def __init__(self, capabilities):
        self.capabilities = capabilities
        self.hands = Sent()
        self.pictures = Sent()

    async def open(self):
        pass

    async def accessibility_hint(self):
        return None


def desktop_on(monkeypatch, capabilities, trust):
    session = ScriptedSession(capabilities)
    monkeypatch.setattr(backend, "session_of", lambda *_: session)
    return backend.LinuxDesktop({}, trust=trust), session


@pytest.mark.parametrize("name", SENDS)
def test_what_is_only_checked_is_refused_and_not_sent(monkeypatch, name):
    desktop, session = desktop_on(monkeypatch, CHECKED, "held")
    with pytest.raises(NotReachable, match="desktop_trust"):
        asyncio.run(SENDS[name](desktop))
    assert session.hands.names == []
    assert not desktop.has_hands


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize(("capabilities", "trust"), [(CHECKED, "checked"), (HELD, "held")])
def test_what_is_trusted_enough_is_sent(monkeypatch, name, capabilities, trust):
    """The control: the setting refuses, and it refuses no more than it says."""
    desktop, session = desktop_on(monkeypatch, capabilities, trust)
    asyncio.run(SENDS[name](desktop))
    assert session.hands.names == [name]
    assert desktop.has_hands


@pytest.mark.parametrize(
    ("capabilities", "trust", "keys", "notes"),
    [(CHECKED, "held", "none", (NOTE,)), (CHECKED, "checked", "checked", ()), (HELD, "held", "held", ())],
)
def test_health_and_doctor_say_what_is_refused_and_why(monkeypatch, capabilities, trust, keys, notes):
    desktop, _ = desktop_on(monkeypatch, capabilities, trust)
    status = asyncio.run(desktop.status())
    assert (status.capabilities.keys, status.capabilities.clicks, status.notes) == (keys, keys, notes)


def test_what_was_pressed_before_is_let_go_of_all_the_same(monkeypatch):
    desktop, session = desktop_on(monkeypatch, CHECKED, "held")
    asyncio.run(desktop.release_all())
    assert session.hands.names == ["release_all"]


def test_the_daemon_starts_its_host_with_the_setting(desktop, tmp_path):
    async def started():
        launcher = HostLauncher(str(tmp_path), str(tmp_path / "own"), trust="held")
        host = await launcher.start(desktop.environment, on_stopped=lambda: None, on_lost=lambda _: None)
        try:
            words = await asyncio.to_thread(Path(f"/proc/{host.pid}/cmdline").read_bytes)
            return words.split(b"\0"), await host.call("desktop.health", client="test")
        finally:
            await host.close()

    words, health = asyncio.run(started())
    assert words[words.index(b"--trust") + 1] == b"held"
    # What this session holds is not touched by it.
    assert (health.capabilities.keys, health.capabilities.clicks) == ("held", "held")
