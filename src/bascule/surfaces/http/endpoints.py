"""What a route leads to, and how the params of its method are made from a request: one object per route and door."""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from bascule.foundation.errors import InvalidRequest, UnsupportedMediaType
from bascule.kernel.call import Principal
from bascule.kernel.mounted import Mounted
from bascule.kernel.route import Route
from bascule.surfaces.http.exchange import Headers, Request
from bascule.surfaces.http.routes import query_params
from gabp import codec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# A payload of 1 MiB whose every character is escaped, and its envelope.
MAX_BODY_BYTES = 8 * 1024 * 1024

# Pages that are not methods: health, metrics, the API description.
Page = Callable[[], tuple[int, bytes, bytes]]
# An application of its own behind our admission, given who came and the body that was read: /mcp.
Mount = Callable[[Principal, Scope, bytes, Receive, Send], Awaitable[None]]

_fields = codec.decoder(dict[str, Any])
_names = codec.decoder(dict[str, codec.Raw])
# The beginning of a JSON object, up to its first field or its end.
_OPENING = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*(\})?")


class Form(NamedTuple):
    """How a protocol with its own error format is answered over HTTP."""

    # The status of an answer.
    status: Callable[[Any], int]
    # The answer to a request that is not valid for the method.
    refusal: Callable[[InvalidRequest], Any]


class NotParams(Exception):
    """JSON, but not the method's params. `fields` is what came."""

    def __init__(self, message: str, fields: dict[str, Any]) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class Endpoint:
    """One route of one door."""

    __slots__ = ("_quoted", "as_owner", "form", "max_body", "method", "mount", "mounted", "page", "route")

    def __init__(
        self,
        route: Route,
        mounted: Mounted | None,
        *,
        page: Page | None,
        mount: Mount | None,
        form: Form | None,
        as_owner: bool,
    ) -> None:
        self.route = route
        self.method = route.method
        # None for pages and mounts, which are not methods.
        self.mounted = mounted
        self.page = page
        self.mount = mount
        self.form = form
        # `local` may use it for any agent.
        self.as_owner = as_owner
        self.max_body = route.max_body or MAX_BODY_BYTES
        self._quoted = [(name, b'"%b"' % name.encode()) for name in route.names]

    def params(self, request: Request, body: bytes) -> Any:
        """The params Struct of path, query and body."""
        assert self.mounted is not None
        if self.route.verb == "GET":
            fields: dict[str, Any] = query_params(request.query)
        elif request.query:
            raise InvalidRequest("this path takes no query string", hint="put the fields into the JSON body")
        elif body:
            _check_type(request.headers)
            reader = self.mounted.decoder
            try:
                body, payload = reader.begin(body)
                return reader.finish(self._with_names(request.names, body), payload)
            except codec.TooManyValues as error:
                raise NotParams(error.message, {}) from error
            except codec.BadJson:
                # Once more in two steps, to say what is wrong and to know what it is about.
                fields = _fields_in(body)
        else:
            fields = {}
        for name, value in request.names.items():
            if name in fields:
                raise _in_path(name)
            fields[name] = value
        try:
            return codec.convert(fields, self.mounted.params, lax=self.route.verb == "GET")
        except codec.BadJson as error:
            raise NotParams(error.message, fields) from error

    def _with_names(self, names: dict[str, str], body: bytes) -> bytes:
        """The body with the path's parameters as its first fields, so that one decoder reads both at once."""
        opening = _OPENING.match(body) if names else None
        if opening is None:
            # Nothing to add, or no object: then the decoder says so.
            return body
        escapes = b"\\u" in body
        for name, quoted in self._quoted:
            # Its name may stand deeper inside, or be spelled with escapes: then it takes a closer look.
            if (escapes or quoted in body) and name in _names_in(body):
                raise _in_path(name)
        first = codec.encode(names)[:-1]
        if opening[1]:
            return first + body[opening.end() - 1 :]
        return b"".join((first, b",", memoryview(body)[opening.end() :]))


def _fields_in(body: bytes) -> dict[str, Any]:
    try:
        return _fields.decode(body)
    except codec.BadJson as error:
        raise InvalidRequest(error.message) from error


def _names_in(body: bytes) -> dict[str, Any]:
    try:
        return _names.decode(body)
    except codec.BadJson:
        # The decoder of the whole says what is wrong with it.
        return {}


def _in_path(name: str) -> InvalidRequest:
    return InvalidRequest(f"`{name}` stands in the path already", hint="leave it out of the rest")


def _check_type(headers: Headers) -> None:
    for name, value in headers:
        if name == b"content-type":
            if value == b"application/json" or value.partition(b";")[0].strip().lower() == b"application/json":
                return
            break
    raise UnsupportedMediaType("the body must be JSON", hint="send the header `Content-Type: application/json`")
