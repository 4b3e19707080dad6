"""What agents ask the person in words, and the person's answers. An answer is a message: it approves nothing.

Anybody at this machine sees that somebody asks; what is asked is the person's to read, behind the passphrase.
"""

from typing import Any

from bascule.cli.person import unlock
from bascule.cli.tty import ask_on_tty
from bascule.client.sync import SyncClient
from bascule.foundation.errors import Conflict, NotFound
from bascule.foundation.text import one_line, visible
from bascule.kernel.call import PERSON
from bascule.programs.helpers.terminal import payload_text, show

_OPEN = ("pending", "delivered")
_BAR = "│ "


def waiting(client: SyncClient) -> list[dict[str, Any]]:
    """Tickets to the person that nobody has answered, without their words."""
    views = client.call("tickets.list", {"agentId": PERSON, "limit": 1_000})
    return [view for view in views if view["status"] in _OPEN]


def find(client: SyncClient, text: str) -> str:
    """The ticket whose id this is, or ends so: ids of the same minute begin alike."""
    ids = [str(view["ticketId"]) for view in client.call("tickets.list", {"agentId": PERSON, "limit": 1_000})]
    if text in ids:
        return text
    found = [each for each in ids if each.endswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Conflict(f"{len(found)} questions end with {text}", hint="give more of the id")
    raise NotFound(f"no question {text}", hint="`bascule approvals` lists what waits for you")


def render(view: dict[str, Any]) -> str:
    """The question as it was written, each line behind a bar, so that none can pass for ours."""
    payload = view.get("payload")
    asked, choices = payload, choices_of(payload)
    if choices and isinstance(payload, dict):
        asked = payload["question"]
    lines = [one_line(f"{view['ticketId']}  {view['from']} asks you, until {view['replyBy']}")]
    lines += [_BAR + line for line in visible(payload_text(asked)).split("\n")]
    lines += [f"  {number} = {one_line(choice)}" for number, choice in enumerate(choices, 1)]
    return "\n".join(lines)


def choices_of(payload: Any) -> list[str]:
    """Those that ask_person offers; of any other payload none."""
    if not isinstance(payload, dict) or set(payload) != {"question", "choices"}:
        return []
    choices = payload["choices"]
    if not isinstance(choices, list) or not all(isinstance(each, str) for each in choices):
        return []
    return choices


def read_and_answer(client: SyncClient, ticket_id: str, text: str | None = None) -> dict[str, Any] | None:
    """On a connection that is the person's: show the question, take the answer from the terminal unless given."""
    if client.call("person.status", {}).get("unlockedS") is None:
        unlock(client)
    view = client.call("tickets.show", {"ticketId": ticket_id})
    if text is None:
        show(render(view))
        text = ask_on_tty("Your answer, in words or by number (it approves nothing; Enter = later): ")
    choices = choices_of(view.get("payload"))
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        text = choices[int(text) - 1]
    if not text:
        return None
    answered: dict[str, Any] = client.call("replies.post", {"ticketId": ticket_id, "payload": text})
    return answered
