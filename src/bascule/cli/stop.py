"""`bascule stop | resume`: everything that agents do, until a person lets it begin again. The daemon goes on."""

import argparse

from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.foundation.text import one_line
from bascule.programs.helpers.terminal import say, show, show_json


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    stop = commands.add_parser(
        "stop",
        help="STOP EVERYTHING: end what agents do, and let nothing begin until you resume",
        description="Ends runs, commands and games, releases the desktop, and refuses whatever would begin something: "
        "messages, commands, input. Looking still works, and so does ending things. It holds over a restart of the "
        "daemon, until you type the passphrase behind `bascule resume`. The daemon itself is ended by `bascule down`.",
    )
    stop.add_argument("--reason", metavar="TEXT", help="a note for yourself, shown by `bascule status`")
    stop.set_defaults(run=run_stop)
    resume = commands.add_parser(
        "resume",
        help="let things begin again after `bascule stop` (asks for the passphrase)",
        description="Ends what `bascule stop` or STOP EVERYTHING in the console began. What was ended stays ended; "
        "questions that still wait can be approved again.",
    )
    resume.set_defaults(run=run_resume)
    for command in (stop, resume):
        add_state_dir(command)
        add_json(command)


def run_stop(args: argparse.Namespace) -> int:
    result = ask(args, "admin.stop", {"reason": args.reason} if args.reason else {})
    if args.json:
        show_json(result)
        return 0
    show(f"everything is stopped, since {result['at']} by {result['by']}")
    for each in result.get("results", ()):
        show(f"  {each['bridge']:<10} {one_line(each['text'])}")
    say("let it begin again: bascule resume")
    return 0


def run_resume(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if client.call("daemon.status", {}).get("stopped") is None:
            say("bascule: nothing is stopped")
            return 0
        unlock(client)
        result = client.call("admin.resume", {})
    if args.json:
        show_json(result)
    else:
        show("resumed: things may begin again, under the policy")
    return 0
