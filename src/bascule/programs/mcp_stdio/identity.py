"""Which agent this process is: `--agent`, `BRIDGE_AGENT_ID`, or a name made from client and project.

The same project gets the same name again, so that its inbox survives the session; two clients started alike
get two names, because one process is one agent.
"""

from __future__ import annotations

import zlib

from bascule import __version__
from bascule.foundation.agreement import MAX_AGENT_ID_CHARS, PROTOCOL_VERSION
from bascule.local_client import choice
from bascule.local_client.exits import BadAnswer, Refusal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from bascule.local_client.http import Door

    # Method and params; what is sent in is the answer, or the Refusal.
    Asking = Generator[tuple[str, dict[str, Any]], Any, None]

# Enough that two projects rarely share one, few enough to be learned. Short: they are typed.
WORDS = (
    *("acorn", "amber", "aspen", "badger", "basil", "beech", "birch", "bison"),
    *("brook", "cedar", "clover", "coral", "crane", "cress", "daisy", "delta"),
    *("dune", "egret", "ember", "falcon", "fennel", "fern", "finch", "fjord"),
    *("flint", "fox", "gale", "garnet", "ginger", "hazel", "heron", "holly"),
    *("iris", "ivy", "jasper", "juniper", "kestrel", "lark", "laurel", "lily"),
    *("linden", "lotus", "maple", "marten", "mint", "moss", "newt", "olive"),
    *("otter", "pebble", "pine", "plum", "quail", "quartz", "raven", "reed"),
    *("robin", "sage", "sparrow", "tern", "thyme", "violet", "willow", "wren"),
)
# After this many namesakes something else is wrong.
MAX_NAMESAKES = 32
# A client's name is cut to this; the word and a number still fit behind it.
_MAX_CLIENT_CHARS = 20
MAX_TYPE_CHARS = 64


def client_word(client: str) -> str:
    """`claude-code` is `claude`, `codex-mcp-client` is `codex`: the first word of its name."""
    word = ""
    for letter in client.lower():
        if letter.isascii() and letter.isalnum():
            word += letter
        elif word:
            break
    return word[:_MAX_CLIENT_CHARS] or "agent"


def invented_name(client: str, cwd: str) -> str:
    return f"{client_word(client)}-{WORDS[zlib.crc32(cwd.encode('utf-8', 'surrogateescape')) % len(WORDS)]}"


def namesakes(name: str) -> Iterator[str]:
    yield name
    for number in range(2, MAX_NAMESAKES + 1):
        suffix = f"-{number}"
        yield name[: MAX_AGENT_ID_CHARS - len(suffix)] + suffix


class Identity:
    """The handle, its token, and how the link comes to act as it."""

    def __init__(
        self, door: Door, name: str, kind: str, metadata: dict[str, Any], *, shared: str | None = None
    ) -> None:
        # Whose stored tokens are shown; another broker than our own daemon is shown none.
        self._door = door
        self.name = name
        self.kind = kind[:MAX_TYPE_CHARS] or "agent"
        self.metadata = metadata
        # A handle that `bridge-wrap` holds for the program we serve: it is ours too, not a namesake's.
        self._shared = shared
        self.heartbeat_ms: int | None = None
        # None: as the daemon remembers them.
        self.groups: list[str] | None = None
        self.handle: str | None = None
        # What agents.register answered last, without the token.
        self.registered: dict[str, Any] = {}
        # Never leaves this process but for the daemon.
        self._token: str | None = None

    def introduce(self) -> Asking:
        """On a fresh connection: come back as who we were, or take the first free name."""
        # Without a token first: the daemon hangs up on a stranger whose first token is wrong.
        yield _hello(None)
        first = [self.handle] if self.handle else []
        for name in (*first, *namesakes(self.name)):
            token = self._token if name == self.handle else choice.stored_token(self._door, name)
            try:
                yield from self._claim(name, token)
            except Refusal as fault:
                if fault.code != "conflict":
                    raise
                continue
            return
        raise Refusal(
            409,
            {
                "code": "conflict",
                "message": f"{self.name} and {MAX_NAMESAKES - 1} names made from it are taken",
                "hint": "choose another name with `bascule mcp --agent NAME`",
            },
        )

    def become(self, wanted: dict[str, Any]) -> Asking:
        """Be another agent from now on, as the params of agents.register say; if that is refused, stay who we are."""
        name = wanted["agentId"]
        before = (self.kind, self.metadata, self.heartbeat_ms, self.groups)
        token = self._token if name == self.handle else choice.stored_token(self._door, name)
        self.kind, self.metadata, self.heartbeat_ms, self.groups = (
            wanted.get("type") or self.kind,
            self.metadata | wanted.get("metadata", {}),
            wanted.get("heartbeatIntervalMs"),
            wanted.get("groups", self.groups),
        )
        try:
            yield from self._claim(name, token)
        except Refusal:
            self.kind, self.metadata, self.heartbeat_ms, self.groups = before
            yield _hello(self._token)
            raise

    def _claim(self, name: str, token: str | None) -> Asking:
        try:
            yield _hello(token)
        except Refusal as fault:
            # A token of an older life; without it the daemon says whether the handle is free.
            if token is None or fault.code != "unauthenticated":
                raise
            token = None
            yield _hello(None)
        params = {"agentId": name, "type": self.kind, "metadata": self.metadata, "exclusive": name != self._shared}
        if self.heartbeat_ms:
            params["heartbeatIntervalMs"] = self.heartbeat_ms
        if self.groups is not None:
            params["groups"] = self.groups
        result = yield "agents.register", params
        if not isinstance(result, dict):
            raise BadAnswer(
                "the daemon's answer to agents.register is not an object: is it Bascule that listens there?"
            )
        fresh = result.get("agentToken")
        if isinstance(fresh, str) and fresh:
            # The daemon keeps the handle for this connection until then, so no namesake can slip in between.
            token = fresh
            yield _hello(token)
        self.handle, self._token = name, token
        self.registered = {each: result[each] for each in result if each != "agentToken"}

    def hello(self) -> tuple[str, dict[str, Any]]:
        """Asked once more, it changes nothing."""
        return _hello(self._token)


def _hello(token: str | None) -> tuple[str, dict[str, Any]]:
    params: dict[str, Any] = {"protocol": PROTOCOL_VERSION, "version": __version__}
    if token:
        params["token"] = token
    return "hello", params
