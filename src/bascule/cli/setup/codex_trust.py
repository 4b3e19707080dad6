"""Codex runs a hook only once its user trusts it, and `codex exec` skips others without a word.

`codex app-server` says which hooks are trusted (`hooks/list`) and writes that they are (`config/batchWrite`), as its
own dialog does. Seen with Codex 0.166.0.
"""

import contextlib
import json
import shutil
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bascule import __version__
from bascule.cli.setup import toml_text
from bascule.cli.setup.planning import BELL_TOOL, SERVER
from gabp import codec

# It starts within a second; one that hangs is ended.
ANSWER_SECONDS = 20.0
# What stands in the command of a hook of ours, and in one that is a tool of our server.
PROGRAMS = ("bridge-native", "bridge-wait")
TOOLS = ((SERVER, "native_hook"), (SERVER, BELL_TOOL))


class CannotAsk(Exception):
    """There is no Codex that answers; the message says what was tried."""


def untrusted(environment: Mapping[str, str], directory: str) -> list[str]:
    """Events of ours whose hooks Codex does not run yet."""
    with _server(environment, directory) as server:
        return [str(each["eventName"]) for each in _ours(server, directory) if each.get("trustStatus") != "trusted"]


def trust(environment: Mapping[str, str], directory: str) -> list[str]:
    """Trust our hooks as they are now; the names under which Codex remembers it."""
    with _server(environment, directory) as server:
        hooks = [each for each in _ours(server, directory) if each.get("trustStatus") != "trusted"]
        state = {str(each["key"]): {"trusted_hash": str(each["currentHash"])} for each in hooks}
        if state:
            edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
            server.call("config/batchWrite", {"edits": [edit]})
    return list(state)


def forget(text: str, keys: Collection[str]) -> str:
    """Codex's settings without what `trust` wrote there."""
    for key in toml_text.table(text, ("hooks", "state")) or {}:
        if key in keys:
            text = toml_text.remove_table(text, ("hooks", "state", key))
    if not toml_text.table(text, ("hooks", "state")):
        text = toml_text.remove_table(text, ("hooks", "state"))
    return text


def _ours(server: "_Server", directory: str) -> list[dict[str, Any]]:
    listed = server.call("hooks/list", {"cwds": [directory]})
    hooks = [hook for each in listed.get("data", []) for hook in each.get("hooks", [])]
    return [
        hook
        for hook in hooks
        if any(name in str(hook.get("command")) for name in PROGRAMS) or (hook.get("server"), hook.get("tool")) in TOOLS
    ]


class _Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._number = 0

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self.notify(method, params, id=self._number)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = _object(line)
            if answer.get("id") == self._number:
                result = answer.get("result")
                if not isinstance(result, dict):
                    raise CannotAsk(f"codex app-server refuses {method}: {answer.get('error')}")
                return result
        raise CannotAsk(f"codex app-server ended, or said nothing to {method} within {ANSWER_SECONDS:.0f} s")

    def notify(self, method: str, params: dict[str, Any], **more: int) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CannotAsk("codex app-server ended") from None


@contextlib.contextmanager
def _server(environment: Mapping[str, str], directory: str) -> Iterator[_Server]:
    program = shutil.which("codex", path=environment.get("PATH"))
    if program is None:
        raise CannotAsk("there is no `codex` in PATH")
    with subprocess.Popen(  # noqa: S603 - the user's own codex
        [program, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
        env=dict(environment),
    ) as process:
        timer = threading.Timer(ANSWER_SECONDS, process.kill)
        timer.start()
        try:
            server = _Server(process)
            server.call("initialize", {"clientInfo": {"name": "bascule", "title": "Bascule", "version": __version__}})
            server.notify("initialized", {})
            yield server
        finally:
            timer.cancel()
            process.kill()


def _object(line: str) -> dict[str, Any]:
    try:
        return codec.decode(line.encode(), dict[str, Any])
    except codec.BadJson:
        return {}
