"""From nothing to governed, timed: `python3 tools/try_on.py WHEEL...` on a machine without Bascule.

Installs the wheels into a new environment, types `bascule on claude codex gemini` at a terminal and answers what it
asks with y; then a hook as a client sends it reports a call of `rm`, the file goes, and `bascule undo` brings it
back. Prints the seconds and the questions, and ends with 1 where something is not as it should be. `bascule off` takes
all of it out again.
"""

import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# For one command, on a machine with much else to do.
SECONDS = 120
# How a question ends.
QUESTION = b"[y/N]"


def main(wheels: list[str]) -> int:
    # Below the home, on the disk that the user's programs may be started from.
    with tempfile.TemporaryDirectory(prefix="try-on-", dir=Path.home()) as place:
        programs = Path(place) / "venv" / "bin"
        began = time.monotonic()
        run([sys.executable, "-m", "venv", programs.parent])
        run([programs / "pip", "install", "--quiet", *wheels])
        installed = time.monotonic()
        questions = answer_at_terminal([str(programs / "bascule"), "on", "claude", "codex", "gemini"])
        on = time.monotonic()
        try:
            governed = try_call(programs, Path(place) / "project")
        finally:
            run([programs / "bascule", "off", "--yes"])
            run([programs / "bascule", "down"])
    print(f"installed from wheels in {installed - began:.1f} s")
    print(f"`bascule on` for three clients took {on - installed:.1f} s and asked {questions} questions")
    print(f"a client's call was governed {governed - installed:.1f} s after `bascule on` was typed, and undone")
    return 0


def run(words: list[object], **more: object) -> str:
    done = subprocess.run(
        [str(each) for each in words], capture_output=True, text=True, timeout=SECONDS, check=False, **more
    )
    if done.returncode:
        sys.exit(f"`{' '.join(map(str, words))}` exited with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def answer_at_terminal(words: list[str]) -> int:
    """How many questions it asked; each gets a y."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(words[0], words)  # noqa: S606 - what was just installed
    shown, questions = b"", 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and select.select([terminal], [], [], SECONDS)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
        if shown.count(QUESTION) > questions:
            questions += 1
            os.write(terminal, b"y\n")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"`{' '.join(words)}` exited with {code}:\n{shown.decode(errors='replace')}")
    return questions


def try_call(programs: Path, project: Path) -> float:
    """When the hook before the call was answered."""
    project.mkdir()
    kept = project / "keep"
    kept.write_text("kept\n", "utf-8")
    event = {"session_id": "try", "cwd": str(project), "tool_name": "Bash", "tool_use_id": "t1"}
    event["tool_input"] = {"command": "rm keep"}
    hook = [programs / "bridge-native", "--client", "claude"]
    run(hook, input=json.dumps({"hook_event_name": "PreToolUse", **event}))
    answered = time.monotonic()
    kept.unlink()
    run(hook, input=json.dumps({"hook_event_name": "PostToolUse", **event}))
    end = time.monotonic() + SECONDS
    while "rm keep" not in run([programs / "bascule", "log"], cwd=project) and time.monotonic() < end:
        time.sleep(0.2)
    run([programs / "bascule", "undo"], cwd=project)
    if not kept.is_file() or kept.read_text("utf-8") != "kept\n":
        sys.exit("the call was not undone")
    return answered


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
