"""A real client from npm in a home of its own, with a scripted model behind it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patience import PATIENCE

# Where `make test-clients` installed them.
PROGRAMS = Path(os.environ.get("BASCULE_CLIENTS", "")) / "node_modules" / ".bin"
BASCULE = str(Path(sys.executable).parent / "bascule")
# A client starts within seconds; only a hang takes this long.
# What a script says when it is done.
DONE = "all done"


def until(condition, what, seconds=PATIENCE):
    """Ask again and again for something that another program does in its own time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")


class Client:
    """One installed client in a home of its own, set up by `bascule setup` as a user would."""

    def __init__(self, name, daemon, model):
        self.name = name
        self.daemon = daemon
        self.model = model
        self.root = Path(tempfile.mkdtemp(prefix="cli"))
        self.home, self.project = self.root / "home", self.root / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.program = str(PROGRAMS / name)
        # More words for a turn without a screen.
        self.options = []
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{PROGRAMS}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "ANTHROPIC_BASE_URL": model.url,
            "GOOGLE_GEMINI_BASE_URL": model.url,
            "GEMINI_API_KEY": "scripted",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "ANTHROPIC_API_KEY": "sk-ant-api03-scripted-model-scripted-model",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Our tools are listed from the start, as with few servers.
            "ENABLE_TOOL_SEARCH": "false",
        }

    def setup(self, *options):
        command = [
            BASCULE,
            "setup",
            self.name,
            "--yes",
            *([] if self.name == "gemini" else ["--allow-tools"]),
            "--state-dir",
            self.daemon.state_dir,
            *options,
        ]
        subprocess.run(
            command, env=self.environment, cwd=self.project, check=True, capture_output=True, timeout=PATIENCE
        )
        return self.configure()

    def configure(self):
        """What a person has answered once, and where the scripted model is."""
        if self.name == "codex":
            config = self.home / ".codex" / "config.toml"
            config.parent.mkdir(exist_ok=True)
            config.write_text(f"{_CODEX.format(url=self.model.url)}\n{_read(config, '')}")
        elif self.name == "gemini":
            file = self.home / ".gemini" / "settings.json"
            settings = json.loads(_read(file, "{}")) | {"security": {"auth": {"selectedType": "gemini-api-key"}}}
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(settings))
        else:
            # What a person has answered once: theme, this key, this directory.
            file = self.home / ".claude.json"
            settings = json.loads(_read(file, "{}"))
            settings |= {"hasCompletedOnboarding": True, "theme": "dark"}
            settings["customApiKeyResponses"] = {
                "approved": [self.environment["ANTHROPIC_API_KEY"][-20:]],
                "rejected": [],
            }
            settings["projects"] = {
                str(self.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
            }
            file.write_text(json.dumps(settings))
        return self

    def switch_on(self, *options, state_dir=None):
        """Hooks on the client's own tools, as `bascule on` installs them."""
        self.bascule("on", self.name, *options, state_dir=state_dir)
        return self

    def bascule(self, *words, state_dir=None):
        """Of the daemon that the test has started: its service is not what is looked at here."""
        where = ["--no-service", "--yes"] if words[0] in ("on", "off") else []
        return subprocess.run(
            [BASCULE, *words, *where, "--state-dir", state_dir or self.daemon.state_dir],
            env=self.environment, cwd=self.project, check=True, capture_output=True, text=True, timeout=PATIENCE,
        ).stdout  # fmt: skip

    def words(self, prompt):
        """One turn without a screen."""
        if self.name == "codex":
            return [self.program, "exec", "--skip-git-repo-check", *self.options, prompt]
        if self.name == "gemini":
            # Without a model named it asks another one first, which to use.
            return [self.program, "-p", prompt, "-m", "gemini-2.5-flash", *self.options]
        return [self.program, "-p", prompt, "--allowedTools", "mcp__agent-bridge", *self.options]

    def run(self, prompt, seconds=PATIENCE):
        done = subprocess.run(
            self.words(prompt),
            env=self.environment,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        output = f"{done.stdout}\n{done.stderr}\nthe model heard: {self.model.prompts}"
        assert done.returncode == 0, output
        assert DONE in done.stdout, output

    def start(self, prompt):
        """The same, beside the test; the caller waits for it."""
        return subprocess.Popen(
            self.words(prompt),
            env=self.environment,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


def _read(file, otherwise):
    return file.read_text() if file.exists() else otherwise


_CODEX = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
"""
