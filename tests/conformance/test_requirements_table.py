"""Requirements and the tests that name them belong together, both ways, for each specification and for the mesh."""

import broker_requirements
import desktop_requirements
import game_requirements
import mesh_requirements
import pytest
import workspace_requirements

# Of tests in a folder that two tables share, those of its own family.
TABLES = {
    "broker": (broker_requirements.REQUIREMENTS, broker_requirements.proofs, "BRK-"),
    "workspace": (workspace_requirements.REQUIREMENTS, workspace_requirements.proofs, "ASP-"),
    "desktop": (desktop_requirements.REQUIREMENTS, desktop_requirements.proofs, ""),
    "game": (game_requirements.GAME_REQUIREMENTS, game_requirements.game_proofs, ""),
    "mesh": (mesh_requirements.MESH_REQUIREMENTS, mesh_requirements.mesh_proofs, ""),
}


@pytest.fixture(params=TABLES, scope="module")
def table(request):
    """The requirements, and the names that tests give."""
    rows, proofs, family = TABLES[request.param]
    return rows, [name for name in proofs() if family in name]


def test_every_requirement_that_is_met_has_a_test(table):
    rows, named = table
    assert [name for name, row in rows.items() if row.status != "later" and name not in named] == []


def test_every_requirement_that_a_test_names_exists_and_is_built(table):
    rows, named = table
    assert [name for name in named if name not in rows or rows[name].status == "later"] == []
