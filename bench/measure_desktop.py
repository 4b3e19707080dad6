"""The desktop host before real windows on a screen nobody sees, beside the usual ways to read and use one."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import processes
from processes import HERE
from report import Section, Settings, middle, millis, ratio

RIG = Path(HERE).parent / "tests" / "desktop_host"
# With them and what is around them, about 2,000 elements.
ROWS = 1_910
QUICK_ROWS = 60
# What a client does that has no waitUntil; the contract's own default.
POLL_SECONDS = 0.5
WAKES = 9
CLICKS = 7
PATIENCE_SECONDS = 600.0
BUTTON = "Press me"

ALONE = "Bascule, the reading and acting alone"
WHOLE = "Bascule, the whole call"
LIBATSPI = "libatspi through PyGObject"
DOGTAIL = "dogtail"
WOKEN = "Bascule, `waitUntil`"
POLLED = "`find` every 500 ms"
CALCULATOR = "gnome-calculator, programming"
MOUSEPAD = "mousepad, a note"


@contextlib.contextmanager
def _scene(settings: Settings, rig: str = "Desktop") -> Iterator[tuple[Any, Any]]:
    """A desktop of its own and a host before it, as the tests have them."""
    if str(RIG) not in sys.path:
        sys.path += [str(RIG), str(RIG.parent)]
    try:
        import desktop_rig
        import host_process
        import kwin_rig
        import wayland_rig

        import bascule.programs.desktop_host.linux.backend  # noqa: F401 - says what is missing
    except ImportError as error:
        raise processes.NotInstalled(f"The desktop is not measured: no module {error.name} (`make bench`).") from None
    for tool in desktop_rig.NEEDED:
        if shutil.which(tool) is None:
            raise processes.NotInstalled(f"The desktop is not measured: {tool} is not installed (`make bench`).")
    with processes.scratch(settings.directory) as directory, contextlib.ExitStack() as stack:
        rigs = {
            "Desktop": desktop_rig.Desktop,
            "WaylandDesktop": wayland_rig.WaylandDesktop,
            "KwinDesktop": kwin_rig.KwinDesktop,
        }
        desktop = rigs[rig]()
        stack.callback(desktop.close)
        host = host_process.HostProcess(desktop, directory)
        stack.callback(host.close)
        yield desktop, host


def _or_left_out(section: Section, measure: Callable[[Section], None]) -> Section:
    try:
        measure(section)
    except processes.NotInstalled as error:
        # A row of its own: a table without rows would say nothing.
        section.add(str(error), *["-"] * (len(section.columns) - 1))
    return section


def _timed(times: int, act: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return taken


def _route(program: Any) -> dict[str, Any]:
    return {"app": {"pid": program.pid}}


# -- a large window --


def desktop(settings: Settings) -> Section:
    """All ways in turn in every round, so that a busy moment is everybody's."""
    section = Section("desktop", "A GTK 3 window", ("", "tree", "find", "click", "tree / ours"))

    def measure(section: Section) -> None:
        taken: dict[str, dict[str, list[float]]] = {}
        missing: dict[str, str] = {}
        with _scene(settings) as (screen, host):
            program = screen.start("gtk3", "--rows", str(QUICK_ROWS if settings.quick else ROWS))
            nodes = 0
            for _ in range(settings.rounds):
                for name, way in (("libatspi", LIBATSPI), ("dogtail", DOGTAIL)):
                    if way not in missing:
                        found = _peer(screen, name, program.title)
                        if isinstance(found, str):
                            missing[way] = found
                        else:
                            _more(taken.setdefault(way, {}), found)
                nodes, found = asyncio.run(_alone(screen.environment, program.pid))
                _more(taken.setdefault(ALONE, {}), found)
                _more(taken.setdefault(WHOLE, {}), _whole(host, program))
                settings.progress()
        section.title = f"A GTK 3 window of {nodes:,} elements"
        ours = min(taken[ALONE]["tree"])
        for way, times in taken.items():
            # The best: whoever else runs here makes a round slower, never faster.
            best = {name: min(values) * 1000 for name, values in times.items()}
            section.add(
                way, *(millis(best[name]) for name in ("tree", "find", "click")), ratio(min(times["tree"]) / ours)
            )
            usual = middle(times["click"]) * 1000
            section.keep(way, **{f"{name}_ms": value for name, value in best.items()}, click_p50_ms=usual)
            if way == WHOLE:
                section.notes.append(f"The whole click, p50: {millis(usual)}.")
        section.notes += [f"{way} is left out: {why}" for way, why in missing.items()]
        section.notes.append(
            "The best of several rounds. Tree: role, name and states of all, rectangles of what shows. Click: the "
            "button's own action. The whole call comes over the socket, with confirmation, pictures before and after "
            "and the evidence on disk, and looks for what the click did: nothing here, so it looks for the 60 ms "
            "that GTK 3 has."
        )

    return _or_left_out(section, measure)


