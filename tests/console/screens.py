"""`make docs-screens`: pictures of every page into docs/img/console, from the scripted day."""

import argparse
import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("", "console", "daemon", "e2e", "web", "approval", "desktop_host")]

from browsing import chromium  # noqa: E402 - found by the path above
from day import Day, a_day  # noqa: E402 - as above
from PIL import Image  # noqa: E402 - as above
from playwright.sync_api import Browser  # noqa: E402 - as above
from walking import LOOKS, PLACES, Look, visit  # noqa: E402 - as above

IMAGES = TESTS.parent / "docs" / "img" / "console"
# What docs/console.md shows. `--all` takes the others, too, for somebody who looks at every page.
SHOWN = frozenset(
    [
        "approval-command",
        "approval-alike",
        "approval-click",
        "question",
        "live",
        "tickets",
        "conversation",
        "run",
        "evidence",
        "game",
        "ledger",
        "policy",
        "health",
        "person",
    ]
)
# Flat colours and text: a palette loses nothing that one sees, and a picture has a third of its bytes.
COLOURS = 256


def shoot(day: Day, browser: Browser, look: Look, folder: Path, wanted: frozenset[str]) -> None:
    with day.browser(browser, **look.context) as (context, _):
        console = day.signed_in(context)
        for place in PLACES:
            if place.name not in wanted:
                continue
            visit(console, place.on(day))
            console.page.mouse.move(0, 0)
            file = folder / f"{place.name}-{look.name}.png"
            console.page.screenshot(path=file, animations="disabled", caret="hide")
            shrink(file)


def shrink(file: Path) -> None:
    with Image.open(file) as whole:
        small = whole.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of docs/console.md.")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder of the pictures")
    parser.add_argument("--only", action="append", default=[], help="this picture alone (repeatable)")
    parser.add_argument("--all", action="store_true", help="every page")
    parser.add_argument("--look", choices=[look.name for look in LOOKS], action="append", help="in this look alone")
    args = parser.parse_args()
    os.makedirs(args.into, exist_ok=True)
    everything = frozenset(place.name for place in PLACES)
    wanted = frozenset(args.only) or (everything if args.all else SHOWN)
    with a_day() as day, chromium() as browser:
        for look in LOOKS:
            if not args.look or look.name in args.look:
                shoot(day, browser, look, args.into, wanted)
    files = sorted(args.into.glob("*.png"))
    size = sum(file.stat().st_size for file in files)
    sys.stdout.write(f"docs-screens: {len(files)} pictures, {size / 1e6:.1f} MB, in {args.into}\n")


if __name__ == "__main__":
    main()
