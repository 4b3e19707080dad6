"""What Bascule is meant to reach beside its peers, in one table, and whether a run did."""

from collections.abc import Iterator
from typing import NamedTuple

from measure_ask import BARE, FSYNC, JETSTREAM, LINK, NATS
from measure_console import FIRST_PAINT, FOREIGN, OPEN_CPU, PAINTED, SCROLLED, WEIGHT
from measure_desktop import ALONE, CALCULATOR, LIBATSPI, MOUSEPAD, POLLED, WHOLE, WOKEN
from measure_game import BARE as ECHO
from measure_game import LSP_FRAMES, SESSION, WITH_SDK
from measure_http import HEARTBEAT, LIST, REPLY, SEND, SETTLED
from measure_load import HTTP_FLOOD, LARGE, LINK_FLOOD
from measure_mcp import TOOLS
from measure_mesh import CAUGHT_UP, FLOOR, LOCAL, MESH_OFF, MESH_ON, REMOTE
from measure_mesh import IDLE_CPU as IDLE_NODE
from measure_pump import ALONE as UNPLAYED
from measure_pump import BUDGET_MS, PLAYED
from measure_start import IDLE_CPU, IDLE_MEMORY, READY_EMPTY, READY_FULL, SETTLED_SMALL, WAKE_UPS
from measure_work import BARE as SPAWN
from measure_work import CELL, OUR_FILE, RAW_FILE
from measure_wrap import BELL, SCRIPT, WRAPPED
from report import Section, ratio


class Figure(NamedTuple):
    """One figure that a measure kept."""

    measure: str
    label: str
    key: str
    clients: int | None = None

    def read(self, sections: list[Section]) -> float | None:
        for section in sections:
            for each in section.figures:
                if (section.name, each["label"], each.get("clients")) == (self.measure, self.label, self.clients):
                    return each[self.key]
        return None


class Verdict(NamedTuple):
    what: str
    measured: str
    goal: str
    met: bool


class Ratio(NamedTuple):
    """One figure divided by another."""

    what: str
    ours: Figure
    theirs: Figure
    bound: float
    at_most: bool

    def verdicts(self, sections: list[Section]) -> Iterator[Verdict]:
        ours, theirs = self.ours.read(sections), self.theirs.read(sections)
        if ours is not None and theirs is not None:
            share = ours / theirs
            met = share <= self.bound if self.at_most else share >= self.bound
            sign = "at most" if self.at_most else "at least"
            yield Verdict(self.what, ratio(share), f"{sign} {ratio(self.bound)}", met)


class Most(NamedTuple):
    """A figure by itself."""

    what: str
    figure: Figure
    bound: float
    unit: str

    def verdicts(self, sections: list[Section]) -> Iterator[Verdict]:
        found = self.figure.read(sections)
        if found is not None:
            yield Verdict(
                self.what, f"{found:.1f} {self.unit}", f"at most {self.bound:g} {self.unit}", found <= self.bound
            )


class Growth(NamedTuple):
    """No call of a measure costs more at the most than this times what it costs at the least; the worst is named."""

    what: str
    measure: str
    bound: float

    def verdicts(self, sections: list[Section]) -> Iterator[Verdict]:
        for section in sections:
            if section.name == self.measure:
                worst = max(section.figures, key=lambda each: each["growth"])
                grown = sum(each["growth"] > self.bound for each in section.figures)
                what = f"{self.what}; {grown} of {len(section.figures)} calls grow more, most `{worst['label']}`"
                yield Verdict(what, ratio(worst["growth"]), f"at most {ratio(self.bound)}", not grown)


def _asks(measure: str, ours: str, theirs: str, *, clients: int, key: str, bound: float) -> Ratio:
    where = "An ask in memory" if measure == "ask" else "An ask on disk"
    figure = "p50" if key == "p50_us" else "asks per second"
    pair = (Figure(measure, label, key, clients) for label in (ours, theirs))
    what = f"{where}, {clients} client{'s'[: clients > 1]}: {figure} / {theirs}"
    return Ratio(what, *pair, bound, at_most=key == "p50_us")


def _loaded(label: str) -> Most:
    return Most(f"p99 of an {label} / alone", Figure("load", label, "ratio"), 2.0, "times")


def _http(label: str) -> Ratio:
    mine, bare = (Figure("http", label, key) for key in ("per_second", "bare_per_second"))
    return Ratio(f"`{label}`: requests per second / bare ASGI", mine, bare, 0.45, at_most=False)


