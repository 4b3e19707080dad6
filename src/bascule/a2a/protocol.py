"""A2A as the user of this machine sees it: what is published, who may ask, and whom one can ask."""

from typing import Annotated

from msgspec import Meta

from bascule.foundation.ids import AGENT_ID_PATTERN
from bascule.kernel.rows import Params, Result

# What stands behind the `@` of an agent elsewhere that speaks A2A.
BEHIND = "a2a"
# A card is read by models and people: a page, not a manual.
MAX_SKILLS = 16
MAX_SKILL_CHARS = 200
MAX_DESCRIPTION_CHARS = 500
MAX_URL_CHARS = 2_048
MAX_PATH_CHARS = 4_096

HandleText = Annotated[str, Meta(pattern=AGENT_ID_PATTERN, description="1 to 64 of A-Z a-z 0-9 . _ -")]
SkillText = Annotated[str, Meta(min_length=1, max_length=MAX_SKILL_CHARS)]
UrlText = Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARS)]


# -- in: who asks agents here --


class PublishParams(Params, frozen=True, kw_only=True):
    agent_id: HandleText
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    skills: Annotated[list[SkillText], Meta(max_length=MAX_SKILLS)] = []


class HandleParams(Params, frozen=True, kw_only=True):
    agent_id: HandleText


class PublishedView(Result, frozen=True, kw_only=True):
    agent_id: str
    description: str
    skills: list[str] = []
    since: str
    # Where its card is; absent while the door is closed.
    card: str | None = None


class PublishedList(Result, frozen=True, kw_only=True, omit_defaults=False):
    agents: list[PublishedView]
    # Where clients reach them; None while `a2a_port` is off, or `problem` says why it is not open.
    door: str | None = None
    problem: str | None = None


class ClientParams(Params, frozen=True, kw_only=True):
    name: HandleText


class NewToken(Result, frozen=True, kw_only=True):
    name: str
    principal: str
    # Shown once; only its hash is kept.
    token: str


class ClientView(Result, frozen=True, kw_only=True):
    name: str
    principal: str
    since: str


# -- out: whom agents here ask --


class AddParams(Params, frozen=True, kw_only=True):
    name: HandleText
    # Of its agent card, or of the place below which `.well-known/agent-card.json` is.
    url: UrlText
    # A private file with the bearer that the agent wants; it is read when it is sent.
    token_file: Annotated[str, Meta(min_length=1, max_length=MAX_PATH_CHARS)] | None = None


class PeerParams(Params, frozen=True, kw_only=True):
    name: HandleText


class PeerView(Result, frozen=True, kw_only=True):
    # With its `@`.
    agent_id: str
    url: str
    # Of the card as it was pinned.
    digest: str
    title: str
    description: str = ""
    skills: list[str] = []
    # "1.0" or "0.3", and how it is spoken: JSONRPC or HTTP+JSON.
    protocol: str
    binding: str
    status: str
    since: str
    token_file: str | None = None
    # Messages that wait for it, or for its answer.
    open: int = 0
    problem: str | None = None
