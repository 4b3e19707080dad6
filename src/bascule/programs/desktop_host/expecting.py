"""`confirm.resolved`: an act is about exactly what its client was shown, or it is refused. Pure.

An act calls `check_window` and `check_element` with what it finds, and `check_complete` before its first effect.
"""

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.protocol import Resolved, ResolvedElement
from bascule.programs.desktop_host.elements import Element
from bascule.programs.desktop_host.ports import Window
from bascule.programs.desktop_host.refs import fingerprint_of, same
from bascule.programs.desktop_host.routes import window_id_of


class Expected:
    def __init__(self, resolved: Resolved) -> None:
        self.unmoved = resolved.unmoved
        self._resolved = resolved
        self._elements = {"element": resolved.element, "to": resolved.to}
        self._unchecked = {"window", *(name for name, each in self._elements.items() if each is not None)}

    def check_window(self, window: Window) -> None:
        wanted = self._resolved
        found = {
            "bundleId": window.bundle_id == wanted.bundle_id,
            "pid": window.pid == wanted.pid,
            "program": window.program == wanted.program,
            "windowId": window_id_of(window) == wanted.window_id,
            "windowTitle": window.title == wanted.window_title,
        }
        differs = [name for name, equal in found.items() if not equal]
        if differs:
            raise _changed(differs)
        self._unchecked.discard("window")

    def check_element(self, name: str, element: Element | None) -> None:
        """`name`: "element", or "to" of a drag. None: the act goes wherever the focus is."""
        if not self._is(self._elements[name], element):
            raise _changed([name])
        self._unchecked.discard(name)

    def _is(self, wanted: ResolvedElement | None, found: Element | None) -> bool:
        if wanted is None or found is None:
            return wanted is None and found is None
        if (found.role, found.native_role) != (wanted.role, wanted.native_role):
            return False
        return fingerprint_of(found) == wanted.fingerprint if self.unmoved else same(found, wanted.fingerprint)

    def check_complete(self) -> None:
        """What was expected and is no part of the act differs as well."""
        if self._unchecked:
            raise _changed(sorted(self._unchecked))


def _changed(names: list[str]) -> DesktopError:
    """Which of it, and not what it is now: the client may not be allowed to see that."""
    return DesktopError(
        Code.CONFIRM_REQUIRED,
        f"what this call is about is not what confirm.resolved says ({', '.join(names)}): resolve it again",
        reason="changed",
        changed=names,
    )
