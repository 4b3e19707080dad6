"""A question with a picture: where it is, and that it is opened only where there is a screen to open it on."""

import argparse

from bascule.cli import approvals
from patience import PATIENCE

VIEW = {
    "approvalId": "apr_1",
    "state": "pending",
    "principal": "agent:Jerry",
    "method": "desktop.click",
    "digest": "0123456789abcdef",
    "rule": "desktop-acting-asks",
    "reason": "It acts",
    "askedAt": "2026-01-01T00:00:00Z",
    "expiresAt": "2026-01-01T00:15:00Z",
    "preview": "app      editor",
    "picture": "/state/pictures/apr_1.png",
}
WANTED = argparse.Namespace(open=True)


def test_the_picture_is_named_among_the_facts():
    assert "  picture   /state/pictures/apr_1.png" in approvals.render_question(VIEW).split("\n")
    without = {name: value for name, value in VIEW.items() if name != "picture"}
    assert "picture" not in approvals.render_question(without)


def test_a_picture_is_opened_with_the_desktops_own_program(screen):
    approvals._open_picture(WANTED, VIEW)
    screen.started[0].wait(PATIENCE)
    assert screen.opened.read_text() == "/state/pictures/apr_1.png\n"


def test_a_picture_is_not_opened_unasked_nor_without_a_screen(screen, monkeypatch, capsys):
    approvals._open_picture(argparse.Namespace(open=False), VIEW)
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    approvals._open_picture(WANTED, VIEW)
    assert "this terminal has no display; it is /state/pictures/apr_1.png" in capsys.readouterr().err
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("PATH", "/nowhere")
    approvals._open_picture(WANTED, VIEW)
    assert "xdg-open is not installed" in capsys.readouterr().err
    assert screen.started == []
