"""What the reader foresees, compared with what real shells give to a program."""

import os
import shutil
import subprocess

import pytest

from bascule.kernel.policy.facts import facts_of
from bascule.kernel.policy.zones import Project
from patience import PATIENCE

_LINES = [
    "rm ~ x", "rm ~/x", "rm $HOME/y", 'rm "$HOME"', "rm '~'", "rm \\~", 'rm "~/x"', "rm ~/'a b'", "d=~/q; rm $d",
    'd="$HOME/q"; rm "$d"', "cd sub; rm x", "cd; rm x", "cd ~ && rm x ./y", "cd sub && cd .. && rm z", "rm $PWD/x",
    'rm "$(pwd)/x"', "rm ${HOME}/a ${HOME:-z}/b", "for f in a ~/b; do rm $f; done", "sh -c 'rm ~/x'",
    "find sub -name '*.txt' -exec rm {} +", "find ~ -maxdepth 0 -exec rm {} ';'", "rm sub/*", "rm ~/*",
    "HOME=/elsewhere rm ~/x", "rm -rf -- ~", "x=sub; rm $x/../y", "rm ~/../other",
]  # fmt: skip


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_a_real_shell_gives_to_rm_was_foreseen(tmp_path, shell):
    """A program named rm that writes down what it gets, in its own directory and with its own home."""
    if shutil.which(shell) is None and os.environ.get("CI") != "true":
        pytest.skip(f"no {shell} here")
    home, root, bin_directory = tmp_path / "home", tmp_path / "home" / "project", tmp_path / "bin"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "one.txt").touch()
    (home / "file").touch()
    bin_directory.mkdir()
    log = tmp_path / "log"
    program = bin_directory / "rm"
    program.write_text(
        f'#!/bin/sh\nfor a in "$@"; do case $a in -*) ;; /*) echo "$a";; *) echo "$PWD/$a";; esac; done >> {log}\n'
    )
    program.chmod(0o755)
    environment = {"PATH": f"{bin_directory}:/usr/bin:/bin", "HOME": str(home)}
    project = Project(str(root), str(home))
    for line in _LINES:
        log.write_text("")
        subprocess.run([shell, "-c", line], cwd=root, env=environment, check=False, timeout=PATIENCE)
        given_to_rm = [os.path.normpath(path) for path in log.read_text().splitlines()]
        assert given_to_rm, line
        facts = facts_of("native.shell", {"command": line, "cwd": str(root), "root": str(root), "home": str(home)})
        if "unplaced" in facts.traits:
            continue
        foreseen = [project.absolute(path, str(root)) for path in facts.paths]
        zones = {project.zone(path) for path in foreseen}
        for path in given_to_rm:
            assert project.zone(path) <= max(zones), (line, path, foreseen)
