"""`bascule gc` and `bascule purge`: remove what is past its time, or everything."""

import argparse
import os
import shutil

from bascule.cli.life import running_pid
from bascule.cli.talk import add_json, add_state_dir, ask, state_of
from bascule.foundation import paths
from bascule.local_client.exits import CONFLICT, USAGE
from bascule.programs.helpers.terminal import say, show, show_json


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    gc = commands.add_parser(
        "gc",
        help="remove what is past its retention (the daemon also does it by itself)",
        description="Remove expired ids, long-gone agents, messages nobody fetched for a week, and ledger segments "
        "older than the setting ledger_days.",
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would go")
    gc.set_defaults(run=run_gc)
    purge = commands.add_parser(
        "purge",
        help="delete everything Bascule has stored",
        description="Delete the state directory: tickets, agents, tokens, ledger, log. The daemon must be stopped.",
    )
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(run=run_purge)
    add_json(gc)
    for command in (gc, purge):
        add_state_dir(command)


def run_gc(args: argparse.Namespace) -> int:
    result = ask(args, "daemon.gc", {"dryRun": args.dry_run})
    if args.json:
        show_json(result)
        return 0
    verb = "would remove" if args.dry_run else "removed"
    for item in result["items"]:
        show(f"{verb} {item['count']:>6} {item['what']:<26} ({item['why']})")
    return 0


def run_purge(args: argparse.Namespace) -> int:
    state = state_of(args)
    if not os.path.lexists(state):
        show(f"{state} does not exist: nothing to delete")
        return 0
    if running_pid(state) is not None:
        say("bascule: stop the daemon first: bascule down")
        return CONFLICT
    if not os.path.exists(paths.lock_file(state)):
        say(f"bascule: {state} does not look like a state directory (no {os.path.basename(paths.lock_file(state))})")
        return USAGE
    if not args.yes:
        try:
            answer = input(f"Delete {state} with everything in it? Type yes: ")
        except EOFError:
            answer = ""
        if answer != "yes":
            say("bascule: nothing was deleted")
            return USAGE
    shutil.rmtree(state)
    show(f"deleted {state}")
    return 0
