"""`bascule` as a person at a terminal runs it, and as a program does that only has a pipe."""

import os
import pty
import subprocess
import sys

from patience import PATIENCE


def _bascule(*words, environment, **more):
    command = [sys.executable, "-P", "-m", "bascule.cli.start", *words]
    return subprocess.Popen(command, env={**os.environ, **environment}, **more)


def run_by_a_program(*words, **environment):
    """What it ends with, although it is given a yes."""
    with _bascule(*words, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked:
        asked.communicate(b"y\n", timeout=PATIENCE)
    return asked.returncode


def run_by_a_person(*words, answer, when_asked, **environment):
    """What was shown before the question; `when_asked` is called while it waits for the answer."""
    ours, theirs = pty.openpty()
    # The rest is the same terminal's, which shows it all.
    with _bascule(*words, environment=environment, stdin=theirs, stdout=theirs, stderr=theirs) as asked:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 65_536)
        when_asked()
        os.write(ours, answer.encode() + b"\n")
        asked.wait(PATIENCE)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")
