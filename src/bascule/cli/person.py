"""`bascule person set | status | reset | passkey`: the passphrase that makes a terminal the person's."""

import argparse
from typing import Any

from bascule.cli.life import running_pid
from bascule.cli.talk import add_json, add_state_dir, ask, connect, state_of
from bascule.client.sync import SyncClient
from bascule.foundation.errors import InvalidRequest
from bascule.kernel.identity.passphrase import read_from_tty
from bascule.kernel.limits import MIN_PASSPHRASE_CHARS
from bascule.local_client.exits import CONFLICT, USAGE
from bascule.programs.helpers.terminal import say, show, show_json


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    person = commands.add_parser(
        "person",
        help="set the passphrase only you know",
        description="Some things only a person may do: revoke an agent, take over a handle, read every ticket. The "
        "passphrase is typed on your terminal, never taken from arguments, environment or a pipe, and only its "
        "scrypt hash is stored. It is set once; to change it, reset with the daemon stopped.",
    )
    verbs = person.add_subparsers(metavar="VERB", required=True)
    for name, run, help_ in (
        ("set", run_set, "set the passphrase, once"),
        ("status", run_status, "whether one is set"),
        ("reset", run_reset, "remove it (daemon stopped); revokes every agent token and passkey"),
    ):
        verb = verbs.add_parser(name, help=help_)
        add_state_dir(verb)
        verb.set_defaults(run=run)
        if name == "status":
            add_json(verb)
    from bascule.cli import passkey

    passkey.add_parser(verbs)


def run_set(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if client.call("person.status", {})["set"]:
            say("bascule: a passphrase is set already; `bascule down`, then `bascule person reset` to start over")
            return CONFLICT
        return _set(client, read_from_tty(f"New passphrase (at least {MIN_PASSPHRASE_CHARS} characters): "))


def _set(client: SyncClient, first: str) -> int:
    if first != read_from_tty("The same again: "):
        say("bascule: the two differ; nothing was set")
        return USAGE
    client.call("person.set", {"passphrase": first})
    show("set; the ledger says when and by which process (bascule ledger show person)")
    return 0


def offer(state: str, *, asks: bool) -> None:
    """At the end of `bascule on`. Without a person what asks is refused, and that should not come as a surprise."""
    with SyncClient.connect(state_dir=state) as client:
        if client.call("person.status", {})["set"]:
            return
        show("- Some actions ask you first. You answer them with a passphrase that only you know, or with a passkey.")
        if asks:
            # A text that is too short, or two that differ, is asked for again; Enter ends it.
            while first := _typed(f"  Passphrase (at least {MIN_PASSPHRASE_CHARS} characters; Enter leaves it out): "):
                try:
                    if _set(client, first) == 0:
                        show("  For a touch instead of typing: bascule person passkey")
                        return
                except InvalidRequest as fault:
                    say(f"bascule: {fault.message}")
        show("- No passphrase is set. Until then, what asks is refused: bascule person set")


def _typed(prompt: str) -> str:
    try:
        return read_from_tty(prompt)
    except InvalidRequest:
        return ""


def run_status(args: argparse.Namespace) -> int:
    status = ask(args, "person.status")
    if args.json:
        show_json(status)
    else:
        show("set" if status["set"] else "not set: `bascule person set`")
    return 0


def run_reset(args: argparse.Namespace) -> int:
    state = state_of(args)
    if running_pid(state) is not None:
        say("bascule: stop the daemon first (`bascule down`): a reset revokes every token it holds")
        return CONFLICT
    answer = read_from_tty(
        "This removes the passphrase and revokes every passkey and every agent's token. Type RESET: "
    )
    if answer != "RESET":
        say("bascule: nothing was changed")
        return USAGE
    from bascule.daemon.offline import reset_person

    revoked = reset_person(state)
    show(f"reset; {revoked} agent tokens revoked. Set a new one with `bascule up -d` and `bascule person set`")
    return 0


def unlock(client: SyncClient) -> None:
    """Ask for the passphrase on the terminal and make this connection the person's."""
    client.call("person.unlock", {"passphrase": read_from_tty("Passphrase: ")})


def ask_as_person(args: argparse.Namespace, method: str, params: dict[str, Any]) -> Any:
    with connect(args) as client:
        unlock(client)
        return client.call(method, params)
