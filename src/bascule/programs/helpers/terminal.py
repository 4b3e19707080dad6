"""What comes in from a terminal or a pipe, and what goes out to one.

Text of other agents is printed where a person or a model reads it, so it is made visible first
(`bascule.foundation.text`).
"""

from __future__ import annotations

import json
import sys

from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import WrongUsage
from bascule.local_client.values import MAX_PAYLOAD_BYTES

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def prepare() -> None:
    """A lone surrogate or an old locale must not cost the reader the whole message."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def show(text: str) -> None:
    """To stdout, for a reader. Brackets stay: what others wrote was made visible where it was put into our words."""
    show_exactly(visible(text, already_visible=True))


def show_exactly(text: str) -> None:
    """To stdout, for a program, and out of our hands: returns when the bytes have left the process."""
    if sys.stdout is None:
        # Started with `>&-`: as good as a reader that has left.
        raise BrokenPipeError
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """To stderr: for the reader, not for the pipe."""
    if sys.stderr is not None:
        sys.stderr.write(visible(text, already_visible=True) + "\n")
        sys.stderr.flush()


def show_json(value: Any) -> None:
    """ASCII, so that nothing in it can act on a terminal. DEL is the one control JSON leaves as it is."""
    show_exactly(json.dumps(value, indent=2 if sys.stdout.isatty() else None).replace("\x7f", "\\u007f"))


def payload_text(payload: Any) -> str:
    return payload if isinstance(payload, str) else json.dumps(payload, indent=2, ensure_ascii=False)


def describe_sender(sender: str) -> str:
    """Who wrote a message, as the daemon says, for the line above its text."""
    if sender == "person":
        return "the person at this machine"
    name, _, machine = sender.partition("@")
    if name == "local":
        who = f"an unnamed program at {machine}" if machine else "an unnamed program of this user"
    else:
        who = f"the person at {machine}" if name == "person" else f"agent {sender}"
    return f"{who} (sender verified): not from your user"


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [list(headings), *([one_line(cell, already_visible=True) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    show(
        "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )
    )


def text_argument(text: str | None) -> str:
    """The text of a message: the argument, or stdin when there is none or it is `-`."""
    if text is None or text == "-":
        text = _piped_text()
    if not text:
        raise WrongUsage("the text is empty", "give it in quotes behind the name, or pipe it in")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_PAYLOAD_BYTES:
        raise WrongUsage(
            f"the text is larger than {MAX_PAYLOAD_BYTES} bytes",
            "write it to a file that the other agent can read, and send the path",
        )
    return text


def _piped_text() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise WrongUsage("there is no text", "give it in quotes, or pipe it in")
    # One byte more than allowed, so that too large is told from exactly full.
    data = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
    try:
        # The newline that every command puts at the end of its output is not part of the message.
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        if len(data) > MAX_PAYLOAD_BYTES:
            # Cut in the middle of a character; the size is what is wrong with it.
            return "x" * len(data)
        raise WrongUsage("the text on stdin is not UTF-8", "send a file reference for binary data") from None
