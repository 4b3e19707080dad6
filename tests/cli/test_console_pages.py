"""`runs open`, `approvals open`, `desktop report --console`: a page of the daemon that runs, in a browser."""

import pytest

from bascule.cli.console_pages import open_page, page_address
from bascule.foundation.errors import Conflict, Unavailable
from patience import PATIENCE


class Status:
    """As much of a client as says what the daemon serves."""

    def __init__(self, problem=None, **doors):
        self._doors = doors
        self._problem = problem

    def call(self, method, _params):
        assert method == "daemon.status"
        return {"doors": self._doors, "consoleProblem": self._problem}


def test_an_id_cannot_lead_to_another_page():
    address = page_address(Status(console="http://localhost:5051"), "evidence", "x/../y?z#a b")
    assert address == "http://localhost:5051/#/evidence/x%2F..%2Fy%3Fz%23a%20b"


def test_where_there_is_no_console_it_is_said_how_to_have_one():
    with pytest.raises(Unavailable) as refused:
        page_address(Status(tcp="http://127.0.0.1:5050"), "runs", "run_1")
    assert "console_port" in refused.value.hint


def test_where_another_program_has_its_port_that_is_said():
    with pytest.raises(Conflict, match="belongs to a program of uid 1001"):
        page_address(Status(problem="no console: it belongs to a program of uid 1001"), "runs", "run_1")


def test_the_address_is_opened_with_the_program_of_the_desktop(screen, capsys):
    assert open_page(Status(console="http://localhost:5051"), "approvals", "apr_1") == 0
    screen.started[0].wait(PATIENCE)
    assert screen.opened.read_text() == "http://localhost:5051/#/approvals/apr_1\n"
    assert capsys.readouterr().out == "http://localhost:5051/#/approvals/apr_1\n"


def test_without_a_display_the_address_is_printed_and_it_is_said_why(screen, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY")
    open_page(Status(console="http://localhost:5051"), "runs", "run_1")
    printed = capsys.readouterr()
    assert printed.out == "http://localhost:5051/#/runs/run_1\n"
    assert "no display" in printed.err
    assert screen.started == []
