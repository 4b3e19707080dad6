"""Which clients want which channels of one game; kept over reconnects and restarts."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded
from gabp.errors import ErrorCode, GameError
from gabp.session import channel_matches

# Of one client at one game.
MAX_CHANNELS_PER_CLIENT = 64
# Streams count as one each.
MAX_CLIENTS = 1_024


class Subscriber(Protocol):
    """The open session."""

    def subscribe(self, channels: list[str]) -> Deferred[Any]: ...


class Subscriptions:
    def __init__(self) -> None:
        self._by_client: dict[Hashable, set[str]] = {}
        # Names that end in `/*` which the mod did not take: the channels below them were asked for one by one.
        self._expanded: set[str] = set()

    def add(self, client: Hashable, channels: list[str]) -> list[str]:
        """Those that nobody wanted before."""
        known = self.wanted()
        mine = self._by_client.get(client)
        if mine is None:
            if len(self._by_client) >= MAX_CLIENTS:
                raise Overloaded(f"{MAX_CLIENTS} clients listen to this game already", retry_after=5.0)
            mine = set()
        if len(mine.union(channels)) > MAX_CHANNELS_PER_CLIENT:
            raise Overloaded(
                f"at most {MAX_CHANNELS_PER_CLIENT} channels of one game at once",
                hint="unsubscribe from some, or use a name that ends in /*",
            )
        mine.update(channels)
        self._by_client[client] = mine
        return [each for each in dict.fromkeys(channels) if each not in known]

    def remove(self, client: Hashable, channels: list[str] | None = None) -> list[str]:
        """Those that nobody wants any more; all of the client's when none are named."""
        mine = self._by_client.get(client)
        if mine is None:
            return []
        gone = set(mine) if channels is None else mine.intersection(channels)
        mine.difference_update(gone)
        if not mine:
            del self._by_client[client]
        return sorted(gone - self.wanted())

    async def ask(self, mod: Subscriber, channels: list[str], announced: Sequence[str]) -> list[str]:
        """Those that the mod does not have (yet).

        `x/*` is GABS's habit, and not every mod's: where it is not taken, what is `announced` below it is asked for.
        """
        self._expanded.difference_update(channels)
        missing = await _not_taken(mod, channels)
        patterns = [each for each in missing if each.endswith("/*")]
        below = [name for name in announced if any(channel_matches(each, name) for each in patterns)]
        if not below:
            return missing
        # With the others: a mod that refuses one of a list may have refused them all.
        again = list(dict.fromkeys([*(each for each in missing if each not in patterns), *below]))
        still = await _not_taken(mod, again)
        taken = [each for each in again if each not in still]
        expanded = {each for each in patterns if any(channel_matches(each, name) for name in taken)}
        self._expanded |= expanded
        return [each for each in missing if each not in expanded and each not in taken]

    def asked_for(self, channels: list[str], announced: Sequence[str]) -> list[str]:
        """What the mod was asked for by these names, and nobody wants by another one."""
        wanted = self.wanted()
        out: list[str] = []
        for each in channels:
            if each in self._expanded:
                self._expanded.discard(each)
                out += [
                    name
                    for name in announced
                    if channel_matches(each, name) and not any(channel_matches(other, name) for other in wanted)
                ]
            else:
                out.append(each)
        return list(dict.fromkeys(out))

    def of(self, client: Hashable) -> list[str]:
        return sorted(self._by_client.get(client, ()))

    def wanted(self) -> set[str]:
        return set().union(*self._by_client.values())


async def _not_taken(mod: Subscriber, channels: list[str]) -> list[str]:
    try:
        result = await mod.subscribe(channels)
    except GameError as error:
        if error.code != ErrorCode.CHANNEL_NOT_FOUND:
            raise
        return channels
    return [each for each in channels if each not in result.subscribed]
