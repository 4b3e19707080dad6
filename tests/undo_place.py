"""A project in which two clients and a person work, and the command in its directory."""

import json
import os
import subprocess
import sys
from pathlib import Path

from bascule.client import SyncClient
from native_scene import Scene, snapshot
from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")
OK, USAGE, NOT_FOUND, CONFLICT, APPROVAL = 0, 2, 5, 6, 11


class Place:
    """A project in which claude and codex have a session each, and a person has a terminal."""

    def __init__(self, daemon, root):
        self.daemon = daemon
        self.root = root
        self._scenes = []
        self.claude = self.session("claude", "session-1")
        self.codex = self.session("codex", "session-2")

    def session(self, client, session_id):
        made = Scene(self.daemon, self.root, client, session_id)
        self._scenes.append(made)
        made.note("SessionStart")
        return made

    def close(self):
        for each in self._scenes:
            each.close()

    def look(self):
        return snapshot(self.root)

    def person(self, path, text):
        (self.root / path).write_text(text)

    def bascule(self, *words, cwd=None, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BASCULE_")}
        return subprocess.run(
            [BASCULE, *words, "--state-dir", self.daemon.state_dir],
            cwd=cwd or self.root,
            env=environment | {"PWD": str(cwd or self.root)} | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def done(self, *words, **more):
        """All that a command says that goes well."""
        done = self.bascule(*words, **more)
        assert done.returncode == OK, done.stdout + done.stderr
        return done.stdout + done.stderr

    def json(self, *words, **more):
        done = self.bascule(*words, "--json", **more)
        assert done.returncode == OK, done.stdout + done.stderr
        return json.loads(done.stdout)

    def refused(self, *words, code, **more):
        """What it says; nothing in the project is changed, and nothing is added to the log."""
        was, log = self.look(), self.log()
        done = self.bascule(*words, **more)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert (self.look(), self.log()) == (was, log)
        return done.stderr

    def log(self):
        return self.claude.wire.call("spaces.log", {"spaceId": self.claude.space_id(), "limit": 1_000})


def with_back(now, then, *paths):
    """All as it is `now`, but for these paths, which are as they were `then`."""
    files = {path: value for path, value in now[0].items() if path not in paths}
    return files | {path: then[0][path] for path in paths if path in then[0]}, *now[1:]


def paths(changes):
    return sorted(each["path"] for each in changes)


def left(result):
    return {each["path"]: each["reason"] for each in result.get("leftAlone", [])}


def register(place, handle):
    with SyncClient.connect(place.daemon.state_dir) as wire:
        return wire.call("agents.register", {"agentId": handle, "type": "script"})["agentToken"]
