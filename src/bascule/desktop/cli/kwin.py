"""`bascule desktop kwin ...`: what a person must say to KWin before our host sees and uses windows there."""

import argparse
from typing import TYPE_CHECKING, Any

from bascule.desktop.cli.installing import indented, install_when_agreed
from bascule.programs.helpers.terminal import show

if TYPE_CHECKING:
    from bascule.desktop.machine.kwin_permission import Plan

_WHAT = """\
KWin gives pictures, keys and clicks to programs that are named to it by their file. If that were Python, every Python
program would have them. So a small launcher is made, which starts Bascule's desktop host and connects for it alone.
Every program that runs as you can start that launcher, and so the host; without the host it gets nothing.
"""
_DONE = """\
done; take it back with: bascule desktop kwin remove
a host that runs already must be started again: bascule desktop disable, then enable"""


def add_verbs(verbs: Any) -> None:
    kwin = verbs.add_parser("kwin", help="on KDE: give the desktop host KWin's permission, or take it back")
    steps = kwin.add_subparsers(title="verbs", metavar="VERB", required=True)
    install = steps.add_parser("install", help="make the launcher and name it to KWin; shows everything and asks first")
    install.set_defaults(run=run_install)
    steps.add_parser("remove", help="take the permission back and remove the launcher").set_defaults(run=run_remove)


def run_install(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import kwin_permission as kwin

    return install_when_agreed("the launcher", kwin.plan, _shown, kwin.install, _DONE)


def _shown(planned: "Plan") -> str:
    return (
        f"{_WHAT}\nIt writes {planned.code_file}:\n\n{indented(planned.code)}\n\n"
        f"makes the launcher of it:\n\n    {' '.join(planned.compile)}\n\n"
        f"and writes {planned.entry_file}:\n\n{indented(planned.entry)}\n"
    )


def run_remove(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import kwin_permission as kwin

    for path in kwin.remove():
        show(f"removed {path}")
    return 0
