"""Plays the scene of the README in real terminals and draws it as an animated SVG: `make docs-cast`.

    python tools/cast.py [FILE]        the scene, into docs/img/undo.svg unless FILE is named
    python tools/cast.py --agent NAME  one of the two played agents, on the terminal that it is started on

Three terminals (pyte reads what they show): Claude Code, Codex, you. The agents are played: each is a program that is
typed a prompt, does one thing and reports it through `bridge-native`, as the client's hooks do. Daemon, git, files and
every word in your terminal are real, and the scene ends with an error where something is not as it says. Only the times
are cut.
"""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pyte

from bascule.client import SyncClient

HERE = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent
SHELL = [shutil.which("bash") or "/bin/bash", "--noprofile", "--norc", "--noediting", "-i"]
# For one step, on a machine with much else to do.
SECONDS = 120
KEY_SECONDS = 0.035
# Nobody types a person's command faster than they decide on it.
BEFORE_COMMAND_SECONDS = 0.35

# What is in the project, and what each agent does there.
FILES = {"README.md": "# Shop\n", "src/till.py": "def total(prices):\n    return sum(prices)\n"}
PUT_ASIDE = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
TESTS = "from src.till import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
EDIT = "Open on Sundays."
WRECK = "rm -rf src && git stash drop"
SESSIONS = {"claude": "4f1c2d7e", "codex": "9b3a6e05"}


class Call(NamedTuple):
    """What a played agent shows and reports of its one call."""

    title: str
    tool: str
    arguments: dict[str, str]
    command: str


class Step(NamedTuple):
    """Which terminal is typed what, how long it is looked at, and what stands below it meanwhile."""

    terminal: str
    text: str
    hold: float
    caption: str


SCENE = [
    Step("you", f"echo '{EDIT}' >> README.md; git stash list", 1.2, "You edit a file. Your stash holds an idea."),
    Step("claude", "write tests for the till", 1.0, "Claude Code writes tests."),
    Step("codex", "clean up this repository", 1.6, "Codex is asked to clean up. It deletes src/ and drops your stash."),
    Step("you", "bascule log", 2.2, "Bascule has a record of both."),
    Step("you", "bascule undo --session codex", 2.8, "Take back what Codex did, and nothing else."),
    Step("you", "git stash list; git status --short", 2.6, "The stash is back. Claude's tests and your edit stay."),
    Step("you", "bascule redo", 1.8, "An undo can be taken back."),
    Step("you", "bascule undo", 1.8, "And done again."),
    Step("you", "ls src; git stash list; git status --short", 3.2, "Claude's tests and your edit were never touched."),
]


# -- the agents --


def call_of(client: str, project: Path) -> Call:
    if client == "claude":
        file = project / "tests" / "test_till.py"
        write = f"mkdir tests && cat > tests/test_till.py <<'END'\n{TESTS}END\n"
        return Call("Write(tests/test_till.py)", "Write", {"file_path": str(file), "content": TESTS}, write)
    return Call(f"Shell({WRECK})", "Bash", {"command": WRECK}, WRECK)


def play_agent(client: str) -> int:
    """Reads one prompt, does its one call between two hooks, as the client would."""
    project = Path.cwd()
    report(client, {"hook_event_name": "SessionStart"})
    prompt_on_terminal(0)
    sys.stdin.readline()
    call = call_of(client, project)
    print(f"\n● {call.title}", flush=True)
    named = {"tool_name": call.tool, "tool_input": call.arguments, "tool_use_id": f"{client}-1"}
    report(client, {"hook_event_name": "PreToolUse", **named})
    done = subprocess.run(["sh", "-c", call.command], check=True, capture_output=True, text=True, timeout=SECONDS)
    report(client, {"hook_event_name": "PostToolUse", **named, "tool_response": {"stdout": done.stdout}})
    print(f"  {done.stdout.partition(' (')[0].strip() or f'{len(TESTS.splitlines())} lines written'}\n", flush=True)
    prompt_on_terminal(1)
    # Until the terminal is closed: a client that is gone is another scene.
    sys.stdin.read()
    return 0


