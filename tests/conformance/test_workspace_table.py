"""The table of the Agent Spaces protocol's requirements and the tests that name them belong together, both ways."""

import re

import pytest
from workspace_requirements import REQUIREMENTS, SECTIONS, Requirement, proofs

NAMED = {name: tests for name, tests in proofs().items() if "ASP-" in name}


def test_every_requirement_that_is_met_has_a_test():
    assert [name for name, row in REQUIREMENTS.items() if row.status != "later" and name not in NAMED] == []


def test_every_requirement_that_a_test_names_exists():
    assert {name: tests for name, tests in NAMED.items() if name not in REQUIREMENTS} == {}


def test_every_section_of_the_specification_is_there_in_order():
    sections = dict.fromkeys(row.section for name, row in REQUIREMENTS.items() if not name.startswith("DEC-"))
    assert list(sections) == list(SECTIONS)


@pytest.mark.parametrize(("name", "row"), REQUIREMENTS.items(), ids=REQUIREMENTS)
def test_a_row_is_complete(name: str, row: Requirement):
    assert re.fullmatch(r"ASP-[a-z]+-\d+|DEC-ASP-\d+", name)
    assert row.level in {"must", "should", "may"}
    assert row.status in {"done", "differs", "later"}
    assert row.sentence.endswith(".")
    assert row.note or row.status == "done"


def test_ids_count_up_within_their_section():
    numbers: dict[str, list[int]] = {}
    for name in REQUIREMENTS:
        section, _, number = name.rpartition("-")
        numbers.setdefault(section, []).append(int(number))
    assert {section: found for section, found in numbers.items() if found != list(range(1, len(found) + 1))} == {}
