"""Commands as a person types them in a terminal: below no agent's client, though the tests may run below one."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from inside import BASCULE
from patience import PATIENCE


class Ended(NamedTuple):
    code: int
    out: str
    errors: str


def clean() -> dict[str, str]:
    """Without what clients set for the commands that they start."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "CODEX", "GEMINI"))}


def as_orphan(command: str, place: Path) -> str:
    """Of no parent but process 1."""
    end = place / "end"
    end.unlink(missing_ok=True)
    os.mkfifo(end)
    return f"({command} >{place}/out 2>{place}/err </dev/null; echo $? >{end}) >/dev/null 2>&1 &"


def result_of(place: Path) -> Ended:
    code = int((place / "end").read_text())
    return Ended(code, (place / "out").read_text(), (place / "err").read_text())


def bascule(state_dir: str, directory: str | os.PathLike[str], *words: str) -> Ended:
    """`bascule WORDS` in this directory."""
    command = shlex.join([*BASCULE, *words, "--state-dir", state_dir])
    with tempfile.TemporaryDirectory(prefix="typed") as place:
        orphan = as_orphan(command, Path(place))
        subprocess.run(["sh", "-c", orphan], cwd=directory, check=True, env=clean(), timeout=PATIENCE)
        return result_of(Path(place))
