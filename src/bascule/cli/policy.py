"""`bascule policy`: the rules in force, what they would say, and putting edited ones in force."""

import argparse
import difflib
import os
from typing import Any

from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.cli.tty import ask_on_tty
from bascule.foundation import paths
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import UNEXPECTED, USAGE
from bascule.programs.helpers.terminal import say, show, show_json
from gabp import codec

_JSON_HELP = "the call's params, as JSON (default {})"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    policy = commands.add_parser(
        "policy",
        help="see, explain, test and accept the rules",
        description="The policy in force is a preset (setting `policy`) or the text you last accepted. Edit "
        "policy.toml in the config directory, test it, accept it: an edited file is reported and never applied by "
        'itself. `bascule policy show > ~/.config/bascule/policy.toml` is a beginning; so is `extends = "standard"`.',
    )
    verbs = policy.add_subparsers(metavar="VERB", required=True)
    shown = verbs.add_parser("show", help="the rules in force, as TOML")
    shown.set_defaults(run=run_show)
    explained = verbs.add_parser("explain", help="what would happen to a call, by which rule, and why")
    explained.add_argument("method", metavar="METHOD", help="as in workspace.shell, messages.send")
    explained.add_argument("params", metavar="JSON", nargs="?", default="{}", help=_JSON_HELP)
    explained.add_argument("--as", dest="principal", metavar="WHO", help="local, person or agent:<handle>")
    explained.set_defaults(run=run_explain)
    replayed = verbs.add_parser(
        "replay",
        help="what a file's rules would have decided about the newest ledger records",
        description="The ledger keeps no params, so decisions that depend on them are counted and not guessed.",
    )
    replayed.add_argument("file", metavar="FILE", nargs="?", help="default: policy.toml, or what is in force")
    replayed.add_argument("-n", type=int, default=1_000, metavar="N", help="how many records (default and most: 1000)")
    replayed.set_defaults(run=run_replay)
    accepted = verbs.add_parser("accept", help="put the edited file in force (asks for the passphrase)")
    accepted.set_defaults(run=run_accept)
    for verb in (shown, explained, replayed, accepted):
        add_state_dir(verb)
        add_json(verb)
    tested = verbs.add_parser("test", help="check a file's rules and their examples; needs no daemon")
    tested.add_argument("file", metavar="FILE", nargs="?", help="default: policy.toml in the config directory")
    tested.set_defaults(run=run_test)


def run_show(args: argparse.Namespace) -> int:
    view = ask(args, "policy.show")
    if args.json:
        show_json(view)
        return 0
    show(visible(view["text"]).removesuffix("\n"))
    say(f"in force: {view['name']}, digest {view['digest'][:16]}")
    for rule in view.get("timed", ()):
        say(f"until {rule['expiresAt']}: {rule['text']}")
    _show_pending(view)
    return 0


def _show_pending(view: dict[str, Any]) -> None:
    if view.get("pending"):
        say(f"{view['file']} differs and is not in force: `bascule policy accept`")
    if view.get("problem"):
        say(f"problem: {view['problem']}")


def run_explain(args: argparse.Namespace) -> int:
    try:
        params = codec.decode(os.fsencode(args.params), dict[str, Any])
    except codec.BadJson as error:
        raise InvalidRequest(
            f"the params are not a JSON object: {error.message}", hint="""as in '{"command": "rm -rf x"}', in quotes"""
        ) from error
    call: dict[str, Any] = {"method": args.method, "params": params}
    if args.principal:
        call["principal"] = args.principal
    result = ask(args, "policy.explain", call)
    if args.json:
        show_json(result)
    else:
        show(visible(result["text"]))
    return 0


def run_replay(args: argparse.Namespace) -> int:
    params: dict[str, Any] = {"limit": args.n}
    if args.file is not None:
        params["text"] = _read_policy(args.file)
    result = ask(args, "policy.replay", params)
    if args.json:
        show_json(result)
        return 0
    for each in result["changed"]:
        subject = each.get("subject") or ""
        show(
            one_line(
                f"{each['seq']:>7} {each['at']} {each['was']:>5} -> {each['now']:<5} {each['principal']:<16} "
                f"{each['method']:<18} {subject:<36} {each['rule']}"
            ).rstrip()
        )
    show(
        f"{len(result['changed'])} of {result['compared']} decisions would change; {result['unreadable']} depend on "
        f"what the ledger does not keep ({result['records']} records)"
    )
    return 0


def _read_policy(path: str) -> str:
    from bascule.admin.machine.policy_file import PolicyFile

    file = PolicyFile(os.path.dirname(path))
    file.path = path
    text = file.read()
    if text is None:
        raise InvalidRequest(
            f"there is no {path}", hint="name the file: bascule policy test FILE, bascule policy replay FILE"
        )
    return text


def run_accept(args: argparse.Namespace) -> int:
    from bascule.kernel.policy.text import text_digest

    with connect(args) as client:
        view = client.call("policy.show", {})
        if not view.get("pending"):
            say("bascule: nothing to accept: no policy.toml, or it is in force already")
            return 0
        if view.get("problem"):
            say(f"bascule: {view['file']} cannot be accepted: {view['problem']}")
            return USAGE
        if text_digest(view["fileText"]) != view["fileDigest"]:
            raise InvalidRequest("the daemon shows one text and names the digest of another", hint="restart it")
        if not args.json:
            show(_changes(view["text"], view["fileText"]))
            show(f"digest of the new text: {view['fileDigest'][:16]}")
        if ask_on_tty("Put this in force? Type yes: ") != "yes":
            say("bascule: nothing was changed")
            return USAGE
        unlock(client)
        # The digest of what was shown: a text that changed since is refused.
        accepted = client.call("policy.accept", {"digest": view["fileDigest"]})
    if args.json:
        show_json(accepted)
    else:
        show("in force")
    return 0


def _changes(old: str, new: str) -> str:
    """How the rules change, presets written out: a file that extends one would else look like the end of it."""
    from bascule.bridge_list import presets_of
    from bascule.kernel.policy.text import render, written_out

    presets = presets_of()
    # Only \n ends a line of TOML; splitlines() knows ten more, which would hide what they are.
    before, after = (render(written_out(text, presets)).split("\n") for text in (old, new))
    lines = difflib.unified_diff(before, after, "rules in force", "rules of policy.toml", lineterm="")
    return visible("\n".join(lines)) or "the rules stay the same: only comments and layout differ"


def run_test(args: argparse.Namespace) -> int:
    from bascule.admin.machine.policy_file import POLICY_FILE
    from bascule.bridge_list import presets_of, rows_of
    from bascule.kernel.policy.rules import BadPolicy
    from bascule.kernel.policy.text import parse_policy, text_digest

    path = args.file or os.path.join(paths.config_dir(), POLICY_FILE)
    text = _read_policy(path)
    effects = {row.name: row.effect for row in rows_of()}
    try:
        rules = parse_policy(text, effects, effects, presets_of())
    except BadPolicy as error:
        say(f"{path}: {error.message}")
        if error.hint:
            say(f"  {error.hint}")
        return UNEXPECTED
    examples = sum(len(rule.match) + len(rule.not_match) for rule in rules)
    show(f"{path}: {len(rules)} rules, {examples} examples, all hold; digest {text_digest(text)[:16]}")
    return 0
