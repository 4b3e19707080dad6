"""`bascule person passkey add | list | revoke`: keys with which the person answers by a touch, in the console."""

import argparse
import time
from typing import Any

from bascule.cli.console_pages import console_address
from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.client.sync import SyncClient
from bascule.foundation.text import one_line
from bascule.local_client.exits import NOTHING_CAME
from bascule.programs.helpers.terminal import say, show, show_json

# As long as the code is good.
CODE_SECONDS = 180.0
# How often it is looked whether the key is there; a person waits for it.
_LOOK_SECONDS = 1.0


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    passkey = verbs.add_parser(
        "passkey",
        help="enrol a passkey, so that the console takes a touch for your word",
        description="With a passkey (a security key, the finger sensor of a laptop, a phone) you answer in the web "
        "console with one touch, for exactly what it shows. Enrolling one needs your passphrase here, and a code that "
        "you type into the console.",
    )
    actions = passkey.add_subparsers(metavar="VERB", required=True)
    add = actions.add_parser("add", help="show the code to type into the console, and wait for the key")
    add.set_defaults(run=run_add)
    listed = actions.add_parser("list", help="the passkeys that are enrolled")
    listed.set_defaults(run=run_list)
    add_json(listed)
    revoke = actions.add_parser("revoke", help="end one; what it signed stays provable")
    revoke.add_argument("passkey_id", metavar="PASSKEY")
    revoke.set_defaults(run=run_revoke)
    for action in (add, listed, revoke):
        add_state_dir(action)


def run_add(args: argparse.Namespace) -> int:
    with connect(args) as client:
        # Before anybody types a passphrase: without a console there is nowhere to type the code.
        where = console_address(client)
        before = {each["passkeyId"] for each in client.call("passkeys.list", {})}
        unlock(client)
        invite = client.call("passkeys.invite", {})
        show(f"Open {where}, choose Person, then Add a passkey, and type this code within 3 minutes:")
        show(f"\n  {invite['code']}\n")
        return _wait_for_key(client, before, time.monotonic() + CODE_SECONDS)


def _wait_for_key(client: SyncClient, before: set[str], until: float) -> int:
    while time.monotonic() < until:
        for each in client.call("passkeys.list", {}):
            if each["passkeyId"] not in before:
                show(one_line(f"added: {each['name']} ({each['passkeyId']})"))
                return 0
        time.sleep(_LOOK_SECONDS)
    say("bascule: no passkey was added in time; `bascule person passkey add` makes a new code")
    return NOTHING_CAME


def run_list(args: argparse.Namespace) -> int:
    found = ask(args, "passkeys.list")
    if args.json:
        show_json(found)
        return 0
    if not found:
        show("no passkeys: `bascule person passkey add`")
    for each in found:
        show(_line(each))
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    with connect(args) as client:
        unlock(client)
        client.call("passkeys.revoke", {"passkeyId": args.passkey_id})
    show(f"revoked {args.passkey_id}")
    return 0


def _line(passkey: dict[str, Any]) -> str:
    notes = [
        f"added {passkey['createdAt'][:10]}",
        f"last used {passkey['lastUsedAt'][:16]}" if passkey.get("lastUsedAt") else "never used",
    ]
    if passkey.get("synced"):
        notes.append("on several devices")
    if passkey.get("suspended"):
        notes.append("SUSPENDED: its counter went back; revoke it")
    return one_line(f"{passkey['passkeyId']}  {passkey['name']}  ({', '.join(notes)})")
