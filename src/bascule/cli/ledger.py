"""`bascule ledger tail | show | search | verify`: what happened, and whether the record of it is whole."""

import argparse
import os
from typing import Any

from bascule.cli.life import running_pid
from bascule.cli.talk import add_json, add_state_dir, ask, connect, state_of
from bascule.foundation import paths
from bascule.foundation.errors import NotFound, Unavailable
from bascule.foundation.text import one_line
from bascule.local_client.exits import NOT_FOUND, UNEXPECTED
from bascule.programs.helpers.terminal import say, show, show_json

# A SHA-256 in hex.
_HASH_CHARS = 64
WHAT_IT_SAYS = "no damage, no careless edit; whoever runs as you and computes the hashes anew is not found by this"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    ledger = commands.add_parser(
        "ledger",
        help="read and check the record of every action",
        description="The ledger is hash-chained: each record's hash covers the one before it. It holds who did "
        "what to which thing and how it was decided; ids, sizes and keyed digests, never what was said.",
    )
    verbs = ledger.add_subparsers(metavar="VERB", required=True)
    tail = verbs.add_parser("tail", help="the newest records")
    tail.add_argument("-n", type=int, default=20, metavar="N", help="how many (default 20)")
    tail.set_defaults(run=run_tail)
    shown = verbs.add_parser("show", help="one record by number, or all of a ticket, handle or method")
    shown.add_argument("what", metavar="NUMBER|TICKET|HANDLE|METHOD")
    shown.set_defaults(run=run_show)
    searched = verbs.add_parser(
        "search",
        help="records by who, method, outcome, rule, subject and time",
        description="Words with a field look there, as globs: who:Jerry method:desktop.* outcome:denied rule:x "
        "subject:y since:2026-11-01 until:2h; bare words are looked for in subject, method and principal. "
        "All must match; the newest records are first.",
    )
    searched.add_argument("words", metavar="WORD", nargs="+")
    searched.add_argument("-n", type=int, default=100, metavar="N", help="how many at most (default 100)")
    searched.add_argument("--before", type=int, metavar="NUMBER", help="only records before this one")
    searched.set_defaults(run=run_search)
    check = verbs.add_parser(
        "verify",
        help="check every hash, the chain and the anchors",
        description="Finds any flipped, deleted, moved or replaced record, and an end that was cut off behind the "
        "last anchor: damage and careless edits. It does not find the edits of a program that runs as you and computes "
        "the hashes anew: of records behind the last anchor (one a minute, and each 100 records), or of all when it "
        "writes the anchors anew too. Works on a running and on a stopped daemon. Exit code 1 when something is wrong.",
    )
    check.add_argument(
        "--peers",
        action="store_true",
        help="also compare with what other machines of the mesh hold: finds an end that was cut off together with its "
        "anchors, as far as they are to be believed",
    )
    check.set_defaults(run=run_verify)
    for verb in (tail, shown, searched, check):
        add_state_dir(verb)
        add_json(verb)


def run_tail(args: argparse.Namespace) -> int:
    return _print(args, ask(args, "ledger.tail", {"limit": args.n}))


def run_show(args: argparse.Namespace) -> int:
    records = ask(args, "ledger.show", {"what": args.what})
    if not records and not args.json:
        say(f"bascule: the ledger has no record of {args.what}")
        return NOT_FOUND
    return _print(args, records)


def run_search(args: argparse.Namespace) -> int:
    params: dict[str, Any] = {"q": " ".join(map(_word, args.words)), "limit": args.n}
    if args.before is not None:
        params["before"] = args.before
    records: list[dict[str, Any]] = []
    with connect(args) as client:
        # One call reads a part of the ledger: go on until there is enough, or nothing is left.
        while True:
            page = client.call("ledger.search", params)
            records += page["records"]
            more = page.get("next")
            if more is None or len(records) >= args.n:
                break
            params |= {"before": more, "limit": args.n - len(records)}
    if args.json:
        show_json({"records": records} | ({"next": more} if more is not None else {}))
        return 0
    if not records:
        say("bascule: the ledger has no such record")
        return NOT_FOUND
    _print(args, records)
    if more is not None:
        say(f"there may be more: --before {more}")
    return 0


