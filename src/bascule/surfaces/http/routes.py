"""Paths to methods: a small tree built from the edges' tables."""

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from bascule.foundation.errors import Forbidden, InvalidRequest, MethodNotAllowed, NotFound
from bascule.kernel.route import Route

# Longer than any path of ours: ids at full length, and a file's 255 characters of four bytes, each as %XX.
MAX_PATH_BYTES = 4_096
MAX_QUERY_BYTES = 4_096
MAX_QUERY_FIELDS = 16


class Found(NamedTuple):
    route: Route
    params: dict[str, str]


class _Node:
    """A step of a path: where the next one leads, and what is served here."""

    __slots__ = ("name", "rest", "slash", "steps", "verbs")

    def __init__(self) -> None:
        self.steps: dict[str, _Node] = {}
        # Where any name leads, and where the rest of the path does.
        self.name: _Node | None = None
        self.rest: _Node | None = None
        # By verb, without and with a slash at the end: the route, and what its names are.
        self.verbs: dict[str, tuple[Route, tuple[str, ...]]] = {}
        self.slash: dict[str, tuple[Route, tuple[str, ...]]] = {}

    def after(self, part: str) -> "_Node":
        if not part.startswith("{"):
            return self.steps.setdefault(part, _Node())
        if part.endswith("...}"):
            self.rest = self.rest or _Node()
            return self.rest
        self.name = self.name or _Node()
        return self.name


class RouteTable:
    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._tree = _Node()
        for route in routes:
            node = self._tree
            for part in route.path.strip("/").split("/"):
                node = node.after(part)
            verbs = node.slash if route.path.endswith("/") else node.verbs
            verbs[route.verb] = (route, route.names)

    def find(self, verb: str, raw_path: bytes) -> Found:
        if len(raw_path) > MAX_PATH_BYTES:
            raise NotFound("the path is too long", hint="docs/reference/http.md lists the routes")
        node = self._tree
        values: list[str] = []
        text = raw_path.decode("ascii", "replace")
        # Split before decoding: an encoded slash is part of a name, never a step.
        parts = text.strip("/").split("/")
        for place, part in enumerate(parts):
            step = node.steps.get(part)
            if step is None:
                if node.rest is not None:
                    node = node.rest
                    values.append("/".join(map(_unquoted, parts[place:])))
                    break
                step = node.name
                if step is None:
                    raise _no_such_path()
                values.append(_unquoted(part))
            node = step
        verbs = (node.slash if text.endswith("/") else None) or node.verbs
        if not verbs:
            raise _no_such_path()
        found = verbs.get(verb)
        if found is None:
            allowed = ", ".join(sorted(verbs))
            raise MethodNotAllowed(f"{verb} is not served here", hint=f"use {allowed}", details={"allow": allowed})
        route, names = found
        return Found(route, dict(zip(names, values, strict=True)))


class ServedRoutes(RouteTable):
    """The table of a door where only some methods are served: what is not named is refused, whatever is added later."""

    def __init__(self, routes: tuple[Route, ...], served: frozenset[str], what: str) -> None:
        super().__init__(routes)
        self._served = served
        self._what = what
        paths = (f"{route.verb} {route.path}" for route in routes if route.method in served)
        self._hint = f"served here: {', '.join(paths)}"

    def find(self, verb: str, raw_path: bytes) -> Found:
        try:
            found = super().find(verb, raw_path)
        except NotFound as error:
            raise NotFound(error.message, hint=self._hint) from None
        if found.route.method not in self._served:
            raise Forbidden(f"{found.route.method} is not served at this socket: {self._what}", hint=self._hint)
        return found


def _no_such_path() -> NotFound:
    return NotFound("no such path", hint="docs/reference/http.md lists the routes, GET /openapi.json too")


def _unquoted(part: str) -> str:
    try:
        return unquote(part, errors="strict") if "%" in part else part
    except UnicodeDecodeError:
        raise InvalidRequest(
            "the path is not UTF-8 behind its %XX", hint="ids need no encoding: A-Z a-z 0-9 . _ -"
        ) from None


def query_params(raw: bytes) -> dict[str, str]:
    """Each name once: which of two values counts is nobody's to guess."""
    if not raw:
        return {}
    if len(raw) > MAX_QUERY_BYTES:
        raise InvalidRequest(f"the query string is longer than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "the query string is not name=value&...", hint="encode special characters as %XX"
        ) from error
    out: dict[str, str] = {}
    for name, value in pairs:
        if name in out:
            raise InvalidRequest(f"`{name}` stands twice in the query string")
        out[name] = value
    return out
