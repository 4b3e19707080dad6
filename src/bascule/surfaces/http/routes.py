"""Paths to methods: a small tree built from the edges' tables."""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from bascule.foundation.errors import Forbidden, InvalidRequest, MethodNotAllowed, NotFound
from bascule.kernel.route import Route

# Longer than any path of ours: ids at full length, and a file's 255 characters of four bytes, each as %XX.
MAX_PATH_BYTES = 4_096
MAX_QUERY_BYTES = 4_096
MAX_QUERY_FIELDS = 16

# Where a name goes, where the rest of the path goes, and the verbs served here, without and with a slash at the end.
_PARAM, _REST, _VERBS, _SLASH = "{}", "{...}", "", "/"
_KEYS = frozenset({_PARAM, _REST, _VERBS, _SLASH})


class Found(NamedTuple):
    route: Route
    params: dict[str, str]


class RouteTable:
    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._tree: dict[str, Any] = {}
        for route in routes:
            node = self._tree
            for part in route.path.strip("/").split("/"):
                if part.startswith("{"):
                    node = node.setdefault(_REST if part.endswith("...}") else _PARAM, {})
                else:
                    node = node.setdefault(part, {})
            verbs = node.setdefault(_SLASH if route.path.endswith("/") else _VERBS, {})
            verbs[route.verb] = (route, route.names)

    def find(self, verb: str, raw_path: bytes) -> Found:
        if len(raw_path) > MAX_PATH_BYTES:
            raise NotFound("the path is too long", hint="docs/reference/http.md lists the routes")
        node: dict[str, Any] = self._tree
        values: list[str] = []
        text = raw_path.decode("ascii", "replace")
        # Split before decoding: an encoded slash is part of a name, never a step.
        parts = text.strip("/").split("/")
        for place, part in enumerate(parts):
            # The keys that no step of a path may be: where names go, and where the verbs are.
            step = node.get(part) if part not in _KEYS else None
            if step is None and _REST in node:
                node = node[_REST]
                values.append("/".join(map(_unquoted, parts[place:])))
                break
            if step is None:
                step = node.get(_PARAM)
                values.append(_unquoted(part))
            if step is None:
                raise _no_such_path()
            node = step
        verbs = (node.get(_SLASH) if text.endswith("/") else None) or node.get(_VERBS)
        if not verbs:
            raise _no_such_path()
        found: tuple[Route, tuple[str, ...]] | None = verbs.get(verb)
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
