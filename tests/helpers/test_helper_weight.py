"""What each command loads and how long it takes: they are started thousands of times a day."""

import json
import subprocess
import sys

import pytest

from patience import PATIENCE

# What would double the start-up time. `subprocess` comes late, on the path that starts the daemon.
HEAVY = {
    *("asyncio", "msgspec", "http", "http.client", "pathlib", "subprocess", "logging", "uuid", "secrets", "ssl"),
    *("typing", "email", "urllib", "urllib.parse", "dataclasses", "inspect", "random", "hashlib", "tempfile"),
}
# Ours that pull those in.
OURS = {
    "bascule.wire",
    "gabp",
    "bascule.foundation.errors",
    "bascule.foundation.ids",
    "bascule.kernel.call",
}
MODULES = {
    "bridge-register": "bascule.programs.helpers.program, bascule.programs.helpers.register",
    "bridge-reply": "bascule.programs.helpers.program, bascule.programs.helpers.reply",
    "bridge-recv": "bascule.programs.helpers.program, bascule.programs.helpers.recv",
    "bridge-send": "bascule.programs.helpers.program, bascule.programs.helpers.send",
    "bridgectl": "bascule.cli.bridgectl",
    "bascule mcp": "bascule.programs.mcp_stdio.command",
}


@pytest.mark.parametrize("name", MODULES)
def test_a_command_loads_nothing_heavy(name):
    # -I -S: without the site directory's own start-up code, which is not ours to judge.
    code = (
        f"import sys, json; sys.path[:0] = {sys.path!r}; import {MODULES[name]}; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, timeout=PATIENCE)
    loaded = set(json.loads(done.stdout))
    assert loaded.isdisjoint(HEAVY | OURS), sorted(loaded & (HEAVY | OURS))


def test_a_helper_does_not_load_its_sisters():
    code = (
        "import sys, bascule.programs.helpers.reply; print([m for m in sys.modules if "
        "m.startswith('bascule.programs.helpers.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=PATIENCE, text=True)
    assert "send" not in done.stdout
    assert "recv" not in done.stdout
