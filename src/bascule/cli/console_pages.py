"""Opens a page of the console: `bascule runs open`, `bascule approvals open`, `bascule desktop report --console`."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from bascule.cli.opening import open_file
from bascule.foundation.errors import Unavailable
from bascule.programs.helpers.terminal import say, show

if TYPE_CHECKING:
    from bascule.client.sync import SyncClient


def page_address(client: "SyncClient", page: str, id_: str) -> str:
    """Where the running daemon serves it; the address holds no secret, a browser signs in by itself."""
    console = client.call("daemon.status", {})["doors"].get("console")
    if console is None:
        raise Unavailable(
            "this daemon serves no console",
            hint="set `console_port = 5051` in config.toml and start the daemon again; its log says why there is none",
        )
    port = str(console).rstrip("/").rpartition(":")[2]
    # By this name: passkeys belong to localhost, and 127.0.0.1 is another site to a browser.
    return f"http://localhost:{port}/#/{page}/{quote(id_, safe='')}"


def open_page(client: "SyncClient", page: str, id_: str) -> int:
    address = page_address(client, page, id_)
    show(address)
    problem = open_file(address)
    if problem is not None:
        say(f"bascule: no browser is opened: {problem}; open the address yourself")
    return 0
