"""Questions that a person answers at the terminal they sit at, whatever stdin and stdout are."""

import os
import termios

from bascule.kernel.identity.passphrase import NoTerminal

# A word or a number; more is not an answer.
_MAX_ANSWER_BYTES = 1_024


def ask_on_tty(prompt: str) -> str:
    """A line typed on the controlling terminal, echoed, without the blanks around it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NoTerminal(
            "there is no terminal to answer on",
            hint="run the command in a terminal of your own; an answer is never read from a pipe",
        ) from error
    try:
        # What was typed before the question was there is no answer to it.
        termios.tcflush(terminal, termios.TCIFLUSH)
        os.write(terminal, prompt.encode())
        return os.read(terminal, _MAX_ANSWER_BYTES).decode(errors="replace").strip()
    finally:
        os.close(terminal)
