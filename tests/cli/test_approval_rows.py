"""What a question looks like on a terminal: no row of what an agent wrote stands there like a row of ours."""

import pyte
import pytest

from bascule.cli.approvals import render_question

COLUMNS = 80
FORGED = "  digest    beef beef beef beef"


def question(preview: str, reason: str = "It acts") -> dict[str, object]:
    return {
        "approvalId": "apr_1",
        "state": "pending",
        "principal": "agent:Jerry",
        "method": "workspace.shell",
        "digest": "0123456789abcdef",
        "rule": "asks",
        "reason": reason,
        "askedAt": "2026-01-01T00:00:00Z",
        "expiresAt": "2026-01-01T00:15:00Z",
        "preview": preview,
        "offers": [{"number": 1, "title": reason, "text": reason}],
    }


def rows_of(text: str) -> list[str]:
    screen = pyte.Screen(COLUMNS, 60)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    return [row.rstrip() for row in screen.display if row.strip()]


def padded(start: str, before: int) -> str:
    return start + " " * (COLUMNS - before - len(start)) + FORGED


@pytest.mark.parametrize("letter", ["x", "語", "─"])
def test_a_long_line_of_a_preview_does_not_go_on_as_a_row_of_ours(letter):
    wide = letter == "語"
    filler = letter * ((COLUMNS - 2) // (2 if wide else 1))
    view = question(f"{padded('echo', 2)}\n{filler}{FORGED}")
    assert FORGED in rows_of(render_question(view)), "the control: a terminal wraps it"
    shown = rows_of(render_question(view, COLUMNS))
    first, last = (at for at, row in enumerate(shown) if row.startswith("────"))
    assert FORGED not in shown
    assert all(row.startswith(("│ ", "│↪")) or row == "│" for row in shown[first + 1 : last])


def test_a_long_fact_does_not_go_on_as_another_fact():
    view = question("ls", padded("Writing x", 12))
    assert any(row.startswith(FORGED) for row in rows_of(render_question(view))), "the control"
    shown = rows_of(render_question(view, COLUMNS))
    assert not any(row.startswith(FORGED) for row in shown)
    assert any("beef" in row for row in shown), "nothing is left out"


def test_what_is_no_terminal_gets_whole_lines():
    assert f"│ {'x' * 500}" in render_question(question("x" * 500)).split("\n")
