"""How many files a reader opens who follows a request, and whether docs/life-of-a-request.md follows it truly.

`python tests/walks.py` prints the walks.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from walks import (
    Rig,
    SignedIn,
    Walk,
    click,
    decide,
    game,
    opened_desktop,
    opened_laptop,
    opened_rig,
    remote,
    send,
    shell,
    touch,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "life-of-a-request.md"
# A step of a walk on that page: `Gate.call` (`src/bascule/kernel/gate.py`).
STEP = re.compile(r"`([\w.<>]+)`\s\(`((?:src|packages)/[\w/-]+\.py)`\)")
# Files, and hops between files, a few above what they were when this was written: growth is noticed and argued for.
# A walk that became shorter lowers its bound.
# One file and a hop for each commit are the look whether the log is to be folded (`wal.py`), which comes behind it.
# A file and three hops of each are the look whether params have too many values (`ParamsReader`).
BOUNDS = {
    "send": (38, 81),
    # Its pauses end within the walk or behind it, which is a few hops more or less.
    "remote": (67, 266),
    # The last of its files asks whether a command that a person approved runs where this one could exchange its script.
    "shell": (84, 296),
    "click": (71, 176),
    "game": (55, 175),
    "touch": (42, 90),
    "decide": (45, 89),
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with opened_rig() as made:
        yield made


@pytest.fixture(scope="module")
def sent(rig) -> Walk:
    return send(rig)


@pytest.fixture(scope="module")
def sent_on(rig) -> Walk:
    with opened_laptop(rig) as laptop:
        return remote(rig, laptop)


@pytest.fixture(scope="module")
def ran(rig) -> Walk:
    return shell(rig)


@pytest.fixture(scope="module")
def clicked(rig) -> Iterator[Walk]:
    with opened_desktop() as desktop:
        yield click(rig, desktop)


@pytest.fixture(scope="module")
def played(rig) -> Walk:
    return game(rig)


@pytest.fixture(scope="module")
def person(rig) -> SignedIn:
    return SignedIn(rig)


@pytest.fixture(scope="module")
def touched(rig, person) -> Walk:
    return touch(rig, person)


@pytest.fixture(scope="module")
def decided(rig, person) -> Walk:
    return decide(rig, person)


@pytest.fixture(params=["sent", "sent_on", "ran", "clicked", "played", "touched", "decided"])
def walk(request) -> Walk:
    return request.getfixturevalue(request.param)


def steps(name: str) -> list[tuple[str, str]]:
    """File and function of each step, from the section whose heading names the walk."""
    (section,) = re.findall(
        rf"^## [^\n]*\({name}\)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [(file, function) for function, file in STEP.findall(section)]


def test_a_walk_passes_no_more_files_than_it_is_known_to(walk):
    files, hops = BOUNDS[walk.name]
    assert len(walk.files) <= files, str(walk)
    assert walk.between_files <= hops, str(walk)


def test_every_walk_passes_each_daemons_gate_once_and_what_is_behind_it(walk):
    entered = [(hop.file, hop.function) for hop in walk.hops if hop.is_between_files]
    assert entered.count(("src/bascule/kernel/gate.py", "Gate.call")) == walk.daemons
    assert {"src/bascule/kernel/policy/engine.py", "src/bascule/daemon/quota.py"} <= set(walk.files)


def test_the_page_names_the_functions_of_a_walk_in_their_order(walk):
    # Another machine gets the message when its sender may have been answered already.
    answer = steps("answer") if walk.daemons == 1 else []
    named = [*steps(walk.door), *steps(walk.name), *answer]
    assert len(named) > len(steps(walk.door)) > 5
    entered = list(dict.fromkeys((hop.file, hop.function) for hop in walk.hops))
    assert [step for step in named if step not in entered] == [], str(walk)
    first = list(dict.fromkeys(named))
    assert sorted(first, key=entered.index) == first
