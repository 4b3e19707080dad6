"""A hundred destructive calls through each client's own shell, while hooks only observe: undone exactly, or named."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from client_program import BASCULE, DONE, PATIENCE, until
from destructive_calls import ALONE, CALLS, Place
from scripted_model import call

from bascule.client import SyncClient

pytestmark = pytest.mark.clients
# The client's own questions and sandbox are not what is looked at here.
OPTIONS = {
    "claude": ["--dangerously-skip-permissions"],
    "codex": ["--dangerously-bypass-approvals-and-sandbox"],
    "gemini": ["--yolo"],
}
# Words of a client that does not run a command though its user allowed all.
REFUSED = "Dangerous rm operation detected|Command injection detected"
# Codex runs no `rm -f` that it can read, and does not say that a call has failed.
READ_BY_CODEX = re.compile(r"rm (-\S*f|-\S+ -\S*f|\./\*|\* )|shred|git rm")
# Of a hundred calls so many may be named in place of put back; docs/native.md has the reason of each.
MAX_NAMED = 10


def shell(name, model, command, folder):
    if name == "claude":
        return call("Bash", command=command, description="x")
    if name == "gemini":
        return call("run_shell_command", command=command)
    if READ_BY_CODEX.search(command):
        file = folder / "script.sh"
        file.write_text(f"{command}\nexit 0\n")
        command = f"bash {file}"
    # Its shell has another name in every other version.
    if "exec_command" in model.tools:
        return call("exec_command", cmd=command)
    return call("shell_command", command=command)


class Undoing:
    """A model that runs one call after the other; what each did is undone before it asks for the next."""

    def __init__(self, name, model, place, client, daemon):
        self.name, self.model, self.place, self.client, self.daemon = name, model, place, client, daemon
        self.left, self.running, self.known = [], None, set()
        # Each call with what came of its undo.
        self.undone, self.named, self.silent, self.refused, self.harmless = {}, {}, {}, {}, {}

    def __call__(self, prompt):
        if "please" not in prompt and self.running is None:
            return DONE
        if self.running is not None:
            self._undo(self.running, prompt)
        self.running = self.left.pop(0) if self.left else None
        return shell(self.name, self.model, self.running, self.place.root) if self.running else DONE

    def finish(self):
        """What a session ended with before its model heard of it."""
        if self.running is not None:
            self._undo(self.running, "")
            self.running = None

    def _undo(self, command, prompt):
        if re.search(REFUSED, prompt):
            # By the client itself, whatever it was allowed.
            self.refused[command] = prompt
            assert not self.place.differs(), command
            return
        run = until(self._new_run, f"a run for {command}: {prompt[:300]}")
        self.daemon.call("runs.wait", {"runId": run["runId"], "waitMs": 60_000})
        run = self.daemon.call("runs.show", {"runId": run["runId"]})
        if not self.place.differs():
            self.harmless[command] = prompt
        named, outcome = self._undo_by_command(run)
        left = self.place.differs()
        if not left:
            self.undone[command] = outcome
            return
        is_named = all(self._is_named(path, named, run) for path in left)
        (self.named if is_named else self.silent)[command] = [sorted(left), outcome, run.get("note"), prompt[:300]]
        self.place.make_anew()

    def write_report(self, name):
        """What became of each, for whoever looks into a failure."""
        kinds = ("undone", "named", "silent", "refused", "harmless")
        report = {kind: getattr(self, kind) for kind in kinds}
        directory = Path("build")
        directory.mkdir(exist_ok=True)
        (directory / f"destructive-{name}.json").write_text(json.dumps(report, indent=1))

    def _undo_by_command(self, run):
        """As a person types it, and with what the run's own note says."""
        done = subprocess.run(
            [BASCULE, "undo", run["runId"], "--json", "--state-dir", self.client.daemon.state_dir],
            capture_output=True, text=True, timeout=PATIENCE, check=False, env=self.client.environment,
        )  # fmt: skip
        if not done.stdout.startswith("{"):
            return [(".", done.stderr)], done.stderr
        result = json.loads(done.stdout)
        named = [(each["path"], each["reason"]) for field in ("leftAlone", "failed") for each in result.get(field, ())]
        return named, f"exit {done.returncode}, {len(result['changes'])} back; {named}; {result.get('note')}"

    def _is_named(self, path, named, run):
        """Whether a person is told of it, of a folder that holds it, or of another name of it."""
        note = run.get("note") or ""
        if note.startswith("no undo:") or ("no undo outside of the project" in note and not path.startswith("project")):
            return True
        for each, why in named:
            whole = os.path.normpath(self.place.root / "project" / each)
            names = [whole, *(self.place.other_names(whole) if "other names" in why else ())]
            if any(_is_in(str(self.place.root / path), name) for name in names):
                return True
        return False

    def _new_run(self):
        runs = [each for each in self.daemon.call("runs.list", {}) if each["runId"] not in self.known]
        fresh = [each for each in runs if each.get("native")]
        self.known |= {each["runId"] for each in fresh}
        return fresh[0] if fresh else None


def _is_in(path, folder):
    return path == folder or path.startswith((f"{folder}/", f"{folder} "))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_hundred_calls_through_its_own_shell_are_undone_exactly_or_named(make_client, model, name):
    client = make_client(name)
    client.options = OPTIONS[name]
    # Claude Code skips no permissions for root elsewhere.
    client.environment["IS_SANDBOX"] = "1"
    place = Place(client.root)
    client.switch_on()
    with SyncClient.connect(client.daemon.state_dir) as daemon:
        model.script = undoing = Undoing(name, model, place, client, daemon)
        undoing.left = [each for each in CALLS if each not in ALONE]
        client.run("please", seconds=2 * PATIENCE)
        for each in ALONE:
            undoing.left = [each]
            client.run("please", seconds=2 * PATIENCE)
            undoing.finish()
    assert len(CALLS) == 100
    undoing.write_report(name)
    assert undoing.silent == {}
    # A client's own `find`, and one that ends what its shell leaves behind, do less than others.
    assert len(undoing.harmless) <= 3, undoing.harmless
    assert len(undoing.undone) + len(undoing.named) + len(undoing.refused) == len(CALLS)
    assert len(undoing.named) <= MAX_NAMED, undoing.named
    # Enough is left that is not the client's own doing.
    assert len(undoing.refused) <= MAX_NAMED
