"""Where the daemon leaves agents' tokens, and what a crash leaves of that."""

import errno
import os

import pytest

from bascule.broker.machine.token_files import StateTokenFiles
from bascule.foundation import paths
from bascule.foundation.errors import StorageFull


@pytest.fixture
def state(tmp_path):
    os.chmod(tmp_path, 0o700)
    return os.fspath(tmp_path)


@pytest.fixture
def log():
    return []


@pytest.fixture
def files(state, log):
    return StateTokenFiles(state, lambda event, **fields: log.append((event, fields)))


def stored(state, agent_id="Jerry"):
    return paths.read_private_file(paths.token_file(state, agent_id))


def beside(state):
    return [name for name in os.listdir(paths.tokens_dir(state)) if not name.endswith(".token")]


def test_a_token_is_not_where_helpers_look_before_its_registration_is_durable(files, state):
    files.prepare("Jerry", "secret")
    assert not os.path.exists(paths.token_file(state, "Jerry"))
    files.publish("Jerry", "secret")
    assert stored(state) == "secret"
    assert beside(state) == []


def test_after_a_crash_what_became_durable_is_published_and_the_rest_is_gone(files, state):
    files.prepare("Jerry", "old")
    files.publish("Jerry", "old")
    files.prepare("Jerry", "taken over")
    files.prepare("Tom", "never registered")
    # Killed before a byte of it was written.
    open(paths.token_file(state, "Ada") + ".0.next", "x").close()
    os.chmod(paths.token_file(state, "Ada") + ".0.next", 0o600)
    files.settle({"taken over": "Jerry"}.get)
    assert stored(state) == "taken over"
    assert beside(state) == []
    assert not os.path.exists(paths.token_file(state, "Tom"))


def test_two_registrations_of_one_handle_on_their_way_do_not_meet(files, state):
    files.prepare("Jerry", "first")
    files.prepare("Jerry", "second")
    files.publish("Jerry", "first")
    assert stored(state) == "first"
    files.publish("Jerry", "second")
    assert stored(state) == "second"


def failing(number):
    def write(path, text):
        open(path, "x").close()
        raise OSError(number, os.strerror(number))

    return write


def test_a_full_disk_refuses_before_anything_is_registered_and_keeps_nothing(files, state, log, monkeypatch):
    monkeypatch.setattr(paths, "write_synced", failing(errno.ENOSPC))
    with pytest.raises(StorageFull, match="the token of Jerry cannot be stored"):
        files.prepare("Jerry", "secret")
    assert beside(state) == []
    assert log == []


def test_a_token_that_could_not_be_prepared_is_written_once_it_can_be(files, state, log, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(paths, "write_synced", failing(errno.EACCES))
        files.prepare("Jerry", "secret")
    assert [event for event, _ in log] == ["token_file"]
    files.publish("Jerry", "secret")
    assert stored(state) == "secret"
