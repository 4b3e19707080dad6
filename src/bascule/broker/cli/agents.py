"""`bascule agents list | revoke | takeover | write`: who is there, and what only the person may do about it."""

import argparse

from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.cli.words import last_seen
from bascule.foundation.text import one_line
from bascule.programs.helpers.terminal import show, show_json


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    agents = commands.add_parser("agents", help="list agents; revoke or take over a handle")
    verbs = agents.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="who is registered (the default)")
    listed.set_defaults(run=run_list)
    revoke = verbs.add_parser("revoke", help="revoke an agent's token and free its handle (asks for the passphrase)")
    revoke.set_defaults(run=run_revoke)
    takeover = verbs.add_parser(
        "takeover",
        help="give a handle a new token, for the program that acts as it from now on (asks for the passphrase)",
    )
    takeover.set_defaults(run=run_takeover)
    write = verbs.add_parser("write", help="send an agent a message as the person (asks for the passphrase)")
    write.set_defaults(run=run_write)
    for verb in (revoke, takeover, write):
        verb.add_argument("agent", metavar="HANDLE")
    write.add_argument("text", metavar="TEXT")
    agents.set_defaults(run=run_list)
    for parser in (agents, listed, revoke, takeover, write):
        add_state_dir(parser, below=parser is not agents)
        add_json(parser, below=parser is not agents)


def run_list(args: argparse.Namespace) -> int:
    agents = ask(args, "agents.list")
    if args.json:
        show_json(agents)
        return 0
    if not agents:
        show("nobody yet: an agent joins with `bridge-register --agent NAME --type TYPE`, or through `bascule mcp`")
    for agent in agents:
        more = f"{agent['unread']} unread" if agent.get("unread") else last_seen(agent)
        show(one_line(f"{agent['agentId']:<24} {agent['status']:<11} {agent['type']:<16} {more}").rstrip())
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    with connect(args) as client:
        unlock(client)
        result = client.call("agents.revoke", {"agentId": args.agent})
    if args.json:
        show_json(result)
    else:
        show(f"{args.agent} is revoked; its inbox stays for the next agent that registers the handle")
    return 0


def run_takeover(args: argparse.Namespace) -> int:
    with connect(args) as client:
        known = next((each for each in client.call("agents.list", {}) if each["agentId"] == args.agent), None)
        unlock(client)
        kept = {"type": known["type"], "metadata": known["metadata"]} if known else {}
        result = client.call("agents.register", {"agentId": args.agent, **kept})
    if args.json:
        show_json({"agentId": result["agentId"], "status": result["status"]})
    else:
        show(f"{args.agent} has a new token in the state directory; helpers with --agent {args.agent} use it at once")
    return 0


def run_write(args: argparse.Namespace) -> int:
    with connect(args) as client:
        unlock(client)
        result = client.call("messages.send", {"agentId": args.agent, "payload": args.text})
    if args.json:
        show_json(result)
    else:
        show(f"sent as the person: {result['ticketId']} (follow it with `bascule watch {result['ticketId']}`)")
    return 0
