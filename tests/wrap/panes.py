"""A tmux server of the test's own, and what its panes show."""

import os
import shutil
import subprocess
import tempfile
import time

from lacking import missing_here

from inside import Tmux
from patience import PATIENCE


class Server:
    def __init__(self):
        if shutil.which("tmux") is None:
            missing_here("tmux is not installed")
        # pytest's own directories are too long for the path of a socket.
        self.folder = tempfile.mkdtemp(prefix="bsc-")
        self.socket = os.path.join(self.folder, "t")
        self.tmux = Tmux(self.socket)
        plain = {"TERM": "screen", "LANG": "C.UTF-8", "PS1": "$ ", "HISTFILE": "/dev/null", "SHELL": "/bin/sh"}
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "TMUX_PANE")}
        # A pane that only keeps the server alive.
        subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", "new-session", "-d", "-s", "keep", "sleep", "1000"],
            env={**clean, **plain},
            check=True,
            timeout=PATIENCE,
        )

    def open(self, *command, cwd="/", rows=24, columns=100, session="work", environment=()):
        words = [word for pair in environment for word in ("-e", pair)]
        size = ("-x", str(columns), "-y", str(rows))
        return self.tmux.run(
            *(
                "new-session",
                "-d",
                "-P",
                "-F",
                "#{pane_id}",
                "-s",
                session,
                *size,
                "-c",
                str(cwd),
                *words,
                "--",
                *command,
            )
        ).strip()

    def shows(self, pane):
        rows = [row.rstrip() for row in self.tmux.run("capture-pane", "-p", "-t", pane).split("\n")]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def sees(self, pane, look, what=None, seconds=PATIENCE):
        """Until `look` (a text, or a question about the rows) is there."""
        found = look if callable(look) else lambda rows: look in "\n".join(rows)
        deadline = time.monotonic() + seconds
        while not (answer := found(rows := self.shows(pane))):
            assert time.monotonic() < deadline, f"never seen: {what or look}\n" + "\n".join(rows)
            time.sleep(0.02)
        return answer

    def keys(self, pane, *keys):
        self.tmux.run("send-keys", "-t", pane, *keys)

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, capture_output=True, timeout=PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
