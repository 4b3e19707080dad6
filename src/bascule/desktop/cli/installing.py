"""What a person is shown and asked before something is put into their desktop for our host."""

import textwrap
from collections.abc import Callable
from typing import TypeVar

from bascule.cli.setup.command import agreed
from bascule.desktop.machine.installing import CannotInstall
from bascule.foundation.paths import UnsafePlace
from bascule.local_client.exits import USAGE, WrongUsage
from bascule.programs.helpers.terminal import say, show

_Plan = TypeVar("_Plan")


def install_when_agreed(
    what: str, plan: Callable[[], _Plan], shown: Callable[[_Plan], str], install: Callable[[_Plan], None], done: str
) -> int:
    """Nothing is done before a person at a terminal has seen all of it and said yes."""
    try:
        planned = plan()
        show(shown(planned))
        if not agreed("Do this?"):
            say("nothing was done")
            return USAGE
        install(planned)
    except CannotInstall as error:
        raise WrongUsage(str(error), error.hint) from error
    except (OSError, UnsafePlace) as error:
        raise WrongUsage(f"{what} cannot be written: {error}") from error
    show(done)
    return 0


def indented(text: str) -> str:
    return textwrap.indent(text.rstrip("\n"), "    ", lambda _: True)
