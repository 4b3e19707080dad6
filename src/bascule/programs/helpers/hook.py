"""bridge-wait as a hook of a client: the client's JSON in, its answer out, and never in the way.

Whatever goes wrong, the hook says nothing and exits 0: a client must not stumble over a daemon that is not there.
`--explain` tells on stderr what was found. What each client documents is quoted where it is used:

    Claude Code  https://code.claude.com/docs/en/hooks
    Codex        https://developers.openai.com/codex/hooks
"""

from __future__ import annotations

import os
import select
import time

from bascule.foundation.backoff import Backoff
from bascule.local_client import choice, exits
from bascule.local_client.bell import line
from bascule.local_client.exits import DoorError, NoIdentity
from bascule.local_client.http import Door, call
from bascule.local_client.turns import note_turn
from bascule.local_client.values import decode, encode
from bascule.programs.helpers import bell, process_tree, terminal
from bascule.programs.helpers.wait import EVENTS

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Claude Code: "Exit 2 means a blocking error"; of an asyncRewake hook it "wakes Claude", stderr being the reason.
WAKE = 2
# A tool's whole output comes with PostToolUse; more than this is read from the pipe and dropped.
MAX_INPUT_BYTES = 16 * 1024 * 1024
# Between two pieces of what a client writes; what looks whole after this is.
QUIET_SECONDS = 0.05
# Both clients write their JSON at once and close.
INPUT_SECONDS = 5.0
# A day of idling, a little less than the hook's own `timeout`, so that the client never has to kill it.
BELL_TIMEOUT_SECONDS = 24 * 3600
BELL_WAIT_MS = BELL_TIMEOUT_SECONDS * 1000 - 60_000
# When a session starts its stdio program is still on the way, and may have to start the daemon first. At the end of a
# turn it is there or it is not.
STDIO_SECONDS = {"SessionStart": 30.0, "Stop": 2.0}
# The synchronous hooks of the same moment ring first.
QUEUE_HEAD_START_SECONDS = 1.0
QUEUE_SECONDS = 20
MAX_THREAD_CHARS = 128


class Hook:
    """One call by a client."""

    def __init__(self, client: str, event: str, payload: dict[str, Any], *, explain: bool = False) -> None:
        self.client = client
        self.event = event
        self.payload = payload
        self.cwd = payload.get("cwd") if isinstance(payload.get("cwd"), str) else None
        self.processes = process_tree.Processes()
        self.client_pid = process_tree.client_of(os.getpid(), self.processes)
        self._parent = os.getppid()
        self._explain = explain

    def explain(self, text: str) -> None:
        if self._explain:
            terminal.say(f"bridge-wait: {text}")

    def is_over(self) -> bool:
        """The client is gone; its shell may still be our parent."""
        return os.getppid() != self._parent or (
            self.client_pid is not None and not self.processes.alive(self.client_pid)
        )

    def is_one_shot(self) -> bool:
        return self.client_pid is not None and process_tree.is_one_shot(self.client, self.client_pid, self.processes)

    def agent(self, named: str | None, door: Door) -> tuple[str, str] | None:
        """Handle and token: `--agent`, this session's stdio program, `BRIDGE_AGENT_ID`, the one agent of this place."""
        if named:
            return named, choice.token_of(door, named)
        session = self.payload.get("session_id")
        found, agents = process_tree.named_by(
            call(door, "GET", "/agents?status=online"), session if isinstance(session, str) else None
        )
        found = found or process_tree.agent_of_session(agents, self.client_pid, self.cwd, self.processes)
        handle = str(found["agentId"]) if found else choice.environment_handle()
        if handle is None:
            found = process_tree.agent_of_place(agents, self.client, self.cwd or os.getcwd(), self.processes)
            handle = str(found["agentId"]) if found else None
        self.explain(f"{self.client} is process {self.client_pid}; its agent is {handle or 'not known'}")
        return (handle, choice.token_of(door, handle)) if handle else None


