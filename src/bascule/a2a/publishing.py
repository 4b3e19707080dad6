"""What is published, and the tokens of those who may ask."""

from collections.abc import Callable
from functools import partial

from bascule.a2a.cards import WELL_KNOWN
from bascule.a2a.protocol import (
    ClientParams,
    ClientView,
    HandleParams,
    NewToken,
    PublishedList,
    PublishedView,
    PublishParams,
)
from bascule.a2a.records import Client, Published
from bascule.foundation.agreement import is_agent_id
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound
from bascule.foundation.ids import is_reserved_handle, new_token
from bascule.kernel.call import Call, Principal, a2a_principal
from bascule.kernel.identity.tokens import MAX_TOKEN_CHARS, TokenBook, hash_token
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.rows import Nothing

# Each is a name in a list that a person reads; a gateway for hundreds has one token of its own.
MAX_CLIENTS = 100
MAX_PUBLISHED = 100


class Door:
    """Where clients come in, as far as it is open; the part that opens it says so here."""

    # Such as https://agents.example.org or http://127.0.0.1:5052.
    base: str | None = None
    problem: str | None = None

    def card_url(self, handle: str) -> str | None:
        return f"{self.base}/{handle}{WELL_KNOWN}" if self.base is not None else None


class Publishing:
    def __init__(self, store: JournalStore, clock: Clock, open_handles: set[str], door: Door) -> None:
        """`open_handles` is what the broker lets callers from outside write to; it is kept here."""
        self._clock = clock
        self._open_handles = open_handles
        self._door = door
        self._tokens = TokenBook()
        self.handles: Table[Published] = Table("published_handles", Published, self._handle_changed)
        self.clients: Table[Client] = Table("outside_clients", Client, self._client_changed)
        for handle, published in store.load(self.handles.name, Published):
            self.handles.apply(handle, published)
        for name, client in store.load(self.clients.name, Client):
            self.clients.apply(name, client)
        # Called with a principal whose token is no longer valid.
        self.on_revoked: list[Callable[[Principal], None]] = []
        # Called with a handle that is published no more.
        self.on_unpublished: list[Callable[[str], None]] = []

    def client_of(self, token: str) -> Principal | None:
        name = self._tokens.find_hash(hash_token(token)) if 0 < len(token) <= MAX_TOKEN_CHARS else None
        return a2a_principal(name) if name is not None else None

    # -- methods --

    def publish(self, call: Call, params: PublishParams, tx: Transaction) -> PublishedView:
        handle = params.agent_id
        if not is_agent_id(handle) or is_reserved_handle(handle):
            raise InvalidRequest(f"{handle} cannot be published", hint="publish the handle of an agent or a group")
        if handle not in self.handles.rows and len(self.handles.rows) >= MAX_PUBLISHED:
            raise Conflict(f"{MAX_PUBLISHED} handles are published", hint="unpublish one first")
        published = Published(
            description=params.description or f"{handle}, an agent behind Bascule",
            skills=list(params.skills),
            at=self._clock.wall_ms(),
        )
        tx.put(self.handles, handle, published)
        tx.subject = handle
        return self._view(handle, published)

    def unpublish(self, call: Call, params: HandleParams, tx: Transaction) -> PublishedView:
        published = self.handles.rows.get(params.agent_id)
        if published is None:
            raise NotFound(f"{params.agent_id} is not published", hint="`bascule a2a published` lists what is")
        tx.put(self.handles, params.agent_id, None)
        tx.subject = params.agent_id
        tx.after += [partial(callback, params.agent_id) for callback in self.on_unpublished]
        return self._view(params.agent_id, published)

    def list_published(self, call: Call, params: Nothing) -> PublishedList:
        return PublishedList(
            agents=[self._view(handle, each) for handle, each in sorted(self.handles.rows.items())],
            door=self._door.base,
            problem=self._door.problem,
        )

    def add_token(self, call: Call, params: ClientParams, tx: Transaction) -> NewToken:
        if not is_agent_id(params.name):
            raise InvalidRequest(f"{params.name} cannot be the name of a client", hint="choose another")
        if params.name in self.clients.rows:
            raise Conflict(
                f"{params.name} has a token", hint=f"`bascule a2a token revoke {params.name}` first, then add it again"
            )
        if len(self.clients.rows) >= MAX_CLIENTS:
            raise Conflict(f"{MAX_CLIENTS} clients have a token", hint="revoke one first")
        token = new_token()
        tx.put(self.clients, params.name, Client(token_hash=hash_token(token), at=self._clock.wall_ms()))
        tx.subject = a2a_principal(params.name)
        return NewToken(name=params.name, principal=a2a_principal(params.name), token=token)

    def revoke_token(self, call: Call, params: ClientParams, tx: Transaction) -> ClientView:
        client = self.clients.rows.get(params.name)
        if client is None:
            raise NotFound(f"{params.name} has no token", hint="`bascule a2a token list` lists who has")
        principal = a2a_principal(params.name)
        tx.put(self.clients, params.name, None)
        tx.subject = principal
        tx.after.append(partial(self._revoked, principal))
        return _client_view(params.name, client)

    def list_tokens(self, call: Call, params: Nothing) -> list[ClientView]:
        return [_client_view(name, each) for name, each in sorted(self.clients.rows.items())]

    # -- inside --

    def _revoked(self, principal: Principal) -> None:
        for callback in self.on_revoked:
            callback(principal)

    def _handle_changed(self, handle: str, _old: Published | None, new: Published | None) -> None:
        if new is None:
            self._open_handles.discard(handle)
        else:
            self._open_handles.add(handle)

    def _client_changed(self, name: str, _old: Client | None, new: Client | None) -> None:
        if new is None:
            self._tokens.remove(name)
        else:
            self._tokens.add(name, new.token_hash)

    def _view(self, handle: str, published: Published) -> PublishedView:
        return PublishedView(
            agent_id=handle,
            description=published.description,
            skills=published.skills,
            since=rfc3339(published.at),
            card=self._door.card_url(handle),
        )


def _client_view(name: str, client: Client) -> ClientView:
    return ClientView(name=name, principal=a2a_principal(name), since=rfc3339(client.at))
