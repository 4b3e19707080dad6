"""A house full of hostile text: agents, a game and their files write it into every field that a page shows.

Every field has a word of its own, `here-...`, in front of what it attacks with. A test that finds the word on a page
knows that the attack came that far.
"""

import contextlib
import itertools
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from day import done
from hostile_text import corpus
from living import short_dir
from scenes import ASKING, NO_WAIT, Scene

# Fields of some words take one payload, and not those that are longer than this.
SHORT = 64
# Of a long text: enough that all 500 are somewhere, several times over.
MANY = 60
PAYLOADS = [each for each in corpus() if "\x00" not in each and "W" * 100 not in each]
_next = itertools.cycle(PAYLOADS)
# What was written, by field.
WRITTEN: dict[str, str] = {}


def short(field: str, chars: int = SHORT) -> str:
    """One payload that fits, and letters that turn the direction of reading."""
    head = f"here-{field} \u202e"
    fits = (each for each in _next if len(each) <= chars - len(head) and "<" in each and "\n" not in each)
    return WRITTEN.setdefault(field, head + next(fits))


def long(field: str) -> str:
    return WRITTEN.setdefault(field, f"here-{field} \u202e" + "\n".join(itertools.islice(_next, MANY)))


def quoted(text: str) -> str:
    """A string in TOML, whatever is in it."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


GAME = """
import re, sys
import bascule_mod.tools
from bascule_mod import Mod
# A mod of somebody who does not keep to the rules.
bascule_mod.tools._NAME = re.compile(".*", re.S)
from gabp.messages import AttentionSample
mod = Mod("hostile", version={version!r})
say = mod.channel({channel!r})
@mod.tool(name={tool!r}, description={description!r}, destructive=True)
def look(is_it: int = 1) -> str:
    return {result!r}
@mod.tool(name="hostile/say")
def speak() -> str:
    say({{"text": {event!r}, {event!r}: 1}})
    return {result!r}
@mod.state("here-component")
def component():
    return {{{state!r}: {state!r}}}
