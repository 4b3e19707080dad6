"""Several computers in one: namespaces with a host name, a network card and processes of their own, joined by a switch.

A namespace lives as long as its first process. That one is killed when this process ends, however it ends, and takes
everything that runs in the namespace along: daemons in the background, their servers, network cards.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from inside import BASCULE
from patience import PATIENCE
from terminal import Session, on_a_terminal

# For documentation, and routed nowhere; these are seen in the namespaces alone.
_NETWORK = "192.0.2.{}/24"
_FIRST_ADDRESS = 7
_TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")


def why_impossible() -> str | None:
    """Why there can be no namespaces here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux makes networks of its own"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}" if missing else None


class Namespace:
    def __init__(self, name: str) -> None:
        self._holder = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount", "--mount-proc", "--pid"),
                *("--fork", "--kill-child", "--", "sh", "-c", 'hostname "$0" && echo ready && exec cat', name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.end()
            raise RuntimeError(f"no namespace could be made for {name}")
        # As this process sees it; in there it is 1.
        self._first = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text("ascii").strip()

    @property
    def pid(self) -> str:
        return self._first

    def entering(self, *command: str, folder: str = "/") -> list[str]:
        """The command line that runs this command in here."""
        nsenter = shutil.which("nsenter")
        assert nsenter is not None
        spaces = ("--net", "--uts", "--mount", "--pid")
        return [nsenter, "--target", self._first, *spaces, f"--wd={folder}", "--", *command]

    def ip(self, *lines: str) -> None:
        # The network alone: process ids in the lines are this process's.
        command = ["nsenter", "--target", self._first, "--net", "ip", "-batch", "-"]
        subprocess.run(command, input="\n".join(lines), text=True, check=True, timeout=PATIENCE)

    def end(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class Computer(Namespace):
    def __init__(self, name: str, home: str) -> None:
        super().__init__(name)
        self.name = name
        self.home = home
        path = f"{os.path.dirname(BASCULE[0])}:/usr/local/bin:/usr/bin:/bin"
        # Settings come from nowhere, and each computer has a user of its own.
        self._environment = {"HOME": home, "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb"}

    def type(self, command: str, typed: list[tuple[str, str]], reader: Callable[[str], None]) -> Session:
        shell = self.entering("sh", "-c", folder=self.home)
        return on_a_terminal(command, program=shell, typed=typed, reader=reader, environment=self._environment)

    def knows(self, hosts: Path) -> None:
        """The names of others, by a file like `/etc/hosts`."""
        command = self.entering("mount", "--bind", str(hosts), "/etc/hosts")
        subprocess.run(command, check=True, timeout=PATIENCE)


def address(number: int) -> str:
    """Of the computer that was made as this one, from zero."""
    return _NETWORK.format(_FIRST_ADDRESS + number).partition("/")[0]


@contextlib.contextmanager
def computers(folder: str, *names: str) -> Iterator[dict[str, Computer]]:
    """All in one network, with nobody else in it."""
    with contextlib.ExitStack() as stack:
        switch = Namespace("switch")
        stack.callback(switch.end)
        switch.ip("link add lan type bridge", "link set lan up")
        found = {}
        for number, name in enumerate(names):
            home = os.path.join(folder, name)
            os.mkdir(home, 0o700)
            computer = found[name] = Computer(name, home)
            stack.callback(computer.end)
            switch.ip(
                f"link add port{number} type veth peer name eth0 netns {computer.pid}",
                f"link set port{number} master lan up",
            )
            own = _NETWORK.format(_FIRST_ADDRESS + number)
            computer.ip("link set lo up", f"address add {own} dev eth0", "link set eth0 up")
        yield found
