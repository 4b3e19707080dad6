"""Edits of a JSON text that leave everything else in it as it stands.

Other programs' settings are full of other people's order, spacing and (Gemini CLI) comments. A parsed and
written-out copy would lose them, so members are inserted into and cut out of the text itself.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined] # C's own string scanner; not in the stubs
from typing import Any

# Settings are a few levels deep; more would only exhaust the stack.
MAX_DEPTH = 100

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INDENT = re.compile(r"\n([ \t]+)[\"{\[]")


class BadJson(Exception):
    """Not JSON, or not in a form that can be edited safely."""


class Node:
    """A value and where it stands."""

    __slots__ = ("end", "inside", "keys", "start", "value")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value: Any = None
        # Members or items in order, and for an object the places where its keys begin.
        self.inside: dict[Any, Node] = {}
        self.keys: dict[str, int] = {}

    def begin(self, step: str | int) -> int:
        return self.keys[step] if isinstance(step, str) else self.inside[step].start


class JsonText:
    """A JSON object as text. Steps of a path are member names and item numbers."""

    def __init__(self, text: str, *, comments: bool = False) -> None:
        # Some editors begin a file so; it stays.
        self._mark = "\ufeff" if text.startswith("\ufeff") else ""
        self._comments = comments
        body = text.removeprefix("\ufeff")
        self._text = body if body.strip() else "{}\n"
        self._newline = "\r\n" if "\r\n" in body else "\n"
        unit = _INDENT.search(body.replace("\r\n", "\n"))
        self._unit = unit[1] if unit else "  "
        self.changed = False
        # What was made on the way to a member, outermost first.
        self.made: list[list[str]] = []
        # What leads back to the text that was given, the newest first: start, end, what stood there.
        self.back: list[tuple[int, int, str]] = []
        if self._text != body:
            self._remember(0, body, self._text)
        self._parse()
        # The same edits on plain values: at the end both must say the same.
        self._wanted = _copy(self._root.value)

    @property
    def text(self) -> str:
        if self._root.value != self._wanted:
            raise BadJson("this file cannot be edited without changing something else in it")
        return self._mark + self._text

    @property
    def is_empty(self) -> bool:
        return not self._root.value

    def get(self, *path: str | int) -> Any:
        node = self._find(path)
        return None if node is None else _copy(node.value)

    def set(self, value: Any, *path: str) -> None:
        """Give a member this value; objects on the way to it are made."""
        for length in range(1, len(path)):
            if self._find(path[:length]) is None:
                self._put(path[:length], {})
                self.made.append(list(path[:length]))
        self._put(path, value)

    def replace(self, value: Any, *path: str | int) -> None:
        """Give what stands there another value."""
        parent = self._find(path[:-1])
        assert parent is not None
        old = parent.inside[path[-1]]
        self._splice(old.start, old.end, self._dump(value, self._margin(parent.begin(path[-1]))))
        _at(self._wanted, path[:-1])[path[-1]] = _copy(value)
        self._parse()

    def append(self, value: Any, *path: str) -> None:
        """Add an item to a list, which is made if it is not there."""
        if self._find(path) is None:
            self.set([], *path)
            self.made.append(list(path))
        items = self._find(path)
        assert items is not None
        if not isinstance(items.value, list):
            raise BadJson(f"`{_shown(path)}` is not a list")
        self._insert(items, len(items.inside), None, value)
        _at(self._wanted, path).append(_copy(value))
        self._parse()

    def remove(self, *path: str | int) -> None:
        parent, step = self._find(path[:-1]), path[-1]
        assert parent is not None
        assert step in parent.inside
        steps = list(parent.inside)
        place = steps.index(step)
        if len(steps) == 1:
            before = self._text[parent.start + 1 : parent.begin(step)]
            rest = before + self._text[parent.inside[step].end : parent.end - 1]
            # Nothing but space around it: the brackets close again. A comment stays.
            self._splice(parent.start + 1, parent.end - 1, rest.rstrip(" \t") if rest.strip() else "")
        else:
            start, end = parent.begin(step), parent.inside[step].end
            start = len(self._text[:start].rstrip())
            if place < len(steps) - 1:
                self._splice(start, self._skip(end) + 1, "")
            else:
                # The last: the comma before it goes, and a comment behind that comma stays.
                self._splice(start, end, "")
                comma = self._skip(parent.inside[steps[place - 1]].end)
                self._splice(comma, comma + 1, "")
        del _at(self._wanted, path[:-1])[step]
        self._parse()

    def prune(self, *path: str | int) -> None:
        """Remove an object or list that is empty now."""
        node = self._find(path)
        if node is not None and not node.value and isinstance(node.value, dict | list):
            self.remove(*path)

    # -- inside --

    def _put(self, path: tuple[str, ...], value: Any) -> None:
        parent, name = self._find(path[:-1]), path[-1]
        assert parent is not None
        if not isinstance(parent.value, dict):
            raise BadJson(f"`{_shown(path[:-1])}` is not an object")
        if name in parent.inside:
            self.replace(value, *path)
            return
        self._insert(parent, len(parent.inside), name, value)
        _at(self._wanted, path[:-1])[name] = _copy(value)
        self._parse()

    def _insert(self, parent: Node, count: int, name: str | None, value: Any) -> None:
        """At the end of an object or list."""
        head = "" if name is None else json.dumps(name, ensure_ascii=False) + ": "
        body = self._text[parent.start + 1 : parent.end - 1]
        if count and "\n" not in body:
            last = parent.inside[list(parent.inside)[-1]].end
            self._splice(last, last, ", " + head + json.dumps(value, ensure_ascii=False))
            return
        outer = self._margin(parent.start)
        inner = outer + self._unit
        if count:
            first = parent.begin(next(iter(parent.inside)))
            if not self._text[self._line_start(first) : first].strip():
                inner = self._margin(first)
        # Behind a comment that ends the list, in front of the space before the closing bracket.
        end = parent.start + 1 + len(body.rstrip())
        closing = "" if count or "\n" in body[len(body.rstrip()) :] else self._newline + outer
        self._splice(end, end, self._newline + inner + head + self._dump(value, inner) + closing)
        if count:
            last = parent.inside[list(parent.inside)[-1]].end
            self._splice(last, last, ",")

    def _dump(self, value: Any, margin: str) -> str:
        lines = json.dumps(value, indent=self._unit, ensure_ascii=False).split("\n")
        return (self._newline + margin).join(lines)

    def _margin(self, position: int) -> str:
        line = self._text[self._line_start(position) : position]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _splice(self, start: int, end: int, text: str) -> None:
        self.changed = True
        self._remember(start, self._text[start:end], text)
        self._text = self._text[:start] + text + self._text[end:]

    def _remember(self, start: int, old: str, new: str) -> None:
        start += len(self._mark)
        self.back.insert(0, (start, start + len(new), old))

    def _find(self, path: tuple[str | int, ...]) -> Node | None:
        node: Node | None = self._root
        for step in path:
            if node is None:
                return None
            node = node.inside.get(step)
        return node

    # -- reading --

    def _parse(self) -> None:
        try:
            self._root, end = self._value(self._skip(0), 0)
        except (IndexError, StopIteration):
            raise BadJson("it ends too early") from None
        end = self._skip(end)
        if end != len(self._text):
            raise self._bad(end, "something follows the end")
        if not isinstance(self._root.value, dict):
            raise BadJson("it does not hold an object")

    def _value(self, position: int, depth: int) -> tuple[Node, int]:
        node = Node(position)
        letter = self._text[position]
        if depth > MAX_DEPTH:
            raise self._bad(position, f"it is nested more than {MAX_DEPTH} deep")
        if letter == "{":
            node.end = self._object(node, depth)
            node.value = {key: inner.value for key, inner in node.inside.items()}
        elif letter == "[":
            node.end = self._list(node, depth)
            node.value = [inner.value for inner in node.inside.values()]
        elif letter == '"':
            node.value, node.end = self._string(position)
        elif (number := _NUMBER.match(self._text, position)) is not None:
            node.value = float(number[0]) if set(".eE") & set(number[0]) else int(number[0])
            node.end = number.end()
        else:
            word = next((each for each in _WORDS if self._text.startswith(each, position)), None)
            if word is None:
                raise self._bad(position, f"unexpected {letter!r}")
            node.value, node.end = _WORDS[word], position + len(word)
        return node, node.end

    def _object(self, node: Node, depth: int) -> int:
        position = self._skip(node.start + 1)
        while self._text[position] != "}" or node.inside:
            start = position
            if self._text[position] != '"':
                raise self._bad(position, "a member's name in quotes is missing")
            key, position = self._string(position)
            if key in node.inside:
                raise self._bad(start, f"`{key}` stands there twice")
            position = self._expect(":", position)
            node.inside[key], position = self._value(position, depth + 1)
            node.keys[key] = start
            position = self._skip(position)
            if self._text[position] == "}":
                break
            position = self._expect(",", position)
        return position + 1

    def _list(self, node: Node, depth: int) -> int:
        position = self._skip(node.start + 1)
        while self._text[position] != "]" or node.inside:
            node.inside[len(node.inside)], position = self._value(position, depth + 1)
            position = self._skip(position)
            if self._text[position] == "]":
                break
            position = self._expect(",", position)
        return position + 1

    def _string(self, position: int) -> tuple[str, int]:
        try:
            text, end = scanstring(self._text, position + 1, True)
        except ValueError as fault:
            raise self._bad(position, str(fault).partition(":")[0].lower()) from None
        return str(text), int(end)

    def _expect(self, letter: str, position: int) -> int:
        position = self._skip(position)
        if self._text[position] != letter:
            raise self._bad(position, f"{letter!r} is missing")
        return self._skip(position + 1)

    def _skip(self, position: int) -> int:
        while True:
            space = _SPACE.match(self._text, position)
            assert space is not None
            position = space.end()
            comment = _COMMENT.match(self._text, position)
            if comment is None:
                return position
            if not self._comments:
                raise self._bad(position, "it has a comment, which its program does not read")
            position = comment.end()

    def _bad(self, position: int, what: str) -> BadJson:
        return BadJson(f"line {self._text.count(chr(10), 0, position) + 1}: {what}")


def _shown(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) or "the file"


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
