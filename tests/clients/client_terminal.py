"""A client with a screen: in tmux, as somebody would sit in front of it."""

import re
import subprocess
import uuid

from client_program import until

from patience import PATIENCE


class Terminal:
    """A client in tmux, on a server of its own."""

    def __init__(self, client, *command):
        self._tmux = ["tmux", "-S", str(client.root / f"tmux-{uuid.uuid4().hex[:8]}.sock")]
        size = ["-x", "160", "-y", "50"]
        words = [*self._tmux, "-f", "/dev/null", "new-session", "-d", *size, *command]
        subprocess.run(words, env=client.environment, cwd=client.project, check=True, timeout=PATIENCE)

    def shown(self):
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.stdout

    def sees(self, words):
        try:
            until(lambda: re.search(words, self.shown()), words)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown()}") from None

    def type(self, *keys):
        subprocess.run([*self._tmux, "send-keys", *keys], check=True, timeout=PATIENCE)

    def end(self):
        subprocess.run([*self._tmux, "kill-server"], check=False, timeout=PATIENCE)
