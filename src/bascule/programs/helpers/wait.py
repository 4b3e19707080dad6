"""bridge-wait: hear that a message is there, without taking it; by hand, in scripts, and as a hook."""

from __future__ import annotations

from bascule.foundation import paths
from bascule.local_client import choice, exits
from bascule.local_client.bell import line
from bascule.local_client.exits import NothingCame, WrongUsage
from bascule.local_client.values import agent_id
from bascule.programs.helpers import bell, program, terminal, waiting

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# As bridge-recv.
DEFAULT_WAIT_MS = 25_000
# Here, because the parser must not load the hooks.
CLIENTS = ("claude", "codex")
# Others are left alone: a bell at PreToolUse or SubagentStop would only interrupt.
EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop")

EXAMPLES = """\
  bridge-wait --agent Jerry && bridge-recv --agent Jerry
  BRIDGE_AGENT_ID=Jerry bridge-wait --wait 600000 --json
  bridge-wait --hook claude --event Stop      (a client runs this: `bascule setup claude`)

Says how many messages wait and from whom; they stay in the inbox. Exit code 3: none came in time.
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    state = paths.state_dir(options.state_dir)
    named = agent_id(options.agent) if options.agent else None
    if options.hook:
        from bascule.programs.helpers import hook  # noqa: PLC0415 - a wait by hand does not pay for it

        return hook.run(options.hook, options.event, state, agent=named, wait_ms=options.wait, options=options)
    if options.event or options.queue or options.explain:
        raise WrongUsage("--event, --queue and --explain belong to --hook")
    return _by_hand(options, state, named)


def _by_hand(options: argparse.Namespace, state: str, named: str | None) -> int:
    door = choice.find_door(state)
    handle, token = choice.inbox_owner(door, named)
    wait_ms = DEFAULT_WAIT_MS if options.wait is None else options.wait
    seen = waiting.wait_in_slices(
        lambda slice_ms: bell.watch(door, handle, token, wait_ms=slice_ms, by="bridge-wait"),
        wait_ms,
        # Somebody who asks while nothing runs should hear that at once.
        contact_seconds=0,
    )
    if seen is None:
        raise NothingCame(f"no message for {handle} within {wait_ms} ms", "run bridge-wait again")
    if options.json:
        terminal.show_json({"agentId": handle, **seen})
    else:
        terminal.show(line(handle, seen))
    return exits.OK


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-wait", "Wait until a message is there, without taking it.", EXAMPLES)
    parser.add_argument("--agent", metavar="NAME", help="whose inbox (default: BRIDGE_AGENT_ID)")
    parser.add_argument(
        "--wait",
        metavar="MS",
        type=_wait_ms,
        help=f"how long (default: {DEFAULT_WAIT_MS}; a hook that waits in the background: a day)",
    )
    parser.add_argument("--json", action="store_true", help="print what waits as JSON")
    hooks = parser.add_argument_group("as a hook of a client")
    hooks.add_argument("--hook", metavar="CLIENT", choices=CLIENTS, help="read and answer its JSON: claude or codex")
    hooks.add_argument("--event", choices=EVENTS, metavar="EVENT", help="which (default: what the JSON says)")
    hooks.add_argument(
        "--queue", action="store_true", help="at the Stop of codex: wait, then ring with `codex queue` (async hooks)"
    )
    hooks.add_argument("--explain", action="store_true", help="say on stderr what was found")
    return parser


def _wait_ms(text: str) -> int:
    return 0 if text == "0" else program.milliseconds(text)
