"""Days of a client's session as scripts: what its hooks send, and what is true after each step.

What the client does not say (a person's No, Esc, a kill) is a step without an event: then the last word stands, and a
session may be called anything but certainly idle while it works.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

WORKS, IDLE, WAITS, ASKS, FAILED, ENDED, DEAD = (
    "works", "idle", "waits_for_permission", "asks", "failed", "ended", "dead"
)  # fmt: skip
_METHODS = {
    "PreToolUse": "native.before",
    "BeforeTool": "native.before",
    "PostToolUse": "native.after",
    "PostToolUseFailure": "native.after",
    "AfterTool": "native.after",
}
_ids = count(1)


@dataclass(frozen=True)
class Step:
    truth: str
    # What the client's hook is given; None when it says nothing.
    event: dict | None = None
    # What passes before.
    seconds: float = 0.0
    # Whether the truth can be known from what was sent until now.
    known: bool = True
    # The client's process is killed.
    kills: bool = False

    @property
    def method(self):
        return _METHODS.get(self.event["hook_event_name"], "sessions.note")


@dataclass
class Count:
    transitions: int = 0
    probably: int = 0
    shown: Counter = field(default_factory=Counter)
    # Shown as idle, without a "probably", while it was not.
    false_idle: list = field(default_factory=list)
    # Shown as anything else than what the client had said.
    wrong: list = field(default_factory=list)

    def compare(self, client, step, shown):
        self.transitions += 1
        state, probably = shown["state"], bool(shown.get("probably"))
        self.probably += probably
        self.shown[state] += 1
        what = f"{client} after {step.event or 'nothing'}: {state} by {shown['evidence']!r}, and it {step.truth}"
        assert shown["evidence"], what
        assert shown["ageMs"] >= 0, what
        if state == IDLE and not probably and step.truth != IDLE:
            self.false_idle.append(what)
        elif step.known and not probably and state != step.truth:
            self.wrong.append(what)


def event(name, **more):
    return {"hook_event_name": name, **more}


class _Day:
    def __init__(self, client, chance, *, live):
        self.client = client
        self.chance = chance
        # Of a daemon with a clock of its own no minutes are asked; a process can be killed.
        self.silences = not live
        self.kills = live and client == "claude"
        gemini = client == "gemini"
        self.before = "BeforeTool" if gemini else "PreToolUse"
        self.after = "AfterTool" if gemini else "PostToolUse"
        self.prompt = "BeforeAgent" if gemini else "UserPromptSubmit"
        self.stop = "AfterAgent" if gemini else "Stop"

    def often(self, share):
        return self.chance.random() < share

    def pause(self, most):
        return self.chance.uniform(0, most) if self.silences else 0.0

    def steps(self):
        turns = self.chance.randrange(1, 4)
        late_start = self.client == "claude" and self.often(0.3)
        if not late_start:
            yield Step(IDLE, event("SessionStart", source="startup"))
        for number in range(turns):
            yield from self.turn(late_start=late_start and number == 0)
        # Killed clients say nothing; their process is looked for, where a test has one.
        yield Step(DEAD, kills=True) if self.kills and self.often(0.3) else Step(ENDED, event("SessionEnd"))

    def turn(self, *, late_start):
        yield Step(WORKS, event(self.prompt, prompt="p"), self.pause(300))
        if late_start:
            # Begun with a prompt, as `claude "fix it"`: the program of the start is slower than the first prompt.
            yield Step(WORKS, event("SessionStart", source="startup"))
        if self.client == "claude" and self.often(0.3):
            # It was on its way when the person typed.
            yield Step(WORKS, event("Notification", notification_type="idle_prompt"), self.pause(3))
        for _ in range(self.chance.randrange(4)):
            yield from self.call()
            if self.client == "claude" and self.often(0.15):
                yield Step(WORKS, event("SessionStart", source="compact"))
            if self.silences and self.often(0.1):
                # A model that thinks for long.
                yield Step(WORKS, None, 700.0, known=False)
        yield from self.ending()

    def call(self):
        given = {"tool_name": "run_shell_command" if self.client == "gemini" else "Bash"}
        given |= {"tool_input": {"command": "true"}, "tool_use_id": f"t{next(_ids)}"}
        if self.client != "gemini" and self.often(0.2):
            given["agent_id"] = "sub"
        if self.client == "claude" and self.often(0.15):
            asked = given | {"tool_name": "AskUserQuestion"}
            yield Step(ASKS, event("PermissionRequest", **asked))
        yield Step(WORKS, event(self.before, **given), self.pause(30))
        if self.often(0.3):
            if self.client == "gemini":
                yield Step(WAITS, event("Notification", notification_type="ToolPermission"))
            else:
                yield Step(WAITS, event("PermissionRequest", **given))
                if self.often(0.5) and self.client == "claude":
                    yield Step(WAITS, event("Notification", notification_type="permission_prompt"), self.pause(6))
            # The person says yes, and nothing says so until the call is over.
            yield Step(WORKS, None, self.pause(30), known=False)
        if self.silences and self.often(0.1):
            yield Step(WORKS, None, 900.0, known=False)
        failed = self.client == "claude" and self.often(0.2)
        yield Step(WORKS, event("PostToolUseFailure" if failed else self.after, **given), self.pause(60))
        if given.get("agent_id"):
            # The end of a subagent is not that of its session.
            yield Step(WORKS, event("SubagentStop", agent_id="sub"))
            yield Step(WORKS, event(self.stop, agent_id="sub"))

    def ending(self):
        kind = self.chance.random()
        if kind < 0.15 and self.client == "claude":
            yield Step(FAILED, event("StopFailure"))
            if self.silences:
                yield Step(FAILED, event("Notification", notification_type="idle_prompt"), 60.0)
        elif kind < 0.3 and self.client != "gemini":
            yield from self.escape()
        elif kind < 0.5 and self.client != "gemini":
            yield from self.woken()
            yield Step(IDLE, event(self.stop), self.pause(60))
        else:
            yield Step(IDLE, event(self.stop), self.pause(60))
            if self.often(0.3) and self.client == "claude":
                # Of a dialog that was answered long ago.
                yield Step(IDLE, event("Notification", notification_type="permission_prompt"), self.pause(3))

    def escape(self):
        """Claude Code says nothing, until it says that it is idle; Codex says it at once."""
        if self.client == "codex":
            yield Step(IDLE, event("Interrupt"))
            return
        yield Step(IDLE, None, known=False)
        if self.silences:
            yield Step(IDLE, event("Notification", notification_type="idle_prompt"), 60.0)

    def woken(self):
        """A message came when the turn ended: the bell answers the same Stop, and either of the two is first."""
        if self.often(0.5):
            yield Step(IDLE, event(self.stop), self.pause(60))
            yield Step(WORKS, event("Woken"))
        else:
            yield Step(WORKS, event("Woken"), self.pause(60))
            yield Step(WORKS, event(self.stop))


def day(client, seed, *, live=False):
    """One session from its start to its end."""
    return _Day(client, random.Random(seed), live=live).steps()
