"""`bascule desktop-host`: the process that sees and acts on windows."""

import argparse
import os
import sys

from bascule.cli.talk import add_state_dir, state_of
from bascule.local_client.exits import USAGE, WrongUsage
from bascule.programs.helpers.terminal import say

EXTRA = "this needs the desktop extra:  pip install 'bascule[desktop]'"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    host = commands.add_parser(
        "desktop-host",
        help="the process that sees and acts on windows",
        description="Run the desktop host. The daemon starts it by itself; with --listen it serves other clients of "
        "the desktop contract of the same user.",
    )
    door = host.add_mutually_exclusive_group(required=True)
    door.add_argument(
        "--listen",
        nargs="?",
        const="",
        metavar="SOCKET",
        help="listen on a unix socket (default: desktop.sock in the state directory)",
    )
    door.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    host.add_argument(
        "--workspace-root",
        metavar="DIR",
        default=os.environ.get("WORKSPACE_ROOT"),
        help="workspaces, and so evidence, lie in here (default: WORKSPACE_ROOT)",
    )
    host.add_argument("--no-phrase", action="store_true", help="do not take the phrase CONFIRM as a confirmation")
    host.add_argument("--allow", action="append", default=[], metavar="PROGRAM", help="only these programs may connect")
    host.add_argument(
        "--keep-out", action="append", default=[], metavar="PATTERN", help="one more app never to look at"
    )
    host.add_argument(
        "--no-stop-keys", action="store_true", help="take no keys to stop everything: `bascule desktop stop` does"
    )
    host.add_argument(
        "--trust",
        choices=("checked", "held"),
        default="checked",
        help="held: no keys and clicks where the session can only check where they go",
    )
    add_state_dir(host)
    host.set_defaults(run=run_host)


def run_host(args: argparse.Namespace) -> int:
    if not args.workspace_root:
        raise WrongUsage("the host needs a WORKSPACE_ROOT", "set it, or give --workspace-root DIR")
    _through_launcher()
    try:
        from bascule.programs.desktop_host import main
        from bascule.programs.desktop_host.routes import KEEP_OUT
    except ModuleNotFoundError as error:
        raise WrongUsage(f"{error.name} is not installed", EXTRA) from error
    listen = None
    if args.listen is not None:
        listen = os.path.abspath(args.listen) if args.listen else socket_of(args)
    settings = main.Settings(
        workspace_root=args.workspace_root,
        listen=listen,
        descriptor=args.fd,
        phrase=not args.no_phrase,
        stop_keys=not args.no_stop_keys,
        trust=args.trust,
        allowed=tuple(os.path.realpath(each) for each in args.allow),
        keep_out=(*KEEP_OUT, *(each.lower() for each in args.keep_out)),
    )
    try:
        return main.run(settings)
    except main.CannotStart as error:
        say(f"bascule: {error}")
        return USAGE


def _through_launcher() -> None:
    """On KDE, once more by the launcher that has KWin's permission, where a person has made one for us."""
    from bascule.desktop.kwin import LENDER, is_kde
    from bascule.desktop.machine import kwin_permission

    if os.environ.get(LENDER) or not is_kde(os.environ):
        return
    launcher = kwin_permission.installed()
    if launcher is not None:
        words = [launcher, *sys.argv[sys.argv.index("desktop-host") + 1 :]]
        os.execv(launcher, words)  # noqa: S606 - it needs no shell


def socket_of(args: argparse.Namespace) -> str:
    """Where a host listens unless it is told otherwise."""
    return getattr(args, "socket", None) or os.path.join(state_of(args), "desktop.sock")
