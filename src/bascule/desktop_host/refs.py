"""Short names for elements (contract 4.5): `e:12` for the process that asked, and how to know an element again."""

import re
from collections import OrderedDict
from typing import Final

import msgspec

from bascule.desktop_host.elements import Element, Tree
from bascule.desktop_host.geometry import Rect
from bascule.desktop_host.peers import PeerId

# What one process may keep; the oldest go first, and their fingerprints still find the element.
MAX_PER_PEER: Final = 10_000
# A title longer than this is cut in the fingerprint.
MAX_TITLE_CHARS: Final = 200

_FRAME: Final = re.compile(r"x=(-?\d+),y=(-?\d+),w=(\d+),h=(\d+)\Z")


class Known(msgspec.Struct, frozen=True):
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
    def __init__(self, *, max_per_peer: int = MAX_PER_PEER) -> None:
        self._max_per_peer = max_per_peer
        self._known: dict[PeerId, OrderedDict[str, Known]] = {}
        self._names: dict[PeerId, dict[tuple[str, str], str]] = {}
        self._count = 0

    def name(self, peer: PeerId, element: Element, window: int) -> str:
        """The same element keeps its name for as long as we know it."""
        names = self._names.setdefault(peer, {})
        known = self._known.setdefault(peer, OrderedDict())
        name = names.get(element.key)
        if name is None:
            self._count += 1
            name = names[element.key] = f"e:{self._count}"
        known[name] = Known(element, fingerprint_of(element), window)
        known.move_to_end(name)
        while len(known) > self._max_per_peer:
            _, old = known.popitem(last=False)
            names.pop(old.element.key, None)
        return name

    def get(self, peer: PeerId, name: str) -> Known | None:
        known = self._known.get(peer)
        return None if known is None else known.get(name)

    def forget(self, peer: PeerId) -> None:
        self._known.pop(peer, None)
        self._names.pop(peer, None)


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
