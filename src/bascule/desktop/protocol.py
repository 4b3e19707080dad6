"""The desktop contract 2.2 as types: what a peer sends and what the host answers. Pure data.

Fields that the contract does not have are additions: optional in requests, beside the contract's own in answers.
`health` lists them, so that a client need not guess.
"""

from typing import Annotated, Any, Literal

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.kernel.rows import Params, Result

# Contract 7: "meta.schemaVersion: the bridge's schema version (P0 = 1)".
SCHEMA_VERSION = 1

DEFAULT_TIMEOUT_MS = 60_000
# Ten minutes: nobody waits longer for one step of a screen, and a lost client's call ends by itself.
MAX_TIMEOUT_MS = 600_000
# Contract 5.8: pollMs "default 500ms".
DEFAULT_POLL_MS = 500
MIN_POLL_MS = 20
# Contract 4.4: limit "default 10".
DEFAULT_LIMIT = 10
MAX_LIMIT = 500
# Contract 5.3's example.
DEFAULT_AX_DEPTH = 8
DEFAULT_AX_NODES = 2_000
# A window deeper or larger than this is read in parts.
MAX_AX_DEPTH = 64
MAX_AX_NODES = 20_000
# Contract 5.10: "ttlMs: default 60000ms".
DEFAULT_TTL_MS = 60_000
MAX_TTL_MS = 600_000
# A typed text is pasted; more belongs into a file.
MAX_TEXT_CHARS = 1_000_000
# A chord has at most four modifiers and a key.
MAX_KEYS = 5
MAX_KEY_DELAY_MS = 1_000
# Requests of one person or agent are named by UUIDs; the phrase repeats the name.
REQUEST_ID = r"^[A-Za-z0-9._:-]{1,128}$(?!\n)"
# As `windows` shows it.
WINDOW_ID = r"^w:[0-9a-f]{1,16}$(?!\n)"
# A principal: `agent:` and a handle, or one of the few words.
CLIENT = r"^[A-Za-z0-9._:-]{1,140}$(?!\n)"
# Longer than any title bar shows.
MAX_PATTERN_CHARS = 256
# The longer edge of a picture that is sent along: what models look at without scaling it down themselves.
INLINE_EDGE_PIXELS = 1_568

WorkspacePath = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATTERN_CHARS)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMEOUT_MS)]


class Meta(Params, frozen=True, kw_only=True):
    """Section 4.1: every request has one."""

    schema_version: int
    request_id: Annotated[str, msgspec.Meta(pattern=REQUEST_ID)]
    workspace_path: WorkspacePath
    timeout_ms: Millis = DEFAULT_TIMEOUT_MS
    # Addition: on whose behalf. What one process does for several (refs, tokens, executions, diffs) is kept apart.
    client: Annotated[str, msgspec.Meta(pattern=CLIENT)] | None = None


class ResolvedElement(Params, frozen=True, kw_only=True):
    fingerprint: Annotated[str, msgspec.Meta(max_length=4_096)]
    role: str
    native_role: str


class Resolved(Params, frozen=True, kw_only=True):
    """Addition: what `desktop.resolve` found. The host looks again when it acts, and refuses when anything differs."""

    bundle_id: str
    pid: int
    program: str | None = None
    window_id: str
    window_title: str
    element: ResolvedElement | None = None
    # Of a drag.
    to: ResolvedElement | None = None
    # The elements must also be where they were.
    unmoved: bool = True


class Confirm(Params, frozen=True, kw_only=True):
    """Section 4.2."""

    token: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    phrase: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    approved_at: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    approver: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    # Addition: confirms the act by itself, and limits one that a token or a phrase confirms.
    resolved: Resolved | None = None


class RouteApp(Params, frozen=True, kw_only=True):
    bundle_id: Text | None = None
    # Addition: where several programs share an id.
    pid: Annotated[int, msgspec.Meta(ge=1)] | None = None


class RouteWindow(Params, frozen=True, kw_only=True):
    """By its title, or (addition) the very window that `windows` and `resolve` name; at least one of them."""

    title_pattern: Pattern | None = None
    window_id: Annotated[str, msgspec.Meta(pattern=WINDOW_ID)] | None = None


class Route(Params, frozen=True, kw_only=True):
    """Section 4.3. Without one: the frontmost app."""

    app: RouteApp | None = None
    window: RouteWindow | None = None
    # `requireFocused` is an addition: refuse rather than take the focus from the person.
    focus_policy: Literal["focusIfNeeded", "requireFocused"] = "focusIfNeeded"


class Frame(Params, frozen=True, kw_only=True):
    x: int
    y: int
    width: int
    height: int


class Near(Params, frozen=True, kw_only=True):
    """Addition: an element by what stands beside it."""

    anchor: "Selector"
    direction: Literal["any", "left", "right", "above", "below"] = "any"
    max_distance: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300


