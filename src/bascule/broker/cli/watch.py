"""`bascule watch TICKET`: one message from where it is to its end."""

import argparse

from bascule.broker.protocol import Event, TicketStatus, TicketView
from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.client.sync import SyncClient
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import CONFLICT, NOTHING_CAME, OK
from bascule.local_client.values import ticket_id
from bascule.programs.helpers.terminal import payload_text, say, show, show_json
from gabp import codec

_ENDS = ("ticket.responded", "ticket.timeout", "ticket.cancelled")
_CODES = {TicketStatus.TIMEOUT: NOTHING_CAME, TicketStatus.CANCELLED: CONFLICT}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("watch", help="follow one message until it is answered")
    parser.add_argument("ticket", metavar="TICKET", help="its id, see `bridgectl list tickets`")
    add_json(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    wanted = ticket_id(args.ticket)
    with connect(args) as client:
        # Before the ticket is read: an event between the two is shown, not lost.
        newest = client.call("events.recent", {"limit": 1})
        view = client.ticket(wanted)
        _show_ticket(view, as_json=args.json)
        if is_over(view):
            return _end(view)
        return _follow(client, wanted, newest[-1]["id"] if newest else 0, expects=view.expect_reply, as_json=args.json)


def _follow(client: SyncClient, wanted: str, after: int, *, expects: bool, as_json: bool) -> int:
    for event in client.events(after=after):
        if event.ticket_id != wanted:
            continue
        if as_json:
            show_json(codec.decode(codec.encode(event), dict[str, object]))
        else:
            show(describe(event))
        if event.event in _ENDS or (event.event == "ticket.delivered" and not expects):
            return _end(client.ticket(wanted))
    say("the daemon closed the event stream; look again with `bascule watch`")
    return NOTHING_CAME


def is_over(view: TicketView) -> bool:
    if view.status is TicketStatus.DELIVERED:
        return not view.expect_reply
    return view.status is not TicketStatus.PENDING


def describe(event: Event) -> str:
    about = f" ({event.detail})" if event.detail else ""
    return one_line(f"{event.at[11:19]}  {event.event.removeprefix('ticket.')}  {event.agent_id or ''}{about}")


def _show_ticket(view: TicketView, *, as_json: bool) -> None:
    if as_json:
        show_json(codec.decode(codec.encode(view), dict[str, object]))
        return
    delivery = f", {view.delivery.state.value}" if view.delivery is not None else ""
    to = view.target_agent if view.group is None else f"{view.target_agent} (of {view.group})"
    show(one_line(f"{view.created_at[11:19]}  {view.from_} -> {to}: {view.status.value}{delivery}"))


def _end(view: TicketView) -> int:
    if view.replies:
        show(visible(payload_text(view.replies[0].payload)))
    return _CODES.get(view.status, OK)
