"""Reading a command takes the event loop from everybody else: however hostile, it ends after so many steps.

What is over is opaque, which asks. Processor time of the thread is measured, and against a plain loop of Python beside
it, so that a busy machine changes nothing; the least of a few tries counts.
"""

import os
import random
import sys
from time import thread_time

import hostile_commands
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.call import agent_principal
from bascule.kernel.policy import facts
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.shell import reading, text
from bascule.kernel.policy.shell.text import Budget, OverBudget
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard

TIMES = 20 if os.environ.get("BASCULE_LONG") else 1
JERRY = agent_principal("Jerry")
POLICY = standard()
PLACE = {"root": "/home/me/app", "home": "/home/me", "cwd": "/home/me/app"}
METHODS = {"workspace.shell": {}, "native.shell": PLACE}
# What one call may take from the loop, on the machine where the plain loop takes 2.5 ms.
BAR = 0.020
PLAIN = 0.0025
# A busy machine spoils a try, not all of them.
TRIES = 6


def plain_loop():
    counts = {}
    start = thread_time()
    for number in range(40_000):
        counts[number & 255] = str(number)
    return thread_time() - start


def forget():
    reading._read.cache_clear()
    facts._of_text.cache_clear()
    facts._of_native_command.cache_clear()


def decided(command, method, more):
    """As `policy.explain` does it: decided, and all its facts looked at again."""
    forget()
    POLICY.explain(JERRY, method, Effect.EXEC, {"command": command, **more})


def fits(command, method, more):
    for _ in range(TRIES):
        start = thread_time()
        decided(command, method, more)
        taken = thread_time() - start
        if taken < BAR or taken < BAR * plain_loop() / PLAIN:
            return True
    return False


def verdict(command, method="workspace.shell"):
    return POLICY.decide(JERRY, method, Effect.EXEC, lambda: {"command": command, **METHODS[method]})


def calls_made(command, method):
    """Functions called by the interpreter: the same on every machine."""
    forget()
    made = 0

    def count(_frame, event, _argument):
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        verdict(command, method)
    finally:
        sys.setprofile(None)
    return made


# What a reading within its budget comes to; the commands that froze the daemon made from 2 to 200 million.
MOST_CALLS = 150_000
FROZE = {
    "300 places and 500 paths": hostile_commands.many_places(300, 500),
    "150 places and 200 paths": hostile_commands.many_places(150, 200),
    "a script from 1,000 places": "".join(f"cd d{number}; sh s{number}.sh;" for number in range(1_000)),
    "the same 1,000 times": "cd d; sh s.sh;" * 1_000,
    "500 places and 2,500 paths": hostile_commands.many_places(500, 2_500),
    "1,300 variables": "x=a;" + "$x " * 1_300,
    "arithmetic in arithmetic": hostile_commands.nested("(( $( ", " ) ))", 9),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FROZE)
def test_a_command_that_froze_the_daemon_is_read_in_so_many_steps(name, method):
    assert calls_made(FROZE[name], method) < MOST_CALLS


@pytest.mark.parametrize("method", METHODS)
def test_the_same_length_without_the_places_was_never_the_trouble(method):
    """The control: it is the product of places and paths that is too much, not the length; and it is read."""
    command = hostile_commands.many_places(150, 200, change="ls")
    assert len(command) == len(FROZE["150 places and 200 paths"])
    assert calls_made(command, method) < MOST_CALLS
    assert verdict(command, method).decision is Decision.ALLOW
    assert len(facts.facts_of(method, {"command": command, **METHODS[method]}).paths) == 200


def test_without_the_limit_the_same_command_takes_ten_times_as_many_steps(monkeypatch):
    """The control: the trigger works when the guard is off."""
    command = hostile_commands.many_places(150, 200)
    guarded = calls_made(command, "workspace.shell")
    monkeypatch.setattr(facts, "MAX_PLACED", 10**9)
    assert calls_made(command, "workspace.shell") > 10 * guarded
    monkeypatch.setattr(text, "MAX_STEPS", 10**9)
    monkeypatch.setattr(Budget.__init__, "__defaults__", (10**9,))
    assert calls_made(FROZE["a script from 1,000 places"], "workspace.shell") > MOST_CALLS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [name for name in FROZE if "1,000 times" not in name])
def test_what_is_over_the_budget_is_opaque_and_asks(name, method):
    assert verdict(FROZE[name], method).decision is Decision.ASK


def test_a_budget_is_spent_once_for_all_texts_within_a_text():
    budget = Budget(10)
    budget.spend(10)
    with pytest.raises(OverBudget, match="others wait"):
        budget.spend()
    notes = reading.read("sh -c '" + "ls a;" * 1_000 + "';" + "sh -c '" + "ls b;" * 1_000 + "'").notes
    assert "more than can be read in the time that others wait" in notes


def test_what_was_found_before_the_budget_ended_stays_found():
    assert verdict("sudo id;" + "ls $x;" * 3_000).decision is Decision.DENY


@pytest.mark.parametrize("size", [4_000, 12_000, 20_000])
def test_a_file_written_by_a_here_document_is_read_however_long_it_is(size):
    body = "".join(f'    print("line {number} of a program")\n' for number in range(size // 38))
    command = f"cat > src/a.py <<'EOF'\n{body}EOF\npython3 -m pytest -q"
    assert verdict(command).decision is Decision.ALLOW
    assert verdict(command, "native.shell").decision is Decision.ALLOW


def test_every_hostile_shape_is_read_within_the_bar():
    over = [
        (method, ascii(command[:80]), len(command))
        for command in hostile_commands.fixed()
        for method, more in METHODS.items()
        if not fits(command, method, more)
    ]
    assert over == []


@settings(max_examples=60 * TIMES, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(METHODS)))
def test_pieces_in_any_order_and_number_are_read_within_the_bar(seed, method):
    command = hostile_commands.mixed(random.Random(seed))
    assert fits(command, method, METHODS[method])


@settings(max_examples=60 * TIMES, deadline=None)
@given(st.text(min_size=1, max_size=60), st.sampled_from([500, 4_096, 30_000]), st.sampled_from(sorted(METHODS)))
def test_any_text_repeated_is_read_within_the_bar(piece, length, method):
    assert fits(hostile_commands.repeated(piece, length), method, METHODS[method])