def run(client: str, event: str | None, state: str, *, agent: str | None, wait_ms: int | None, options: Any) -> int:
    payload = read_input()
    hook = Hook(client, str(payload.get("hook_event_name") or event or ""), payload, explain=options.explain)
    if hook.event not in EVENTS:
        hook.explain(f"nothing to do at {hook.event or 'an unnamed event'}")
        return exits.OK
    note_turn(state, hook.event)
    # Claude Code, "agent_id": "Present only when the hook fires inside a subagent call".
    if payload.get("agent_id"):
        hook.explain("a subagent has no inbox of its own")
        return exits.OK
    answers: Callable[..., int] = _notice
    if hook.event == "Stop" and client == "codex":
        answers = _queue if options.queue else _block
    elif client == "claude" and hook.event in ("Stop", "SessionStart"):
        answers = _wake
    wait = BELL_WAIT_MS if wait_ms is None else wait_ms
    try:
        return answers(hook, agent, choice.find_door(state), wait)
    except DoorError as fault:
        hook.explain(fault.message)
    except OSError as fault:
        hook.explain(str(fault))
    return _nothing(hook)


def read_input(descriptor: int = 0) -> dict[str, Any]:
    """The client's JSON; {} when it is none."""
    return object_in(read_raw(descriptor))


def read_raw(descriptor: int = 0) -> bytes:
    """The client's bytes, read to their end so that the client never writes into a closed pipe.

    Of more than `MAX_INPUT_BYTES` the beginning, which is one byte too long.
    """
    data = bytearray()
    # How much of it was found not to be whole.
    looked_at = -1
    deadline = time.monotonic() + INPUT_SECONDS
    if os.isatty(descriptor):
        return b""
    while (left := deadline - time.monotonic()) > 0:
        seems_whole = len(data) != looked_at and data.endswith((b"}", b"}\n")) and len(data) <= MAX_INPUT_BYTES
        if not select.select([descriptor], [], [], min(left, QUIET_SECONDS) if seems_whole else left)[0]:
            # A client that leaves the pipe open has still said all it will.
            if seems_whole and _object(data) is not None:
                break
            looked_at = len(data)
            continue
        piece = os.read(descriptor, 1024 * 1024)
        if not piece:
            break
        if len(data) <= MAX_INPUT_BYTES:
            data += piece
    return bytes(data[: MAX_INPUT_BYTES + 1])


def object_in(data: bytes) -> dict[str, Any]:
    return _object(data) or {}


def _object(data: bytes | bytearray) -> dict[str, Any] | None:
    try:
        value = decode(bytes(data))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# -- what is answered --


def _notice(hook: Hook, named: str | None, door: Door, _wait_ms: int) -> int:
    """One line of context, at once. After a tool only for messages that no bell was rung for yet."""
    who = hook.agent(named, door)
    skip = "any" if hook.event == "PostToolUse" else "none"
    seen = bell.watch(door, *who, by=f"{hook.client} {hook.event}", skip=skip) if who else None
    if who is None or seen is None:
        return _nothing(hook)
    # Both clients: `hookSpecificOutput` with the event's name and `additionalContext`.
    answer = {"hookSpecificOutput": {"hookEventName": hook.event, "additionalContext": line(who[0], seen)}}
    terminal.show(encode(answer).decode())
    return exits.OK


def _wake(hook: Hook, named: str | None, door: Door, wait_ms: int) -> int:
    """For `asyncRewake`: wait in the background, wake the agent once for every message.

    `stop_hook_active` says that the agent is at work because of a hook. What was rung for is not rung for again,
    with or without it, so that an agent which leaves a message alone is left alone too.
    """
    if hook.is_one_shot():
        hook.explain("this session answers once and ends: no bell")
        return exits.OK
    who = _patiently(hook, lambda: hook.agent(named, door))
    if who is None:
        return exits.OK
    seen = None
    if hook.event == "SessionStart":
        # A new session remembers no bell of the last one.
        seen = bell.watch(door, *who, by="claude asyncRewake")
    if seen is None:
        seen = bell.wait_as_bell(
            lambda slice_ms: bell.watch(door, *who, wait_ms=slice_ms, by="claude asyncRewake", skip="own"),
            wait_ms,
            hook.is_over,
        )
    if seen is None or seen.get("superseded"):
        hook.explain("a newer bell took over" if seen else "nothing came")
        return exits.OK
    _note_woken(hook, door)
    terminal.say(line(who[0], seen))
    return WAKE


