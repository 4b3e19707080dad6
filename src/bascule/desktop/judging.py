"""What the policy knows about a call on the desktop beyond its params, and how a person is asked about it.

Rules reach it as `about.*`. It is what the host sees now, so a caller cannot say it. A rule that needs it can ask or
deny, and not allow: whether a call is allowed at all is decided before any window is looked at.
"""

import glob
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from bascule.desktop import previews
from bascule.desktop.apps import App, Apps, Doing, Seen
from bascule.desktop.browsers import is_browser
from bascule.desktop.chords import reach_beyond
from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.extensions import ResolveResult, WindowInfo
from bascule.desktop.protocol import FoundElement, HotkeyCall, Resolved, ResolvedElement
from bascule.desktop.refusals import add_confirm_required, with_desktop_error
from bascule.desktop.rows import METHODS
from bascule.desktop.terminals import is_terminal, is_terminal_element
from bascule.kernel.call import Call, Principal
from bascule.kernel.consent.blocks import Preview
from bascule.kernel.gate import Gate
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.rules import Rule
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Effect, Row

# In place of an app: what looks at the windows of all of them.
EVERY_APP: Final = "*"
# An app names itself: what a ledger record says of it.
MAX_APP_CHARS: Final = 128
_ROWS: Final[Mapping[str, Row]] = {row.name: row for row in METHODS}
_TERMINAL_NOTE: Final = (
    "This is a terminal: what is typed here runs as you, outside of the sandbox, and no rule on commands sees it."
)
_NO_PICTURE_NOTE: Final = "This session shows no pictures: what is said here is what the program says of itself."
_CHECKED_NOTE: Final = (
    "This session cannot hold keys and clicks to a window: where they go is checked just before they are sent, and a "
    "window that takes the focus in that moment gets them."
)
_BEYOND_NOTE: Final = "These keys are for the desktop itself, whatever app is in front."


class DesktopFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the host and the house know."""

    # The bundleId, or what stands for it; "*" for all apps.
    app: str
    # Its file.
    program: str | None = None
    pid: int | None = None
    # The window's title.
    window: str | None = None
    # Whether a person said yes to this principal for this app before: to look at it, or (for what acts) to act in it.
    seen: Seen = "new"
    # Typing there runs commands.
    terminal: bool = False
    # Keys that the desktop itself takes, and not the app.
    beyond: bool = False


class JudgedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The call as it was judged: what the handler does, and nothing else."""

    about: DesktopFacts
    # The contract's params, by pid, windowId and elementRef.
    params: dict[str, Any]
    # What the host compares with before it acts. None: the windows of all apps, where nothing acts.
    resolved: Resolved | None = None


Again = Callable[[], Awaitable[Resolution]]


