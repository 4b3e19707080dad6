"""The npm tools are installed with the Node of our own environment, whatever else a machine has."""

import json
import shutil
from pathlib import Path

import npm_tools


def test_an_install_script_finds_node_where_the_machine_has_none(tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to(shutil.which("sh"))
    monkeypatch.setenv("PATH", str(programs))
    # A failed install is a failure here, not a reason to skip.
    monkeypatch.setenv("CI", "true")
    root = tmp_path / "tools"
    script = "node -e \"require('fs').writeFileSync('ran', process.execPath)\""
    wanted = json.dumps({"name": "tools", "version": "1.0.0", "scripts": {"postinstall": script}}).encode()
    npm_tools._install_npm(root, wanted)
    assert (root / "installed").exists()
    assert Path((root / "ran").read_text()).resolve() == npm_tools.NODE.resolve()
