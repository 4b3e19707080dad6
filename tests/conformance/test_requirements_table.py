"""The table of requirements and the tests that name them belong together, both ways."""

import re

import pytest
from broker_requirements import REQUIREMENTS, SPECIFICATION, Requirement, parse, proofs

LEVELS = {"must", "should", "may"}
STATUSES = {"done", "differs", "later"}


NAMED = {name: tests for name, tests in proofs().items() if "BRK-" in name}


def test_every_requirement_that_is_met_has_a_test():
    assert [name for name, row in REQUIREMENTS.items() if row.status != "later" and name not in NAMED] == []


def test_every_requirement_that_a_test_names_exists():
    assert {name: tests for name, tests in NAMED.items() if name not in REQUIREMENTS} == {}


def test_no_test_proves_what_is_not_built_yet():
    assert [name for name in NAMED if REQUIREMENTS[name].status == "later"] == []


def test_ids_are_unique():
    ids = [name for name, *_ in parse(SPECIFICATION)]
    assert len(ids) == len(set(ids))
    assert len(ids) + sum(name.startswith("DEC-") for name in REQUIREMENTS) == len(REQUIREMENTS)


@pytest.mark.parametrize("section", ["4", "5", "6", "7", "8", "9", "10", "11", "12", "15"])
def test_every_section_of_the_specification_that_asks_for_something_is_there(section):
    assert any(row.section.split(".")[0] == section for row in REQUIREMENTS.values())


@pytest.mark.parametrize(("name", "row"), REQUIREMENTS.items(), ids=REQUIREMENTS)
def test_a_row_is_complete(name: str, row: Requirement):
    assert re.fullmatch(r"BRK-\d+(\.\d+)?-\d+|DEC-BRK-\d+", name)
    assert row.level in LEVELS
    assert row.status in STATUSES
    assert row.sentence.endswith(".")
    # Whoever reads that something is missing or different wants to know what there is instead.
    assert row.note or row.status == "done"


def test_ids_count_up_within_their_section():
    numbers: dict[str, list[int]] = {}
    for name in REQUIREMENTS:
        section, _, number = name.rpartition("-")
        numbers.setdefault(section, []).append(int(number))
    assert {section: found for section, found in numbers.items() if found != list(range(1, len(found) + 1))} == {}
