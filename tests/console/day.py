"""A scripted day at the console: agents that talk, work, ask, play and use a desktop, all before a real daemon.

Shared by the screenshots in docs/console.md, by the tests that walk every page, and by the bench.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from desktop_rig import Desktop, until
from living import short_dir
from scenes import Scene
from wires import Answer, Caller

from inside import SESSION_VARIABLES

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POLICY = """version = 1
extends = "standard"

[[rule]]
name = "migrations-ask"
decision = "ask"
reason = "A migration changes data that cannot be made again"
methods = ["workspace.*"]
paths = ["migrations/**", "fixtures/**"]
"""
# What waits to be accepted on the page about the policy.
CHANGED = (
    POLICY
    + """
[[rule]]
name = "no-tests-alone"
decision = "ask"
reason = "The tests talk to a till that others use, too"
methods = ["workspace.shell"]
commands = ["python3 -m unittest **"]
"""
)
PLACES = """
import os
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
# Games are started by a short name.
os.environ["PATH"] = {programs!r} + os.pathsep + os.environ["PATH"]
for name in {unset!r}:
    os.environ.pop(name, None)
"""
# Nobody of this day falls asleep while pictures are taken.
AWAKE_MS = 3_600_000
CALCULATOR = {"window": {"titlePattern": "Calculator"}}

PRICES = '''"""What a basket costs."""


def with_tax(net, rate=0.19):
    return net + net * rate


def total(basket):
    return sum(with_tax(price) for price in basket)
'''
ROUNDED = '''def with_tax(net: Decimal, rate: Decimal = TAX) -> Decimal:
    """The price that is asked for at the till: whole cents, half a cent goes up."""
    return (net * (1 + rate)).quantize(CENT, ROUND_HALF_UP)'''
TESTS = """import unittest
from decimal import Decimal

from prices import total, with_tax


class Prices(unittest.TestCase):
    def test_half_a_cent_goes_up(self):
        self.assertEqual(with_tax(Decimal("0.05")), Decimal("0.06"))

    def test_a_basket_is_the_sum_of_its_prices(self):
        self.assertEqual(total([Decimal("1.00"), Decimal("2.00")]), Decimal("3.57"))


if __name__ == "__main__":
    unittest.main()
