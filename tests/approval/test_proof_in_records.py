"""The record of a call names the proof that was spent on it, also where the call takes its time."""

import pytest
from console_page import Page
from felling import Grove

from bascule.testing.machine import Machine


@pytest.fixture
def grove():
    machine = Machine()
    machine.directory("/projects/cellar", {})
    grove = Grove(machine=machine)
    with grove.house:
        grove.set_person()
        yield grove


def test_a_space_that_a_person_opens_names_its_proof(grove):
    page = Page(grove).sign_in()
    params = {"path": "/projects/cellar"}
    proof = page.type_passphrase(page.challenge(("spaces.open", params)))["proofId"]
    page.call("spaces.open", params, proof=proof)
    record = grove.house.call("local", "ledger.show", {"what": "spaces.open"})[0]
    assert record["details"] == {"path": "/projects/cellar", "proof": proof}
    assert grove.house.call("local", "ledger.verify")["ok"]
