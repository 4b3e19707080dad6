"""`bascule mesh`, `bascule join`, `bascule node`: several machines become one mesh, and a person says which."""

import argparse
import os
import time
from typing import Any

from bascule.cli.person import ask_as_person, unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.cli.tty import ask_on_tty
from bascule.client.sync import SyncClient
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import CONFLICT, UNEXPECTED, USAGE, WrongUsage
from bascule.mesh.cli.showing import show_nodes, show_status
from bascule.mesh.membership_protocol import DEFAULT_LISTEN
from bascule.programs.helpers.terminal import say, show, show_json, show_table

_POLL_SECONDS = 0.5

_MESH_EPILOG = """\
two machines:
  workstation$ bascule mesh new home          the machine that is mostly on; prints a join code
  laptop$      bascule join bsc1-...          shows five words, and waits
  workstation$ bascule node accept laptop     shows the same five words; you say that they are equal

Then agents are called by their machine: bridge-send Jerry@laptop "hello". docs/mesh.md tells the rest.
"""
_JOIN_EPILOG = """\
examples:
  bascule join bsc1-AB2C...                        a code that `bascule mesh new` or `bascule mesh invite` printed
  bascule join bsc1-AB2C... --node study           under another name than this machine's
  bascule join nats://a,b,c --creds FILE           a mesh on NATS servers that are there already

The command waits until somebody at the other machine has accepted. Ctrl-C ends the waiting, not the question: this
daemon goes on asking for ten minutes; `bascule mesh leave` gives up.
"""
_NODE_EPILOG = """\
examples:
  bascule node list                     who is in the mesh, and who asks to join
  bascule node accept laptop            compare five words, then let it in
  bascule node accept ann-pc --for Ann  ... as a machine of Ann's: her agents ask before they write to yours
  bascule node deny laptop              say no
  bascule node revoke laptop            lost or stolen: cut off at once, for good
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _add_mesh(commands)
    join = commands.add_parser(
        "join",
        help="join a mesh of other machines, with a code or on NATS servers",
        description="Ask to join a mesh. Only you may: your passphrase is asked for.",
        epilog=_JOIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    join.add_argument("code", metavar="CODE", help="bsc1-..., or the servers: nats://a,b,c")
    join.add_argument("--creds", metavar="FILE", help="with servers: what their operator gave you to log in with")
    _add_node_name(join)
    _common(join)
    join.set_defaults(run=run_join)
    _add_node(commands)


def _add_mesh(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    mesh = commands.add_parser(
        "mesh",
        help="several machines as one mesh: new, invite, status, leave",
        description="Agents on several machines write to each other.",
        epilog=_MESH_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(mesh)
    mesh.set_defaults(run=run_status)
    verbs = mesh.add_subparsers(metavar="VERB")

    new = verbs.add_parser("new", help="begin a mesh with a server on this machine; prints a join code")
    new.add_argument("name", metavar="NAME", help="what the mesh is called, for example home")
    new.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"where the server listens, always with TLS (default: {DEFAULT_LISTEN}, all addresses)",
    )
    _add_node_name(new)
    _add_owner(new, "--me", "how others are shown whose machine this is (default: your user name)")
    new.set_defaults(run=run_new)

    init = verbs.add_parser("init", help="begin a mesh on NATS servers that are there already")
    init.add_argument("name", metavar="NAME", help="what the mesh is called")
    init.add_argument("--servers", metavar="URLS", required=True, help="nats://a,b,c or tls://...")
    init.add_argument("--creds", metavar="FILE", help="what their operator gave you to log in with; mode 600")
    init.add_argument("--replicas", type=int, default=1, help="on how many servers each letter is (default: 1)")
    _add_node_name(init)
    _add_owner(init, "--me", "how others are shown whose machine this is (default: your user name)")
    init.set_defaults(run=run_init)

    invite = verbs.add_parser("invite", help="make a join code for one more machine: good once, for ten minutes")
    _add_owner(invite, "--for", "the machine belongs to somebody else; its agents ask before they write to yours")
    invite.set_defaults(run=run_invite)

    status = verbs.add_parser("status", help="who is reachable, what waits, what is wrong and what to do (the default)")
    status.set_defaults(run=run_status)
    met = verbs.add_parser("met", help="whose agents may write to yours, and whose may not: what you answered")
    met.set_defaults(run=run_met)
    forget = verbs.add_parser("forget", help="take such an answer back: the machine's next message asks you again")
    forget.add_argument("node", metavar="NODE")
    forget.set_defaults(run=run_forget)
    keep = verbs.add_parser("keep", help="after a disk was copied: this machine stays in the mesh, the copy leaves")
    keep.set_defaults(run=run_keep)
    leave = verbs.add_parser("leave", help="leave the mesh, or give up joining: keys and cards are deleted here")
    leave.set_defaults(run=run_leave)
    for verb in (new, init, invite, status, met, forget, keep, leave):
        _common(verb, below=True)


def _add_node(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    node = commands.add_parser(
        "node",
        help="machines of the mesh: list, accept, deny, revoke",
        description="The machines of the mesh. Accepting, denying and revoking is done where the mesh was begun.",
        epilog=_NODE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(node)
    node.set_defaults(run=run_list)
    verbs = node.add_subparsers(metavar="VERB")
    for name, run, help_ in (
        ("list", run_list, "who is in the mesh, and who asks to join (the default)"),
        ("accept", run_accept, "let a machine in whose five words you have compared"),
        ("deny", run_deny, "say no to a machine that asks"),
        ("revoke", run_revoke, "cut a machine off at once, for good"),
    ):
        verb = verbs.add_parser(name, help=help_)
        if name != "list":
            verb.add_argument("node", metavar="NODE")
        if name == "accept":
            _add_owner(verb, "--for", "whose machine it is (default: as the code says; without a code, yours)")
        _common(verb, below=True)
        verb.set_defaults(run=run)


def _common(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    add_state_dir(parser, below=below)
    add_json(parser, below=below)


def _add_node_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node", metavar="NODE", help="what this machine is called in the mesh: a-z 0-9 - (default: its host name)"
    )


def _add_owner(parser: argparse.ArgumentParser, option: str, help_: str) -> None:
    parser.add_argument(option, dest="owner", metavar="NAME", help=help_)


# -- beginning --


def run_new(args: argparse.Namespace) -> int:
    listen = args.listen if ":" in args.listen else f"{args.listen}:{DEFAULT_LISTEN.rpartition(':')[2]}"
    params = _params(mesh=args.name, node=args.node, listen=listen, ownerName=args.owner)
    invited = ask_as_person(args, "mesh.new", params)
    if args.json:
        show_json(invited)
        return 0
    show(f"the mesh {invited['mesh']} has begun; this machine is {invited['node']}")
    show(f"its server listens on {listen}, with TLS; its firewall has to let others in there")
    _show_code(invited)
    return 0


def run_init(args: argparse.Namespace) -> int:
    params = _params(
        mesh=args.name,
        servers=_servers(args.servers),
        credsFile=_path(args.creds),
        node=args.node,
        ownerName=args.owner,
        replicas=args.replicas,
    )
    status = ask_as_person(args, "mesh.init", params)
    if args.json:
        show_json(status)
        return 0
    show(f"the mesh {status['mesh']} has begun; this machine is {status['node']}")
    show(f"on each other machine:  bascule join {args.servers} --creds FILE")
    show("then, here:             bascule node accept NAME")
    return 0


def run_invite(args: argparse.Namespace) -> int:
    invited = ask_as_person(args, "mesh.invite", _params(ownerName=args.owner))
    if args.json:
        show_json(invited)
        return 0
    if invited.get("ownerName"):
        show(f"for a machine of {one_line(invited['ownerName'])}:")
    _show_code(invited)
    return 0


def _show_code(invited: dict[str, Any]) -> None:
    show(f"\non the other machine, before {invited['expiresAt']}:\n\n  bascule join {invited['code']}\n")
    show("then, here:\n\n  bascule node accept NAME\n")
    show("The code is good once. Whoever has it can ask; nobody is let in before you have compared five words.")


# -- joining --


def run_join(args: argparse.Namespace) -> int:
    if args.code.lower().startswith("bsc1-"):
        if args.creds:
            raise WrongUsage("--creds goes with servers, not with a join code", "leave it out")
        params = _params(code=args.code, node=args.node)
    else:
        params = _params(servers=_servers(args.code), credsFile=_path(args.creds), node=args.node)
    with connect(args) as client:
        unlock(client)
        status = client.call("mesh.status", {})
        if not (status.get("joining") or {}).get("compare"):
            # Else it was asked already, and goes on with comparing the words.
            status = client.call("mesh.join", params)
        if args.json:
            show_json(status)
            return 0
        return _wait(client, status)


def _wait(client: SyncClient, status: dict[str, Any]) -> int:
    shown = None
    node = status["node"]
    while status["standing"] == "waiting":
        joining = status["joining"]
        if joining["words"] != shown:
            if shown is not None:
                show("the other machine was restarted; these are the words now:")
            shown = joining["words"]
            show(f"this machine asks to join {visible(status['mesh'])} as {node}. Its five words:\n\n  {shown}\n")
            show(f"at {visible(joining['holder'])}, before {joining['endsAt']}, somebody compares them and types:\n")
            show(f"  bascule node accept {node}\n")
            if joining.get("compare"):
                # No code says which mesh it must be: whoever runs the servers could answer.
                if ask_on_tty("Does that machine show the same five words? Type yes: ") != "yes":
                    say("bascule: not joined. Compare again: the same command; give up: bascule mesh leave")
                    return USAGE
                status = client.call("mesh.join", {"words": shown})
            show("waiting ... (Ctrl-C ends the waiting; the daemon goes on)")
        time.sleep(_POLL_SECONDS)
        status = client.call("mesh.status", {})
    if status["standing"] == "member":
        show(f"joined: this machine is {node} in the mesh {visible(status['mesh'])}. See: bascule mesh status")
        return 0
    say(f"bascule: not joined: {visible(status.get('ended') or 'somebody here gave up')}")
    return CONFLICT


# -- nodes --


def run_list(args: argparse.Namespace) -> int:
    listed = ask(args, "mesh.nodes")
    if args.json:
        show_json(listed)
        return 0
    show_nodes(listed)
    return 0


def run_accept(args: argparse.Namespace) -> int:
    with connect(args) as client:
        asking = _asking(client, args.node)
        if asking is None:
            # Its refusal names those that do ask.
            unlock(client)
            client.call("mesh.accept", {"node": args.node, "words": ""})
            return UNEXPECTED
        whose = args.owner or ("" if asking.get("own") or not asking.get("owner") else asking["owner"])
        meaning = (
            f"a machine of {one_line(whose)}: you are asked once before its agents write to yours"
            if whose
            else "one of your own machines: its agents may write to yours"
        )
        if not args.json:
            show(f"{args.node} asks to join since {asking['askedAt']}, as {meaning}.")
            show(f"Its screen must show these five words:\n\n  {asking['words']}\n")
        if ask_on_tty("Are they the same there? Type yes: ") != "yes":
            say(f"bascule: nothing was changed. If the words differ, somebody else asks: bascule node deny {args.node}")
            return USAGE
        unlock(client)
        result = client.call("mesh.accept", _params(node=args.node, words=asking["words"], ownerName=args.owner))
    if args.json:
        show_json(result)
        return 0
    show(f"{args.node} is in the mesh. Take it back with: bascule node revoke {args.node}")
    _show_problem(result)
    return 0


def _asking(client: SyncClient, node: str) -> dict[str, Any] | None:
    listed = client.call("mesh.nodes", {})
    found: list[dict[str, Any]] = [
        each for each in listed.get("nodes", []) if each["standing"] == "waiting" and each["node"] == node
    ]
    return found[0] if found else None


def run_deny(args: argparse.Namespace) -> int:
    result = ask_as_person(args, "mesh.deny", {"node": args.node})
    show_json(result) if args.json else show(f"{args.node} was denied; its code is used up")
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    result = ask_as_person(args, "mesh.revoke", {"node": args.node})
    if args.json:
        show_json(result)
        return 0
    show(f"{args.node} is revoked: the server has cut it off, and no node takes its letters any more")
    show("to let that machine in again: `bascule mesh leave` there, then a new code")
    _show_problem(result)
    return 0


def _show_problem(result: dict[str, Any]) -> None:
    if result.get("problem"):
        say(f"but: {visible(result['problem'])}; it is tried again until it works")


# -- status --


def run_status(args: argparse.Namespace) -> int:
    status = ask(args, "mesh.status")
    if args.json:
        show_json(status)
    else:
        show_status(status)
    return UNEXPECTED if status.get("faults") else 0


def run_met(args: argparse.Namespace) -> int:
    answers = ask(args, "mesh.met")
    if args.json:
        show_json(answers)
        return 0
    if not answers:
        show("you were asked about no machine of other people, or nothing that you answered holds")
        return 0
    rows = [
        (each["node"], one_line(each.get("owner", "-")), "yes" if each["allowed"] else "no", _held(each))
        for each in answers
    ]
    show_table(("NODE", "OWNER", "MAY WRITE", "UNTIL"), rows)
    return 0


def _held(answer: dict[str, Any]) -> str:
    if answer.get("replaced"):
        return "over: another machine has that name"
    return f"you take it back: bascule mesh forget {answer['node']}"


def run_forget(args: argparse.Namespace) -> int:
    answer = ask_as_person(args, "mesh.forget", {"node": args.node})
    show_json(answer) if args.json else show(
        f"your answer about {args.node} is taken back: its next message asks again"
    )
    return 0


def run_keep(args: argparse.Namespace) -> int:
    status = ask_as_person(args, "mesh.keep", {})
    show_json(status) if args.json else show("this machine stays. On the other one: bascule mesh leave")
    return 0


def run_leave(args: argparse.Namespace) -> int:
    with connect(args) as client:
        before = client.call("mesh.status", {})
        if before.get("holder") and before.get("nodes"):
            say("this machine holds the mesh key: without it nobody can join, be revoked or have its card renewed.")
            if ask_on_tty(f"Type {before['mesh']} to end the mesh all the same: ") != before["mesh"]:
                say("bascule: nothing was changed")
                return USAGE
        unlock(client)
        status = client.call("mesh.leave", {})
    if args.json:
        show_json(status)
        return 0
    show("this machine is in no mesh any more; its keys and cards are deleted")
    if before["standing"] == "member" and not before.get("holder"):
        show(f"where the mesh was begun, take its card away too: bascule node revoke {before['node']}")
    return 0


# -- parts --


def _params(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _servers(text: str) -> list[str]:
    """Commas between them; the scheme of the first counts for those without one, as NATS has it."""
    parts = [each.strip() for each in text.split(",") if each.strip()]
    if not parts or "://" not in parts[0]:
        raise WrongUsage(
            "this is neither a join code nor a server",
            "a code begins with bsc1-; servers are written nats://a,b,c or tls://a,b,c",
        )
    scheme = parts[0].partition("://")[0]
    return [each if "://" in each else f"{scheme}://{each}" for each in parts]


def _path(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(os.path.expanduser(path))