def report(client: str, event: dict[str, Any]) -> None:
    event = {"session_id": SESSIONS[client], "cwd": os.getcwd(), **event}
    words = [str(PROGRAMS / "bridge-native"), "--client", client]
    subprocess.run(words, input=json.dumps(event), text=True, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)


def prompt_on_terminal(number: int) -> None:
    """The terminal's title counts prompts, so who watches it knows when a command is over."""
    sys.stdout.write(f"\x1b]2;{number}\x07> ")
    sys.stdout.flush()


# -- the terminals --


class Terminal:
    """A program on a terminal of its own, and what stands there."""

    def __init__(self, words: list[str], environment: dict[str, str], place: Path, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._commands = 0
        self._child, self._master = pty.fork()
        if self._child == 0:
            termios.tcsetwinsize(0, (lines, columns))
            os.chdir(place)
            os.execve(words[0], words, environment)  # noqa: S606 - our own words
        self.await_prompt()

    def type_key(self, key: str) -> None:
        """Returns when the terminal has echoed it."""
        cursor = self.screen.cursor
        before = cursor.x, cursor.y
        os.write(self._master, key.encode())
        while (cursor.x, cursor.y) == before:
            self.read()

    def enter(self, text: str = "") -> None:
        """What was typed, with `text` behind it, is a command."""
        self._commands += 1
        self.answer(text)

    def answer(self, text: str) -> None:
        os.write(self._master, f"{text}\n".encode())

    @property
    def is_at_prompt(self) -> bool:
        """The title counts prompts, so it says how many commands are over."""
        return self.screen.title == str(self._commands) and bool(self.rows()[self.screen.cursor.y])

    def await_prompt(self) -> None:
        while not self.is_at_prompt:
            self.read()

    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    def close(self) -> None:
        # Terminals that were started later hold the master open as well, so its end alone would not be noticed.
        os.kill(self._child, signal.SIGHUP)
        os.waitpid(self._child, 0)
        os.close(self._master)

    def read(self) -> None:
        if not select.select([self._master], [], [], SECONDS)[0]:
            sys.exit("a terminal waits for ever; it shows:\n" + "\n".join(self.rows()).rstrip())
        self._stream.feed(os.read(self._master, 65536))


class Frame(NamedTuple):
    at: float
    # What stands in each terminal, and below them.
    rows: tuple[tuple[str, ...], ...]
    caption: str


class Recording:
    def __init__(self, terminals: dict[str, Terminal], home: Path) -> None:
        self.frames: list[Frame] = []
        self.seconds = 0.0
        self._terminals = terminals
        self._home = str(home)

    def play(self, step: Step) -> None:
        terminal = self._terminals[step.terminal]
        for key in step.text:
            terminal.type_key(key)
            self._look(KEY_SECONDS, step.caption)
        self._look(BEFORE_COMMAND_SECONDS, step.caption)
        terminal.enter()
        terminal.await_prompt()
        self._look(step.hold, step.caption)

    def _look(self, hold: float, caption: str) -> None:
        rows = tuple(
            tuple(row.replace(self._home, "~") for row in terminal.rows()) for terminal in self._terminals.values()
        )
        self.frames.append(Frame(self.seconds, rows, caption))
        self.seconds += hold


def record(home: Path) -> Recording:
    """The scene in a project below `home`, with a daemon of its own."""
    project = make_project(home)
    environment = environment_of(home)
    bascule(environment, "up", "-d", "--port", "0", "--log", "off")
    terminals: dict[str, Terminal] = {}
    try:
        for client in SESSIONS:
            words = [sys.executable, str(Path(__file__).resolve()), "--agent", client]
            terminals[client] = Terminal(words, environment, project, SIDE_COLUMNS, SIDE_LINES)
        shell = [shutil.which("bash") or "/bin/bash", "--noprofile", "--norc", "--noediting", "-i"]
        terminals["you"] = Terminal(shell, environment, project, COLUMNS + HOME_COLUMNS, LINES)
        recording = Recording(terminals, home)
        with SyncClient.connect(environment["BASCULE_STATE_DIR"]) as client_of_daemon:
            for step in SCENE:
                recording.play(step)
                await_runs(client_of_daemon)
                if problem := what_is_wrong(project, step):
                    sys.exit(f"after `{step.text}` {problem}")
    finally:
        for terminal in terminals.values():
            terminal.close()
        bascule(environment, "down")
    return recording


def environment_of(home: Path) -> dict[str, str]:
    """A shell whose daemon, settings and home are below `home`."""
    return {
        "HOME": str(home),
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "PS1": "$ ",
        "PROMPT_COMMAND": 'printf "\\033]2;%s\\007" $((prompts++))',
        "BASCULE_STATE_DIR": str(home / "s"),
        "BASCULE_CONFIG_DIR": str(home / "c"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        # Without options of its own a pager waits for a key.
        "GIT_PAGER": "cat",
    }


def make_project(home: Path) -> Path:
    project = home / "shop"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, "utf-8")
    git(project, "init", "-q", "-b", "main")
    for key, value in (("user.email", "you@example.org"), ("user.name", "you")):
        git(project, "config", key, value)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "the till")
    (project / "src" / "till.py").write_text(PUT_ASIDE, "utf-8")
    git(project, "stash", "push", "-q", "-m", "discounts")
    return project


