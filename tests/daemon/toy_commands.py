"""What the toy bridge adds to `bascule`."""

import argparse

from bascule.cli.talk import add_state_dir, ask
from bascule.programs.helpers.terminal import show


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    marks = commands.add_parser("marks", help="make a mark")
    marks.add_argument("name")
    marks.set_defaults(run=run)
    add_state_dir(marks)


def run(args: argparse.Namespace) -> int:
    mark = ask(args, "marks.put", {"name": args.name})
    show(f"{mark['name']}: {mark['count']}")
    return 0
