"""Fifty destructive scripts through each client's own shell, while hooks only observe: each is undone exactly."""

import re

import pytest
from client_program import DONE, until
from scripted_model import call

from bascule.client import SyncClient
from native_scene import DESTRUCTIVE, make_project, snapshot

pytestmark = pytest.mark.clients
# The client's own questions and sandbox are not what is looked at here.
OPTIONS = {
    "claude": ["--allowedTools", "Bash"],
    "codex": ["--dangerously-bypass-approvals-and-sandbox"],
    "gemini": ["--yolo"],
}
# Words of a client that does not run a command though its user allowed all.
REFUSED = "Dangerous rm operation detected"


def shell(name, model, command, folder):
    if name == "claude":
        return call("Bash", command=command, description="x")
    if name == "gemini":
        return call("run_shell_command", command=command)
    # Codex runs no `rm -f` that it can read, and does not say that a call has failed.
    file = folder / "script.sh"
    file.write_text(f"{command}\nexit 0\n")
    words = f"bash {file}"
    # Its shell has another name in every other version.
    return call("exec_command", cmd=words) if "exec_command" in model.tools else call("shell_command", command=words)


class Undoing:
    """A model that runs one script after the other; what each did is undone before it asks for the next."""

    def __init__(self, name, model, project, daemon):
        self.name, self.model, self.project, self.daemon = name, model, project, daemon
        self.was = snapshot(project)
        self.left = list(DESTRUCTIVE)
        self.running = None
        self.known = set()
        self.undone, self.refused, self.wrong = [], [], []

    def __call__(self, prompt):
        if "please" not in prompt and self.running is None:
            return DONE
        if self.running is not None:
            self._undo(prompt)
        if not self.left or self.wrong:
            self.running = None
            return DONE
        self.running = self.left.pop(0)
        return shell(self.name, self.model, self.running, self.project.parent)

    def _undo(self, prompt):
        if re.search(REFUSED, prompt):
            # By the client itself, whatever it was allowed.
            assert snapshot(self.project) == self.was, self.running
            self.refused.append(self.running)
            return
        run = until(self._new_run, f"a run for {self.running}: {prompt[:300]}")
        self.daemon.call("runs.wait", {"runId": run["runId"], "waitMs": 60_000})
        self.daemon.call("runs.undo", {"runId": run["runId"]})
        (self.undone if snapshot(self.project) == self.was else self.wrong).append(self.running)

    def _new_run(self):
        runs = [each for each in self.daemon.call("runs.list", {}) if each["runId"] not in self.known]
        fresh = [each for each in runs if each.get("native")]
        self.known |= {each["runId"] for each in fresh}
        return fresh[0] if fresh else None


@pytest.mark.parametrize("name", OPTIONS)
def test_fifty_scripts_through_its_own_shell_are_undone_exactly(make_client, model, name):
    client = make_client(name)
    client.options = OPTIONS[name]
    make_project(client.project)
    client.switch_on()
    with SyncClient.connect(client.daemon.state_dir) as daemon:
        model.script = undoing = Undoing(name, model, client.project, daemon)
        client.run("please")
    assert undoing.wrong == []
    assert sorted(undoing.undone + undoing.refused) == sorted(DESTRUCTIVE)
    # Enough is left that is not the client's own doing.
    assert len(undoing.undone) >= 45
