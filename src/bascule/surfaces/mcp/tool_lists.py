"""Who is to hear that the tools an agent may use have become others.

At `/mcp` the list is what the policy lets an agent use, so it changes when a person accepts another policy; and only
then is anybody notified, and only those whose own list differs. The stdio program lists its sets, which do not change.
"""

from collections.abc import Callable

from bascule.kernel.call import Principal

Names = tuple[str, ...]


class ToolLists:
    def __init__(self, visible: Callable[[Principal], Names]) -> None:
        self._visible = visible
        # What each had when it was last told.
        self._followers: dict[object, tuple[Principal, Names, Callable[[], None]]] = {}

    def follow(self, principal: Principal, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` when the list of this agent changes; the result ends that."""
        key = object()
        self._followers[key] = (principal, self._visible(principal), notify)

        def end() -> None:
            self._followers.pop(key, None)

        return end

    def policy_changed(self) -> None:
        for key, (principal, before, notify) in list(self._followers.items()):
            now = self._visible(principal)
            if now != before:
                self._followers[key] = (principal, now, notify)
                notify()