def _more(to: dict[str, list[float]], found: dict[str, list[float]]) -> None:
    for name, values in found.items():
        to.setdefault(name, []).extend(values)


def _peer(screen: Any, name: str, title: str) -> dict[str, list[float]] | str:
    """What it took, or why there is no answer."""
    import desktop_rig

    command = [desktop_rig.SYSTEM_PYTHON, os.path.join(HERE, "peers_atspi.py"), name, title, "1", BUTTON]
    done = subprocess.run(
        command, env=screen.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    return {each: found[each] for each in ("tree", "find", "click")}


async def _alone(environment: dict[str, str], pid: int) -> tuple[int, dict[str, list[float]]]:
    """The same work as the peers do, without socket, picture and evidence."""
    from bascule.desktop.protocol import Selector
    from bascule.programs.desktop_host.linux.backend import LinuxDesktop
    from bascule.programs.desktop_host.matching import matches

    backend = LinuxDesktop(environment)
    await backend.open()
    try:
        window = next(each for each in await backend.windows() if each.pid == pid)
        wanted = Selector(by_role="AXButton", title_contains=BUTTON)

        async def tree() -> Any:
            return await backend.tree([window], seconds=60, max_depth=64, max_nodes=20_000, values=False)

        read = await tree()
        began = time.perf_counter()
        await tree()
        tree_took = time.perf_counter() - began
        began = time.perf_counter()
        (button,) = matches(await tree(), wanted)
        find_took = time.perf_counter() - began
        began = time.perf_counter()
        if not await backend.press(button):
            raise RuntimeError("the button was not pressed")
        click_took = time.perf_counter() - began
        return len(read.elements), {"tree": [tree_took], "find": [find_took], "click": [click_took]}
    finally:
        await backend.close()


def _whole(host: Any, program: Any) -> dict[str, list[float]]:
    here = _route(program)
    selector = {"byRole": "AXButton", "titleContains": BUTTON}
    ref = host.call("desktop.find", route=here, selector=selector)["elementRefs"][0]
    return {
        "tree": _timed(1, lambda: host.call("desktop.observe", route=here, options={"axMaxDepth": 64})),
        "find": _timed(1, lambda: host.call("desktop.find", route=here, selector=selector)),
        "click": _timed(CLICKS, lambda: host.act("desktop.click", route=here, target={"elementRef": ref})),
    }


# -- waiting --


def waits(settings: Settings) -> Section:
    """From the moment a program shows a button to the moment its client knows; both clocks are the machine's own."""
    section = Section("desktop-wait", "A button appears: until the client knows", ("", "p50", "worst"))

    def measure(section: Section) -> None:
        rounds = 1 if settings.quick else WAKES
        with _scene(settings) as (screen, host):
            program = screen.start("gtk3")
            for way, wait in ((WOKEN, _woken), (POLLED, _polled)):
                # The phase of a poll is chance; over the rounds it goes through all of it.
                taken = [_arrival(host, program, wait, POLL_SECONDS * at / rounds) for at in range(rounds)]
                section.add(way, millis(middle(taken) * 1000), millis(max(taken) * 1000))
                section.keep(way, p50_ms=middle(taken) * 1000, worst_ms=max(taken) * 1000)
        section.notes.append("The program shows it 300 ms after a click, at a moment of its own.")

    return _or_left_out(section, measure)


def _arrival(host: Any, program: Any, wait: Callable[[Any, Any, Any, int], None], phase: float) -> float:
    before = program.state.get("arrived_at", 0)
    there = host.call("desktop.find", route=_route(program), selector={"titleContains": "Arrived"})["matched"]
    with contextlib.closing(host.connect()) as wire, ThreadPoolExecutor(1) as waiter:

        def waited() -> float:
            wait(host, wire, program, there)
            return time.monotonic()

        known = waiter.submit(waited)
        time.sleep(phase)
        target = {"selector": {"byRole": "AXButton", "titleContains": "Soon"}}
        host.act("desktop.click", route=_route(program), target=target)
        at = known.result(PATIENCE_SECONDS)
    while program.state.get("arrived_at", 0) == before:
        # It writes its state after it has shown the button.
        time.sleep(0.001)
    return max(0.0, at - program.state["arrived_at"])


def _woken(host: Any, wire: Any, program: Any, there: int) -> None:
    condition = {"selectorExists": {"titleContains": "Arrived", "index": there}}
    host.call("desktop.waitUntil", wire=wire, route=_route(program), condition=condition, timeoutMs=60_000)


def _polled(host: Any, wire: Any, program: Any, there: int) -> None:
    selector = {"titleContains": "Arrived"}
    while host.call("desktop.find", wire=wire, route=_route(program), selector=selector)["matched"] == there:
        time.sleep(POLL_SECONDS)


# -- kinds of sessions --


def sessions(settings: Settings) -> Section:
    """The same calls on each kind of session, in turn in every round."""
    section = Section("desktop-sessions", "A GTK 3 window, whole calls", ("", *_CALLS))

    def measure(section: Section) -> None:
        taken: dict[str, dict[str, list[float]]] = {name: {} for name in RIGS}
        with contextlib.ExitStack() as stack:
            scenes = {name: stack.enter_context(_scene(settings, rig)) for name, rig in RIGS.items()}
            large = {
                name: screen.start("gtk3", "--rows", str(QUICK_ROWS if settings.quick else ROWS))
                for name, (screen, _) in scenes.items()
            }
            small = {name: screen.start("gtk3") for name, (screen, _) in scenes.items()}
            for _ in range(settings.rounds):
                for name, (_, host) in scenes.items():
                    _more(taken[name], _session_calls(host, large[name], small[name]))
                settings.progress()
        for name, times in taken.items():
            section.add(name, *(millis(min(times[each]) * 1000) for each in _CALLS))
            section.keep(name, **{f"{each}_ms": min(times[each]) * 1000 for each in _CALLS})
        section.notes.append(
            "The best of several rounds, of calls with evidence on disk. Tree and find: about 2,000 elements. Observe, "
            "click (the button's own action), double click (the pointer), text and wait: a small window."
        )

    return _or_left_out(section, measure)


RIGS = {"X11 (Xvfb, openbox)": "Desktop", "sway": "WaylandDesktop", "KWin": "KwinDesktop"}
_CALLS = ("tree", "find", "observe", "click", "double", "text", "wait")


def _session_calls(host: Any, large: Any, small: Any) -> dict[str, list[float]]:
    selector = {"byRole": "AXButton", "titleContains": BUTTON}
    plain = {"includeScreenshot": False, "axMaxDepth": 64}
    here, there = _route(large), _route(small)
    pad, name = ({"selector": {"titleContains": each}} for each in ("pad", "Name"))
    return {
        "tree": _timed(1, lambda: host.call("desktop.observe", route=here, options=plain)),
        "find": _timed(1, lambda: host.call("desktop.find", route=here, selector=selector)),
        "observe": _timed(1, lambda: host.call("desktop.observe", route=there)),
        "click": _timed(1, lambda: host.act("desktop.click", route=there, target={"selector": selector})),
        "double": _timed(1, lambda: host.act("desktop.doubleClick", route=there, target=pad)),
        "text": _timed(1, lambda: host.act("desktop.typeText", route=there, target=name, text="héllo 中文 😀")),
        "wait": [_arrival(host, small, _woken, 0.0)],
    }


# -- pictures --


def screenshots(settings: Settings) -> Section:
    section = Section("desktop-pictures", "A screenshot of 1280x900", ("", "p50", "best", "bytes"))

    def measure(section: Section) -> None:
        with _scene(settings) as (screen, _):
            screen.start("gtk3")
            for label, values, size in asyncio.run(_shots(screen.environment, 1 if settings.quick else 15)):
                section.add(label, millis(middle(values) * 1000), millis(min(values) * 1000), f"{size:,}")
                section.keep(label, p50_ms=middle(values) * 1000, bytes=size)

    return _or_left_out(section, measure)


async def _shots(environment: dict[str, str], times: int) -> list[tuple[str, list[float], int]]:
    from PIL import Image

    from bascule.programs.desktop_host import pictures
    from bascule.programs.desktop_host.linux.backend import LinuxDesktop

    backend = LinuxDesktop(environment)
    await backend.open()
    try:
        whole = await backend.screen()
        grabs = []
        for _ in range(times):
            began = time.perf_counter()
            shot = await backend.grab(whole)
            grabs.append(time.perf_counter() - began)
    finally:
        await backend.close()
    image = Image.frombytes("RGB", (whole.width, whole.height), shot.pixels, "raw", "BGRX")
    return [
        ("the screen into memory", grabs, len(shot.pixels)),
        ("as PNG", _timed(times, lambda: pictures.png(image)), len(pictures.png(image))),
        ("as it goes into an answer", _timed(times, lambda: pictures.inline(image)), len(pictures.inline(image).data)),
    ]


# -- what a model pays --


def snapshots(settings: Settings) -> Section:
    columns = ("", "elements", "snapshot, tokens", "raw tree, tokens", "snapshot / raw")
    section = Section("desktop-tokens", "A window for a model to read", columns)

    def measure(section: Section) -> None:
        with _scene(settings) as (screen, host):
            from token_count import tokens

            for label, program in _windows(screen, host, section):
                options = {"snapshot": True, "axMaxDepth": 64}
                seen = host.call("desktop.observe", route=_route(program), options=options)
                short = tokens(seen["snapshot"])
                raw = tokens((host.evidence(seen) / "ax.json").read_text("utf-8"))
                section.add(label, f"{seen['nodes']:,}", f"{short:,}", f"{raw:,}", f"{short / raw:.3f}")
                section.keep(label, tokens=short, raw_tokens=raw)
                program.kill()
        section.notes.append("Tokens are an upper estimate: pieces of words, three digits, and every other sign.")

    return _or_left_out(section, measure)


def _windows(screen: Any, host: Any, section: Section) -> Iterator[tuple[str, Any]]:
    yield "our GTK 3 fixture", screen.start("gtk3")
    note = screen.directory / "note.txt"
    note.write_text("A short note.\n" * 20)
    for label, title, command in (
        (MOUSEPAD, "note.txt", ("mousepad", "--disable-server", str(note))),
        (CALCULATOR, "Calculator", ("gnome-calculator", "--mode=programming")),
    ):
        if shutil.which(command[0]) is None:
            section.notes.append(f"{command[0]} is not installed and left out.")
            continue
        program = screen.spawn(*command)
        there = {"windowExists": {"titlePattern": title}}
        host.call("desktop.waitUntil", condition=there, timeoutMs=60_000)
        quiet = {"stable": {"forMs": 1_000}}
        host.call("desktop.waitUntil", route=_route(program), condition=quiet, timeoutMs=60_000)
        yield label, program


MEASURES = {
    "desktop": desktop,
    "desktop-wait": waits,
    "desktop-sessions": sessions,
    "desktop-pictures": screenshots,
    "desktop-tokens": snapshots,
}
