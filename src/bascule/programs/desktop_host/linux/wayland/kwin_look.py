"""What KWin knows of windows: a script that says it, and its words as windows. Pure."""

import os
import uuid
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.ports import BackendError, Window

MAX_WINDOWS: Final = 500
MAX_TITLE_CHARS: Final = 512
# More than any desk has.
MAX_OUTPUTS: Final = 64
# What a script's answer may have: a window is about 400 characters.
MAX_ANSWER_CHARS: Final = 4 * 1024 * 1024
# Of a window's own number, as many bits as make two of them differ.
_HANDLE_BITS: Final = 48
# Where ordinary windows are. What lies above and has the keyboard is a prompt, a launcher or a lock screen.
_NORMAL_LAYER: Final = 2

# Run by KWin, whose scripts may see every window, for as long as the host is there. It asks us what to do: `Next` has
# the answer to what was asked before, and its reply is the next question. One call there and back is a look. A script
# for each would take five times as long, and KWin 5 confuses scripts that come and go at the same time. When we do not
# answer for a while it unloads itself. Plasma 5 and 6 have other names for some of it.
_SCRIPT: Final = """\
var quiet = new QTimer();
quiet.interval = %(quiet)s;
quiet.singleShot = true;
quiet.timeout.connect(function () {
    callDBus("org.kde.KWin", "/Scripting", "org.kde.kwin.Scripting", "unloadScript", %(script)s);
});
function windows() { return workspace.windowList ? workspace.windowList() : workspace.clientList(); }
function place(g) { return g ? [g.x, g.y, g.width, g.height] : null; }
function look(turn) {
    var all = windows(), list = [];
    for (var i = 0; i < all.length && list.length < %(most)s; i++) {
        var w = all[i];
        if (w.minimized || w.deleted || w.hidden) continue;
        var here = w.onAllDesktops;
        if (!here && w.desktops && w.desktops.length) here = w.desktops.indexOf(workspace.currentDesktop) >= 0;
        else if (!here) here = w.desktop === undefined || w.desktop === workspace.currentDesktop;
        if (!here) continue;
        var f = w.frameGeometry;
        list.push({
            id: String(w.internalId), pid: w.pid, title: String(w.caption),
            names: [String(w.desktopFileName || ""), String(w.resourceClass || ""), String(w.resourceName || "")],
            frame: place(f), content: place(w.clientGeometry), buffer: place(w.bufferGeometry || f),
            order: w.stackingOrder, layer: w.layer === undefined ? 2 : w.layer, active: Boolean(w.active),
            popup: Boolean(w.popupWindow), raised: Boolean(w.keepAbove || w.fullScreen), x11: w.windowId !== undefined
        });
    }
    var front = workspace.activeWindow || workspace.activeClient;
    return JSON.stringify({
        turn: turn, windows: list, active: front ? String(front.internalId) : null,
        screen: place(workspace.virtualScreenGeometry), outputs: outputs()
    });
}
function outputs() {
    var list = [], screens = workspace.screens;
    for (var i = 0; screens && i < screens.length; i++) list.push(place(screens[i].geometry));
    for (var j = 0; !screens && j < workspace.numScreens; j++)
        list.push(place(workspace.clientArea(KWin.ScreenArea, j, workspace.currentDesktop)));
    return list;
}
function activate(id) {
    var all = windows();
    for (var i = 0; i < all.length; i++) {
        if (String(all[i].internalId) !== id) continue;
        if (workspace.activeWindow !== undefined) workspace.activeWindow = all[i]; else workspace.activeClient = all[i];
    }
}
function next(answer) {
    quiet.start();
    callDBus(%(name)s, %(path)s, %(interface)s, "Next", answer, function (question) {
        var words = question.split(" ");
        if (words[1]) activate(words[1]);
        next(words[0] ? look(words[0]) : "");
    });
}
next("");
"""
# After as long without a question the script goes.
QUIET_SECONDS: Final = 60.0

_Place = tuple[float, float, float, float]


class _Window(msgspec.Struct):
    id: str
    pid: int
    title: str
    names: list[str]
    frame: _Place
    # Without the title bar of KWin's. Plasma 5 does not say.
    content: _Place | None
    # What its program draws in, a shadow among it.
    buffer: _Place
    order: float
    layer: int
    active: bool
    popup: bool
    # Put above others, by the person or by filling the screen.
    raised: bool
    x11: bool


