"""A few shapes of SVG, written by hand so that `make bench` needs no plotting library.

Colours work on a light and on a dark page.
"""

from html import escape

WIDTH = 760
MARGIN = 16
OURS = "#3d7bd9"
OTHERS = "#9aa5b1"
GOAL = "#c2553a"
_STYLE = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f; }
    .title { font-size: 16px; font-weight: 600; }
    .heading { font-weight: 600; }
    .quiet { fill: #57606a; }
    .small { font-size: 11px; }
    .grid { stroke: #8b949e; stroke-opacity: 0.3; stroke-width: 1; }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .quiet { fill: #9198a1; } }
"""


class Drawing:
    """Shapes one after the other; `y` is where the next panel begins."""

    def __init__(self, title: str, aside: str) -> None:
        self._title = title
        self._shapes: list[str] = []
        # The same for whoever cannot see it.
        self._words: list[str] = []
        self.y = 40.0
        self.text(MARGIN, 26, title, "title")
        self.text(WIDTH - MARGIN, 26, aside, "quiet", anchor="end")

    def say(self, words: str) -> None:
        self._words.append(words)

    def text(
        self, x: float, y: float, words: str, kind: str = "", *, anchor: str = "start", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="3" fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str, *, hollow: bool = False) -> None:
        paint = f'fill="none" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
        self._shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {paint}/>')

    def line(self, points: list[tuple[float, float]], colour: str | None = None, *, dashed: bool = False) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        paint = f'stroke="{colour}" stroke-width="2"' if colour else 'class="grid"'
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(f'<polyline points="{path}" fill="none" {paint}{dash}/>')

    def document(self) -> str:
        height = self.y + MARGIN
        words = escape(f"{self._title}. {'; '.join(self._words)}")
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
                    f'height="{height:.0f}" role="img" aria-labelledby="title">'
                ),
                f'<title id="title">{words}</title>',
                f"<style>{_STYLE}</style>",
                *self._shapes,
                "</svg>",
                "",
            ]
        )
