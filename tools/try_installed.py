"""Use Bascule as it is installed from wheels: `python3 tools/try_installed.py DAEMON_VENV GAME_VENV`.

Of a checkout nothing is needed, and neither git nor make: PATH holds the programs of DAEMON_VENV alone. A daemon is
started, one agent asks another with the helper programs, `bascule mcp` lists its tools, and the daemon starts and calls
a game whose Python is GAME_VENV's, where bascule-mod is installed and bascule is not. Prints what it saw; ends with 1
where something is not as it should be.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# For one command, on a machine with much else to do.
SECONDS = 60
GAME = '''
import sys
from importlib.metadata import distributions

from bascule_mod import Mod

mod = Mod("tiny")


@mod.tool(read_only=True)
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@mod.tool(read_only=True)
def installed() -> list[str]:
    """What this game has beside Python."""
    return sorted({each.name for each in distributions()} - {"pip", "setuptools"})


mod.serve()
'''
MCP = [
    {
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "try", "version": "1"}},
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
]


class Failed(Exception):
    """Something that was installed does not do what it should."""


def main(arguments: list[str]) -> int:
    daemon, game = (Path(each).absolute() for each in arguments)
    # Short: a socket's path has 100 bytes. On the disk that the user's programs may be started from.
    with tempfile.TemporaryDirectory(prefix="try-") as home:
        try:
            Trial(daemon, game, Path(home)).run()
        except (Failed, subprocess.TimeoutExpired) as error:
            print(f"try_installed: {error}", file=sys.stderr)
            return 1
    return 0


class Trial:
    def __init__(self, daemon: Path, game: Path, home: Path) -> None:
        self._daemon, self._game, self._home = daemon, game, home
        self._environment = {"PATH": str(daemon / "bin"), "HOME": str(home), "LANG": "C.UTF-8"}

    def run(self) -> None:
        for name in ("bascule", "bridgectl", "bridge-wait", "bridge-wrap"):
            self._command(name, "--help")
        self._write_game()
        self._command("bascule", "up", "-d", "--port", "0")
        try:
            self._ask()
            self._list_tools()
            self._play()
        finally:
            self._command("bascule", "down")

    def _ask(self) -> None:
        for agent in ("Jerry", "Ada"):
            self._command("bridge-register", "--agent", agent)
        asking = self._start("bridge-send", "Jerry", "Which is larger?", "--as", "Ada")
        received = json.loads(self._command("bridge-recv", "--agent", "Jerry", "--wait", "60000", "--json"))
        self._command("bridge-reply", "--agent", "Jerry", received["ticketId"], "Mars, it has two")
        answer, complaint = asking.communicate(timeout=SECONDS)
        self._see("an ask", answer.strip().endswith("Mars, it has two"), answer + complaint)

    def _list_tools(self) -> None:
        output = "".join(json.dumps({"jsonrpc": "2.0"} | each) + "\n" for each in MCP)
        answers = [json.loads(line) for line in self._command("bascule", "mcp", feed=output).splitlines()]
        (tools,) = (each["result"]["tools"] for each in answers if each.get("id") == 2)
        self._see("bascule mcp", "send_message" in {tool["name"] for tool in tools}, str(answers))

    def _play(self) -> None:
        self._command("bascule", "games", "start", "tiny")
        doubled = self._command("bascule", "games", "call", "tiny", "tiny/double", "number=21")
        self._see("a mod", doubled == "42\n", doubled)
        installed = json.loads(self._command("bascule", "games", "call", "tiny", "tiny/installed", "--json"))
        self._see("the mod alone", "['bascule-mod', 'gabp', 'msgspec']" in str(installed), str(installed))

    def _write_game(self) -> None:
        source = self._home / "tiny.py"
        source.write_text(GAME, "utf-8")
        folder = self._home / ".config" / "bascule"
        folder.mkdir(mode=0o700, parents=True)
        python = json.dumps(str(self._game / "bin" / "python"))
        text = f'[games.tiny]\ncommand = {python}\nargs = ["-I", {json.dumps(str(source))}]\n'
        (folder / "games.toml").write_text(text, "utf-8")

    def _see(self, what: str, is_right: bool, seen: str) -> None:
        if not is_right:
            raise Failed(f"{what} is not as it should be: {seen}")
        print(f"{what}: fine")

    def _command(self, name: str, *words: str, feed: str = "") -> str:
        process = self._start(name, *words)
        output, complaint = process.communicate(feed, timeout=SECONDS)
        if process.returncode != 0:
            raise Failed(f"{name} {' '.join(words)} ended with {process.returncode}: {output}{complaint}")
        return output

    def _start(self, name: str, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self._daemon / "bin" / name, *words],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
