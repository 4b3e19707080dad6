"""`bascule desktop gnome ...`: the extension that GNOME's shell needs before our host sees and uses windows there."""

import argparse
import shlex
import textwrap
from typing import Any

from bascule.cli.setup.command import agreed
from bascule.foundation.paths import UnsafePlace
from bascule.local_client.exits import USAGE, WrongUsage
from bascule.programs.helpers.terminal import say, show

_WHAT = """\
GNOME tells no program where windows are, and gives none pictures, keys and clicks; an extension of its shell has
them. This one answers Bascule's desktop host alone: whoever asks it proves first that it can read a file which only
you can read. Every program that runs as you, outside a sandbox, can read it too.
"""


def add_verbs(verbs: Any) -> None:
    gnome = verbs.add_parser("gnome", help="on GNOME: install the extension that the desktop host needs, or remove it")
    steps = gnome.add_subparsers(title="verbs", metavar="VERB", required=True)
    install = steps.add_parser("install", help="put the extension into GNOME's shell; shows everything and asks first")
    install.set_defaults(run=run_install)
    steps.add_parser("remove", help="switch the extension off and remove it").set_defaults(run=run_remove)


def run_install(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import gnome_install as gnome

    try:
        planned = gnome.plan()
        show(_WHAT)
        for path, text in planned.files.items():
            show(f"It writes {path}:\n\n{textwrap.indent(text, '    ')}\n")
        show(f"writes a new random token into {planned.token} (0600)")
        if planned.enable is not None:
            show(f"and switches it on:\n\n    {shlex.join(planned.enable)}\n")
        if not agreed("Do this?"):
            say("nothing was done")
            return USAGE
        gnome.install(planned)
    except gnome.CannotInstall as error:
        raise WrongUsage(str(error), error.hint) from error
    except (OSError, UnsafePlace) as error:
        raise WrongUsage(f"the extension cannot be written: {error}") from error
    show("done; GNOME loads it when you log in the next time. Take it back with: bascule desktop gnome remove")
    return 0


def run_remove(_: argparse.Namespace) -> int:
    from bascule.desktop.machine import gnome_install as gnome

    for path in gnome.remove():
        show(f"removed {path}")
    return 0
