"""Bugs of the kind that crashes bring to light, planted into a daemon to see that the checker finds them."""

import itertools
import time
from typing import Any

import msgspec

from bascule.broker import state, tickets
from bascule.broker.records import Ticket
from bascule.kernel.journal import Journal
from bascule.stores.sqlite import SqliteStore


def _slow_disk() -> None:
    """What is promised meanwhile is lost with the daemon, and there is time for it to arrive."""
    put_rows = SqliteStore._put_rows

    def put_rows_slowly(self: SqliteStore, batch: Any) -> None:
        put_rows(self, batch)
        time.sleep(0.01)

    SqliteStore._put_rows = put_rows_slowly


def answer_before_it_is_durable() -> None:
    _slow_disk()
    queue = Journal._queue

    def answers(self: Any, tx: Any) -> Any:
        queue(self, tx)
        tx.landed()
        return tx

    Journal._queue = answers
    Journal.durable = lambda _: None


def hand_over_before_it_is_durable() -> None:
    before = tickets.Tickets.send

    def send(self: Any, call: Any, params: Any, tx: Any) -> Any:
        sent = before(self, call, params, tx)
        self._state.inbox(params.agent_id).sealed.discard(sent.ticket_id)
        self._waits.pump(params.agent_id)
        return sent

    tickets.Tickets.send = send
    _slow_disk()


def forget_acknowledgements() -> None:
    before = SqliteStore._put_rows

    def put_rows(self: SqliteStore, batch: Any) -> None:
        kept = [each for each in batch.changes if not (isinstance(each[2], Ticket) and each[2].status == "delivered")]
        before(self, msgspec.structs.replace(batch, changes=kept))

    SqliteStore._put_rows = put_rows


def keep_only_the_newest_reply() -> None:
    before = state.message_key
    for module in (state, tickets):
        module.message_key = lambda ticket_id, number: before(ticket_id, min(number, 1))


def take_a_retry_for_new_words() -> None:
    before = tickets.Tickets.reply
    number = itertools.count()

    def reply(self: Any, call: Any, params: Any, tx: Any) -> Any:
        return before(self, call, msgspec.structs.replace(params, metadata={"n": next(number)}), tx)

    tickets.Tickets.reply = reply


def leave_out_a_record() -> None:
    before = SqliteStore._put_ledger

    def put_ledger(self: SqliteStore, batch: Any) -> None:
        kept = [row for row in batch.ledger if row.seq % 10]
        before(self, msgspec.structs.replace(batch, ledger=kept))

    SqliteStore._put_ledger = put_ledger


def record_another_story() -> None:
    """An effect whose record says something else than what was done: the chain is whole, the story is not."""
    before = Journal.commit

    def commit(self: Journal, tx: Any, principal: Any, method: str, *args: Any, **more: Any) -> int:
        if method == "replies.post" and tx.changes:
            tx.subject = "another"
        return before(self, tx, principal, method, *args, **more)

    Journal.commit = commit


PLANTS = {
    plant.__name__: plant
    for plant in (
        answer_before_it_is_durable,
        hand_over_before_it_is_durable,
        forget_acknowledgements,
        keep_only_the_newest_reply,
        take_a_retry_for_new_words,
        leave_out_a_record,
        record_another_story,
    )
}
