"""Where the console is, and opening a page of it: `bascule runs open`, `bascule approvals open`, `bascule desktop
report --console`."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from bascule.cli.opening import open_file
from bascule.foundation.errors import Conflict, Unavailable
from bascule.programs.helpers.terminal import say, show

if TYPE_CHECKING:
    from bascule.client.sync import SyncClient


def console_address(client: "SyncClient") -> str:
    """Where the running daemon serves it."""
    status = client.call("daemon.status", {})
    address = status["doors"].get("console")
    if isinstance(address, str):
        return address
    if problem := status.get("consoleProblem"):
        raise Conflict(str(problem), hint="`bascule doctor` says what to do")
    raise Unavailable(
        "this daemon has no console",
        hint="set console_port = 5051 in config.toml, or start it with `bascule up -d --console-port 5051`",
    )


def page_address(client: "SyncClient", page: str, id_: str) -> str:
    """It holds no secret: a browser signs in by itself."""
    return f"{console_address(client)}/#/{page}/{quote(id_, safe='')}"


def open_page(client: "SyncClient", page: str, id_: str) -> int:
    address = page_address(client, page, id_)
    show(address)
    problem = open_file(address)
    if problem is not None:
        say(f"bascule: no browser is opened: {problem}; open the address yourself")
    return 0
