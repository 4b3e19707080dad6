"""The table of GABP's requirements and the tests that name them belong together, both ways."""

import re

import pytest
from broker_requirements import Requirement
from game_requirements import GAME_REQUIREMENTS, game_proofs

NAMED = game_proofs()


def test_every_requirement_of_gabp_that_is_met_has_a_test():
    assert [name for name, row in GAME_REQUIREMENTS.items() if row.status != "later" and name not in NAMED] == []


def test_every_requirement_of_gabp_that_a_test_names_exists_and_is_built():
    assert {name for name in NAMED if name not in GAME_REQUIREMENTS} == set()
    assert [name for name in NAMED if GAME_REQUIREMENTS[name].status == "later"] == []


@pytest.mark.parametrize("section", ["1", "2", "3", "4", "5", "6", "7", "8"])
def test_every_section_of_the_transport_specification_is_there(section):
    assert any(row.section.split(".")[0] == section for row in GAME_REQUIREMENTS.values())


@pytest.mark.parametrize(("name", "row"), GAME_REQUIREMENTS.items(), ids=GAME_REQUIREMENTS)
def test_a_row_of_gabp_is_complete(name: str, row: Requirement):
    assert re.fullmatch(r"GABP-(\d+(\.\d+)?|[A-Z]+)-\d+|GAME-[A-Z]+-\d+|DEC-GABP-\d+", name)
    assert row.level in {"must", "should", "may"}
    assert row.status in {"done", "differs", "later"}
    assert row.sentence.endswith(".")
    assert row.note or row.status == "done"


def test_ids_of_gabp_count_up_within_their_section():
    numbers: dict[str, list[int]] = {}
    for name in GAME_REQUIREMENTS:
        section, _, number = name.rpartition("-")
        numbers.setdefault(section, []).append(int(number))
    assert {section: found for section, found in numbers.items() if found != list(range(1, len(found) + 1))} == {}
