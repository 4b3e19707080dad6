"""A question with a picture: where it is, and that it is opened only where there is a screen to open it on."""

import argparse
import subprocess
from types import SimpleNamespace

import pytest

from bascule.cli import approvals, opening
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


@pytest.fixture
def screen(monkeypatch, tmp_path):
    """A desktop whose `xdg-open` writes down what it is to open."""
    opened = tmp_path / "opened"
    program = tmp_path / "xdg-open"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":7")
    started = []
    real = subprocess.Popen

    def start(*args, **more):
        started.append(real(*args, **more))
        return started[-1]

    monkeypatch.setattr(opening.subprocess, "Popen", start)
    monkeypatch.setattr(opening.sys, "platform", "linux")
    yield SimpleNamespace(opened=opened, started=started)
    for each in started:
        each.wait(PATIENCE)


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
