"""The console in a real browser: what a person waits for, what a visit loads, what an open page costs the daemon."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import processes
from processes import HERE, cpu_seconds
from report import Section, Settings, middle

TESTS = Path(HERE).parent / "tests"
FOLDERS = ("", "console", "daemon", "e2e", "web", "approval")

PAINTED = "An agent asks, until the question is painted: p95"
FIRST_PAINT = "First contentful paint: median"
WEIGHT = "What a first visit loads"
FOREIGN = "Scripts of others among it"
SCROLLED = "Scrolled through tickets, script in a frame: p95"
OPEN_CPU = "The daemon with a console open, idle"

ASKS, QUICK_ASKS = 40, 3
VISITS, QUICK_VISITS = 9, 2
TICKETS, QUICK_TICKETS = 10_000, 600
IDLE_SECONDS, QUICK_SECONDS = 20.0, 1.0
# The page has asked for all that it shows, and the log has written what it had.
SETTLE_SECONDS = 5.0
# Nobody's share is what is measured here.
LIMITS = {
    "durability": "memory",
    "calls_per_second": 0,
    "max_open_tickets": 1_000_000,
    "max_inbox_messages": 1_000_000,
    "max_inbox_messages_per_sender": 1_000_000,
}

# Resolves when the text is on the screen: the frame after the one in which it stands in the page.
UNTIL_PAINTED = """
(text) => new Promise((done) => {
  const look = () => {
    const shown = [...document.querySelectorAll(".inbox-row")].some((row) => row.textContent.includes(text));
    if (!shown) return requestAnimationFrame(look);
    requestAnimationFrame(() => { setTimeout(() => done(performance.timeOrigin + performance.now())); });
  };
  look();
})
"""
# Scroll events come before the callbacks of their frame: between the two is what the page does for the scroll.
SCROLL = """
async () => {
  const box = document.querySelector(".virtual");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const taken = [];
  let began = null;
  document.addEventListener("scroll", () => { began = performance.now(); }, true);
  // Ten rows a frame: 600 a second, faster than anybody reads.
  const step = 10 * document.querySelector(".virtual-row").offsetHeight;
  for (let top = 0; top < box.scrollHeight - box.clientHeight; top += step) {
    box.scrollTop = top;
    began = null;
    await frame();
    if (began !== null) taken.push(performance.now() - began);
  }
  return taken;
}
"""
LOAD_ALL = """
async (wanted) => {
  const box = document.querySelector(".virtual");
  const many = () => parseInt(document.querySelector(".filters [role=status]").textContent.replaceAll(",", ""));
  while (many() < wanted) {
    box.scrollTop = box.scrollHeight;
    await new Promise((done) => setTimeout(done, 20));
  }
  return many();
}
"""
LOADED = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .map(({name, initiatorType, decodedBodySize}) => ({name, initiatorType, decodedBodySize}))
"""
FCP = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""


@contextlib.contextmanager
def _scene(settings: Settings) -> Iterator[tuple[Any, Any]]:
    """A daemon with a person, a key and an agent, and a browser, as the tests have them."""
    sys.path += [path for folder in FOLDERS if (path := str(TESTS / folder)) not in sys.path]
    try:
        import browsing
        import chromium
        import living
        import scenes
    except ImportError as error:
        raise processes.NotInstalled(f"The console is not measured: no module {error.name} (`make bench`).") from None
    if not chromium.on_path():
        raise processes.NotInstalled("The console is not measured: no chromium is installed (`make bench`).")
    with living.short_dir() as folder:
        scene = scenes.Scene(folder, **scenes.NO_WAIT, **LIMITS)
        with scene.daemon, browsing.chromium() as browser:
            yield scene.people(), browser
    settings.progress()


def console(settings: Settings) -> Section:
    section = Section("console", "The console", ("", "measured"))
    try:
        with _scene(settings) as (scene, browser):
            _measure(section, settings, scene, browser)
    except processes.NotInstalled as error:
        # A row of its own: a table without rows would say nothing.
        section.add(str(error), "-")
    return section


