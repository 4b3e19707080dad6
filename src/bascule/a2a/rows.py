"""The method rows of A2A. To open a door to strangers takes a person; to close one does not."""

from bascule.a2a.protocol import (
    AddParams,
    ClientParams,
    ClientView,
    HandleParams,
    NewToken,
    PeerParams,
    PeerView,
    PublishedList,
    PublishedView,
    PublishParams,
)
from bascule.kernel.rows import LOCAL_USER, PERSON_ONLY, Acts, Changes, Effect, Nothing, Reads, rows_of

A2A_PUBLISH = Changes[PublishParams, PublishedView](
    "a2a.publish",
    "Publish an agent: clients beyond A2A may write to it.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
A2A_UNPUBLISH = Changes[HandleParams, PublishedView](
    "a2a.unpublish",
    "Publish an agent no longer.",
    effect=Effect.ADMIN,
    who=LOCAL_USER,
)
A2A_PUBLISHED = Reads[Nothing, PublishedList](
    "a2a.published",
    "List what is published, and where.",
    who=LOCAL_USER,
)
A2A_ADD_TOKEN = Changes[ClientParams, NewToken](
    "a2a.addToken",
    "Make a token for a client beyond A2A; it is shown once.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
A2A_REVOKE_TOKEN = Changes[ClientParams, ClientView](
    "a2a.revokeToken",
    "Revoke the token of a client beyond A2A.",
    effect=Effect.ADMIN,
    who=LOCAL_USER,
)
A2A_TOKENS = Reads[Nothing, list[ClientView]](
    "a2a.tokens",
    "List the clients beyond A2A that have a token.",
    who=LOCAL_USER,
)
A2A_ADD_AGENT = Acts[AddParams, PeerView](
    "a2a.addAgent",
    "Fetch and pin the card of an agent elsewhere, so that agents here can ask it.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    asks=False,
)
A2A_REMOVE_AGENT = Changes[PeerParams, PeerView](
    "a2a.removeAgent",
    "Ask an agent elsewhere no longer; messages that wait for it end.",
    effect=Effect.ADMIN,
    who=LOCAL_USER,
)
A2A_AGENTS = Reads[Nothing, list[PeerView]](
    "a2a.agents",
    "List the agents elsewhere that can be asked over A2A.",
    who=LOCAL_USER,
)

METHODS = rows_of(globals())