class Selector(Params, frozen=True, kw_only=True):
    """Section 4.4. All given fields must hold; `contains` is case-sensitive."""

    by_role: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    title_contains: Text | None = None
    value_contains: Text | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] | None = None
    # Additions.
    by_path: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=64)] | None = None
    near: Near | None = None
    by_rect: Frame | None = None
    # The nth hit, from 0.
    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_AX_NODES)] | None = None

    def is_empty(self) -> bool:
        """Whether it would match everything."""
        chosen = (self.by_role, self.title_contains, self.value_contains, self.by_path, self.near, self.by_rect)
        return all(each is None for each in chosen)


class ElementRef(Params, frozen=True, kw_only=True):
    """Section 4.5, as a client hands it back: the id and the fingerprint count, the rest may come along."""

    element_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    fingerprint: Annotated[str, msgspec.Meta(max_length=4_096)] | None = None
    role: str | None = None
    title: str | None = None
    value: str | None = None
    frame: Frame | None = None
    native_role: str | None = None
    visible: bool | None = None
    states: list[str] | None = None


class Target(Params, frozen=True, kw_only=True):
    element_ref: ElementRef | None = None
    selector: Selector | None = None
    # Addition: false for this very object or nothing; one that looks the same is another.
    rematch: bool = True


class DesktopCall(Params, frozen=True, kw_only=True):
    """What every call of the daemon has in common. For the host it is in `meta`; see `host_methods`."""

    # Where evidence goes; unless given, a directory of the daemon's own. Shorter than a path may be: in a GET it must
    # fit into the query.
    workspace_path: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)] | None = None
    timeout_ms: Millis = DEFAULT_TIMEOUT_MS
    # To abort it by, before its answer says its executionId.
    request_id: Annotated[str, msgspec.Meta(pattern=REQUEST_ID)] | None = None


class Routed(DesktopCall, frozen=True, kw_only=True):
    # Without one: the frontmost app.
    route: Route | None = None


class TargetCall(Routed, frozen=True, kw_only=True):
    target: Target


# -- 5.1, 5.2 --


class PeerInfo(Result, frozen=True, kw_only=True):
    pid: int
    audit_token_digest: str


class BridgeInfo(Result, frozen=True, kw_only=True, omit_defaults=False):
    schema_version: int = SCHEMA_VERSION


Permission = Literal["granted", "denied", "unknown"]


class Permissions(Result, frozen=True, kw_only=True):
    accessibility: Permission
    screen_recording: Permission


# The keys that stop everything: the first that no other program has taken. GNOME has taken the one with Escape.
STOP_CHORDS = ("Ctrl+Alt+Shift+Escape", "Ctrl+Alt+Shift+F12")


class HealthResult(Result, frozen=True, kw_only=True, omit_defaults=False):
    host_version: str
    # null where this is no Mac; `platform` says what it is.
    macos: str | None
    platform: str
    permissions: Permissions
    bridge: BridgeInfo
    peer: PeerInfo
    # What there is beyond the contract: methods, selectors, conditions, options.
    extensions: dict[str, list[str]]
    stopped: bool = False
    # Addition: what the person can press to stop everything, whatever window has the focus. None: nothing.
    stop_keys: str | None = None
    # Addition: what can be done in this session.
    capabilities: Capabilities | None = None


class DoctorCall(Params, frozen=True, kw_only=True):
    # Addition: also which open programs cannot be read, and why. Their names are in the answer then; not for agents.
    programs: bool = False


class PermissionDetail(Result, frozen=True, kw_only=True, omit_defaults=False):
    granted: bool
    required: bool
    purpose: str


class DoctorPermissions(Result, frozen=True, kw_only=True):
    accessibility: PermissionDetail
    screen_recording: PermissionDetail


class DoctorResult(Result, frozen=True, kw_only=True, omit_defaults=False):
    permissions: DoctorPermissions
    issues: list[str]
    healthy: bool
    peer: PeerInfo
    # Additions: what each issue needs, in the same order; and what is not wrong with the host but worth knowing.
    remedies: list[str]
    notes: list[str] = []
    # Addition: what can be done in this session.
    capabilities: Capabilities | None = None


# -- 5.3 --


class ObserveOptions(Params, frozen=True, kw_only=True):
    include_screenshot: bool = True
    include_ax_tree: bool = True
    ax_max_depth: Annotated[int, msgspec.Meta(ge=1, le=MAX_AX_DEPTH)] = DEFAULT_AX_DEPTH
    ax_max_nodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_AX_NODES)] = DEFAULT_AX_NODES
    # Additions: a compact text with refs, numbers drawn on the screenshot, what changed since the last observe, the
    # picture (with its marks) in the answer too.
    snapshot: bool = False
    marks: bool = False
    diff: bool = False
    inline: bool = False


class ObserveCall(Routed, frozen=True, kw_only=True):
    options: ObserveOptions = ObserveOptions()


class RouteResolved(Result, frozen=True, kw_only=True, omit_defaults=False):
    frontmost_bundle_id: str
    window_title: str


class Evidence(Result, frozen=True, kw_only=True):
    """Where the files of an execution are: `dir` ends in `/`, the others are names in it."""

    dir: str
    screenshot_path: str | None = None
    ax_path: str | None = None
    before_screenshot: str | None = None
    after_screenshot: str | None = None