def _note_woken(hook: Hook, door: Door) -> None:
    """The client goes on, and no hook of its own says so: it would be called idle for a whole turn."""
    event = {"hook_event_name": "Woken", "session_id": hook.payload.get("session_id")}
    try:
        call(door, "POST", "/v1/sessions/note", {"client": hook.client, "event": event})
    except (DoorError, OSError) as fault:
        hook.explain(f"the daemon does not know that the session was woken: {fault}")


def _block(hook: Hook, named: str | None, door: Door, _wait_ms: int) -> int:
    """Codex, `Stop`: `decision: "block"` makes Codex go on, with `reason` as its next prompt."""
    # "stop_hook_active": this turn was continued by a hook already.
    who = None if hook.payload.get("stop_hook_active") else hook.agent(named, door)
    seen = bell.watch(door, *who, by="codex Stop", skip="own") if who else None
    if who is None or seen is None:
        return _nothing(hook)
    _note_woken(hook, door)
    terminal.show(encode({"decision": "block", "reason": line(who[0], seen)}).decode())
    return exits.OK


def _queue(hook: Hook, named: str | None, door: Door, wait_ms: int) -> int:
    """For an `async` hook of Codex: wait in the background, then put the bell into the session's own queue.

    Recorded as rung only when `codex queue` took it. Codex shows queued text as the user's, hence the line's last
    sentence; it begins a turn in sessions that are open, and keeps the line for those that are not.
    """
    thread = str(hook.payload.get("session_id") or "")
    if not thread or len(thread) > MAX_THREAD_CHARS or not thread.replace("-", "").isalnum() or thread[0] == "-":
        hook.explain("the hook was given no session_id")
        return exits.OK
    if hook.is_one_shot():
        hook.explain("this session answers once and ends: no bell")
        return exits.OK
    time.sleep(QUEUE_HEAD_START_SECONDS)
    who = _patiently(hook, lambda: hook.agent(named, door))
    if who is None:
        return exits.OK
    seen = bell.wait_as_bell(
        lambda slice_ms: bell.watch(door, *who, wait_ms=slice_ms, by="codex queue", skip="any", record=False),
        wait_ms,
        hook.is_over,
    )
    if seen is None or seen.get("superseded"):
        hook.explain("a newer bell took over" if seen else "nothing came")
    elif _codex_queue(hook, thread, line(who[0], seen)):
        bell.watch(door, *who, by="codex queue")
    return exits.OK


def _codex_queue(hook: Hook, thread: str, text: str) -> bool:
    import subprocess  # noqa: PLC0415 - only when a bell is rung this way

    try:
        done = subprocess.run(  # noqa: S603 - the words are ours, the thread id is letters, digits and dashes
            ["codex", "queue", "--thread", thread, "--message", text],  # noqa: S607 - the user's own, from their PATH
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUEUE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        hook.explain(f"codex queue could not be run: {fault}")
        return False
    hook.explain(f"codex queue exited with {done.returncode}")
    return done.returncode == 0


def _nothing(hook: Hook) -> int:
    # Codex reads the output of Stop as JSON; an empty object says nothing in every version.
    if hook.client == "codex" and hook.event == "Stop":
        terminal.show("{}")
    return exits.OK


def _patiently(hook: Hook, find: Callable[[], tuple[str, str] | None]) -> tuple[str, str] | None:
    """The agent, as soon as its stdio program is there."""
    deadline = time.monotonic() + STDIO_SECONDS[hook.event]
    pauses = Backoff()
    while True:
        try:
            if (who := find()) is not None:
                return who
        except NoIdentity:
            raise
        except DoorError as fault:
            hook.explain(fault.message)
        pause = next(pauses)
        if time.monotonic() + pause > deadline or hook.is_over():
            return None
        time.sleep(pause)
