"""`bascule demo`: a throw-away daemon, two little agents, one question, and what the ledger says about it."""

import argparse


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser("demo", help="watch one agent ask another, in a throw-away daemon (under 5 s)")
    demo.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    raise SystemExit(1)
