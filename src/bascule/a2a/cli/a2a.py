"""`bascule a2a`: what is published to clients outside, who they are, and the agents elsewhere that can be asked."""

import argparse
import os
from typing import Any

from bascule.cli.person import ask_as_person
from bascule.cli.talk import add_json, add_state_dir, ask
from bascule.foundation import paths
from bascule.foundation.text import one_line
from bascule.programs.helpers.terminal import show, show_json, show_table

_EPILOG = """\
examples:
  bascule a2a publish Jerry --skill "reviews Python code"    clients outside may write to Jerry
  bascule a2a token add Ann                                  a token for one of them, shown once
  bascule a2a add Weather https://agents.example.org         then: bridge-send Weather@a2a "Rain tomorrow?"

The door is closed until a2a_port is set; docs/a2a.md shows the whole way.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    a2a = commands.add_parser(
        "a2a",
        help="agents of other owners, over A2A: publish yours, ask theirs",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = a2a.add_subparsers(metavar="VERB")
    publish = _verb(verbs, "publish", run_publish, "let clients outside write to an agent (asks for the passphrase)")
    publish.add_argument("agent", metavar="HANDLE")
    publish.add_argument("--skill", action="append", default=[], metavar="TEXT", help="what it can do; may be repeated")
    publish.add_argument("--description", metavar="TEXT", help="one sentence for its agent card")
    _verb(verbs, "unpublish", run_unpublish, "publish it no longer").add_argument("agent", metavar="HANDLE")
    _verb(verbs, "published", run_published, "what is published, and where")
    token = verbs.add_parser("token", help="tokens of clients outside: add, list, revoke")
    of_token = token.add_subparsers(metavar="VERB", required=True)
    add_token = _verb(of_token, "add", run_add_token, "make one; it is shown once (asks for the passphrase)")
    add_token.add_argument("name", metavar="NAME")
    _verb(of_token, "list", run_tokens, "who has one")
    _verb(of_token, "revoke", run_revoke_token, "revoke it, and end what its client has open").add_argument(
        "name", metavar="NAME"
    )
    add = _verb(verbs, "add", run_add, "pin the card of an agent elsewhere (asks for the passphrase)")
    add.add_argument("name", metavar="NAME", help="it is asked as NAME@a2a")
    add.add_argument("url", metavar="URL", help="where its agent card is, or the place above .well-known")
    add.add_argument("--token-file", metavar="FILE", help="a 0600 file with the bearer that it wants")
    _verb(verbs, "remove", run_remove, "ask it no longer; what waits for it ends").add_argument("name", metavar="NAME")
    _verb(verbs, "list", run_list, "agents elsewhere that can be asked (the default)")
    a2a.set_defaults(run=run_list)
    add_state_dir(a2a)
    add_json(a2a)


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, run: Any, help_: str
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=help_)
    verb.set_defaults(run=run)
    add_state_dir(verb, below=True)
    add_json(verb, below=True)
    return verb


# -- in --


def run_publish(args: argparse.Namespace) -> int:
    params = {"agentId": args.agent, "skills": args.skill}
    if args.description:
        params["description"] = args.description
    published = ask_as_person(args, "a2a.publish", params)
    if args.json:
        show_json(published)
        return 0
    where = published.get("card") or "closed: set a2a_port and start the daemon again"
    show(f"{args.agent} is published; its card: {where}")
    show("a client needs a token: bascule a2a token add NAME")
    return 0


def run_unpublish(args: argparse.Namespace) -> int:
    published = ask(args, "a2a.unpublish", {"agentId": args.agent})
    if args.json:
        show_json(published)
    else:
        show(f"{args.agent} is not published any more; what was asked before can still be answered")
    return 0


def run_published(args: argparse.Namespace) -> int:
    listed = ask(args, "a2a.published")
    if args.json:
        show_json(listed)
        return 0
    show(f"door: {listed['door'] or listed['problem'] or 'closed (a2a_port is off)'}")
    for each in listed["agents"]:
        show(one_line(f"{each['agentId']:<24} {each.get('card', '-')}  {', '.join(each.get('skills', []))}").rstrip())
    if not listed["agents"]:
        show("nothing is published: bascule a2a publish HANDLE")
    return 0


def run_add_token(args: argparse.Namespace) -> int:
    made = ask_as_person(args, "a2a.addToken", {"name": args.name})
    if args.json:
        show_json(made)
        return 0
    show(f"the token of {made['principal']}, shown this once:")
    show(made["token"])
    return 0


def run_tokens(args: argparse.Namespace) -> int:
    clients = ask(args, "a2a.tokens")
    if args.json:
        show_json(clients)
    elif clients:
        show_table(("CLIENT", "SINCE"), [(each["name"], each["since"]) for each in clients])
    else:
        show("no client has a token: bascule a2a token add NAME")
    return 0


def run_revoke_token(args: argparse.Namespace) -> int:
    client = ask(args, "a2a.revokeToken", {"name": args.name})
    if args.json:
        show_json(client)
    else:
        show(f"the token of {args.name} is revoked")
    return 0


# -- out --


def run_add(args: argparse.Namespace) -> int:
    params = {"name": args.name, "url": args.url}
    if args.token_file:
        # The daemon has a directory of its own.
        params["tokenFile"] = os.path.abspath(paths.expand(args.token_file))
    peer = ask_as_person(args, "a2a.addAgent", params)
    if args.json:
        show_json(peer)
        return 0
    show(one_line(f"{peer['agentId']}: {peer['title']}"))
    if peer.get("description"):
        show(one_line(peer["description"]))
    for skill in peer.get("skills", []):
        show(one_line(f"  {skill}"))
    show(f"card   {peer['url']}")
    show(f"digest {peer['digest']}")
    show(f"speaks A2A {peer['protocol']}, {peer['binding']}")
    show(f'ask it: bridge-send {peer["agentId"]} "..."; if its card changes, nothing is sent until it is added again')
    return 0


def run_remove(args: argparse.Namespace) -> int:
    peer = ask(args, "a2a.removeAgent", {"name": args.name.removesuffix("@a2a")})
    if args.json:
        show_json(peer)
    else:
        show(f"{peer['agentId']} is off the list; {peer.get('open', 0)} messages to it ended")
    return 0


def run_list(args: argparse.Namespace) -> int:
    peers = ask(args, "a2a.agents")
    if args.json:
        show_json(peers)
        return 0
    if not peers:
        show("nobody yet: bascule a2a add NAME URL")
        return 0
    rows = [
        (
            each["agentId"],
            each["status"],
            str(each.get("open", 0)),
            f"{each['protocol']} {each['binding']}",
            each["digest"][:16],
            one_line(each.get("problem") or each["url"]),
        )
        for each in peers
    ]
    show_table(("AGENT", "STATUS", "OPEN", "SPEAKS", "CARD", "WHERE"), rows)
    return 0
