"""What happens at the desktop, as facts for `events.all`: the switch, the host, and which app was looked at or used."""

from bascule.foundation.text import one_line
from bascule.kernel.call import Call
from bascule.kernel.event_ring import EventRing, Fact, Kind

# An app's id is a name in reverse, or a program's.
MAX_APP_CHARS = 120


class DesktopNews:
    def __init__(self, events: EventRing) -> None:
        self._events = events

    def switched(self, event: str, by: str | None) -> None:
        """enabled, disabled, stopped, resumed."""
        self._events.publish(Fact(kind=Kind.DESKTOP, event=event, principal=by))

    def host(self, status: str) -> None:
        """ready or lost."""
        self._events.publish(Fact(kind=Kind.DESKTOP, event="host", status=status))

    def executed(self, call: Call, app: str | None, execution_id: str, effect: str | None = None) -> None:
        self._events.publish(
            Fact(
                kind=Kind.DESKTOP,
                event=call.method.removeprefix("desktop."),
                id=execution_id,
                principal=call.principal,
                status=effect,
                text=one_line(app, MAX_APP_CHARS) if app else None,
            )
        )
