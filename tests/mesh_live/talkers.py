"""Agents of a fleet that ask each other and answer, over HTTP as agents do, through deaths of their daemons; each notes
what it really got and was told."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from fleet import FleetNode
from history import Ask, faults_of
from living import eventually
from wires import Answer, Caller, Wire

from patience import PATIENCE

# An answer that a frozen daemon does not give: agents try again.
_CALL_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
# Of the questions so many wait for their reply, for so long: what they are shown must be what stays.
_WAIT_SHARE = 0.3
_WAIT_MS = 500


class Talk:
    """All agents of the fleet; `stop_asking` ends the questions, `await_rest` the answers."""

    def __init__(self, nodes: list[FleetNode], seed: int, pause: float = 0.02, cancels: float = 0.05) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.asks: dict[str, Ask] = {}
        self._seed = seed
        self._pause = pause
        self._cancels = cancels
        self._asking = True
        self._running = True
        self._errors: list[str] = []
        self._askers = [threading.Thread(target=self._guarded(self._ask), args=(node,)) for node in nodes]
        self._answerers = [threading.Thread(target=self._guarded(self._answer), args=(node,)) for node in nodes]
        for thread in (*self._askers, *self._answerers):
            thread.start()

    def _guarded(self, work: Callable[[FleetNode], None]) -> Callable[[FleetNode], None]:
        def run(node: FleetNode) -> None:
            try:
                work(node)
            except Exception as error:  # noqa: BLE001 - it is shown by whoever waits for the end
                self._errors.append(f"{node.name}: {type(error).__name__}: {error}")

        return run

    # -- calls that may fail while something dies --

    def _try(self, node: FleetNode, verb: str, path: str, body: Any = None) -> Answer | None:
        with contextlib.suppress(OSError, AssertionError, ValueError, IndexError):
            headers = [*Caller(node.daemon, node.agent_token).headers, ("Content-Type", "application/json")]
            with Wire(node.daemon.tcp, _CALL_SECONDS) as wire:
                return wire.ask(verb, path, headers, None if body is None else json.dumps(body).encode())
        return None

    def _insist(self, node: FleetNode, verb: str, path: str, body: Any = None) -> Answer | None:
        """Until there is an answer; None when the asking is over before: whether it was taken is seen at rest."""
        while self._asking:
            answer = self._try(node, verb, path, body)
            if answer is not None and answer.status not in (429, 500, 503):
                return answer
            time.sleep(_PAUSE_SECONDS)
        return None

    # -- who asks --

    def _ask(self, node: FleetNode) -> None:
        chances = random.Random(f"{self._seed} {node.name}")
        others = [each for each in self.nodes.values() if each is not node]
        number = 0
        open_: list[Ask] = []
        while self._asking:
            number += 1
            there = chances.choice(others)
            ask = Ask(f"{node.name}-{self._seed}-{number}", node.name, there.name)
            self.asks[ask.key] = ask
            body: dict[str, Any] = {"payload": {"key": ask.key}, "ticketId": ask.key, "timeoutMs": 3_600_000}
            if chances.random() < _WAIT_SHARE:
                body["waitMs"] = _WAIT_MS
            sent = self._insist(node, "POST", f"/agents/{there.handle}@{there.name}/send", body)
            if sent is None:
                return
            if sent.status != 200:
                raise AssertionError(f"{ask.key} was not taken: {sent}")
            ask.accepted = True
            if "reply" in sent.json:
                ask.shown.append(sent.json["reply"]["payload"])
            open_.append(ask)
            if chances.random() < self._cancels:
                cancelled = self._insist(node, "POST", f"/tickets/{chances.choice(open_).key}/cancel", {})
                assert cancelled is None or cancelled.status in (200, 409), cancelled
            seen = chances.choice(open_)
            shown = self._try(node, "GET", f"/tickets/{seen.key}")
            if shown is not None and shown.status == 200:
                seen.home_saw.append(shown.json["status"])
            open_ = open_[-20:]
            time.sleep(chances.random() * 2 * self._pause)

    # -- who answers --

    def _answer(self, node: FleetNode) -> None:
        while self._running:
            taken = self._try(node, "GET", f"/agents/{node.handle}/inbox?waitMs=200&max=16")
            if taken is None or taken.status != 200:
                if taken is None:
                    time.sleep(_PAUSE_SECONDS)
                continue
            for message in taken.json["messages"]:
                self._answer_one(node, message)

    def _answer_one(self, node: FleetNode, message: dict[str, Any]) -> None:
        ask, id_ = self.asks[message["payload"]["key"]], message["ticketId"]
        ask.got[id_] += 1
        if ask.taken:
            ask.got_after_reply += 1
        reply = f"{ask.key}/{len(ask.tried) + 1}"
        ask.tried.append(reply)
        # Once: whether an answer that did not come was taken is not known, as with any effect. It comes again if not.
        answer = self._try(node, "POST", "/replies", {"ticketId": id_, "payload": reply})
        if answer is not None and answer.status == 204:
            ask.taken.append(reply)
        shown = self._try(node, "GET", f"/tickets/{id_}")
        if shown is not None and shown.status == 200:
            ask.copy_saw.append(shown.json["status"])

    # -- the end --

    def await_asked(self, count: int) -> None:
        eventually(lambda: len(self.asks) > count or self._errors, f"{count} questions are asked")

    def stop_asking(self) -> None:
        self._asking = False
        for thread in self._askers:
            thread.join(2 * PATIENCE)

    def await_rest(self, seconds: float = 1.5 * PATIENCE) -> None:
        """Until every question is answered or cancelled at home, or for so long."""
        deadline = time.monotonic() + seconds
        left = list(self.asks.values())
        while left and time.monotonic() < deadline and not self._errors:
            left = [ask for ask in left if not self._is_over(ask)]
            time.sleep(_PAUSE_SECONDS)
        for ask in left:
            self._is_over(ask)

    def _is_over(self, ask: Ask) -> bool:
        shown = self._try(self.nodes[ask.home], "GET", f"/tickets/{ask.key}")
        if shown is None:
            return False
        if shown.status == 404:
            return not ask.accepted
        # Its sender may have got no answer, and it is there all the same.
        ask.accepted = True
        ask.end = shown.json["status"]
        ask.replies = [each["payload"] for each in shown.json.get("replies", [])]
        for id_ in ask.got:
            shown = self._try(self.nodes[ask.there], "GET", f"/tickets/{id_}")
            ask.copy_end = shown.json["status"] if shown is not None and shown.status == 200 else ""
        if ask.got and ask.copy_end != ask.end:
            return False
        return ask.end == "cancelled" or (ask.end == "responded" and set(ask.taken) <= set(ask.replies))

    def close(self) -> None:
        self._asking = self._running = False
        for thread in (*self._askers, *self._answerers):
            thread.join(PATIENCE)

    def faults(self) -> list[str]:
        out = list(self._errors)
        for ask in self.asks.values():
            out += [f"{ask.key} to {ask.there}: {fault}" for fault in faults_of(ask)]
        return out

    def counts(self) -> dict[str, int]:
        asks = self.asks.values()
        return {
            "asked": sum(ask.accepted for ask in asks),
            "got": sum(bool(ask.got) for ask in asks),
            "answered": sum(ask.end == "responded" for ask in asks),
            "shown at once": sum(bool(ask.shown) for ask in asks),
            "cancelled": sum(ask.end == "cancelled" for ask in asks),
            "handed over again": sum(sum(ask.got.values()) - 1 for ask in asks if ask.got),
        }