GOALS: tuple[Ratio | Most | Growth, ...] = (
    _asks("ask", LINK, NATS, clients=1, key="p50_us", bound=0.6),
    _asks("ask", LINK, NATS, clients=32, key="per_second", bound=1.2),
    _asks("ask", LINK, BARE, clients=1, key="p50_us", bound=1.5),
    Most("An ask in memory, 32 clients: the daemon's CPU", Figure("ask", LINK, "server_us", 32), 90, "us"),
    _asks("durable", FSYNC, JETSTREAM, clients=1, key="p50_us", bound=0.7),
    _asks("durable", FSYNC, JETSTREAM, clients=32, key="per_second", bound=2.5),
    *(_http(label) for label in (SEND, REPLY, SETTLED, HEARTBEAT, LIST)),
    *(_loaded(label) for label in (LINK_FLOOD, HTTP_FLOOD, LARGE)),
    Growth("A call with 100,000 open tickets / with 10", "scale-tickets", 1.2),
    Growth("A call with 10,000 agents / with 10", "scale-agents", 1.2),
    Most("The daemon is ready, empty store", Figure("daemon", READY_EMPTY, "median_ms"), 400, "ms"),
    Most("The daemon is ready, 100,000 tickets", Figure("daemon", READY_FULL, "median_ms"), 2000, "ms"),
    Most("The idle daemon wakes up, per second", Figure("daemon", WAKE_UPS, "figure"), 2, "times"),
    Most("The idle daemon's CPU, per second", Figure("daemon", IDLE_CPU, "figure"), 0.5, "ms"),
    Most("The idle daemon's memory", Figure("daemon", IDLE_MEMORY, "figure"), 50, "MiB"),
    Most("A settled ticket in memory", Figure("daemon", SETTLED_SMALL, "figure"), 3, "kB"),
    Ratio(
        "A command in the sandbox: p50 / posix_spawn",
        *(Figure("commands", label, "p50_ms") for label in (CELL, SPAWN)),
        1.5,
        at_most=True,
    ),
    Ratio(
        "A file written: p50 / open, write, rename",
        *(Figure("files", label, "p50_us") for label in (OUR_FILE, RAW_FILE)),
        3.0,
        at_most=True,
    ),
    Growth("A run after 1,000 others / after 10", "earlier-runs", 1.2),
    Ratio(
        "A call of a game's tool: p50 / a bare echo of its frames",
        *(Figure("game-calls", label, "p50_us") for label in (SESSION, ECHO)),
        1.5,
        at_most=True,
    ),
    Ratio(
        "The same with our SDK as the mod",
        *(Figure("game-calls", label, "p50_us") for label in (WITH_SDK, ECHO)),
        1.5,
        at_most=True,
    ),
    Ratio(
        "A call of a game's tool: p50 / pygls' framing",
        *(Figure("game-calls", label, "p50_us") for label in (SESSION, LSP_FRAMES)),
        1.5,
        at_most=True,
    ),
    *(
        Most(f"`mod.poll` in a flood of `{tool}`: p99", Figure("game-pump", f"`{tool}`", "p99_ms"), BUDGET_MS, "ms")
        for tool in ("echo", "work")
    ),
    *(
        Ratio(
            f"The example game's frame, {what}: p99 with an agent / without",
            *(Figure("game-frames", label, f"{what}_p99_ms") for label in (PLAYED, UNPLAYED)),
            1.2,
            at_most=True,
        )
        for what in ("work", "shown")
    ),
    Growth("A call beside 20 games, and with 60 channels / alone", "game-scale", 1.2),
    Ratio(
        "The elements of a window of 2,000: libatspi / Bascule",
        *(Figure("desktop", label, "tree_ms") for label in (LIBATSPI, ALONE)),
        8.0,
        at_most=False,
    ),
    Most("A click in that window, the whole call: p50", Figure("desktop", WHOLE, "click_p50_ms"), 150, "ms"),
    Ratio(
        "A button appears: p50 until the client knows / a poll every 500 ms",
        *(Figure("desktop-wait", label, "p50_ms") for label in (WOKEN, POLLED)),
        0.5,
        at_most=True,
    ),
    *(
        Most(f"A snapshot of {label}", Figure("desktop-tokens", label, "tokens"), 1_500, "tokens")
        for label in (MOUSEPAD, CALCULATOR)
    ),
    *(
        Most(f"The console: {label[:1].lower()}{label[1:]}", Figure("console", label, "figure"), bound, unit)
        for label, bound, unit in (
            (PAINTED, 100, "ms"),
            (FIRST_PAINT, 300, "ms"),
            (WEIGHT, 150, "KB"),
            (FOREIGN, 0, "scripts"),
            (SCROLLED, 8, "ms"),
            (OPEN_CPU, 1, "% CPU"),
        )
    ),
    Ratio(
        "An ask of an agent of another machine, 1 client: p50 / a bare NATS request and a local ask on disk",
        *(Figure("mesh", label, "p50_us", 1) for label in (REMOTE, FLOOR)),
        2.0,
        at_most=True,
    ),
    Ratio(
        "The same, 32 clients: asks per second / asks of agents here",
        *(Figure("mesh", label, "per_second", 32) for label in (REMOTE, LOCAL)),
        0.5,
        at_most=False,
    ),
    Ratio(
        "A local ask in a mesh: p50 / in none",
        *(Figure("mesh-local", label, "p50_us") for label in (MESH_ON, MESH_OFF)),
        1.02,
        at_most=True,
    ),
    Most(CAUGHT_UP, Figure("mesh-node", CAUGHT_UP, "fastest_ms"), 2_000, "ms"),
    Most(IDLE_NODE, Figure("mesh-node", IDLE_NODE, "percent"), 0.5, "%"),
    Growth("Of a mesh of 1,000 nodes / of 100, per node", "mesh-directory", 1.2),
    *(
        Most(f"{tool} through `bascule mcp`: more than over the link", Figure("mcp", tool, "added_us"), 250, "us")
        for tool in TOOLS
    ),
    Ratio(
        "100 MB of output through `bridge-wrap` / through `script`",
        *(Figure("wrap", label, "median_s") for label in (WRAPPED, SCRIPT)),
        3.0,
        at_most=True,
    ),
    Most("A message to an idle wrapped program, until its first byte", Figure("wrap", BELL, "median_ms"), 50, "ms"),
)


def judge(sections: list[Section]) -> Section:
    """Of the goals whose measures ran."""
    result = Section("goals", "Goals", ("", "measured", "goal", ""))
    for goal in GOALS:
        for each in goal.verdicts(sections):
            result.add(each.what, each.measured, each.goal, "met" if each.met else "**missed**")
            result.keep(each.what, measured=each.measured, goal=each.goal, met=each.met)
    return result