class InlineImage(Result, frozen=True, kw_only=True, omit_defaults=False):
    """A picture in an answer, no edge of it longer than INLINE_EDGE_PIXELS."""

    mime_type: str
    # base64.
    data: str
    width: int
    height: int
    # Pixels of the screen per pixel of the picture.
    scale: float


class ObserveResult(Result, frozen=True, kw_only=True):
    execution_id: str
    route_resolved: RouteResolved
    evidence: Evidence
    # Additions. Why the tree is not complete; absent: it is.
    partial: list[str] = []
    nodes: int | None = None
    snapshot: str | None = None
    diff: list[str] | None = None
    image: InlineImage | None = None


# -- 5.4 --


class FindCall(Routed, frozen=True, kw_only=True):
    selector: Selector


class FoundElement(Result, frozen=True, kw_only=True, omit_defaults=False):
    element_id: str
    fingerprint: str
    role: str
    title: str | None
    value: str | None
    frame: Frame
    # Additions: the toolkit's own word, whether any of it can be seen, which states hold.
    native_role: str
    visible: bool
    states: list[str]


class FindResult(Result, frozen=True, kw_only=True):
    execution_id: str
    element_refs: list[FoundElement]
    matched: int
    evidence: Evidence
    partial: list[str] = []


# -- 5.5, 5.6, 5.7 --

Effect = Literal["confirmed", "unverified", "none"]
# In what a change was seen: the element reads back differently, its program said that something changed, or the window
# shows something else than before, in which case that may be somebody else's doing.
SeenBy = Literal["element", "program", "window"]


class ClickResult(Result, frozen=True, kw_only=True):
    execution_id: str
    clicked: bool
    evidence: Evidence
    # Additions: what could be seen of it and in what, how it was done, whether the ref had to be found again, and with
    # `unverified` for how long a change was looked for.
    effect: Effect
    by: SeenBy | None = None
    method: Literal["action", "pointer"]
    rematched: bool = False
    watched_ms: int | None = None


class TypeTextOptions(Params, frozen=True, kw_only=True):
    clear_before: bool = False


class TypeTextCall(Routed, frozen=True, kw_only=True):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]
    target: Target | None = None
    options: TypeTextOptions = TypeTextOptions()


class TypeTextResult(Result, frozen=True, kw_only=True):
    execution_id: str
    typed: bool
    evidence: Evidence
    effect: Effect
    # What became of the person's clipboard.
    clipboard: Literal["restored", "empty", "lost", "untouched"]
    rematched: bool = False


class HotkeyOptions(Params, frozen=True, kw_only=True):
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_KEY_DELAY_MS)] = 0


Keys = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=32)]], msgspec.Meta(min_length=1, max_length=MAX_KEYS)
]


class HotkeyCall(Routed, frozen=True, kw_only=True):
    keys: Keys
    options: HotkeyOptions = HotkeyOptions()


class HotkeyResult(Result, frozen=True, kw_only=True):
    execution_id: str
    sent: bool
    evidence: Evidence
    effect: Effect
    by: SeenBy | None = None
    watched_ms: int | None = None


# -- 5.8 --


class Stable(Params, frozen=True, kw_only=True):
    """Addition: nothing has changed for so long."""

    for_ms: Annotated[int, msgspec.Meta(ge=50, le=60_000)] = 500


class WindowExists(Params, frozen=True, kw_only=True):
    title_pattern: Pattern


class ValueContains(Params, frozen=True, kw_only=True):
    selector: Selector
    text: Text


class Condition(Params, frozen=True, kw_only=True):
    """Exactly one. The contract has `selectorExists`; the others are additions."""

    selector_exists: Selector | None = None
    selector_gone: Selector | None = None
    value_contains: ValueContains | None = None
    title_matches: Pattern | None = None
    window_exists: WindowExists | None = None
    stable: Stable | None = None

    def chosen(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class WaitUntilCall(Routed, frozen=True, kw_only=True):
    """`timeoutMs` is how long to wait: of the contract's two limits the smaller counts, so one is enough."""

    condition: Condition
    poll_ms: Annotated[int, msgspec.Meta(ge=MIN_POLL_MS, le=MAX_TIMEOUT_MS)] = DEFAULT_POLL_MS


class WaitUntilResult(Result, frozen=True, kw_only=True, omit_defaults=False):
    execution_id: str
    ok: bool
    matched: int
    elapsed_ms: int
    evidence: Evidence


# -- 5.9, 5.10 --


class AbortCall(Params, frozen=True, kw_only=True):
    # The executionId, or the requestId: a client learns the former only from the answer.
    execution_id: Annotated[str, msgspec.Meta(pattern=REQUEST_ID)]


class AbortResult(Result, frozen=True, kw_only=True):
    aborted: bool
    execution_id: str


class Intent(Params, frozen=True, kw_only=True):
    method: str
    params: dict[str, Any]


class ConfirmIssueParams(Params, frozen=True, kw_only=True):
    intent: Intent
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_MS)] = DEFAULT_TTL_MS


class Scope(Result, frozen=True, kw_only=True):
    method: str
    params_digest: str


class ConfirmIssueResult(Result, frozen=True, kw_only=True):
    token: str
    expires_at: str
    scope: Scope
    peer: PeerInfo
