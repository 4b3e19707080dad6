"""X11: which windows there are, where, whose, and in what order."""

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
import Xlib.error
from Xlib import X, display
from Xlib.ext import res
from Xlib.protocol import event as xevent

from bascule.foundation.paths import program_file
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.ports import NotReachable, Window

# A window manager lists fewer; a program that opens thousands must not stop us.
MAX_WINDOWS: Final = 500
MAX_TITLE_CHARS: Final = 512
# Of a client's window up to the root, and of what has the focus up to that window.
_MAX_ANCESTORS: Final = 16
# GTK's are some 30 pixels wide, four times that on a screen of high density. What says more is not believed.
_MAX_SHADOW: Final = 256
_SIDES: Final = 4


_MODIFIERS: Final = X.ShiftMask | X.ControlMask | X.Mod1Mask | X.Mod4Mask | X.Mod5Mask


class X11:
    """One connection, used by one thread."""

    def __init__(self, name: str | None) -> None:
        try:
            self.display: Any = display.Display(name)
        except (Xlib.error.DisplayError, OSError, struct.error) as error:
            raise NotReachable(f"no X display: {error}") from error
        # Windows vanish while they are asked about; the default handler prints to stderr.
        self.display.set_error_handler(lambda *_: None)
        self.root: Any = self.display.screen().root
        self._atoms: dict[str, int] = {}

    def close(self) -> None:
        self.display.close()

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            self._atoms[name] = self.display.intern_atom(name)
        return self._atoms[name]

    def screen(self) -> Rect:
        geometry = self.root.get_geometry()
        return Rect(0, 0, geometry.width, geometry.height)

    def root_text(self, name: str) -> str | None:
        value = self._property(self.root, name)
        return bytes(value).decode("latin-1") if isinstance(value, bytes | bytearray) else None

    def is_xwayland(self) -> bool:
        if self.display.query_extension("XWAYLAND"):
            return True
        # Before Xwayland 23.1 there is no such extension; its outputs have always had this name.
        with contextlib.suppress(Xlib.error.XError, AttributeError):
            resources = self.root.xrandr_get_screen_resources()
            for output in resources.outputs:
                info = self.display.xrandr_get_output_info(output, resources.config_timestamp)
                if info.name.startswith("XWAYLAND"):
                    return True
        return False

    def has_window_manager(self) -> bool:
        return bool(self._property(self.root, "_NET_SUPPORTING_WM_CHECK"))

    def active(self) -> int:
        found = self._property(self.root, "_NET_ACTIVE_WINDOW")
        return int(found[0]) if found else 0

    def windows(self) -> list[Window]:
        """From the lowest to the topmost."""
        listed = self._property(self.root, "_NET_CLIENT_LIST") or ()
        active = self.active()
        tops: dict[int, int] = {}
        for handle in list(listed)[:MAX_WINDOWS]:
            if top := self._top(int(handle)):
                tops[top] = int(handle)
        out: list[Window] = []
        children = self.root.query_tree().children[-MAX_WINDOWS:]
        for child in children:
            client = tops.get(child.id)
            try:
                # Without a window manager every window is its own frame.
                window = self._window(client or child.id, child, popup=client is None and bool(listed), active=active)
            except Xlib.error.XError:
                # Closed since the list was made.
                continue
            if window is not None:
                out.append(window)
        return self._named_as_one(out)

    def _named_as_one(self, windows: list[Window]) -> list[Window]:
        """GTK 3 gives a program's dialogs no id of their own, only a WM_CLASS: theirs is the id of its other windows.

        Of one connection, not of one process: all programs that come through ssh are one process here.
        """
        mask = ~int(self.display.display.info.resource_id_mask)
        declared = {each.handle: self._declared(each.handle) for each in windows}
        of_client: dict[int, list[str]] = {}
        for handle in sorted(declared):
            if declared[handle]:
                of_client.setdefault(handle & mask, declared[handle])
        out: list[Window] = []
        for each in windows:
            ids = declared[each.handle] or of_client.get(each.handle & mask, [each.bundle_id])
            out.append(msgspec.structs.replace(each, bundle_id=ids[0], names=each.names.union(ids)))
        return out

    def _declared(self, handle: int) -> list[str]:
        """The ids that its program declares for a window."""
        window = self.display.create_resource_object("window", handle)
        found = (_text(self._property(window, each)) for each in ("_GTK_APPLICATION_ID", "_KDE_NET_WM_DESKTOP_FILE"))
        return [each for each in found if each]

    def _top(self, handle: int) -> int:
        """The child of the root that holds it: the window manager's frame."""
        try:
            window = self.display.create_resource_object("window", handle)
            for _ in range(_MAX_ANCESTORS):
                tree = window.query_tree()
                if not tree.parent or tree.parent.id == self.root.id:
                    return int(window.id)
                window = tree.parent
        except Xlib.error.XError:
            pass
        return 0

    def _window(self, handle: int, top: Any, *, popup: bool, active: int) -> Window | None:
        attributes = top.get_attributes()
        if attributes.map_state != X.IsViewable or attributes.win_class == X.InputOnly:
            return None
        client = self.display.create_resource_object("window", handle)
        geometry = client.get_geometry()
        outer = rect = self._place(top, geometry if handle == top.id else top.get_geometry())
        if handle != top.id:
            # From the frame's place: both would be asked for at different moments of a window that moves.
            inside = top.translate_coords(client, 0, 0)
            rect = Rect(outer.x + inside.x, outer.y + inside.y, geometry.width, geometry.height)
        if rect.width <= 1 or rect.height <= 1:
            return None
        pid = self._pid(client)
        program = program_file(pid)
        names = self._names(client, program)
        return Window(
            handle=handle,
            pid=pid,
            bundle_id=names[0] if names else "unknown",
            names=frozenset(names),
            program=program,
            title=self._title(client),
            rect=rect,
            outer=outer,
            shadow=self._shadow(client),
            active=handle == active,
            popup=popup,
        )

    def _place(self, window: Any, geometry: Any) -> Rect:
        at = self.root.translate_coords(window, 0, 0)
        return Rect(at.x, at.y, geometry.width, geometry.height)

    def _shadow(self, window: Any) -> tuple[int, int, int, int]:
        """As the program says it; what cannot be a shadow of this window counts as none."""
        found = self._property(window, "_GTK_FRAME_EXTENTS")
        sides = [int(each) for each in found] if found is not None else []
        if len(sides) != _SIDES or max(sides) > _MAX_SHADOW:
            return (0, 0, 0, 0)
        return (sides[0], sides[1], sides[2], sides[3])

    def _pid(self, window: Any) -> int:
        # _NET_WM_PID is what a program says of itself.
        if pid := client_pid(self.display, window):
            return pid
        found = self._property(window, "_NET_WM_PID")
        return int(found[0]) if found else 0

    def _title(self, window: Any) -> str:
        value = self._property(window, "_NET_WM_NAME") or self._property(window, "WM_NAME")
        return _text(value)[:MAX_TITLE_CHARS]

    def _names(self, window: Any, program: str | None) -> list[str]:
        """What a window is called where its program declares no id, the best first."""
        names = _text(self._property(window, "WM_CLASS")).split("\0")[::-1]
        names.append(os.path.basename(program or ""))
        return list(dict.fromkeys(each for each in names if each))

    def _property(self, window: Any, name: str) -> Any:
        try:
            found = window.get_full_property(self.atom(name), X.AnyPropertyType)
        except Xlib.error.XError:
            return None
        return None if found is None else found.value

    def activate(self, handle: int) -> None:
        """Ask the window manager; without one, raise and focus by ourselves."""
        window = self.display.create_resource_object("window", handle)
        if self.has_window_manager():
            # Source 2: we act for the person, as a pager does; a plain request would only blink.
            data = (32, [2, X.CurrentTime, 0, 0, 0])
            message = xevent.ClientMessage(window=window, client_type=self.atom("_NET_ACTIVE_WINDOW"), data=data)
            mask = X.SubstructureRedirectMask | X.SubstructureNotifyMask
            self.root.send_event(message, event_mask=mask)
        else:
            window.configure(stack_mode=X.Above)
            window.set_input_focus(X.RevertToParent, X.CurrentTime)
        self.display.sync()

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """No other client is served meanwhile, so that what is seen inside still holds when an event is sent inside.

        For a few requests only: everybody's screen stands still. A process that dies in here gives it back.
        """
        self.display.grab_server()
        try:
            yield
        finally:
            self.display.ungrab_server()
            self.display.sync()

    def has_focus(self, handle: int) -> bool:
        """Whether a key that is pressed now goes to this window, or to something inside it."""
        at = self.display.get_input_focus().focus
        if at == X.PointerRoot:
            at = self.root.query_pointer().child
        for _ in range(_MAX_ANCESTORS):
            if not at:
                return False
            if at.id == handle:
                return True
            at = at.query_tree().parent
        return False

    def held_modifiers(self) -> int:
        """Shift, Ctrl, Alt, Super and AltGr that are down, on whichever keyboard; locks are not meant."""
        return int(self.root.query_pointer().mask & _MODIFIERS)

    def pointer(self) -> tuple[int, int]:
        found = self.root.query_pointer()
        return int(found.root_x), int(found.root_y)

    def place(self, handle: int) -> Rect:
        window = self.display.create_resource_object("window", handle)
        return self._place(window, window.get_geometry())

    def on_top(self, x: int, y: int, pid: int, handles: Iterable[int]) -> Literal["window", "popup"] | None:
        """Whether a button that is pressed there now goes to one of these windows, or to a popup of their program."""
        child = self.root.translate_coords(self.root, x, y).child
        if not child:
            return None
        if child.id in {self._top(each) for each in handles}:
            return "window"
        return "popup" if self._pid(child) == pid else None


def client_pid(connection: Any, window: Any) -> int:
    """Whose connection a window belongs to, as the server knows. 0: it does not tell."""
    try:
        spec = [{"client": window.id, "mask": res.LocalClientPIDMask}]
        for each in connection.res_query_client_ids(spec).ids:
            if each.value:
                return int(each.value[0])
    except (Xlib.error.XError, AttributeError):
        # The window is gone, or the server has no X-Resource.
        pass
    return 0


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace").rstrip("\0")