"""
HEAD = '''"""What a basket costs, in whole cents."""

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
TAX = Decimal("0.19")
'''
REVIEW = "I am changing with_tax() to whole cents. Half a cent goes up, as the law wants it. Do you see a problem?"
# Longer than a screen: it is read to its end before it can be approved.
MIGRATION = (
    "-- Prices become whole cents.\nBEGIN;\n"
    + "".join(
        f"UPDATE article SET cents = ROUND(price * 100) WHERE id BETWEEN {at} AND {at + 499};\n"
        for at in range(1, 60_000, 500)
    )
    + "ALTER TABLE article DROP COLUMN price;\nCOMMIT;\n"
)
AGENTS = (("Ada", "claude"), ("Mira", "claude"), ("Tom", "gemini"))


class Day(Scene):
    """Ada and Jerry look after a shop, Mira uses the desktop, Tom plays."""

    def __init__(self, folder: str, desktop: Desktop) -> None:
        self.desktop = desktop
        places = PLACES.format(programs=os.path.dirname(sys.executable), unset=tuple(SESSION_VARIABLES))
        super().__init__(folder, policy=POLICY, bug=places, calls_per_second=0, desktop_root=folder, approval_hold_ms=1)

    def pass_by(self) -> "Day":
        """All of it. What is still to be answered comes last."""
        self.people()
        self.ada, self.mira, self.tom = (self._agent(name, kind) for name, kind in AGENTS)
        self._shop()
        self._report()
        self._talk()
        self._work()
        self._play()
        self._use_the_desktop()
        self._ask()
        Path(self.grove.config, "policy.toml").write_text(CHANGED, "utf-8")
        return self

    def _agent(self, name: str, kind: str) -> Caller:
        return Caller(self.daemon).register(name, type=kind, heartbeatIntervalMs=AWAKE_MS)

    def _report(self) -> None:
        """What the agents' own clients say of their sessions: one works, one waits, one is done."""
        shop = str(Path(self.grove.folder, "shop"))
        for client, session, pane, *names in (
            ("claude", "5e0c61d2-works", "%3", "SessionStart", "UserPromptSubmit"),
            ("codex", "019a2b7c-waits", "%4", "SessionStart", "UserPromptSubmit", "PermissionRequest"),
            ("gemini", "77ab01fe-idle", None, "SessionStart"),
        ):
            for name in names:
                event = {"hook_event_name": name, "session_id": session, "cwd": shop}
                body = {"client": client, "event": event, **({"pane": pane} if pane else {})}
                done(self.ada.post("/v1/sessions/note", body))

    # -- what is there before anybody comes --

    def _shop(self) -> None:
        shop = Path(self.grove.folder, "shop")
        (shop / "build").mkdir(parents=True)
        (shop / "build" / "shop.tar").write_bytes(b"0" * 4_096)
        (shop / "prices.py").write_text(PRICES)
        (shop / "README.md").write_text("# Shop\n\nA till for a small shop.\n")
        opened = done(self.ada.post("/v1/spaces", {"path": str(shop), "name": "shop"}))
        self.space: str = opened["spaceId"]

    # -- words --

    def _talk(self) -> None:
        self.review = self.answered(
            self.ada, "Jerry", REVIEW, self.jerry, "Looks right. 0.05 net is 0.0595: please test that one, too."
        )
        self.answered(
            self.jerry, "Ada", "Do you need `build/` for anything?", self.ada, "No. It is made anew each time."
        )
        self.answered(
            self.mira, "Ada", {"order": 4711, "items": ["tea", "cups"], "net": "41.20"}, self.ada, {"total": "49.03"}
        )
        self.tom.send("Ada", "Is anybody in the cave with me?")
        taken = done(self.ada.get("/agents/Ada/inbox?waitMs=0"))
        assert taken
        cancelled = self.jerry.send("Mira", "Never mind, found it.")
        done(self.jerry.post(f"/tickets/{cancelled}/cancel"))
        done(
            self.jerry.post("/broadcast", {"agentIds": ["Ada", "Mira", "Tom"], "payload": "The till is closed at six."})
        )

    def answered(self, asker: Caller, target: str, payload: Any, answerer: Caller, reply: Any) -> str:
        ticket = asker.send(target, payload, conversationId=f"{target.lower()}-today")
        done(answerer.get(f"/agents/{target}/inbox?waitMs=0"))
        done(answerer.post("/replies", {"ticketId": ticket, "payload": reply}))
        return ticket

    # -- work --

    def run(self, agent: Caller, *operations: dict[str, Any]) -> str:
        started: str = done(
            agent.post(f"/v1/spaces/{self.space}/runs", {"protocolVersion": "1.0", "operations": list(operations)})
        )["runId"]
        return started

    def ended(self, agent: Caller, *operations: dict[str, Any]) -> str:
        run = self.run(agent, *operations)
        shown = done(agent.get(f"/v1/runs/{run}/wait?waitMs=25000"))
        assert shown["status"] != "running", shown
        return run

    def _work(self) -> None:
        edits = [
            {"oldContent": '"""What a basket costs."""\n', "newContent": HEAD},
            {"oldContent": "def with_tax(net, rate=0.19):\n    return net + net * rate", "newContent": ROUNDED},
        ]
        self.main_run = self.ended(
            self.ada,
            {"type": "message", "content": "Prices in whole cents, and tests for half a cent."},
            {"type": "editFile", "path": "prices.py", "edits": edits},
            {"type": "createFile", "path": "test_prices.py", "content": TESTS},
            {"type": "shell", "command": "python3 -B -m unittest -v"},
        )
        self.ended(self.jerry, {"type": "shell", "command": "python3 -B -m unittest test_stock"})
        self.ended(self.jerry, {"type": "readFile", "path": "README.md"}, {"type": "shell", "command": "wc -l *.py"})
        self.decided(self.jerry, "rm -rf dist", "approved")
        self.decided(self.jerry, "rm -rf ~/.cache", "denied", reason="that is not the shop's")
        counting = "for n in $(seq 1 900); do echo checked $n of 900; sleep 1; done"
        done(self.jerry.post(f"/v1/spaces/{self.space}/processes", {"command": counting}))

    def decided(self, agent: Caller, command: str, decision: str, **more: Any) -> None:
        """A run that asks, and how the person answered."""
        run = self.run(agent, {"type": "shell", "command": command})
        with self.person() as link:
            (asked,) = until(lambda: link.call("approvals.list"), f"the question about {command}")
            link.call("approvals.decide", {"approvalId": asked["approvalId"], "decision": decision, **more})
        done(agent.get(f"/v1/runs/{run}/wait?waitMs=25000"))

    # -- a game --

    def _play(self) -> None:
        text = (EXAMPLES / "games.toml").read_text().replace("PYTHON", "python3")
        Path(self.grove.config, "games.toml").write_text(text.replace("EXAMPLES", str(EXAMPLES)), "utf-8")
        done(self.tom.post("/v1/games/burrow/start", {}))
        seen = done(self.plays("look", {}))["result"]
        # What is in the way differs from cave to cave: a step that fails is part of the game.
        for direction in ("right", "down"):
            self.plays("move", {"direction": direction})
        x, y = seen["gems"][0]
        self.plays("walk_to", {"x": x, "y": y})

    def plays(self, tool: str, arguments: dict[str, Any]) -> Answer:
        return self.tom.post("/v1/games/burrow/call", {"tool": f"burrow/{tool}", "arguments": arguments})

    # -- a desktop --

    def _use_the_desktop(self) -> None:
        session = {
            name: self.desktop.environment[name] for name in SESSION_VARIABLES if name in self.desktop.environment
        }
        self.desktop.spawn("gnome-calculator", "--mode=basic")
        with self.person() as link:
            link.call("desktop.enable", {"environment": session})
            until(lambda: b"alculator" in self.mira.get("/v1/desktop/windows").body, "the calculator is there")
            seen = self.allow(link, self.on_desktop("observe", route=CALCULATOR))
            assert seen.status == 200, seen
            ready = {"selectorExists": {"byRole": "AXButton", "titleContains": "7"}}
            self.allow(link, self.on_desktop("waitUntil", route=CALCULATOR, condition=ready, timeoutMs=25_000))
            for title in ("7", "\u00d7", "6", "="):
                target = {"selector": {"byRole": "AXButton", "titleContains": title}}
                self.allow(link, self.on_desktop("click", route=CALCULATOR, target=target))

    def on_desktop(self, method: str, /, **params: Any) -> tuple[str, dict[str, Any], Answer]:
        return method, params, self.mira.post(f"/v1/desktop/{method}", params)

    def allow(self, link: Any, asked: tuple[str, dict[str, Any], Answer]) -> Answer:
        """For ten minutes where that is offered, else once."""
        method, params, answer = asked
        if answer.status != 202:
            return answer
        approval = answer.error["details"]["approvalId"]
        offers = link.call("approvals.show", {"approvalId": approval}).get("offers") or []
        more = {"scope": "rule", "offer": offers[0]["number"], "minutes": 45} if offers else {}
        link.call("approvals.decide", {"approvalId": approval, "decision": "approved", **more})
        return self.on_desktop(method, **params)[2]

    # -- what waits for the person --

    def _ask(self) -> None:
        self.question = self.jerry.send(
            "person",
            {
                "question": "The shop sells nothing on Sundays. May the till be closed then?",
                "choices": ["yes", "no", "only in winter"],
            },
            timeoutMs=AWAKE_MS,
        )
        self.run(self.jerry, {"type": "shell", "command": "rm -rf build && tar -cf build.tar prices.py"})
        self.run(self.ada, {"type": "createFile", "path": "migrations/0007_cents.sql", "content": MIGRATION})
        for name in ("tea", "cups", "sugar", "spoons"):
            row = f'{{"name": "{name}", "net": "2.50"}}\n'
            self.run(self.ada, {"type": "createFile", "path": f"fixtures/{name}.json", "content": row})
        self.plays("restart", {})
        key, shown = (
            {"selector": each} for each in ({"byRole": "AXButton", "titleContains": "="}, {"byRole": "AXTextArea"})
        )
        for method, more in (("click", {"target": key}), ("typeText", {"target": shown, "text": "41.20 * 1.19\n"})):
            asked = self.ada.post(f"/v1/desktop/{method}", {"route": CALCULATOR, **more})
            assert asked.status == 202, asked
        self.mira.send("person", "Ms Okafor asks when her order comes. What may I promise her?", timeoutMs=AWAKE_MS)

    # -- where things are --

    def place(self, words: str) -> str:
        """The id of what pages are about; of a question by words of its summary."""
        if words == "execution":
            return str(done(self.local().get("/v1/desktop/evidence"))[0]["executionId"])
        if words == "record":
            return str(done(self.local().get("/v1/ledger/about/approvals.decide"))[0]["seq"])
        known = {"question": self.question, "review": self.review, "main run": self.main_run}
        asked = {each["summary"]: each["approvalId"] for each in done(self.local().get("/v1/approvals"))}
        found: str = known.get(words) or next(approval for summary, approval in asked.items() if words in summary)
        return found


def done(answer: Answer) -> Any:
    assert answer.status in (200, 204), answer
    return answer.json if answer.body else None


@contextlib.contextmanager
def a_day() -> Iterator[Day]:
    """A daemon and a desktop of its own, filled."""
    desktop = Desktop("1024x720x24")
    try:
        with short_dir() as folder:
            day = Day(folder, desktop)
            with day.daemon:
                yield day.pass_by()
    finally:
        desktop.close()