def _word(word: str) -> str:
    """As the shell passed it: what it quoted stays one word."""
    field, colon, value = word.partition(":")
    if not any(letter.isspace() for letter in word):
        return word
    return f'{field}:"{value}"' if colon and field.isalpha() else f'"{word}"'


def run_verify(args: argparse.Namespace) -> int:
    state = state_of(args)
    running = running_pid(state) is not None
    result = ask(args, "ledger.verify") if running else _verify_stopped(state)
    if args.peers:
        if not running:
            raise Unavailable("--peers needs a running daemon", hint="start it: bascule up -d")
        _compare_with_peers(args, result)
    if args.json:
        show_json(result)
    elif result["ok"]:
        show(
            f"ok: {result['records']} records ({result['first']} to {result['last']}), {result['anchors']} anchors, "
            f"{result.get('signatures', 0)} signatures,{_peers_compared(result)} head {result['head'][:16]}, "
            f"{result['seconds']} s"
        )
        show(WHAT_IT_SAYS)
    else:
        for fault in result["faults"]:
            show(f"FAULT: {fault}")
        show(f"{len(result['faults'])} faults in {result['records']} records")
    return 0 if result["ok"] else UNEXPECTED


def _compare_with_peers(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """What each machine holds must be a record of this ledger, with that hash."""
    held = ask(args, "mesh.anchors")
    faults = []
    for anchor in held["anchors"]:
        records = ask(args, "ledger.show", {"what": str(anchor["seq"])})
        if anchor["seq"] < result["first"] - 1 or (records and records[0]["hash"] == anchor["head"]):
            # What retention has dropped cannot be compared.
            continue
        what = "is another one" if records else "is not there"
        faults.append(
            f"{anchor['node']} says that it was told record {anchor['seq']} of this ledger, which {what}: its end was "
            f"cut off, or a backup was put back, or {anchor['node']} says what is not so (it showed no proof)"
        )
    machines = {anchor["node"] for anchor in held["anchors"]}
    result["peers"] = {"compared": len(machines), "silent": held.get("silent", [])}
    result["faults"] = [*result.get("faults", []), *faults]
    result["ok"] = result["ok"] and not faults


def _peers_compared(result: dict[str, Any]) -> str:
    peers = result.get("peers")
    if peers is None:
        return ""
    silent = f" ({', '.join(peers['silent'])} did not answer)" if peers["silent"] else ""
    return f" {peers['compared']} machines{silent},"


def _verify_stopped(state: str) -> dict[str, Any]:
    """No daemon runs: open the store ourselves, under its lock."""
    import msgspec

    from bascule.admin.ledger_methods import verify
    from bascule.daemon.lifecycle import check_places, hold_lock
    from bascule.kernel.ledger import Segment
    from bascule.stores.anchor_file import AnchorFile
    from bascule.stores.sqlite import SqliteStore

    if not os.path.exists(paths.database_file(state)):
        raise NotFound(
            f"there is no ledger in {state}", hint="no daemon ever ran there; --state-dir names another place"
        )
    check_places(state)
    with hold_lock(state):
        store = SqliteStore(paths.database_file(state))
        try:
            segments = [segment for _, segment in store.load("segments", Segment)]
            anchors = AnchorFile(paths.anchors_file(state))
            result = store.read_ledger(lambda ledger: verify(ledger, segments, anchors)).result()
        finally:
            store.close()
    plain: dict[str, Any] = msgspec.to_builtins(result)
    return plain


def _short(value: Any) -> str:
    """A hash by its beginning, as everywhere; `ledger show --json` has all of it."""
    text = str(value)
    return text[:16] if len(text) == _HASH_CHARS else text


def _print(args: argparse.Namespace, records: list[dict[str, Any]]) -> int:
    if args.json:
        show_json(records)
        return 0
    for record in records:
        details = " ".join(f"{name}={_short(value)}" for name, value in record.get("details", {}).items())
        subject = record.get("subject") or ""
        show(
            one_line(
                f"{record['seq']:>7} {record['at']} {record['outcome']:<13} {record['principal']:<16} "
                f"{record['method']:<18} {subject:<36} {details}"
            ).rstrip()
        )
    return 0
