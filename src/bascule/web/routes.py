"""Paths to methods: a small tree built from the edges' tables."""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from bascule.errors import InvalidRequest, MethodNotAllowed, NotFound
from bascule.protocols.route import Route

# Longer than any path of ours with both ids at full length.
MAX_PATH_BYTES = 1_024
MAX_QUERY_BYTES = 4_096
MAX_QUERY_FIELDS = 16

_PARAM = "{}"


class Found(NamedTuple):
    route: Route
    params: dict[str, Any]


class RouteTable:
    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._tree: dict[str, Any] = {}
        for route in routes:
            node = self._tree
            names: list[str] = []
            for part in route.path.strip("/").split("/"):
                if part.startswith("{"):
                    names.append(part[1:-1])
                    node = node.setdefault(_PARAM, {})
                else:
                    node = node.setdefault(part, {})
            node.setdefault("", {})[route.verb] = (route, tuple(names))

    def find(self, verb: str, raw_path: bytes) -> Found:
        if len(raw_path) > MAX_PATH_BYTES:
            raise NotFound("the path is too long", hint="docs/reference/http.md lists the routes")
        node: dict[str, Any] | None = self._tree
        values: list[str] = []
        # Split before decoding: an encoded slash is part of a name, never a step.
        for part in raw_path.decode("ascii", "replace").strip("/").split("/"):
            assert node is not None
            # The two keys that no step of a path may be: where a name goes, and where the verbs are.
            step = node.get(part) if part not in ("", _PARAM) else None
            if step is None:
                step = node.get(_PARAM)
                values.append(_unquoted(part))
            if step is None:
                raise NotFound("no such path", hint="docs/reference/http.md lists the routes, GET /openapi.json too")
            node = step
        verbs = node.get("") if node else None
        if not verbs:
            raise NotFound("no such path", hint="docs/reference/http.md lists the routes, GET /openapi.json too")
        match = verbs.get(verb)
        if match is None:
            allowed = ", ".join(sorted(verbs))
            raise MethodNotAllowed(f"{verb} is not served here", hint=f"use {allowed}", details={"allow": allowed})
        route, names = match
        return Found(route, dict(zip(names, values, strict=True)))


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
