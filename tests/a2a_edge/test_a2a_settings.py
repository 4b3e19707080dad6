"""Where the door for A2A may be opened."""

import pytest

from bascule.a2a.settings import A2aSettings
from bascule.kernel.settings import BadConfig


def test_the_door_is_closed_unless_it_is_set():
    assert A2aSettings().port is None
    A2aSettings(a2a_listen="0.0.0.0").check(())


@pytest.mark.parametrize(
    "settings",
    [
        {"a2a_port": "many"},
        {"a2a_port": 65_536},
        {"a2a_port": -1},
        {"a2a_port": 5052, "a2a_listen": "0.0.0.0"},
        {"a2a_port": 5052, "a2a_listen": "192.168.1.2"},
        {"a2a_port": 5052, "a2a_listen": "::"},
        {"a2a_port": 5052, "a2a_listen": "example.org"},
        {"a2a_port": 5052, "a2a_url": "agents.example.org"},
        {"a2a_port": 5052, "a2a_url": "https://agents.example.org?x"},
        {"a2a_port": 5052, "a2a_url": "https://user@agents.example.org"},
        {"a2a_port": 5052, "a2a_tls_cert": "/nonexistent"},
        {"a2a_port": 5052, "a2a_tls_cert": "/nonexistent", "a2a_tls_key": "/nonexistent"},
    ],
    ids=str,
)
def test_what_cannot_be_opened_safely_is_refused_at_the_start(settings):
    with pytest.raises(BadConfig) as refusal:
        A2aSettings(**settings).check(())
    assert refusal.value.hint


@pytest.mark.parametrize(
    "settings",
    [{}, {"a2a_listen": "::1"}, {"a2a_listen": "127.0.0.2"}, {"a2a_url": "https://agents.example.org/a2a"}],
    ids=str,
)
def test_loopback_is_open_without_tls_also_behind_a_proxy(settings):
    A2aSettings(a2a_port=5052, **settings).check(())
