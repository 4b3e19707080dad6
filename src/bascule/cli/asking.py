"""A call that may ask: the user of this terminal sees the question while the call waits, and may answer it."""

import argparse
import sys
import threading
import time
from typing import Any

from bascule.cli.approvals import ask_how, render_question, terminal_columns
from bascule.cli.person import unlock
from bascule.cli.talk import connect
from bascule.client.sync import SyncClient
from bascule.foundation.errors import ApprovalRequired, BasculeError
from bascule.local_client.exits import APPROVAL, DoorError
from bascule.programs.helpers.terminal import say, show

# A question is there at once or not at all; sooner than this an answer needs no second connection.
LOOK_SECONDS = 0.3
# A call that waits for a person is held for the daemon's slice; what comes back sooner says that nobody can be asked.
HELD_SECONDS = 1.0


class NotWaiting(DoorError):
    """It asks, and nobody is to be waited for."""

    exit_code = APPROVAL


class _Calling:
    """The call on a thread of its own, made again for as long as its first question waits."""

    def __init__(self, client: SyncClient, method: str, params: dict[str, Any]) -> None:
        self.over = threading.Event()
        self._client = client
        self._method = method
        self._params = params
        self._answer: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._asked()
        except BaseException as error:  # noqa: BLE001 - raised again by `answer`, on the thread that asked
            self._error = error
        finally:
            self.over.set()

    def _asked(self) -> Any:
        question = None
        while True:
            began = time.monotonic()
            try:
                return self._client.call(self._method, self._params)
            except ApprovalRequired as waits:
                asked = (waits.details or {}).get("approvalId")
                if time.monotonic() - began < HELD_SECONDS or question not in (None, asked):
                    # Another question: the first was not answered in its time.
                    raise
                question = asked

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._answer


def ask_held(args: argparse.Namespace, method: str, params: dict[str, Any], *, wait: bool = True) -> Any:
    """The answer as plain JSON values; with `wait` off, `NotWaiting` as soon as a person is asked."""
    with connect(args) as client:
        calling = _Calling(client, method, params)
        if not calling.over.wait(LOOK_SECONDS):
            with connect(args) as watching:
                _watch(watching, calling, client.principal, method, wait=wait)
        return calling.answer()


def _watch(client: SyncClient, calling: _Calling, principal: str, method: str, *, wait: bool) -> None:
    announced: set[str] = set()
    while not calling.over.wait(LOOK_SECONDS):
        for view in client.call("approvals.list", {}):
            approval_id = str(view["approvalId"])
            mine = (view["principal"], view["method"], view["state"]) == (principal, method, "pending")
            if not mine or not view.get("waiting") or approval_id in announced:
                continue
            announced.add(approval_id)
            if not wait:
                hint = f"bascule approvals approve {approval_id}, and run this again"
                raise NotWaiting(f"not done yet: {view['reason']}", hint)
            _put(client, client.call("approvals.show", {"approvalId": approval_id}))


def _put(client: SyncClient, view: dict[str, Any]) -> None:
    """Before the person, if one sits here; else it is said where to answer."""
    approval_id = view["approvalId"]
    elsewhere = f"waiting; answer with: bascule approvals approve {approval_id}"
    if not (sys.stdin is not None and sys.stdin.isatty()):
        say(f"[asks: {view['reason']}]\n  {elsewhere}")
        return
    show(render_question(view, terminal_columns()))
    try:
        choice = ask_how(view)
        if choice is None:
            say(elsewhere)
            return
        unlock(client)
        client.call("approvals.decide", choice.params(approval_id))
    except BasculeError as error:
        say(f"bascule: {error.message}\n  {elsewhere}")
