"""`bascule console`: open the web console, compare six digits; list and end its sessions."""

import argparse
import os
import time
from typing import Any

from bascule.cli.console_pages import console_address
from bascule.cli.opening import open_file
from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.cli.tty import ask_on_tty
from bascule.client.sync import SyncClient
from bascule.kernel.identity.passphrase import NoTerminal
from bascule.local_client.exits import CONFLICT
from bascule.programs.helpers.terminal import say, show, show_json

# As long as a page's digits are good.
WAIT_SECONDS = 180.0
# One look for a page; in between it is seen whether a page that is paired already has come back.
SLICE_MS = 3_000
_YES = ("", "y", "yes")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "console",
        help="open the web console in your browser",
        description="Open the web console and pair the browser with it: page and terminal show six digits, and you say "
        "here that they are the same. No secret is in the address, in a file or among the arguments.",
    )
    parser.add_argument("--no-open", action="store_true", help="print the address and wait; open it yourself")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the sessions")
    what.add_argument(
        "--revoke", nargs="?", const="", metavar="ID", help="end the session ID, or every session without one"
    )
    add_state_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if args.list:
            return _list(client, as_json=args.json)
        if args.revoke is not None:
            params = {"sessionId": args.revoke} if args.revoke else {}
            show(f"{client.call('console.revoke', params)['revoked']} ended")
            return 0
        return _open(client, no_open=args.no_open)


def _list(client: SyncClient, *, as_json: bool) -> int:
    sessions = client.call("console.sessions", {})
    if as_json:
        show_json(sessions)
        return 0
    for each in sessions:
        show(f"{each['sessionId']}  {each['grade']:<9}  since {each['since']}  seen {each['lastSeen']}")
    if not sessions:
        show("no browser is paired; `bascule console` pairs one")
    return 0


def _open(client: SyncClient, *, no_open: bool) -> int:
    address = console_address(client)
    _need_terminal()
    before = _seen(client)
    if no_open:
        show(f"Open {address} in a browser on this machine.")
    elif (problem := open_file(address)) is not None:
        show(f"Open {address} in a browser on this machine ({problem}).")
    else:
        show(f"{address} opens in your browser.")
    show("Waiting for its six digits; Ctrl-C ends this, and the console stays.")
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for pairing in client.call("console.pairings", {"waitMs": SLICE_MS}):
            return _compare(client, pairing)
        if _seen(client) - before:
            show("A browser that is paired already has opened it.")
            return 0
    say("bascule: no page asked to be paired; is the address open in a browser on this machine?")
    return CONFLICT


def _compare(client: SyncClient, pairing: dict[str, Any]) -> int:
    digits = str(pairing["digits"])
    answer = ask_on_tty(f"Your browser shows {digits[:3]} {digits[3:]}. Same? [Enter, or n] ")
    accept = answer.lower() in _YES
    client.call("console.confirm", {"pairingId": pairing["pairingId"], "accept": accept})
    if not accept:
        say("bascule: refused; close pages that are not yours, wait a minute and try again")
        return CONFLICT
    show("Paired. It may look and do what `local` may; to answer questions, sign in there.")
    return 0


def _need_terminal() -> None:
    """Before a browser opens: a pairing that nobody can confirm would only be in the way of the next one."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        raise NoTerminal(
            "there is no terminal to compare the digits on",
            hint="run `bascule console` in a terminal of your own; an answer is never read from a pipe",
        ) from error


def _seen(client: SyncClient) -> set[tuple[str, str]]:
    """Which sessions there are, and when each was used last."""
    return {(str(each["sessionId"]), str(each["lastSeen"])) for each in client.call("console.sessions", {})}
