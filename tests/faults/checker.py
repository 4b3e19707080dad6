"""Holds a daemon that came back to what the clients of the dead one were told.

`check` gives a sentence for each promise that was broken; none is what a test wants to see.
"""

import json
import os
import sqlite3
from collections import Counter
from typing import Any

from voices import Answer, Doors, Http
from workload import RECEIVERS, Act, History

from bascule.foundation import paths

DRAIN = 32


class Checker:
    def __init__(self, state: str, history: History, *, tickets_expire: bool = False) -> None:
        self._state = state
        self._doors = Doors(state)
        self._callers: dict[str, Http] = {}
        self._history = history
        # With a short time to live what is settled may be gone: then its id says "expired".
        self._expire = tickets_expire
        self.broken: list[str] = []
        self._views: dict[str, Any] = {}

    def _complain(self, what: str) -> None:
        self.broken.append(what)

    def _http(self, name: str = "local") -> Http:
        if name not in self._callers:
            self._callers[name] = self._doors.http(self._history.tokens.get(name))
        return self._callers[name]

    # -- while it runs --

    async def check(self) -> list[str]:
        async with self._doors:
            verdict = (await (await self._doors.link()).call("ledger.verify", {})).content
            self.broken += [f"ledger: {fault}" for fault in verdict["faults"]]
            await self._check_tokens()
            for act in self._sends():
                await self._look(act)
            self._check_sends()
            self._check_endings()
            await self._check_inboxes()
            await self._try_again()
        return self.broken

    def _sends(self) -> list[Act]:
        """Every ticket that was asked for, those of broadcasts one by one."""
        sends = self._history.of("send")
        for cast in self._history.of("broadcast"):
            for name in RECEIVERS:
                body = {"payload": cast.content["payload"]}
                sends.append(Act("send", cast.by, f"{cast.about}.{name}", (name, body), cast.outcome))
        return sends

    async def _check_tokens(self) -> None:
        for name, token in self._history.tokens.items():
            answer = await self._http(name).ask("POST", f"/agents/{name}/heartbeat", {})
            if not answer.ok:
                self._complain(f"token: {name} was given one that does not work: {answer}")
            if self._doors.stored_token(name) != token:
                self._complain(f"token: the file of {name} does not hold what was answered")

    async def _look(self, act: Act) -> None:
        answer = await self._http(act.by).ask("GET", f"/tickets/{act.about}")
        if answer.ok:
            self._views[act.about] = answer.content
        elif answer.content["error"]["message"] == "ticket expired":
            self._views[act.about] = None
            if not self._expire:
                self._complain(f"send: {act.about} has expired before its time")

    def _check_sends(self) -> None:
        for act in self._sends():
            target, body = act.content
            if act.about not in self._views:
                if act.outcome == "ok":
                    self._complain(f"send: {act.about} was acknowledged and is lost")
                continue
            view = self._views[act.about]
            if view is not None and (view["targetAgent"], view["payload"]) != (target, body["payload"]):
                self._complain(f"send: {act.about} is not what was sent: {view}")
            if act.outcome == "refused":
                self._complain(f"send: {act.about} was refused and is there")

    def _check_endings(self) -> None:
        """What was told about a ticket's end is its end, whoever was told it."""
        replies: dict[str, list[Act]] = {}
        for act in self._history.of("reply"):
            replies.setdefault(act.about, []).append(act)
        for ticket, view in self._views.items():
            if view is not None:
                self._check_replies(ticket, view, replies.get(ticket, []))
        for ticket, name, payload in self._history.handed:
            view = self._views.get(ticket, {})
            if view is not None and (view.get("targetAgent"), view.get("payload")) != (name, payload):
                self._complain(f"handed: {name} was given {ticket}, which is not there any more")
        for act in self._history.of("cancel", "ok"):
            self._check_reported(act.about, "cancelled", None)
        for ticket, status, reply in self._history.reported:
            self._check_reported(ticket, status, reply)

    def _check_replies(self, ticket: str, view: Any, asked: list[Act]) -> None:
        there = [item["payload"] for item in view.get("replies", ())]
        if len(set(there)) != len(there):
            self._complain(f"reply: {ticket} has the same one twice: {there}")
        if bool(there) != (view["status"] == "responded"):
            self._complain(f"reply: {ticket} is {view['status']} with {len(there)} replies")
        if set(there) - {act.content for act in asked if act.outcome != "refused"}:
            self._complain(f"reply: {ticket} has one that nobody gave: {there}")
        for act in asked:
            if act.outcome == "ok" and act.content not in there:
                self._complain(f"reply: {act.content} to {ticket} was acknowledged and is lost")
            # Over link the answer says whether it was the first.
            first = act.answer.get("first") if act.outcome == "ok" and act.answer else None
            if first is not None and there and first != (there[0] == act.content):
                self._complain(f"reply: {act.content} was told first={first}, and {ticket} has {there}")

    def _check_reported(self, ticket: str, status: str, reply: Any) -> None:
        if ticket not in self._views:
            self._complain(f"told: somebody saw {ticket} {status}, and it is lost")
            return
        view = self._views[ticket]
        if view is None:
            return
        now = view["status"]
        # A ticket moves on, never back.
        allowed = {
            "pending": {"pending", "delivered", "responded", "timeout", "cancelled"},
            "delivered": {"delivered", "responded", "timeout", "cancelled"},
            "timeout": {"timeout", "responded"},
        }.get(status, {status})
        if now not in allowed:
            self._complain(f"told: somebody saw {ticket} {status}, now it is {now}")
        if status == "responded" and view.get("response") != reply:
            self._complain(f"told: {ticket} was answered {reply!r}, now {view.get('response')!r}")

    async def _check_inboxes(self) -> None:
        """What is offered now: everything nobody dealt with, nothing that was dealt with, each once."""
        done = {act.about for kind in ("ack", "reply", "cancel") for act in self._history.of(kind, "ok")}
        maybe = {act.about for kind in ("ack", "reply", "cancel") for act in self._history.of(kind, "lost")}
        sent = {act.about: act for act in self._sends()}
        for name in RECEIVERS:
            if name not in self._history.tokens:
                continue
            offered = await self._drain(name)
            for ticket, count in Counter(each["ticketId"] for each in offered).items():
                if count > 1:
                    self._complain(f"inbox: {ticket} was offered {count} times at once")
                if ticket in done:
                    self._complain(f"inbox: {ticket} was acknowledged, and is offered again")
            for each in offered:
                act = sent.get(each["ticketId"])
                if act is None or act.content[0] != name or act.content[1]["payload"] != each["payload"]:
                    self._complain(f"inbox: {name} is offered what nobody sent: {each}")
            here = {each["ticketId"] for each in offered}
            for ticket, act in sent.items():
                open_ = act.outcome == "ok" and act.content[0] == name and ticket not in done | maybe
                if open_ and ticket not in here:
                    self._complain(f"inbox: {ticket} was never dealt with, and is not offered to {name}")

    async def _drain(self, name: str) -> list[Any]:
        offered: list[Any] = []
        while taken := (await self._http(name).ask("GET", f"/agents/{name}/inbox?waitMs=0&max={DRAIN}")).content:
            offered += taken["messages"]
        return offered

    # -- what nobody knew --

    async def _try_again(self) -> None:
        """The same call once more, as a client would: one effect, whether or not it had happened before."""
        for act in self._history.of("send", "lost"):
            target, body = act.content
            await self._again(act, await self._http(act.by).ask("POST", f"/agents/{target}/send", body))
        for act in self._history.of("broadcast", "lost"):
            await self._again(act, await self._http(act.by).ask("POST", "/broadcast", act.content))
        for act in self._history.of("ack", "lost"):
            body = {"ticketIds": [act.about]}
            answer = await self._http(act.by).ask("POST", f"/agents/{act.by}/inbox/ack", body)
            await self._again(act, answer)
        for act in self._history.of("cancel", "lost"):
            answer = await self._http(act.by).ask("POST", f"/tickets/{act.about}/cancel", {"reason": "test"})
            if answer.status != 409:
                await self._again(act, answer)
        for act in self._history.of("reply", "lost"):
            await self._reply_again(act)
        for act in self._history.of("register", "lost"):
            await self._register_again(act.about)

    async def _again(self, act: Act, answer: Answer) -> None:
        gone = self._expire and "error" in (answer.content or {}) and answer.status in (404, 409)
        if not answer.ok and not gone:
            self._complain(f"again: {act} was tried again: {answer}")

    async def _reply_again(self, act: Act) -> None:
        http = self._http(act.by)
        before = (await http.ask("GET", f"/tickets/{act.about}")).content
        there = [item["payload"] for item in before.get("replies", ())]
        if act.content in there and there[-1] != act.content:
            # Somebody else answered after it: by our own rule the same words are then new ones.
            return
        answer = await http.ask("POST", "/replies", {"ticketId": act.about, "payload": act.content})
        if answer.status == 409 and before.get("status") == "cancelled":
            return
        await self._again(act, answer)
        after = (await http.ask("GET", f"/tickets/{act.about}")).content
        now = [item["payload"] for item in after.get("replies", ())]
        wanted = there if act.content in there else [*there, act.content]
        if answer.ok and now != wanted:
            self._complain(f"again: {act.content} to {act.about} was tried again: {there} became {now}")

    async def _register_again(self, name: str) -> None:
        """As our own client does: with the token the daemon left for it, else as somebody new."""
        http = self._doors.http(self._doors.stored_token(name))
        answer = await http.ask("POST", "/agents/register", {"agentId": name, "type": "test"})
        if not answer.ok:
            self._complain(f"again: {name} cannot be registered, nor acted as: {answer}")

    # -- after it was stopped --

    def check_stopped(self) -> list[str]:
        self._check_directory()
        database = sqlite3.connect(f"file:{paths.database_file(self._state)}?mode=ro", uri=True)
        try:
            self._check_ledger(database)
            clean = database.execute("SELECT count(*) FROM house WHERE key = 'clean-stop'").fetchone()
            if clean != (1,):
                self._complain("stop: the next start will not know that this stop was clean")
        finally:
            database.close()
        return self.broken

    def _check_directory(self) -> None:
        known = {
            "anchors.jsonl",
            "bascule.db",
            "daemon.lock",
            "digest.key",
            "local.token",
            "log",
            "pictures",
            "tokens",
            "workspace",
        }
        if left := set(os.listdir(self._state)) - known:
            self._complain(f"left: {sorted(left)} in the state directory")
        tokens = os.listdir(paths.tokens_dir(self._state))
        if left := {name for name in tokens if not name.endswith(".token")}:
            self._complain(f"left: {sorted(left)} beside the tokens")

    def _check_ledger(self, database: sqlite3.Connection) -> None:
        """Each effect has its one record, and each record its effect."""
        sent: Counter[str] = Counter()
        replied: Counter[str] = Counter()
        for (body,) in database.execute("SELECT body FROM ledger"):
            record = json.loads(body)
            if record["outcome"] != "ok":
                continue
            match record["method"]:
                case "messages.send":
                    sent[record["subject"]] += 1
                case "messages.broadcast":
                    sent.update(f"{record['subject']}.{name}" for name in record["details"]["to"])
                case "replies.post":
                    replied[record["subject"]] += 1
        tickets = {key: json.loads(body) for key, body in database.execute("SELECT key, body FROM tickets")}
        gone = {key for (key,) in database.execute("SELECT key FROM remembered")}
        for ticket in tickets.keys() | sent.keys():
            there = ticket in tickets or ticket in gone
            if sent[ticket] != 1 or not there:
                self._complain(f"record: {ticket} was sent {sent[ticket]} times and is {'' if there else 'not '}there")
        for ticket, row in tickets.items():
            if replied[ticket] != row.get("replies", 0):
                self._complain(f"record: {ticket} has {row.get('replies', 0)} replies, {replied[ticket]} on record")
