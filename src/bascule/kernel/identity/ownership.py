"""Whose call it may be, made once from a row's `who` and checked before policy: no rule opens another's inbox."""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from bascule.foundation.errors import Forbidden
from bascule.kernel.call import BROWSER, LOCAL, PERSON, Principal, agent_principal, is_outside, node_of
from bascule.kernel.rows import ANYONE, Row, Who, WhoKind

# Raises `Forbidden` when the call is not this principal's to make.
Ownership = Callable[[Principal, Any], None]


class Parties(Protocol):
    def __call__(self, ticket_id: str, /) -> tuple[Principal, ...]:
        """Both sides of a ticket; raises `NotFound`."""


class Starter(Protocol):
    def __call__(self, id_: str, /) -> Principal:
        """Who started the run or command, or opened the space; raises `NotFound`."""


def ownership(row: Row, parties: Parties, starters: Mapping[str, Starter]) -> Ownership | None:
    if row.who == ANYONE:
        # Anyone's on this machine. The rows of all other kinds ask for somebody whom no caller from outside can be.
        if row.outside == ANYONE:
            return None
        check = _owner(row, row.outside, parties, starters) if row.outside is not None else None
        return partial(_check_outside, row.name, check)
    return _owner(row, row.who, parties, starters)


def _owner(row: Row, who: Who, parties: Parties, starters: Mapping[str, Starter]) -> Ownership | None:
    match who.kind:
        case WhoKind.ANYONE:
            return None
        case WhoKind.SELF:
            return partial(_check_self, attrgetter(who.field))
        case WhoKind.PARTY:
            return partial(_check_party, attrgetter(who.field), parties)
        case WhoKind.STARTER:
            return partial(_check_starter, attrgetter(who.field), starters[who.field])
        case WhoKind.LOCAL:
            return partial(_check_local, row.name)
        case WhoKind.PERSON:
            return partial(_check_person, row.name)
        case WhoKind.BROWSER:
            return partial(_check_browser, row.name)
        case WhoKind.NODE:
            return partial(_check_node, row.name)


def _check_outside(method: str, check: Ownership | None, principal: Principal, params: Any) -> None:
    if not is_outside(principal):
        return
    if check is None:
        raise Forbidden(
            f"{principal} may not call {method}",
            hint="a caller from outside may write to published agents and follow its own messages, nothing else",
        )
    check(principal, params)


def _check_self(named: Callable[[Any], str], principal: Principal, params: Any) -> None:
    agent_id = named(params)
    if principal != agent_principal(agent_id) and not (agent_id == PERSON == principal):
        raise Forbidden(
            f"{principal} may not act as {agent_id}",
            hint=f"use the agentToken that registering {agent_id} returned; helpers take --agent {agent_id}",
        )


def _check_party(named: Callable[[Any], str], parties: Parties, principal: Principal, params: Any) -> None:
    if principal != PERSON and principal not in parties(named(params)):
        raise Forbidden(
            f"{principal} is not a side of ticket {named(params)}",
            hint="only the sender and the addressee may; act with that agent's token",
        )


def _check_starter(named: Callable[[Any], str], starter: Starter, principal: Principal, params: Any) -> None:
    id_ = named(params)
    if principal != PERSON and principal != starter(id_):
        raise Forbidden(
            f"{principal} did not start {id_}",
            hint="only its starter and the person may: unlock with the passphrase (`bascule person set`)",
        )


def _check_local(method: str, principal: Principal, _params: Any) -> None:
    if principal not in (LOCAL, PERSON):
        raise Forbidden(f"{principal} may not call {method}", hint="run the bascule command in your own terminal")


def _check_person(method: str, principal: Principal, _params: Any) -> None:
    if principal != PERSON:
        raise Forbidden(
            f"only the person may call {method}",
            hint="set a passphrase with `bascule person set`; the command asks for it on your terminal",
        )


def _check_node(method: str, principal: Principal, _params: Any) -> None:
    if node_of(principal) is None:
        raise Forbidden(
            f"{principal} may not call {method}", hint="only other machines of the mesh may: they do by themselves"
        )


def _check_browser(method: str, principal: Principal, _params: Any) -> None:
    if principal not in (BROWSER, LOCAL, PERSON):
        raise Forbidden(f"{principal} may not call {method}", hint="only pages of the console may: `bascule console`")
