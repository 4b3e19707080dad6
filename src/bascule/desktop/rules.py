"""The presets' rules on the desktop.

Nothing of it is in force before a person has enabled the desktop. `about.*` is what the bridge knows of a call
(`desktop.judging`): the app and its window as they are now, whether a person said yes to this app before, and
whether it is a terminal, where typing runs commands outside of the sandbox. The person is asked, and never about their
own calls. Password managers, lockers and our own windows are no matter of policy: nothing reaches them.
"""

from typing import Any

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule
from bascule.kernel.rows import Effect

_ASKED = ("local", "agent:*")
_DESKTOP = ("desktop.*",)
_WAIT = "Wait until the person has approved; this app asks once"


def _call(method: str = "desktop.click", *, principal: str = "agent:Jerry", **about: Any) -> Example:
    return Example(principal=principal, method=method, params={"about": about} if about else {})


_LOOKING = Rule(
    name="desktop-looking",
    decision=Decision.ALLOW,
    reason="a person enabled the desktop, and the app may be looked at",
    methods=_DESKTOP,
    effects=(Effect.OBSERVE,),
    match=(_call("desktop.windows"), _call("desktop.observe", app="editor", seen="same")),
    not_match=(_call("desktop.click"), _call("desktop.abort")),
)

_ACTING = Rule(
    name="desktop-acting",
    decision=Decision.ALLOW,
    reason="a person enabled the desktop, and the app may be acted in",
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    match=(_call("desktop.click"), _call("desktop.typeText", principal="person")),
    not_match=(_call("desktop.observe"), _call("desktop.status")),
)

_ACTING_BY_THE_PERSON = Rule(
    name="desktop-acting-by-the-person",
    decision=Decision.ALLOW,
    reason="it is the person's own desktop",
    principals=("person",),
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    match=(_call("desktop.click", principal="person"),),
    not_match=(_call("desktop.click"), _call("desktop.click", principal="local")),
)

_NEW_APPS_ASK = Rule(
    name="new-apps-ask",
    decision=Decision.ASK,
    reason="First look at this app: everything in its windows can be read",
    suggestion=_WAIT,
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.OBSERVE,),
    params={"about.seen": "new"},
    match=(_call("desktop.observe", app="editor", seen="new"), _call("desktop.waitUntil", app="*", seen="new")),
    not_match=(
        _call("desktop.observe", app="editor", seen="same"),
        _call("desktop.observe", app="editor", seen="new", principal="person"),
        _call("desktop.click", app="editor", seen="new"),
        _call("desktop.windows"),
    ),
)

_TERMINALS_ASK = Rule(
    name="terminals-ask",
    decision=Decision.ASK,
    reason="This is a terminal: what is typed in it runs as the user, outside of the sandbox",
    suggestion="Run the command in a space instead (exec); or wait until the person has approved this one act",
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    params={"about.terminal": "true"},
    match=(_call("desktop.typeText", app="xterm", terminal=True), _call(principal="local", terminal=True)),
    not_match=(
        _call("desktop.typeText", app="editor", terminal=False),
        _call("desktop.observe", app="xterm", terminal=True),
        _call(principal="person", terminal=True),
    ),
)

_KEYS_BEYOND_ASK = Rule(
    name="keys-beyond-the-app-ask",
    decision=Decision.ASK,
    reason="These keys are for the desktop itself, whatever app is in front",
    suggestion="Use keys of the app, or wait until the person has approved this one act",
    principals=_ASKED,
    methods=("desktop.hotkey",),
    params={"about.beyond": "true"},
    match=(_call("desktop.hotkey", app="editor", beyond=True), _call("desktop.hotkey", principal="local", beyond=True)),
    not_match=(
        _call("desktop.hotkey", app="editor", beyond=False),
        _call("desktop.hotkey", principal="person", beyond=True),
        _call("desktop.hotkey"),
    ),
)

_ACTING_ASKS = Rule(
    name="desktop-acting-asks",
    decision=Decision.ASK,
    reason="It acts on the user's desktop, as the user would",
    suggestion="Wait until the person has approved",
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    match=(_call("desktop.click"), _call("desktop.typeText", principal="local", app="editor")),
    not_match=(_call("desktop.click", principal="person"), _call("desktop.observe"), _call("desktop.abort")),
)

_ACTING_IN_NEW_APPS_ASKS = Rule(
    name="acting-in-new-apps-asks",
    decision=Decision.ASK,
    reason="First act in this app",
    suggestion=_WAIT,
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    params={"about.seen": "new"},
    match=(_call("desktop.click", app="editor", seen="new"),),
    not_match=(
        _call("desktop.click", app="editor", seen="same"),
        _call("desktop.click", app="editor", seen="new", principal="person"),
        _call("desktop.observe", app="editor", seen="new"),
    ),
)

_LOOKING_ASKS = Rule(
    name="desktop-looking-asks",
    decision=Decision.ASK,
    reason="Under the restrictive policy every look at the desktop asks",
    suggestion="Wait until the person has approved",
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.OBSERVE,),
    match=(_call("desktop.observe"), _call("desktop.windows", principal="local")),
    not_match=(_call("desktop.observe", principal="person"), _call("desktop.status")),
)

_NO_ACTING = Rule(
    name="no-acting-on-the-desktop",
    decision=Decision.DENY,
    reason="under the restrictive policy the desktop is looked at, not used",
    suggestion="Say what should be done, and let the user do it",
    principals=_ASKED,
    methods=_DESKTOP,
    effects=(Effect.UI_CONTROL,),
    match=(_call("desktop.click"), _call("desktop.hotkey", principal="local")),
    not_match=(_call("desktop.click", principal="person"), _call("desktop.observe")),
)

# Of equally strict rules the first is named, so the more telling ones stand before the others.
STANDARD = (_LOOKING, _ACTING_BY_THE_PERSON, _NEW_APPS_ASK, _TERMINALS_ASK, _KEYS_BEYOND_ASK, _ACTING_ASKS)
RESTRICTIVE = (_LOOKING, _ACTING_BY_THE_PERSON, _LOOKING_ASKS, _NO_ACTING)
PERMISSIVE = (_LOOKING, _ACTING, _TERMINALS_ASK, _KEYS_BEYOND_ASK, _ACTING_IN_NEW_APPS_ASKS)
