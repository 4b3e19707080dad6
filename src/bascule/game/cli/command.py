"""`bascule games`: what can be played, what it can do, what happens in it."""

import argparse
import json
from typing import Any

from bascule.cli.talk import add_json, add_state_dir, ask, connect, seconds
from bascule.client.happened import Happened
from bascule.client.playing import attach_params
from bascule.client.sync import SyncClient
from bascule.foundation.errors import BasculeError
from bascule.foundation.text import one_line, visible
from bascule.game.cli import gabs_import
from bascule.local_client.exits import UNEXPECTED, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json, show_table
from gabp.codec import BadJson, decode, encode

_CHECK_EPILOG = """\
examples:
  bascule games check snake                              a game of games.toml, started for the check and ended after it
  bascule games check snake --transport pipe             over another transport
  bascule games check mine --run python3 mine.py         a game that games.toml does not name
  bascule games check mine --port 51234 --token-file t   one that runs already

Exit code 0: every sentence that must be kept is kept; 1: one is not. What only a strict bridge or GABS would refuse is
listed, and with --strict counts as well.
"""
# In one answer of the daemon.
_MOST_TOOLS = 500


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    games = commands.add_parser("games", help="games that agents play: list, start, stop, tools, call, events")
    verbs = games.add_subparsers(metavar="VERB")
    for name, run, help_ in (
        ("list", list_games, "every game of games.toml (the default)"),
        ("show", show_game, "how it is set up, what its mod offers, what it printed"),
        ("start", start_game, "start it and connect to it"),
        ("stop", stop_game, "ask it to end; let go of one that somebody else started"),
        ("kill", kill_game, "end it at once"),
        ("attach", attach_game, "connect to one that runs already, in games.toml or not, or was lost"),
        ("tools", list_tools, "its tools, or one of them with its schemas"),
        ("call", call_tool, "call a tool"),
        ("events", show_events, "what happened in it"),
        ("unsubscribe", unsubscribe, "stop receiving the events of channels"),
        ("resources", list_resources, "what can be read in it, or one of them"),
        ("state", show_state, "its state, or set parts of it"),
        ("attention", show_attention, "what it wants looked at; `--ack` says that it was"),
        ("import", gabs_import.run, "the games of GABS's config.json, for games.toml; needs no daemon"),
        ("check", check_mod, "check that its mod follows the protocol, for authors of mods; needs no daemon"),
    ):
        verb = verbs.add_parser(
            name,
            help=help_,
            epilog=_CHECK_EPILOG if name == "check" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.set_defaults(run=run)
        if name == "import":
            gabs_import.options(verb)
            continue
        _options(name, verb)
        _common(verb, below=True)
    games.set_defaults(run=list_games)
    _common(games)


def _options(name: str, verb: argparse.ArgumentParser) -> None:
    if name != "list":
        verb.add_argument("game", metavar="GAME")
    if name == "tools":
        verb.add_argument("tool", metavar="TOOL", nargs="?")
        verb.add_argument("--query", metavar="TEXT", help="only those that speak of it")
    elif name == "call":
        verb.add_argument("tool", metavar="TOOL")
        # Without a default argparse says that one is needed.
        about = "values are JSON, or else text; or one JSON object"
        verb.add_argument("arguments", metavar="NAME=VALUE", nargs="*", default=[], help=about)
        verb.add_argument("--timeout", type=seconds, metavar="SECONDS", help="default: the game's call_timeout")
    elif name in _OPTIONS:
        _OPTIONS[name](verb)
    elif name == "events":
        verb.add_argument("--channel", action="append", default=[], help="only this one, or a name that ends in /*")
        verb.add_argument("--since", type=int, default=0, metavar="CURSOR", help="only what came after it")
        verb.add_argument("-f", "--follow", action="store_true", help="go on with what comes")


def _where(verb: argparse.ArgumentParser) -> None:
    """For a game that games.toml does not name."""
    verb.add_argument(
        "--bridge-json", metavar="FILE", help="the file of the program that started it: GABP's, or that of GABS"
    )
    place = verb.add_mutually_exclusive_group()
    place.add_argument("--port", type=int, help="where it listens on 127.0.0.1")
    place.add_argument("--socket", metavar="PATH", help="where it listens on this machine")
    verb.add_argument("--token-file", metavar="FILE", help="with --port or --socket: a 0600 file with its token")
    verb.add_argument("--strict", action="store_true", help="refuse what GABP's published schemas refuse")


def _common(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    add_state_dir(parser, below=below)
    add_json(parser, below=below)


def _check_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--transport", choices=("tcp", "pipe", "stdio"), help="default: that of games.toml, else tcp")
    verb.add_argument("--port", type=int, help="it runs already, and listens there on 127.0.0.1")
    verb.add_argument("--token-file", metavar="FILE", help="with --port: a 0600 file with its token")
    verb.add_argument("--only", action="append", default=[], metavar="NAME", help="this check alone; may be repeated")
    verb.add_argument("--strict", action="store_true", help="fail on what a strict bridge or GABS would refuse too")
    verb.add_argument(
        "--run",
        dest="command",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="a game that games.toml does not name: how it is started; everything behind it belongs to it",
    )


def _unsubscribe_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("channels", metavar="CHANNEL", nargs="+")


def _resources_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("uri", metavar="URI", nargs="?", help="read this one")
    verb.add_argument("--offset", type=int, default=0, help="of a large one: go on there")
    verb.add_argument("--pattern", help="only those that fit, e.g. 'gabp://game/*'")
    verb.add_argument("--namespace", help="only those of it, e.g. game")


def _state_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("updates", metavar="NAME=VALUE", nargs="*", help="set these parts; values as for `call`")
    verb.add_argument("--component", action="append", default=[], help="read only this part; may be repeated")
    verb.add_argument("--player", metavar="ID", help="of this player")
    verb.add_argument("--dry-run", action="store_true", help="with NAME=VALUE: only check")


def _attention_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--ack", metavar="ID", help="acknowledge it, so that calls go on")


_OPTIONS = {
    "attach": _where,
    "check": _check_options,
    "unsubscribe": _unsubscribe_options,
    "resources": _resources_options,
    "state": _state_options,
    "attention": _attention_options,
}


# -- life --


def list_games(args: argparse.Namespace) -> int:
    listed = ask(args, "games.list")
    if args.json:
        show_json(listed)
        return 0
    if listed.get("problem"):
        say(f"games.toml is not in force as it is now: {listed['problem']}")
    if not listed["games"]:
        show("no game yet: put one into games.toml in the configuration directory; docs/mods.md shows how")
        return 0
    rows = [
        (
            each["gameId"],
            each["state"],
            str(each.get("tools", "-")),
            str(each.get("pid", "-")),
            each.get("startedBy", "-"),
            each.get("problem") or one_line(each.get("attention") or each.get("name") or ""),
        )
        for each in listed["games"]
    ]
    show_table(("GAME", "STATE", "TOOLS", "PID", "BY", "ABOUT"), rows)
    return 0


def show_game(args: argparse.Namespace) -> int:
    details = ask(args, "games.show", {"gameId": args.game})
    if args.json:
        show_json(details)
        return 0
    status = details["status"]
    facts = {
        "game": f"{status['gameId']} ({status.get('name', 'no name')})",
        "state": status["state"],
        "problem": status.get("problem"),
        "started as": details.get("command") or "somebody else's program",
        "directory": details.get("cwd"),
        "transport": f"{status.get('transport')}, {details.get('mode', 'compat')}",
        "app": " ".join(filter(None, (status.get("app"), status.get("version")))) or None,
        "tools": str(status["tools"]) if "tools" in status else None,
        "channels": ", ".join(details.get("channels", [])) or None,
        "attention": status.get("attention"),
    }
    for name, value in facts.items():
        if value:
            show(f"{name:<10} {visible(value)}")
    for note in status.get("notes", []):
        show(f"{'note':<10} {one_line(note)}")
    if details.get("output"):
        show(f"it last printed:\n{visible(details['output'], already_visible=True).rstrip()}")
    return 0


def start_game(args: argparse.Namespace) -> int:
    return _live(args, ask(args, "games.start", {"gameId": args.game}))


def attach_game(args: argparse.Namespace) -> int:
    given = {
        "bridge_file": args.bridge_json,
        "port": args.port,
        "socket": args.socket,
        "token_file": args.token_file,
    }
    options: Any = {name: value for name, value in given.items() if value is not None}
    if not options:
        return _live(args, ask(args, "games.connect", {"gameId": args.game}))
    options["strict"] = args.strict
    with connect(args) as client:
        return _live(args, client.call("games.attach", attach_params(args.game, options)))


def stop_game(args: argparse.Namespace) -> int:
    return _show_status(args, ask(args, "games.stop", {"gameId": args.game}))


def kill_game(args: argparse.Namespace) -> int:
    return _show_status(args, ask(args, "games.kill", {"gameId": args.game}))


def _live(args: argparse.Namespace, status: dict[str, Any]) -> int:
    _show_status(args, status)
    if status["state"] in ("live", "starting", "reconnecting"):
        return 0
    return UNEXPECTED


def _show_status(args: argparse.Namespace, status: dict[str, Any]) -> int:
    if args.json:
        show_json(status)
    else:
        why = f": {visible(status['problem'], already_visible=True)}" if status.get("problem") else ""
        show(f"{status['gameId']} is {status['state']}{why}")
    return 0


# -- playing --


def list_tools(args: argparse.Namespace) -> int:
    if args.tool is not None:
        tool = ask(args, "games.tool", {"gameId": args.game, "tool": args.tool})
        # Schemas are for programs, and JSON is what people read them in too.
        show_json(tool)
        return 0
    params = {"gameId": args.game, "limit": _MOST_TOOLS} | ({"query": args.query} if args.query else {})
    page = ask(args, "games.tools", params)
    if args.json:
        show_json(page)
        return 0
    rows = [
        (
            one_line(each["name"]),
            one_line(",".join(each.get("tags", []))),
            one_line(each.get("description") or each.get("title") or ""),
        )
        for each in page["tools"]
    ]
    show_table(("TOOL", "TAGS", "WHAT IT DOES"), rows) if rows else show("no such tool")
    if page.get("nextCursor"):
        say(f"{page['total'] - len(rows)} more; narrow them down with --query")
    return 0


def call_tool(args: argparse.Namespace) -> int:
    with connect(args) as client:
        texts = _text_parameters(client, args) if args.arguments else frozenset()
        params: dict[str, Any] = {"gameId": args.game, "tool": args.tool}
        params["arguments"] = arguments_in(args.arguments, texts)
        if args.timeout is not None:
            params["timeoutMs"] = max(1, round(args.timeout * 1000))
        try:
            answer = client.call("games.call", params)
        except BasculeError as error:
            if args.json:
                show_json({"error": {"code": error.code, "message": error.message, "details": error.details}})
            else:
                _show_error_data(error)
            raise
    if args.json:
        show_json(answer)
    elif "resource" in answer:
        show(f"the result has {answer['resource']['size']} bytes: {answer['resource']['uri']}")
    else:
        result = answer.get("result")
        show(visible(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)))
    return 0


def _text_parameters(client: SyncClient, args: argparse.Namespace) -> frozenset[str]:
    """Parameters that the tool wants as text: for these `code=007` is not a number."""
    try:
        schema = client.call("games.tool", {"gameId": args.game, "tool": args.tool}).get("inputSchema")
    except BasculeError:
        # The call itself says why.
        return frozenset()
    known = schema.get("properties") if isinstance(schema, dict) else None
    named = known.items() if isinstance(known, dict) else ()
    return frozenset(name for name, each in named if isinstance(each, dict) and each.get("type") == "string")


def _show_error_data(error: BasculeError) -> None:
    """The protocol's code and data, of the game or of the check before it: what a tool raises is often only there."""
    gabp_error = error.details.get("gabp") if isinstance(error.details, dict) else None
    if not isinstance(gabp_error, dict):
        return
    code = gabp_error.get("peerCode", gabp_error.get("code"))
    data = f", data {json.dumps(gabp_error['data'], ensure_ascii=False)}" if "data" in gabp_error else ""
    say(f"GABP error {code}{data}")


def arguments_in(words: list[str], texts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """`x=3 name=Ada`, or one JSON object. `texts`: names whose values stay text, whatever they look like."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            found: dict[str, Any] = decode(words[0].encode())
        except BadJson as bad:
            hint = "quote them for the shell: '{\"x\": 3}'"
            raise WrongUsage(f"the arguments are not JSON: {bad.message}", hint) from bad
        return found
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{word!r} is not an argument", "write name=value, or one JSON object")
        if name in texts and not value.startswith('"'):
            out[name] = value
            continue
        try:
            out[name] = decode(value.encode())
        except BadJson:
            out[name] = value
    return out


def show_events(args: argparse.Namespace) -> int:
    since: int = args.since
    with connect(args) as client:
        game = client.game(args.game)
        if args.follow:
            # A game that is not there is an error before anything is waited for.
            game.status()
            for event in game.events(args.channel, since=since):
                _show_event(event, as_json=args.json)
            return 0
        while True:
            page = game.page(args.channel, since=since)
            for event in page.events:
                _show_event(event, as_json=args.json)
            if page.unknown:
                say(f"the game has no such channel (yet): {', '.join(page.unknown)}")
            since = page.cursor
            if not page.events:
                return 0


def _show_event(event: Happened, *, as_json: bool) -> None:
    if as_json:
        show_json(decode(encode(event)))
        return
    text = "" if event.payload is None else json.dumps(event.payload, ensure_ascii=False)
    words = " ".join(filter(None, (text, event.message)))
    show(f"{event.cursor:>6} {visible(event.channel)} {one_line(words)}")


def unsubscribe(args: argparse.Namespace) -> int:
    left = ask(args, "games.unsubscribe", {"gameId": args.game, "channels": args.channels})
    if args.json:
        show_json(left)
    else:
        show(f"still heard: {visible(', '.join(left['channels'])) or 'nothing'}")
    return 0


def list_resources(args: argparse.Namespace) -> int:
    if args.uri is not None:
        params = {"gameId": args.game, "uri": args.uri} | ({"offset": args.offset} if args.offset else {})
        return _show_resource(args, ask(args, "games.resource", params))
    named = {name: getattr(args, name) for name in ("pattern", "namespace") if getattr(args, name)}
    page = ask(args, "games.resources", {"gameId": args.game} | named)
    if args.json:
        show_json(page)
        return 0
    rows = [
        (
            one_line(each["uri"]),
            one_line(each.get("mimeType", "-")),
            str(each.get("size", "-")),
            one_line(each.get("description") or each.get("name") or ""),
        )
        for each in page["resources"]
    ]
    show_table(("URI", "TYPE", "SIZE", "WHAT IT IS"), rows) if rows else show("no resource")
    return 0


def _show_resource(args: argparse.Namespace, found: dict[str, Any]) -> int:
    if args.json:
        show_json(found)
        return 0
    content = found.get("content")
    show(visible(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)))
    if found.get("nextOffset") is not None:
        say(f"there is more; go on with --offset {found['nextOffset']}")
    return 0


def show_state(args: argparse.Namespace) -> int:
    player = {"playerId": args.player} if args.player else {}
    if args.updates:
        params = {"gameId": args.game, "updates": arguments_in(args.updates), **player}
        changed = ask(args, "games.setState", params | ({"validate": True} if args.dry_run else {}))
        show_json(changed)
        return UNEXPECTED if changed.get("errors") else 0
    parts = {"components": ",".join(args.component)} if args.component else {}
    show_json(ask(args, "games.state", {"gameId": args.game, **parts, **player}))
    return 0


def show_attention(args: argparse.Namespace) -> int:
    if args.ack is not None:
        answer = ask(args, "games.acknowledge", {"gameId": args.game, "attentionId": args.ack})
        show_json(answer)
        return 0 if answer["acknowledged"] else UNEXPECTED
    found = ask(args, "games.attention", {"gameId": args.game})
    now = found.get("attention")
    if args.json:
        show_json(found)
    elif now is None:
        show("nothing wants attention")
    else:
        holds = "calls are held back until it is acknowledged" if now.get("blocking") else "calls go on"
        show(f"{now['severity']}: {one_line(now['summary'])} ({holds})")
        show(f"when you have looked: bascule games attention {args.game} --ack {one_line(now['attentionId'])}")
    return 0


def check_mod(args: argparse.Namespace) -> int:
    from bascule.game.cli.check.command import run

    return run(args)