def _measure(section: Section, settings: Settings, scene: Any, browser: Any) -> None:
    def keep(label: str, figure: float, unit: str, digits: int = 1) -> None:
        section.add(label, f"{figure:.{digits}f} {unit}")
        section.keep(label, figure=figure)

    with scene.browser(browser) as (context, _):
        page = scene.signed_in(context).page
        asked = sorted(_painted(scene, page, f"tree-{n}") for n in range(QUICK_ASKS if settings.quick else ASKS))
        keep(PAINTED, asked[int(len(asked) * 0.95)], "ms")
        section.notes.append(f"Of {len(asked)} questions; the median is {middle(asked):.0f} ms.")
        settings.progress()
        busy = _idle_cpu(scene, QUICK_SECONDS if settings.quick else IDLE_SECONDS, quick=settings.quick)
        if busy is not None:
            keep(OPEN_CPU, busy, "% CPU", 2)
        paints, weight, foreign = _visits(scene, context, QUICK_VISITS if settings.quick else VISITS)
        keep(FIRST_PAINT, middle(paints), "ms")
        keep(WEIGHT, weight / 1000, "KB")
        keep(FOREIGN, foreign, "scripts", 0)
        settings.progress()
        tickets = QUICK_TICKETS if settings.quick else TICKETS
        _fill(scene, tickets)
        page.goto(f"{scene.origin}/#/tickets")
        page.locator(".ticket-row").first.wait_for()
        loaded = page.evaluate(LOAD_ALL, tickets)
        frames = sorted(page.evaluate(SCROLL))
        keep(SCROLLED, frames[int(len(frames) * 0.95)], "ms")
        section.notes.append(
            f"{loaded:,} tickets in {len(frames)} frames: median {middle(frames):.1f}, worst {frames[-1]:.1f} ms."
        )


def _painted(scene: Any, page: Any, path: str) -> float:
    """From the agent's request to the frame in which the person sees it, in milliseconds."""
    asker = threading.Timer(0.05, lambda: sent.append((time.time(), scene.asks(path))))
    sent: list[tuple[float, str]] = []
    asker.start()
    painted: float = page.evaluate(UNTIL_PAINTED, path)
    asker.join()
    ((began, approval),) = sent
    # Answered and cleared away: into an empty list the next one comes by itself.
    with scene.person() as link:
        link.call("approvals.decide", {"approvalId": approval, "decision": "denied"})
    page.locator(".tidy").click()
    page.locator(".inbox-row").wait_for(state="detached")
    return painted - began * 1000


def _visits(scene: Any, context: Any, visits: int) -> tuple[list[float], int, int]:
    paints = []
    weight = foreign = 0
    for _ in range(visits):
        # Of a browser that has never been here.
        page = context.new_page()
        wire = context.new_cdp_session(page)
        wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.goto(f"{scene.origin}/#/approvals")
        page.locator(".inbox").wait_for()
        paints.append(float(page.evaluate(FCP)))
        parts = page.evaluate(LOADED)
        own = [each for each in parts if each["name"].startswith((f"{scene.origin}/app/", f"{scene.origin}/#"))]
        weight = sum(each["decodedBodySize"] for each in {each["name"]: each for each in own}.values())
        scripts = [each for each in parts if each["initiatorType"] == "script"]
        foreign = sum(not each["name"].startswith(f"{scene.origin}/") for each in scripts)
        page.close()
    return paints, weight, foreign


def _idle_cpu(scene: Any, seconds: float, *, quick: bool) -> float | None:
    """The daemon's share of one core while a page is open and nothing happens."""
    time.sleep(0 if quick else SETTLE_SECONDS)
    pid = scene.daemon.process.pid
    before, began = cpu_seconds(pid), time.perf_counter()
    time.sleep(seconds)
    after, took = cpu_seconds(pid), time.perf_counter() - began
    return None if before is None or after is None else (after - before) / took * 100


def _fill(scene: Any, tickets: int) -> None:
    scene.local().register("Mira", heartbeatIntervalMs=3_600_000)
    with scene.person() as link:
        for number in range(tickets):
            link.call("messages.send", {"agentId": "Mira", "payload": f"message {number}"})
