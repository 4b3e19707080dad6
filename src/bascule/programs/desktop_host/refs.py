"""Short names for elements (contract 4.5): `e:12` for the client that asked, and how to know an element again."""

import re
from collections import OrderedDict
from typing import Final

import msgspec

from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.peers import Client, PeerId

# What one client may keep; the oldest go first, and their fingerprints still find the element.
MAX_PER_CLIENT: Final = 10_000
# Clients whose refs are kept; who has not looked for the longest time goes first.
MAX_CLIENTS: Final = 32
# A title longer than this is cut in the fingerprint.
MAX_TITLE_CHARS: Final = 200

_FRAME: Final = re.compile(r"x=(-?\d+),y=(-?\d+),w=(\d+),h=(\d+)\Z")


class Known(msgspec.Struct, frozen=True):
    # Without its words.
    element: Element
    fingerprint: str
    # The window it was seen in.
    window: int


class Fingerprint(msgspec.Struct, frozen=True):
    role: str
    title: str
    rect: Rect | None


class Ambiguous(Exception):
    """Several elements answer to the description; which one was meant cannot be told."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} elements look like it")
        self.count = count


def fingerprint_of(element: Element) -> str:
    """The contract's form: role, title and frame."""
    x, y, width, height = element.rect
    return f"{element.role}|{element.title[:MAX_TITLE_CHARS]}|x={x},y={y},w={width},h={height}"


def read_fingerprint(text: str) -> Fingerprint | None:
    role, _, rest = text.partition("|")
    # A title may hold the separator; the frame never does.
    title, _, frame = rest.rpartition("|")
    found = _FRAME.match(frame)
    if not role or found is None:
        return None
    return Fingerprint(role, title, Rect(*map(int, found.groups())))


class Refs:
    def __init__(self, *, max_per_client: int = MAX_PER_CLIENT, max_clients: int = MAX_CLIENTS) -> None:
        self._max_per_client = max_per_client
        self._max_clients = max_clients
        self._known: OrderedDict[Client, OrderedDict[str, Known]] = OrderedDict()
        self._names: dict[Client, dict[tuple[str, str], str]] = {}
        self._count = 0

    def name(self, client: Client, element: Element, window: int) -> str:
        """The same element keeps its name for as long as we know it."""
        names = self._names.setdefault(client, {})
        known = self._known.setdefault(client, OrderedDict())
        self._known.move_to_end(client)
        while len(self._known) > self._max_clients:
            del self._names[self._known.popitem(last=False)[0]]
        name = names.get(element.key)
        if name is None:
            self._count += 1
            name = names[element.key] = f"e:{self._count}"
        # What it shows is read again before it is used; kept, a few documents would fill the memory.
        kept = msgspec.structs.replace(element, title="", value=None, description="", children=[])
        known[name] = Known(kept, fingerprint_of(element), window)
        known.move_to_end(name)
        while len(known) > self._max_per_client:
            _, old = known.popitem(last=False)
            names.pop(old.element.key, None)
        return name

    def get(self, client: Client, name: str) -> Known | None:
        known = self._known.get(client)
        return None if known is None else known.get(name)

    def forget(self, peer: PeerId) -> None:
        """The process is gone, and everybody it spoke for."""
        for client in [each for each in self._known if each.peer == peer]:
            del self._known[client]
            del self._names[client]


def same(element: Element, fingerprint: str) -> bool:
    """Whether it still is what it was called: role and title; it may have moved."""
    read = read_fingerprint(fingerprint)
    return read is not None and element.role == read.role and element.title[:MAX_TITLE_CHARS] == read.title


def find_again(tree: Tree, fingerprint: str) -> Element | None:
    """The one element that answers to it. Several alike: the one in the same place, else Ambiguous."""
    read = read_fingerprint(fingerprint)
    if read is None:
        return None
    alike = [each for each in tree.elements if same(each, fingerprint)]
    if len(alike) > 1:
        placed = [each for each in alike if each.rect == read.rect]
        if len(placed) != 1:
            raise Ambiguous(len(alike))
        return placed[0]
    return alike[0] if alike else None
