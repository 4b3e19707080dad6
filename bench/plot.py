"""Pictures for docs/performance.md, drawn from the same figures as the tables."""

import math
import os
from typing import Any

from report import Section, micros, rate, ratio
from svg import GOAL, MARGIN, OTHERS, OURS, WIDTH, Drawing

LEFT = 236
RIGHT = 96
BAR = 20
STEP = 30
HEADING = 34
CURVE_HEIGHT = 150
CURVE_RIGHT = 250
# A goal of every call that is counted at scale.
GROWTH_GOAL = 1.2

ASKS = {"ask": "in memory", "durable": "on disk first"}
CURVES = {"scale-tickets": "open tickets", "scale-agents": "registered agents"}
FILES = ("ask-latency.svg", "ask-throughput.svg", "scale.svg")


def _panels(sections: list[Section], clients: tuple[int, ...]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (
            f"{ASKS[section.name]}, {count} client{'s'[: count > 1]}",
            [each for each in section.figures if each["clients"] == count],
        )
        for section in sections
        if section.name in ASKS
        for count in clients
    ]


def _colour(label: str) -> str:
    return OURS if label.startswith("Bascule") else OTHERS


def _shown(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} s"
    return f"{value / 1000:.2f} ms" if value >= 1000 else micros(value).replace("us", "µs")


def latency(sections: list[Section]) -> Drawing | None:
    """From p50 (full dot) to p99 (ring), on one logarithmic scale for all panels."""
    panels = [(heading, rows) for heading, rows in _panels(sections, (1, 32)) if rows]
    if not panels:
        return None
    drawing = Drawing("One agent asks another and has the answer", "● p50   ○ p99   left is better")
    values = [row[key] for _, rows in panels for row in rows for key in ("p50_us", "p99_us")]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x_of(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(value) - low) / max(1, high - low)

    for heading, rows in panels:
        drawing.text(MARGIN, drawing.y + 22, heading, "heading")
        top = drawing.y + HEADING - 8
        bottom = top + STEP * len(rows)
        for power in range(low, high + 1):
            drawing.line([(x_of(10.0**power), top), (x_of(10.0**power), bottom)])
            drawing.text(x_of(10.0**power), top - 4, _power(power), "quiet small", anchor="middle")
        for number, row in enumerate(rows):
            y = top + STEP * number + STEP / 2
            colour = _colour(row["label"])
            drawing.text(LEFT - 12, y + 4.5, row["label"], anchor="end", bold=colour == OURS)
            drawing.line([(x_of(row["p50_us"]), y), (x_of(row["p99_us"]), y)], colour)
            drawing.dot(x_of(row["p50_us"]), y, colour)
            drawing.dot(x_of(row["p99_us"]), y, colour, hollow=True)
            drawing.text(WIDTH - MARGIN, y + 4.5, _shown(row["p50_us"]), "quiet", anchor="end")
        words = ", ".join(f"{row['label']} {_shown(row['p50_us'])} (p99 {_shown(row['p99_us'])})" for row in rows)
        drawing.say(f"{heading}: {words}")
        drawing.y = bottom + 10
    return drawing


def _power(power: int) -> str:
    return f"{10**power} µs" if power < 3 else f"{10 ** (power - 3)} ms" if power < 6 else f"{10 ** (power - 6)} s"


def throughput(sections: list[Section]) -> Drawing | None:
    panels = [(heading, rows) for heading, rows in _panels(sections, (32,)) if rows]
    if not panels:
        return None
    drawing = Drawing("Asks per second", "longer is better")
    for heading, rows in panels:
        drawing.text(MARGIN, drawing.y + 22, heading, "heading")
        drawing.y += HEADING
        # Each panel has its own scale: a promise on disk costs more than one in memory.
        most = max(row["per_second"] for row in rows)
        for row in rows:
            colour = _colour(row["label"])
            width = max(2.0, (WIDTH - LEFT - RIGHT) * row["per_second"] / most)
            y = drawing.y + BAR / 2 + 4.5
            drawing.text(LEFT - 12, y, row["label"], anchor="end", bold=colour == OURS)
            drawing.bar(LEFT, drawing.y, width, BAR, colour)
            drawing.text(LEFT + width + 8, y, rate(row["per_second"]), "quiet")
            drawing.y += STEP
        drawing.say(f"{heading}: " + ", ".join(f"{row['label']} {rate(row['per_second'])}" for row in rows))
    return drawing


def scale(sections: list[Section]) -> Drawing | None:
    """Cost of each call relative to the smallest count; the goal is a dashed line."""
    panels = [section for section in sections if section.name in CURVES and section.figures]
    if not panels:
        return None
    drawing = Drawing("CPU of one call as there is more of everything", "1x is the cost with the least; flat is better")
    left, right = 60.0, WIDTH - CURVE_RIGHT
    for section in panels:
        what = CURVES[section.name]
        drawing.text(MARGIN, drawing.y + 22, what, "heading")
        top = drawing.y + HEADING
        bottom = top + CURVE_HEIGHT
        counts = list(section.figures[0]["costs"])
        grown = {
            row["label"]: [row["costs"][count] / row["costs"][counts[0]] for count in counts] for row in section.figures
        }
        # What grows without end would press everything else flat: it leaves the picture at the top.
        ceiling = min(4.0, max(1.5, *(max(each) for each in grown.values())))

        def y_of(value: float, top: float = top, bottom: float = bottom, ceiling: float = ceiling) -> float:
            return bottom - (bottom - top) * min(value, ceiling) / ceiling

        xs = [left + (right - left) * number / (len(counts) - 1) for number in range(len(counts))]
        for x, count in zip(xs, counts, strict=True):
            drawing.line([(x, top), (x, bottom)])
            drawing.text(x, bottom + 16, f"{int(count):,}", "quiet small", anchor="middle")
        for value in (1.0, *(each for each in (2.0, 3.0, 4.0) if each <= ceiling)):
            drawing.text(left - 8, y_of(value) + 4, f"{value:.0f}x", "quiet small", anchor="end")
        drawing.line([(left, y_of(GROWTH_GOAL)), (right, y_of(GROWTH_GOAL))], GOAL, dashed=True)
        for each in grown.values():
            over = each[-1] > GROWTH_GOAL
            drawing.line([(x, y_of(value)) for x, value in zip(xs, each, strict=True)], OTHERS if over else OURS)
        ends = sorted(grown.items(), key=lambda item: -item[1][-1])
        for number, (label, each) in enumerate(ends[: CURVE_HEIGHT // 16]):
            drawing.text(right + 12, top + 8 + number * 16, f"{ratio(each[-1])} {label}", "quiet small")
        drawing.say(f"{what}: " + ", ".join(f"{label} {ratio(each[-1])}" for label, each in ends))
        drawing.y = bottom + 24
    return drawing


def write(directory: str, sections: list[Section]) -> list[str]:
    """The pictures there are figures for."""
    written = []
    for name, draw in zip(FILES, (latency, throughput, scale), strict=True):
        drawing = draw(sections)
        if drawing is not None:
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(drawing.document())
            written.append(name)
    return written
