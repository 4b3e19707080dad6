"""`bascule stop | resume`: everything that agents do, until a person lets it begin again. The daemon goes on."""

import argparse
import contextlib
import socket
from typing import Any

from bascule.cli.life import running_pid
from bascule.cli.talk import add_json, add_state_dir, ask, connect, state_of
from bascule.foundation import paths
from bascule.foundation.text import one_line
from bascule.local_client.exits import BY_STATUS, UNEXPECTED, UNREACHABLE, DoorError, status_of
from bascule.programs.helpers.terminal import say, show, show_json
from gabp import codec

# A thread of the daemon says at once that it has taken the stop. Without that the process does not run at all.
TAKEN_SECONDS = 5.0
# What ends by itself, such as a game that saves, gets 15 s of the daemon (`admin/stopping.py`).
ANSWER_SECONDS = 30.0


class DoesNotRun(DoorError):
    exit_code = UNREACHABLE


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
    params = {"reason": args.reason} if args.reason else {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        try:
            door.connect(paths.stop_socket(state_of(args)))
        except (FileNotFoundError, ConnectionRefusedError):
            # It says that no daemon runs, and what to do.
            result = ask(args, "admin.stop", params)
        else:
            answer = _stop_at(door, params)
            if answer is None:
                raise DoesNotRun(
                    "the daemon is there and does not run: its process is suspended, or hangs",
                    f"end it, with every command: kill -KILL {running_pid(state_of(args))}; then `bascule up -d`",
                )
            if "refused" in answer:
                return _refused(answer["refused"])
            if "held" in answer:
                return _held(args, answer["held"])
            result = answer["result"]
    if args.json:
        show_json(result)
        return 0
    show(f"everything is stopped, since {result['at']} by {result['by']}")
    for each in result.get("results", ()):
        show(f"  {each['bridge']:<10} {one_line(each['text'])}")
    say("let it begin again: bascule resume")
    return 0


def _stop_at(door: socket.socket, params: dict[str, Any]) -> dict[str, Any] | None:
    """What the daemon's thread answers; None when it does not."""
    door.settimeout(TAKEN_SECONDS)
    with contextlib.suppress(OSError, codec.BadJson), door.makefile("rb") as answers:
        door.sendall(codec.encode(params) + b"\n")
        first = codec.decode(answers.readline(), dict[str, Any])
        if first:
            return first
        door.settimeout(ANSWER_SECONDS)
        return codec.decode(answers.readline(), dict[str, Any])
    return None


def _held(args: argparse.Namespace, held: dict[str, Any]) -> int:
    if args.json:
        show_json({"stopped": True, **held})
        return 0
    show(f"everything is stopped, since {held['at']} by {held['by']}")
    show(f"  the daemon is busy and takes no calls; {held['ended']} processes were ended without it")
    say("if it stays busy: bascule down; let it begin again: bascule resume")
    return 0


def _refused(error: dict[str, Any]) -> int:
    say(f"bascule: {error['message']}")
    if hint := error.get("hint"):
        say(f"  {hint}")
    return BY_STATUS.get(status_of(error["code"]), UNEXPECTED)


def run_resume(args: argparse.Namespace) -> int:
    # A stop must not wait for a client that it does not need.
    from bascule.cli.person import unlock

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