class Judging:
    def __init__(self, gate: Gate, apps: Apps, console_is_open: Callable[[], bool] = lambda: False) -> None:
        self._gate = gate
        self._apps = apps
        self._console_is_open = console_is_open

    def about_window(
        self, call: Call, found: ResolveResult, *, illustrate: Again | None = None, renew: Again | None = None
    ) -> Resolution:
        about = self._about(call, found)
        params: Any = call.params
        picture = found.picture
        return self._resolution(
            call,
            JudgedTarget(about=about, params=found.params, resolved=_resolved(found)),
            _bound(call, found),
            lambda: (
                previews.summary(call.method, params, found.bundle_id, found.element),
                previews.preview(call.method, params, found, _notes(about, found)),
            ),
            picture=None if picture is None else msgspec.json.decode(f'"{picture.data}"'.encode(), type=bytes),
            illustrate=illustrate,
            renew=renew,
        )

    def about_all_windows(self, call: Call, params: dict[str, Any], condition: str) -> Resolution:
        """Of no one app: the windows' titles."""
        about = DesktopFacts(
            app=EVERY_APP, seen=self._apps.compare(call.principal, doing_of(call.method), App(EVERY_APP, None))
        )
        return self._resolution(
            call,
            JudgedTarget(about=about, params=params),
            {"app": EVERY_APP},
            lambda: (
                f"{call.method.removeprefix('desktop.')} of all windows",
                previews.everywhere(call.method, condition),
            ),
        )

    @staticmethod
    def about_window_list() -> Resolution:
        """The list of windows: which apps are open, and no title that the caller may not see."""
        shown = "Which apps have windows open. Titles are shown only of apps that may be looked at."
        return Resolution(summary="list the windows", preview=shown, adapt=add_confirm_required)

    @staticmethod
    def kept_out(error: DesktopError) -> Resolution:
        """The host's own no, recorded like one of the policy."""
        verdict = Verdict(
            Decision.DENY,
            "desktop.keep-out",
            error.message,
            "Do not try it another way; ask the user of this machine to do it",
        )
        return Resolution(verdict=verdict, adapt=with_desktop_error(error))

    @staticmethod
    def guessed_too_often() -> Resolution:
        error = DesktopError(Code.CONFIRM_REQUIRED, "too many guesses at what is in an app that you may not look at")
        advice = "Look at it first (desktop.observe): the person is asked once"
        verdict = Verdict(Decision.DENY, "desktop.guesses", error.message, advice)
        return Resolution(verdict=verdict, adapt=with_desktop_error(error))

    def may_see_title(self, principal: Principal, window: WindowInfo, program: str | None) -> bool:
        return self._may_look(principal, App(window.bundle_id, program), window.pid, window.title)

    def may_look_at(self, principal: Principal, found: ResolveResult) -> bool:
        return self._may_look(principal, App(found.bundle_id, found.program), found.pid, found.window_title)

    def _may_look(self, principal: Principal, app: App, pid: int, title: str) -> bool:
        """Now, without asking."""
        about = DesktopFacts(
            app=app.name,
            program=app.program,
            pid=pid,
            window=title,
            seen=self._apps.compare(principal, "look", app),
            terminal=is_terminal(*app),
        )
        facts = {"about": msgspec.to_builtins(about)}
        return self._gate.verdict(principal, "desktop.observe", None, facts=facts).decision is Decision.ALLOW

    def _about(self, call: Call, found: ResolveResult) -> DesktopFacts:
        return DesktopFacts(
            app=found.bundle_id,
            program=found.program,
            pid=found.pid,
            window=found.window_title,
            seen=self._apps.compare(call.principal, doing_of(call.method), App(found.bundle_id, found.program)),
            terminal=is_terminal(found.bundle_id, found.program) or _types_into_terminal(found),
            beyond=isinstance(call.params, HotkeyCall) and reach_beyond(call.params.keys),
        )

    def _resolution(
        self,
        call: Call,
        target: JudgedTarget,
        bound: dict[str, Any],
        shown: Callable[[], tuple[str, Preview]],
        *,
        picture: bytes | None = None,
        illustrate: Again | None = None,
        renew: Again | None = None,
    ) -> Resolution:
        about = target.about
        resolution = Resolution(
            facts={**msgspec.to_builtins(call.params), "about": msgspec.to_builtins(about)},
            bound=bound,
            resolved=target,
            subject=about.app[:MAX_APP_CHARS],
            offers=self._offers(call, about),
            picture=picture,
            illustrate=illustrate,
            renew=renew,
            adapt=add_confirm_required,
        )

        async def describe(_: Verdict) -> Resolution:
            summary, preview = shown()
            return msgspec.structs.replace(resolution, summary=summary, preview=preview, describe=None)

        return msgspec.structs.replace(resolution, describe=describe)

    def _offers(self, call: Call, about: DesktopFacts) -> tuple[Rule, ...]:
        acts = doing_of(call.method) == "act"
        if acts and self._console_is_open() and is_browser(about.app, about.program):
            # The person consents in a tab of a browser: nothing acts there for minutes unasked.
            return ()
        return _offers(call.principal, _ROWS[call.method], about)


def _notes(about: DesktopFacts, found: ResolveResult) -> tuple[str, ...]:
    notes = (
        (_TERMINAL_NOTE, about.terminal),
        (_BEYOND_NOTE, about.beyond),
        (_NO_PICTURE_NOTE, not found.pictures),
        (_CHECKED_NOTE, not found.held),
    )
    return tuple(note for note, holds in notes if holds)


def _types_into_terminal(found: ResolveResult) -> bool:
    """A terminal inside another program, as editors have them."""
    element = found.element
    return element is not None and is_terminal_element(element.native_role, element.title)


def doing_of(method: str) -> Doing:
    return "act" if _ROWS[method].effect is Effect.UI_CONTROL else "look"


def _bound(call: Call, found: ResolveResult) -> dict[str, Any]:
    """What a yes is for. One to look is for the app; one to act is for the element in the window that was shown."""
    app = {"app": found.bundle_id, "program": found.program, "pid": found.pid}
    if doing_of(call.method) == "look":
        return app
    return app | {
        "window": found.window_id,
        "title": found.window_title,
        "element": _identity(found.element),
        "to": _identity(found.to),
    }


def _resolved(found: ResolveResult) -> Resolved:
    return Resolved(
        bundle_id=found.bundle_id,
        pid=found.pid,
        program=found.program,
        window_id=found.window_id,
        window_title=found.window_title,
        element=_resolved_element(found.element),
        to=_resolved_element(found.to),
    )


def _resolved_element(element: FoundElement | None) -> ResolvedElement | None:
    if element is None:
        return None
    return ResolvedElement(fingerprint=element.fingerprint, role=element.role, native_role=element.native_role)


def _identity(element: FoundElement | None) -> list[str] | None:
    return None if element is None else [element.fingerprint, element.role, element.native_role]


def _offers(principal: Principal, row: Row, about: DesktopFacts) -> tuple[Rule, ...]:
    """This app, as it runs now, for a while. Not for terminals, where every line is another command."""
    if about.pid is None or about.terminal or about.beyond:
        return ()
    params = {
        "about.app": glob.escape(about.app),
        "about.pid": str(about.pid),
        "about.terminal": "false",
        "about.beyond": "false",
    }
    if about.program is not None:
        params["about.program"] = glob.escape(about.program)
    return (
        Rule(
            name="timed.desktop.app",
            decision=Decision.ALLOW,
            reason="acting in this app" if row.effect is Effect.UI_CONTROL else "looking at this app",
            principals=(glob.escape(principal),),
            methods=("desktop.*",),
            effects=(row.effect,),
            params=params,
        ),
    )
