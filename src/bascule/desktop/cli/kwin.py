"""`bascule desktop kwin ...`: what a person must say to KWin before our host sees and uses windows there."""

import argparse
from typing import Any

from bascule.cli.setup.command import agreed
from bascule.foundation.paths import UnsafePlace
from bascule.local_client.exits import USAGE, WrongUsage
from bascule.programs.helpers.terminal import say, show

_WHAT = """\
KWin gives pictures, keys and clicks to programs that are named to it by their file. If that were Python, every Python
program would have them. So a small launcher is made, which starts Bascule's desktop host and connects for it alone.
Every program that runs as you can start that launcher, and so the host; without the host it gets nothing.
"""


def add_verbs(verbs: Any) -> None:
    kwin = verbs.add_parser("kwin", help="on KDE: give the desktop host KWin's permission, or take it back")
    steps = kwin.add_subparsers(title="verbs", metavar="VERB", required=True)
    install = steps.add_parser("install", help="make the launcher and name it to KWin; shows everything and asks first")
    install.set_defaults(run=run_install)
    steps.add_parser("remove", help="take the permission back and remove the launcher").set_defaults(run=run_remove)


def run_install(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import kwin_permission as kwin

    try:
        planned = kwin.plan()
        show(_WHAT)
        show(f"It writes {planned.code_file}:\n\n{_indented(planned.code)}\n")
        show(f"makes the launcher of it:\n\n    {' '.join(planned.compile)}\n")
        show(f"and writes {planned.entry_file}:\n\n{_indented(planned.entry)}\n")
        if not agreed("Do this?"):
            say("nothing was done")
            return USAGE
        kwin.install(planned)
    except kwin.CannotInstall as error:
        raise WrongUsage(str(error), error.hint) from error
    except (OSError, UnsafePlace) as error:
        raise WrongUsage(f"the launcher cannot be written: {error}") from error
    show("done; take it back with: bascule desktop kwin remove")
    show("a host that runs already must be started again: bascule desktop disable, then enable")
    return 0


def run_remove(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import kwin_permission as kwin

    for path in kwin.remove():
        show(f"removed {path}")
    return 0


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
