"""wlr-foreign-toplevel: windows as any Wayland program may know them, by title and app id, to be activated.

`activate` here and the key that follows it are carried out in one go; by the compositor's own socket they would not be.
"""

import msgspec

from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object


class Toplevel(msgspec.Struct, eq=False):
    handle: Object
    title: str = ""
    app_id: str = ""
    closed: bool = False


class Toplevels:
    def __init__(self, connection: Connection, manager: Object, seat: Object) -> None:
        self._connection = connection
        self._seat = seat
        self._all: list[Toplevel] = []
        manager.handlers["toplevel"] = self._on_toplevel

    def _on_toplevel(self, handle: Object) -> None:
        made = Toplevel(handle)
        self._all.append(made)
        handle.handlers = {
            "title": lambda title: setattr(made, "title", title or ""),
            "app_id": lambda app_id: setattr(made, "app_id", app_id or ""),
            "closed": lambda: self._on_closed(made),
        }

    def _on_closed(self, toplevel: Toplevel) -> None:
        toplevel.closed = True
        self._all.remove(toplevel)
        self._connection.request(toplevel.handle, "destroy")

    def named(self, title: str, app_id: str) -> list[Toplevel]:
        return [each for each in self._all if (each.title[: len(title) or None], each.app_id) == (title, app_id)]

    def activate(self, toplevel: Toplevel) -> None:
        """Kept until `flush`."""
        self._connection.request(toplevel.handle, "activate", self._seat)
