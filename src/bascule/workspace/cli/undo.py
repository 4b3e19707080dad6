"""`bascule undo`: what agents did with their own tools, newest first, and taking one of it back."""

import argparse
from typing import Any

from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.foundation.errors import NotFound
from bascule.foundation.text import one_line, short_id
from bascule.local_client.exits import WrongUsage
from bascule.programs.helpers.terminal import show, show_json, show_table
from bascule.workspace.cli.spaces import or_as_person, show_undone
from bascule.workspace.records import NO_UNDO

# In place of a run's id.
LAST_UNDO = "last-undo"
# How many of them a screen shows well, and how far back is looked.
DEFAULT_SHOWN = 20
MAX_LOOKED_AT = 1_000
MAX_TITLE_CHARS = 70
_EPILOG = """\
examples:
  bascule undo                      what can be taken back, newest first
  bascule undo last --dry-run       what taking back the newest would change
  bascule undo rm -rf src           the newest call whose client, session or command has these words
  bascule undo run_01H...           exactly this one
  bascule undo --last-undo          take back the last undo, whatever it was

Later changes are never lost: an undo that would lose some is refused, and says which.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    undo = commands.add_parser(
        "undo",
        help="take back what an agent did with its own tools",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    undo.set_defaults(run=run_undo)
    undo.add_argument("words", metavar="RUN|last|WORDS", nargs=argparse.REMAINDER, help="which; none: list them")
    undo.add_argument("-n", type=int, default=DEFAULT_SHOWN, metavar="N", help="how many are listed (%(default)s)")
    undo.add_argument("--last-undo", action="store_true", help="take back the last undo; doing it twice undoes again")
    undo.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_state_dir(undo)
    add_json(undo)


def run_undo(args: argparse.Namespace) -> int:
    words = _own_options(args)
    if args.last_undo and words:
        raise WrongUsage("--last-undo takes no other words: it is about the last undo, whichever that was")
    with connect(args) as client:
        run_id = LAST_UNDO
        if not args.last_undo:
            runs = [run for run in client.call("runs.list", {"limit": MAX_LOOKED_AT}) if run.get("native")]
            if not words:
                return _list(args, [run for run in runs if run.get("undoable")])
            run_id = _chosen(runs, words)
        result = or_as_person(client, "runs.undo", {"runId": run_id, "dryRun": args.dry_run})
    return show_undone(args, result, f" of {result['runId']}")


def _own_options(args: argparse.Namespace) -> list[str]:
    """Words of a command look like options: everything behind the first word is taken as it is, ours picked out."""
    words: list[str] = []
    given = iter(args.words)
    for word in given:
        if word in ("--dry-run", "--json", "--last-undo"):
            setattr(args, word[2:].replace("-", "_"), True)
        elif word == "--state-dir":
            args.state_dir = next(given, None)
        else:
            words.append(word)
    return words


def _may_be_meant(run: dict[str, Any]) -> bool:
    """Also what is not over yet, or has no undo: the daemon says so, and no older call is taken back in its place."""
    return bool(run.get("undoable") or run["status"] == "running" or str(run.get("note")).startswith(NO_UNDO))


def _chosen(found: list[dict[str, Any]], words: list[str]) -> str:
    if len(words) == 1 and words[0].startswith("run_"):
        return words[0]
    wanted = [] if words == ["last"] else words
    for run in filter(_may_be_meant, found):
        native = run["native"]
        text = f"{native['client']} {native['session']} {native['tool']} {native['title']} {run['startedAt']}"
        if all(word in text for word in wanted):
            return str(run["runId"])
    raise NotFound("nothing that can be taken back has these words", hint="`bascule undo` lists what can")


def _list(args: argparse.Namespace, found: list[dict[str, Any]]) -> int:
    if args.n < 1:
        raise WrongUsage("-n is a number of lines above zero")
    if args.json:
        show_json(found[: args.n])
        return 0
    if not found:
        show("nothing to take back: no agent's own tool has changed anything that is kept")
        return 0
    rows = [
        (
            run["runId"],
            run["startedAt"][:19].replace("T", " "),
            run["native"]["client"],
            short_id(run["native"]["session"]),
            one_line(run["native"]["title"], MAX_TITLE_CHARS),
        )
        for run in found[: args.n]
    ]
    show_table(("RUN", "BEGAN", "CLIENT", "SESSION", "WHAT"), rows)
    return 0