mod.attention.open({attention!r}, sample=[AttentionSample(level="error", message={sample!r}, repeat_count=2)])
print({output!r}, flush=True)
mod.serve()
"""


GAME_FIELDS = ("result", "state", "attention", "sample", "event", "output", "version")


class HostileHouse(Scene):
    """One real daemon, and what agents made of it."""

    def __init__(self, folder: str) -> None:
        rule = (
            f'[[rule]]\nname = "here-rule"\ndecision = "ask"\nreason = {quoted(short("reason", 400))}\n'
            f'suggestion = {quoted(short("suggestion", 400))}\nmethods = ["workspace.shell"]\ncommands = ["touch **"]\n'
        )
        super().__init__(
            folder,
            policy=ASKING + rule,
            calls_per_second=0,
            desktop_root=folder,
            constants={},
            **NO_WAIT,
        )

    def fill(self) -> "HostileHouse":
        self.people()
        self._talk()
        self._report()
        self._work()
        self._play()
        self._leave_evidence()
        self._ask()
        Path(self.grove.config, "policy.toml").write_text(
            f"{self._policy}\n# {short('policy', 400)}\n", encoding="utf-8"
        )
        return self

    def _talk(self) -> None:
        self.writer = self.local().register(
            "Writer",
            type=short("type"),
            metadata={"note": long("metadata"), short("key"): 1},
            heartbeatIntervalMs=3_600_000,
        )
        self.ticket = self.writer.send(
            "Jerry",
            {short("payload-key"): long("payload")},
            conversationId="talk",
            metadata={short("about"): short("b")},
        )
        done(self.jerry.get("/agents/Jerry/inbox?waitMs=0"))
        done(self.jerry.post("/replies", {"ticketId": self.ticket, "payload": {"words": long("reply")}}))
        self.cancelled = self.writer.send("Jerry", "never mind")
        done(self.writer.post(f"/tickets/{self.cancelled}/cancel", {"reason": short("cancel", 500)}))

    def _report(self) -> None:
        """A client's session whose every word is somebody's."""
        event = {
            "hook_event_name": short("event-name", 200),
            "session_id": short("session", 200),
            "cwd": f"/{short('where', 200)}",
        }
        about = {"client": "claude", "pane": short("pane")}
        done(self.writer.post("/v1/sessions/note", {**about, "event": event}))
        event |= {"hook_event_name": "ConfigChange", "switched_off": short("notice", 200)}
        done(self.writer.post("/v1/sessions/note", {**about, "event": event}))

    def _work(self) -> None:
        folder = Path(self.project())
        (folder / "notes.txt").write_text("one\n")
        self.space = done(
            self.writer.post("/v1/spaces", {"path": str(folder), "name": re.sub(r"[^ -~]", "", short("space"))})
        )["spaceId"]
        name = short("path", 120).replace("/", "\u2215")
        operations = [
            {"type": "message", "content": long("message")},
            {"type": "createFile", "path": f"sub/{name}", "content": long("content")},
            {"type": "editFile", "path": "notes.txt", "edits": [{"oldContent": "one\n", "newContent": long("edit")}]},
            {
                "type": "shell",
                "command": f"cat notes.txt; echo {json.dumps(short('stderr'))} >&2; : {json.dumps(short('command'))}",
            },
            {"type": "readFile", "path": f"sub/{name}"},
            {"type": "readFile", "path": short("absent", 120).replace("/", "\u2215")},
        ]
        self.run = self._runs(operations)
        done(self.writer.get(f"/v1/runs/{self.run}/wait?waitMs=25000"))
        done(
            self.writer.post(
                f"/v1/spaces/{self.space}/processes",
                {"command": f"cat notes.txt; sleep 600; : {json.dumps(short('process'))}"},
            )
        )

    def _runs(self, operations: list[dict[str, Any]]) -> str:
        body = {"protocolVersion": "1.0", "operations": operations}
        run: str = done(self.writer.post(f"/v1/spaces/{self.space}/runs", body))["runId"]
        return run

    def _play(self) -> None:
        program = Path(self.grove.folder, "game.py")
        channel = "here-channel/<svg onload=hit()>"
        written = {
            **{
                field: short(field, 300)
                for field in ("result", "state", "attention", "sample", "event", "output", "version")
            },
            # What a name may not have: letters that show nothing.
            "tool": "".join(each for each in f"hostile/{short('tool', 90)}" if each.isprintable()),
            "description": long("description"),
            "channel": channel,
        }
        program.write_text(GAME.format(**written), encoding="utf-8")
        Path(self.grove.config, "games.toml").write_text(
            f"[games.hostile]\nname = {quoted(short('game'))}\ndescription = {quoted(short('game-about', 300))}\n"
            f'command = {quoted(sys.executable)}\nargs = ["game.py"]\ncwd = {quoted(str(program.parent))}\n',
            encoding="utf-8",
        )
        done(self.writer.post("/v1/games/hostile/start", {}))
        done(self.writer.get("/v1/games/hostile/events"))
        for tool in ("hostile/say", written["tool"]):
            self.writer.post("/v1/games/hostile/call", {"tool": tool, "arguments": {}})
        # The question about the tool that cannot be undone is one more that the person sees.

    def _leave_evidence(self) -> None:
        """As agents can: the folders lie in workspaces where they write, too."""
        node = {
            "depth": 0,
            "role": short("role"),
            "nativeRole": short("native-role"),
            "title": long("title"),
            "value": short("value"),
            "states": [short("state")],
            "frame": {each: short("frame") for each in ("x", "y", "width", "height")},
            "visible": {"x": 0, "y": 0, "width": 5, "height": 5},
        }
        trace = [
            {"ms": 0, "step": "route", "bundleId": short("app")},
            {"ms": short("ms"), "step": short("step"), "what": short("what"), short("trace-key"): long("trace")},
            {"ms": 1, "step": "picture", "x": 0, "y": 0, "width": short("w"), "height": 1},
        ]
        result = {
            "ok": False,
            "method": short("method"),
            "client": short("client"),
            "ms": short("took"),
            "result": {"effect": short("effect")},
            "error": {"code": short("code"), "message": long("error")},
        }
        tree = {"window": short("window"), "partial": [short("partial")], "nodes": [node, {**node, "depth": 1}]}
        # A second one, whose parts are not what they should be at all.
        wrong = {"window": 5, "partial": short("partial-text"), "nodes": [None, 5, short("node"), {}, {"depth": {}}]}
        self.execution = write_evidence(self.grove.state, result, trace, tree)
        self.wrong = write_evidence(self.grove.state, {"result": 5, "error": short("e")}, [5, {"step": {}}], wrong)

    def _ask(self) -> None:
        self.question = self.writer.send(
            "person",
            {"question": long("question"), "choices": [short("choice"), short("other")]},
            timeoutMs=3_600_000,
        )
        self.asked = self.asks(long("tree"), self.writer)
        self._runs([{"type": "shell", "command": f"touch x; : {json.dumps(short('asked-command', 300))}"}])
        self._runs(
            [{"type": "createFile", "path": "keys/here-asked-path<svg onload=hit()>", "content": long("asked-content")}]
        )


def write_evidence(state: str, result: Any, trace: list[Any], tree: Any) -> str:
    """An execution in the daemon's own folder; its id."""
    execution = str(uuid.uuid4())
    folder = Path(state, "desktop", "artifacts", "desktop", "2026-01-01", execution)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "trace.jsonl").write_text("".join(json.dumps(each) + "\n" for each in trace))
    (folder / "ax.json").write_text(json.dumps(tree))
    return execution


@contextlib.contextmanager
def a_hostile_house() -> Iterator[HostileHouse]:
    with short_dir() as folder:
        os.makedirs(f"{folder}/project")
        house = HostileHouse(folder)
        with house.daemon:
            yield house.fill()