def git(project: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", *words], cwd=project, env=environment, check=True, capture_output=True, text=True, timeout=SECONDS
    )
    return done.stdout


def bascule(environment: dict[str, str], *words: str) -> None:
    subprocess.run([PROGRAMS / "bascule", *words], env=environment, check=True, capture_output=True, timeout=SECONDS)


def await_runs(client: SyncClient) -> None:
    """A call's changes are looked at after its client was answered."""
    for space in client.call("spaces.list", {}):
        for run in client.call("runs.list", {"spaceId": space["spaceId"]}):
            client.call("runs.wait", {"runId": run["runId"], "waitMs": 60_000})


def what_is_wrong(project: Path, step: Step) -> str | None:
    """The words of the scene are true, or there is none."""
    wrecked = step.text in ("clean up this repository", "bascule log", "bascule redo")
    began = step.text != SCENE[0].text
    if (project / "src").exists() == wrecked:
        return f"src/ is {'there' if wrecked else 'gone'}"
    if ("discounts" in git(project, "stash", "list")) == wrecked:
        return f"the stash is {'there' if wrecked else 'gone'}"
    if EDIT not in (project / "README.md").read_text("utf-8"):
        return "the person's edit is gone"
    tests = project / "tests" / "test_till.py"
    if began and (not tests.is_file() or tests.read_text("utf-8") != TESTS):
        return "Claude's tests are gone"
    return None


# -- the picture --

COLUMNS, LINES = 98, 21
SIDE_COLUMNS, SIDE_LINES = 47, 6
# The terminal is wider than its picture: a path is printed as long as it is here, and drawn with `~`.
HOME_COLUMNS = 40
# Of a monospaced font of 14 px.
CELL, ROW = 8.4, 19.0
GAP = 14.0
BAR = 26.0
CAPTION = 34.0
WIDTH = COLUMNS * CELL + 4 * GAP
SIDE_WIDTH = (WIDTH - 3 * GAP) / 2
SIDE_HEIGHT = BAR + SIDE_LINES * ROW + GAP
HEIGHT = 3 * GAP + SIDE_HEIGHT + BAR + LINES * ROW + CAPTION
# Where each terminal is: its name, and its box.
BOXES = (
    ("Claude Code (played)", GAP, GAP, SIDE_WIDTH, SIDE_HEIGHT),
    ("Codex (played)", 2 * GAP + SIDE_WIDTH, GAP, SIDE_WIDTH, SIDE_HEIGHT),
    ("you", GAP, 2 * GAP + SIDE_HEIGHT, WIDTH - 2 * GAP, BAR + LINES * ROW + GAP / 2),
)
STYLE = """\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328;white-space:pre}
.w{fill:#eef1f4}.b{fill:#fff;stroke:#c4cbd3}.n{fill:#6a737d}.t{font-weight:bold;fill:#0550ae}.c{font-weight:bold}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.w{fill:#010409}.b{fill:#0d1117;stroke:#3d444d}.n{fill:#9198a1}
.t{fill:#79c0ff}}"""


