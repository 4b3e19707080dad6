"""`bascule desktop gnome ...`: the extension that GNOME's shell needs before our host sees and uses windows there."""

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from bascule.desktop.cli.installing import indented, install_when_agreed
from bascule.programs.helpers.terminal import show

if TYPE_CHECKING:
    from bascule.desktop.machine.gnome_install import Plan

_WHAT = """\
GNOME tells no program where windows are, and gives none pictures, keys and clicks; an extension of its shell has
them. This one answers Bascule's desktop host alone: whoever asks it proves first that it can read a file which only
you can read. Every program that runs as you, outside a sandbox, can read it too.
"""
_DONE = "done; GNOME loads it when you log in the next time. Take it back with: bascule desktop gnome remove"


def add_verbs(verbs: Any) -> None:
    gnome = verbs.add_parser("gnome", help="on GNOME: install the extension that the desktop host needs, or remove it")
    steps = gnome.add_subparsers(title="verbs", metavar="VERB", required=True)
    install = steps.add_parser("install", help="put the extension into GNOME's shell; shows everything and asks first")
    install.set_defaults(run=run_install)
    steps.add_parser("remove", help="switch the extension off and remove it").set_defaults(run=run_remove)


def run_install(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import gnome_install as gnome

    return install_when_agreed("the extension", gnome.plan, _shown, gnome.install, _DONE)


def _shown(planned: "Plan") -> str:
    files = "".join(f"It writes {path}:\n\n{indented(text)}\n\n" for path, text in planned.files.items())
    enable = f"and switches it on:\n\n    {shlex.join(planned.enable)}\n" if planned.enable is not None else ""
    return f"{_WHAT}\n{files}It writes a new random token into {planned.token} (0600)\n{enable}"


def run_remove(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import gnome_install as gnome

    for path in gnome.remove():
        show(f"removed {path}")
    return 0
