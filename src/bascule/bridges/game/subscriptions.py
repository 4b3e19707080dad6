"""Which clients want which channels of one game; kept over reconnects and restarts."""

from collections.abc import Hashable

from bascule.errors import Overloaded

# Of one client at one game.
MAX_CHANNELS_PER_CLIENT = 64
# Streams count as one each.
MAX_CLIENTS = 1_024


class Subscriptions:
    def __init__(self) -> None:
        self._by_client: dict[Hashable, set[str]] = {}

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

    def of(self, client: Hashable) -> list[str]:
        return sorted(self._by_client.get(client, ()))

    def wanted(self) -> set[str]:
        return set().union(*self._by_client.values())