class _Answer(msgspec.Struct):
    windows: Annotated[list[_Window], msgspec.Meta(max_length=MAX_WINDOWS)]
    active: str | None
    screen: _Place
    outputs: Annotated[list[_Place], msgspec.Meta(max_length=MAX_OUTPUTS)] = []


_answers = msgspec.json.Decoder(_Answer)


class Seen(msgspec.Struct, frozen=True):
    """One look at KWin."""

    # From the lowest to the topmost.
    windows: list[Window]
    # KWin's own numbers, by the window's handle.
    ids: dict[int, str]
    # What its program draws in, a shadow around the frame among it.
    buffers: dict[int, Rect]
    # Windows of a higher layer stay above, whichever is activated.
    layers: dict[int, int]
    # What has the keyboard; None: no ordinary window.
    active: int | None
    # Something else has it: a prompt or a launcher that lies above all windows, and wants it for itself.
    prompt: bool
    # Around all outputs.
    screen: Rect
    # Where something can be seen and clicked: outputs of different sizes leave corners of the screen out.
    outputs: list[Rect]

    def window(self, handle: int) -> Window | None:
        return next((each for each in self.windows if each.handle == handle), None)


class BadAnswer(BackendError):
    """KWin's script answered something else than it was asked."""


def script(name: str, path: str, interface: str, script: str) -> str:
    """`script`: the name under which KWin has it."""
    words = {"name": name, "path": path, "interface": interface, "script": script}
    numbers = {"quiet": round(QUIET_SECONDS * 1000), "most": MAX_WINDOWS}
    return _SCRIPT % {**{key: _quoted(value) for key, value in words.items()}, **numbers}


def question(turn: str, activated: str | None = None) -> str:
    """A look, after this window was activated."""
    return f"{turn} {activated}" if activated is not None else turn


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def turn_of(answer: str) -> str | None:
    """Whose answer it is, without reading the rest."""
    try:
        return msgspec.json.decode(answer, type=_Turn).turn
    except (msgspec.DecodeError, UnicodeError):
        return None


class _Turn(msgspec.Struct):
    turn: str


def seen_in(answer: str, program_of: Callable[[int], str | None]) -> Seen:
    return described_windows(answer, program_of, handle_of, "KWin")


def described_windows(
    answer: str, program_of: Callable[[int], str | None], handle_of: Callable[[str], int | None], who: str
) -> Seen:
    """Windows in the words of our script, or of another program of ours inside a compositor."""
    try:
        parsed = _answers.decode(answer)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadAnswer(f"{who} described its windows in a way that is not known: {error}") from error
    parsed.windows.sort(key=lambda each: (each.layer, each.order))
    windows: list[Window] = []
    ids: dict[int, str] = {}
    buffers: dict[int, Rect] = {}
    layers: dict[int, int] = {}
    active = None
    for each in parsed.windows:
        handle = handle_of(each.id)
        if handle is None or each.pid <= 0:
            continue
        windows.append(_window(each, handle, program_of(each.pid)))
        ids[handle], layers[handle], buffers[handle] = each.id, each.layer, _rect(each.buffer)
        if each.id == parsed.active and (each.raised or each.layer <= _NORMAL_LAYER):
            active = handle
    prompt = parsed.active is not None and active is None
    screen, outputs = _rect(parsed.screen), [_rect(each) for each in parsed.outputs]
    return Seen(windows, ids, buffers, layers, active, prompt, screen, outputs or [screen])


def handle_of(window_id: str) -> int | None:
    try:
        return uuid.UUID(window_id).int & ((1 << _HANDLE_BITS) - 1)
    except ValueError:
        return None


def _window(parsed: _Window, handle: int, program: str | None) -> Window:
    names = [*parsed.names, os.path.basename(program or "")]
    known = list(dict.fromkeys(each for each in names if each))
    frame, buffer = _rect(parsed.frame), _rect(parsed.buffer)
    if parsed.content is not None:
        content = _rect(parsed.content)
    else:
        # A title bar of KWin's lies beside the buffer; a shadow of the program's own is in it.
        content = buffer if buffer.within(frame) == buffer else frame
    return Window(
        handle=handle,
        pid=parsed.pid,
        bundle_id=known[0] if known else "unknown",
        names=frozenset(known),
        program=program,
        title=parsed.title[:MAX_TITLE_CHARS],
        rect=content,
        outer=frame.joined(content) if not content.empty else NOWHERE,
        active=parsed.active,
        popup=parsed.popup,
        placeless=not parsed.x11,
        floats=True,
    )


def _rect(place: _Place) -> Rect:
    return Rect(*(round(each) for each in place))