def svg_of(recording: Recording) -> str:
    """A strip of frames that moves past one window; each row that is shown is there once."""
    shown: dict[tuple[str, str], str] = {}
    strip: list[str] = []
    stops: list[str] = []
    frames = [
        each for index, each in enumerate(recording.frames) if index == 0 or each[1:] != recording.frames[index - 1][1:]
    ]
    for index, frame in enumerate(frames):
        uses = []
        for (_, left, top, _, _), rows in zip(BOXES, frame.rows, strict=True):
            for number, row in enumerate(rows):
                if row:
                    name = shown.setdefault((row, kind_of(row)), f"r{len(shown)}")
                    uses.append(f'<use href="#{name}" x="{left + GAP:g}" y="{top + BAR + (number + 1) * ROW:g}"/>')
        if frame.caption:
            name = shown.setdefault((frame.caption, "c"), f"r{len(shown)}")
            uses.append(f'<use href="#{name}" x="{2 * GAP:g}" y="{HEIGHT - GAP:g}"/>')
        strip.append(f'<g transform="translate({index * WIDTH:g})">{"".join(uses)}</g>')
        stops.append(f"{100 * frame.at / recording.seconds:.3f}%{{transform:translateX({-index * WIDTH:g}px)}}")
    last = -(len(frames) - 1) * WIDTH
    style = (
        f"{STYLE}\n@keyframes play{{{''.join(stops)}}}\n"
        f".s{{animation:play {recording.seconds:.2f}s steps(1,end) infinite}}\n"
        f"@media(prefers-reduced-motion:reduce){{.s{{animation:none;transform:translateX({last:g}px)}}}}"
    )
    defined = "".join(
        f'<text id="{name}" class="{kind}" textLength="{len(row) * CELL:g}" xml:space="preserve">{escape(row)}</text>\n'
        for (row, kind), name in shown.items()
    )
    boxes = "".join(
        f'<rect class="b" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="8"/>'
        f'<text class="n" x="{left + GAP:g}" y="{top + 19:g}">{escape(name)}</text>\n'
        for name, left, top, width, height in BOXES
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH:g}" height="{HEIGHT:g}" '
        f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}">\n'
        "<title>Codex deletes src/ and a stash; bascule undo --session codex brings both back, and keeps what Claude "
        f"Code and the person did</title>\n<style>{style}</style>\n<defs>\n{defined}</defs>\n"
        f'<rect class="w" width="{WIDTH:g}" height="{HEIGHT:g}" rx="10"/>\n{boxes}'
        f'<g class="s">\n{chr(10).join(strip)}\n</g>\n</svg>\n'
    )


def kind_of(row: str) -> str:
    return "t" if row.startswith(("$ ", "> ")) else ""


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--agent"]:
        return play_agent(arguments[1])
    file = Path(arguments[0]) if arguments else HERE / "docs" / "img" / "undo.svg"
    with tempfile.TemporaryDirectory(prefix="cast-") as home:
        recording = record(Path(home).resolve())
    text = svg_of(recording)
    file.write_text(text, "utf-8")
    print(f"wrote {file.name}: {recording.seconds:.1f} s, {len(text) // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
