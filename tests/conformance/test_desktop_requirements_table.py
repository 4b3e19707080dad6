"""The table of the desktop contract's requirements and the tests that name them belong together, both ways."""

import re

import pytest
from broker_requirements import Requirement
from desktop_requirements import REQUIREMENTS, proofs

NAMED = proofs()


def test_every_desktop_requirement_that_is_met_has_a_test():
    assert [name for name, row in REQUIREMENTS.items() if row.status != "later" and name not in NAMED] == []


def test_every_desktop_requirement_that_a_test_names_exists_and_is_built():
    assert [name for name in NAMED if name not in REQUIREMENTS or REQUIREMENTS[name].status == "later"] == []


@pytest.mark.parametrize("section", ["0", "1", "2", "3", "4", "5", "6", "7"])
def test_every_section_of_the_contract_is_there(section):
    assert any(row.section.split(".")[0] == section for row in REQUIREMENTS.values())


@pytest.mark.parametrize(("name", "row"), REQUIREMENTS.items(), ids=REQUIREMENTS)
def test_a_desktop_row_is_complete(name: str, row: Requirement):
    assert re.fullmatch(r"DSK-\d+(\.\d+)?-\d+", name)
    assert row.level in {"must", "should", "may"}
    assert row.status in {"done", "differs", "later"}
    assert row.sentence.endswith(".")
    assert row.note or row.status == "done"


def test_desktop_ids_count_up_within_their_section():
    numbers: dict[str, list[int]] = {}
    for name in REQUIREMENTS:
        section, _, number = name.rpartition("-")
        numbers.setdefault(section, []).append(int(number))
    assert {section: found for section, found in numbers.items() if found != list(range(1, len(found) + 1))} == {}
