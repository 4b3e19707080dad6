"""`runs open`, `approvals open`, `desktop report --console`: a page of the daemon that runs, in a browser."""

import pytest

from bascule.cli.console_pages import open_page, page_address
from bascule.foundation.errors import Unavailable
from patience import PATIENCE


class Status:
    """As much of a client as says what the daemon serves."""

    def __init__(self, **doors):
        self._doors = doors

    def call(self, method, _params):
        assert method == "daemon.status"
        return {"doors": self._doors}


@pytest.mark.parametrize("console", ["http://localhost:5051", "http://localhost:5051/", "localhost:5051", "5051"])
def test_a_page_is_at_localhost_by_name(console):
    assert page_address(Status(console=console), "runs", "run_1") == "http://localhost:5051/#/runs/run_1"


def test_an_id_cannot_lead_to_another_page():
    address = page_address(Status(console="http://localhost:5051"), "evidence", "x/../y?z#a b")
    assert address == "http://localhost:5051/#/evidence/x%2F..%2Fy%3Fz%23a%20b"


def test_where_there_is_no_console_it_is_said_how_to_have_one():
    with pytest.raises(Unavailable) as refused:
        page_address(Status(tcp="http://127.0.0.1:5050"), "runs", "run_1")
    assert "console_port" in refused.value.hint


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
