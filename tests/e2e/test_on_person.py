"""`bascule on` ends with the person: without one, what asks is refused."""

import json

import pytest
from living import run_command, short_dir

from terminal import on_a_terminal

PASSPHRASE = "correct horse battery"


@pytest.fixture
def home():
    with short_dir() as folder:
        yield folder
        run_command("down", "--state-dir", f"{folder}/s")


def environment(home):
    # Without the programs of a service manager: the daemon is started in the background.
    return {"PATH": f"{home}/no-programs", "HOME": str(home), "BASCULE_CONFIG_DIR": "/nonexistent"}


def on(home, *typed):
    words = ("on", "claude", "--state-dir", f"{home}/s")
    return on_a_terminal(*words, typed=[("Do this?", "y"), *typed], environment=environment(home))


def is_set(home):
    done = run_command("person", "status", "--json", "--state-dir", f"{home}/s")
    return json.loads(done.stdout)["set"]


def test_a_passphrase_is_offered_in_the_same_step_and_asked_for_again_when_it_does_not_do(home):
    code, shown = on(
        home,
        ("Passphrase (", "short"),
        ("The same again: ", "short"),
        ("Passphrase (", PASSPHRASE),
        ("The same again: ", "another one"),
        ("Passphrase (", PASSPHRASE),
        ("The same again: ", PASSPHRASE),
    )
    assert code == 0, shown
    assert is_set(home)
    assert PASSPHRASE not in shown


def test_a_person_who_presses_enter_is_told_what_that_means(home):
    code, shown = on(home, ("Passphrase (", ""))
    assert code == 0, shown
    assert not is_set(home)
    assert "what asks is refused: bascule person set" in shown


def test_where_nobody_types_the_note_says_what_is_missing_and_nothing_waits(home):
    words = ("on", "claude", "--yes", "--state-dir", f"{home}/s")
    done = run_command(*words, environment=environment(home))
    assert done.returncode == 0, done.stderr
    assert "what asks is refused: bascule person set" in done.stdout
    assert not is_set(home)
