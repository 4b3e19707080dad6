"""docs/img/ask-latency.svg: one picture for the README, drawn from the same figures as the tables.

Written by hand so that `make bench` needs no plotting library. Colours work on a light and on a dark page.
"""

import os
from typing import NamedTuple

from report import Section, micros

WIDTH = 760
LEFT = 216
RIGHT = 96
BAR = 20
STEP = 30
TITLE = 40
HEADING = 34
MARGIN = 16

OURS = "#3d7bd9"
OTHERS = "#9aa5b1"
_STYLE = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f; }
    .title { font-size: 16px; font-weight: 600; }
    .heading { font-weight: 600; }
    .quiet { fill: #57606a; }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .quiet { fill: #9198a1; } }
"""


class Bar(NamedTuple):
    label: str
    micros: float

    @property
    def ours(self) -> bool:
        return self.label.startswith("Bascule")


class Panel(NamedTuple):
    heading: str
    bars: list[Bar]


def panels(sections: list[Section]) -> list[Panel]:
    headings = {
        "ask": "in memory",
        "durable": "message and reply written to disk first",
    }
    found = []
    for section in sections:
        if section.name in headings:
            bars = [Bar(each["label"], each["p50_us"]) for each in section.figures if each["clients"] == 1]
            found.append(Panel(headings[section.name], bars))
    return found


def draw(shown: list[Panel]) -> str:
    height = TITLE + sum(HEADING + STEP * len(panel.bars) for panel in shown) + MARGIN
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" aria-labelledby="title">'
        ),
        f'<title id="title">{_described(shown)}</title>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{MARGIN}" y="26">One agent asks another and has the answer: median time</text>',
        f'<text class="quiet" x="{WIDTH - MARGIN}" y="26" text-anchor="end">shorter is better</text>',
    ]
    y = TITLE
    for panel in shown:
        lines.append(f'<text class="heading" x="{MARGIN}" y="{y + 22}">{panel.heading}</text>')
        y += HEADING
        # Each panel has its own scale: a promise on disk costs more than one in memory.
        longest = max(bar.micros for bar in panel.bars)
        for bar in panel.bars:
            width = max(2.0, (WIDTH - LEFT - RIGHT) * bar.micros / longest)
            colour = OURS if bar.ours else OTHERS
            middle = y + BAR / 2 + 4.5
            weight = ' font-weight="600"' if bar.ours else ""
            lines += [
                f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end"{weight}>{bar.label}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
                f'<text class="quiet" x="{LEFT + width + 8:.1f}" y="{middle}">{_shown(bar.micros)}</text>',
            ]
            y += STEP
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _shown(value: float) -> str:
    return f"{value / 1000:.2f} ms" if value >= 1000 else micros(value).replace("us", "µs")


def _described(shown: list[Panel]) -> str:
    """The same for whoever cannot see the bars."""
    parts = [
        f"{panel.heading}: " + ", ".join(f"{bar.label} {_shown(bar.micros)}" for bar in panel.bars) for panel in shown
    ]
    return "Median time of an ask. " + "; ".join(parts)


def write(path: str, sections: list[Section]) -> None:
    shown = panels(sections)
    if not shown:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(shown))
