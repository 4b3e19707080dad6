"""The person as a side of a ticket: agents ask, the person answers in words. An answer is a reply and never consent."""

from functools import lru_cache
from typing import TYPE_CHECKING

from bascule.broker.protocol import OPEN_STATUSES
from bascule.foundation.errors import Forbidden, NotFound, Overloaded, TooLarge
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import PERSON, Principal, agent_of, agent_principal, sender_name

if TYPE_CHECKING:
    # It has the index of tickets, which asks us who a handle is.
    from bascule.broker.state import BrokerState

# Asked for with every reply; as many as `kernel.call` remembers.
_REMEMBERED = 4_096
# Nobody can register it: it is a principal of ours.
HANDLE = str(PERSON)
# Of one sender, unanswered: a person who is asked more than this by one agent is being worn down.
MAX_QUESTIONS_PER_SENDER = 5
# Of everybody together: more does not fit before a pair of eyes.
MAX_QUESTIONS = 50
# Some pages: it is read by a person.
MAX_QUESTION_BYTES = 16 * 1024


@lru_cache(maxsize=_REMEMBERED)
def principal_of(target: str) -> Principal:
    """Who is behind the handle that a ticket is addressed to."""
    return PERSON if target == HANDLE else agent_principal(target)


def check_question(state: "BrokerState", sender: Principal, size: int, *, has_person: bool) -> None:
    """Whether this sender may put one more question of this size before the person."""
    if is_reserved_handle(agent_of(sender) or ""):
        raise Forbidden(
            "commands in a sandbox cannot ask the person",
            hint="the agent that runs the command asks instead: ask_person",
        )
    if not has_person:
        raise NotFound(
            "nobody can answer: no passphrase is set",
            hint="the user of this machine sets one with `bascule person set`; ask in your own conversation meanwhile",
        )
    if size > MAX_QUESTION_BYTES:
        raise TooLarge(
            f"the question is {size} bytes; a person is asked at most {MAX_QUESTION_BYTES}",
            hint="say it shorter, and name a file for the rest",
        )
    waiting = [
        ticket
        for status in OPEN_STATUSES
        for ticket in state.index.find(status=status, addressee=HANDLE, party=None)
        if ticket.is_open
    ]
    mine = sum(ticket.sender == sender for ticket in waiting)
    if mine >= MAX_QUESTIONS_PER_SENDER or len(waiting) >= MAX_QUESTIONS:
        whose = f"{mine} of them of {sender_name(sender)}"
        raise Overloaded(
            f"{len(waiting)} questions wait for the person already, {whose}",
            hint=f"wait for an answer, or cancel one; one sender may have {MAX_QUESTIONS_PER_SENDER} open, all "
            f"together {MAX_QUESTIONS}",
            retry_after=60.0,
        )
