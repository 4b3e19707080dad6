"""`runs open`, `approvals open`, `desktop report --console`: the page of the daemon that runs, in the person's browser."""

import os

import pytest

from bascule.cli.console_pages import open_page, page_address
from bascule.foundation.errors import Unavailable


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


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="xdg-open is Linux's")
def test_the_address_is_opened_with_the_program_of_the_desktop(tmp_path, monkeypatch, capsys):
    came = tmp_path / "came"
    os.mkfifo(came)
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {came}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_page(Status(console="http://localhost:5051"), "approvals", "apr_1") == 0
    with open(came) as pipe:
        assert pipe.read() == "http://localhost:5051/#/approvals/apr_1"
    assert capsys.readouterr().out == "http://localhost:5051/#/approvals/apr_1\n"


def test_without_a_display_the_address_is_printed_and_it_is_said_why(monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    open_page(Status(console="http://localhost:5051"), "runs", "run_1")
    printed = capsys.readouterr()
    assert printed.out == "http://localhost:5051/#/runs/run_1\n"
    assert "no display" in printed.err
