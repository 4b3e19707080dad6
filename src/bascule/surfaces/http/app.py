"""Requests to calls, answers to responses: admission, route, decode, call, encode. Here and nowhere else."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from bascule.foundation.agreement import is_agent_id, is_ticket_id
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, Internal, InvalidRequest, Unavailable
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.kernel.blob import Blob
from bascule.kernel.call import LOCAL, Call, Principal
from bascule.kernel.gate import Gate
from bascule.kernel.passage import Answer
from bascule.kernel.route import Route
from bascule.kernel.rows import Shape
from bascule.surfaces.fair_share import FairShare
from bascule.surfaces.http.endpoints import Endpoint, Form, Mount, NotParams, Page
from bascule.surfaces.http.exchange import JSON, Pending, Request, Response
from bascule.surfaces.http.mounts import MountExchange
from bascule.surfaces.http.routes import RouteTable
from bascule.surfaces.http.streams import EventStream
from gabp import codec

if TYPE_CHECKING:
    from bascule.surfaces.http.connection import HttpConnection


class DoorAdmission(Protocol):
    """Stands in front of one door."""

    def admit(self, request: Request) -> Principal:
        """Who a request comes from, by its head; raises what it is refused with."""


class App:
    """One per door: the same table behind that door's admission."""

    # Header lines of every answer, beside those that all doors have.
    header_lines = b""

    def __init__(
        self,
        admission: DoorAdmission,
        table: RouteTable,
        calls: Gate,
        turns: FairShare,
        *,
        door: str,
        pages: dict[str, Page],
        mounts: dict[str, Mount],
        on_status: Callable[[int], None],
        on_fault: Callable[[BaseException], BasculeError],
        as_owner: frozenset[str] = frozenset(),
        forms: Mapping[str, Form] | None = None,
        closes_refused: bool = False,
    ) -> None:
        """`as_owner` are methods that `local` may use for any agent: only with `--auth off`, only on TCP."""
        self._admission = admission
        # A refused head costs its sender nothing and us some microseconds, before any turn is taken: sent ahead by
        # the thousand they would keep the loop. Where hostile code is expected, one of them ends the connection.
        self.closes_refused = closes_refused
        self._table = table
        self._calls = calls
        self.turns = turns
        self._door = door
        self.on_status = on_status
        self._on_fault = on_fault
        # Of applications behind it; what goes wrong in one is answered or logged there.
        self.tasks = Tasks(lambda _, error: on_fault(error))
        self._endpoints: dict[Route, Endpoint] = {
            route: Endpoint(
                route,
                calls.methods.get(route.method),
                page=pages.get(route.method),
                mount=mounts.get(route.method),
                form=forms.get(route.method) if forms else None,
                as_owner=route.method in as_owner,
            )
            for route in table.routes
        }

    def admit(self, request: Request) -> Response | None:
        """Before any body is read; a response is a refusal, and nothing is raised."""
        try:
            request.principal = self._admission.admit(request)
            route, request.names = self._table.find(request.verb, request.path)
        except Exception as error:  # noqa: BLE001 - see `refused`
            return self.refused(error)
        request.endpoint = self._endpoints[route]
        return None

    def answer(self, request: Request, body: bytes) -> Response | Pending:
        """Execute a request; nothing is raised."""
        try:
            return self._answer(request, body)
        except Exception as error:  # noqa: BLE001 - see `refused`
            return self.refused(error)

    def _answer(self, request: Request, body: bytes) -> Response | Pending:
        endpoint = request.endpoint
        if endpoint.page is not None:
            status, kind, text = endpoint.page()
            self.on_status(status)
            return Response(status, [(b"content-type", kind)], text)
        if endpoint.mount is not None:
            return MountExchange(self, endpoint.mount, request, body)
        try:
            params = endpoint.params(request, body)
        except NotParams as error:
            return self._not_params(request, error)
        except InvalidRequest as error:
            if endpoint.form is None:
                raise
            return self.response(endpoint, endpoint.form.refusal(error))
        as_owner = endpoint.as_owner and request.principal == LOCAL
        call = Call(
            request.principal, endpoint.method, params, door=self._door, as_owner=as_owner, session=request.session
        )
        answer = self._calls.call(call)
        if isinstance(answer, Deferred):
            return Held(self, call, endpoint, answer)
        if isinstance(answer, Stream):
            return EventStream(self, endpoint.method, answer)
        return self.response(endpoint, answer)

    def response(self, endpoint: Endpoint, answer: Any) -> Response:
        if answer is None or endpoint.route.status == 204:
            self.on_status(204)
            return Response(204, [], b"")
        status = endpoint.route.status if endpoint.form is None else endpoint.form.status(answer)
        self.on_status(status)
        if type(answer) is Blob:
            return Response(status, [(b"content-type", answer.content_type.encode())], answer.data)
        return Response(status, [JSON], codec.encode(answer))

    def _not_params(self, request: Request, error: NotParams) -> Response:
        endpoint = request.endpoint
        refusal = InvalidRequest(error.message, details={"method": endpoint.method})
        ids = (_known_id(error.fields, "agentId", is_agent_id), _known_id(error.fields, "ticketId", is_ticket_id))
        self._calls.call_log.refused(Call(request.principal, endpoint.method, None, door=self._door), refusal, *ids)
        return (
            self.refusal(refusal) if endpoint.form is None else self.response(endpoint, endpoint.form.refusal(refusal))
        )

    def refused(self, error: BaseException) -> Response:
        """The boundary of I4: of an unexpected error the peer gets an id, the log has the rest."""
        return self.refusal(error if isinstance(error, BasculeError) else self._on_fault(error))

    def refusal(self, error: BasculeError) -> Response:
        self.on_status(error.status)
        headers = [JSON]
        if error.retry_after is not None:
            # Whole seconds by RFC 9110; never zero, which would mean at once.
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after + 0.5))))
        if error.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="bascule"'))
        if error.status == 405 and error.details:
            headers.append((b"allow", error.details["allow"].encode()))
        # The body may be unread: what follows on this connection would be its rest.
        close = not isinstance(error, Internal | Unavailable) and error.status in (400, 413, 415, 421)
        return Response(error.status, headers, codec.encode({"error": error.body()}), close)

    def left(self, call: Call, later: Deferred[Any]) -> None:
        """The client left before it could be answered: a dead waiter eats no messages, an effect stays one."""
        if not later.done():
            row = self._calls.methods[call.method].row
            # A run belongs to the caller that waits for it; a call that waits or has not begun has changed nothing.
            waits = row.shape in (Shape.WAIT, Shape.RUN) or bool(getattr(call.params, "wait_ms", 0))
            if waits or (isinstance(later, Answer) and not later.stays):
                later.cancel()
        elif not later.cancelled() and later.exception() is None:
            self._calls.abandoned(call, later.result())


class Held(Pending):
    """A call whose answer is not there yet."""

    __slots__ = ("_app", "_call", "_connection", "_endpoint", "_later")

    def __init__(self, app: App, call: Call, endpoint: Endpoint, later: Deferred[Any]) -> None:
        self._app = app
        self._call = call
        self._endpoint = endpoint
        self._later = later
        self._connection: HttpConnection | None = None

    def start(self, connection: "HttpConnection") -> None:
        self._connection = connection
        self._later.add_done_callback(self._settled)

    def left(self) -> None:
        self._connection = None
        self._app.left(self._call, self._later)

    def _settled(self, later: Deferred[Any]) -> None:
        connection = self._connection
        if connection is None:
            # The client left first.
            return
        if later.cancelled():
            connection.close()
        elif connection.transport.is_closing():
            self.left()
        elif (error := later.exception()) is not None:
            connection.respond(self._app.refused(error))
        else:
            connection.respond(self._app.response(self._endpoint, later.result()))


def _known_id(fields: dict[str, Any], name: str, valid: Callable[[str], bool]) -> str | None:
    """Only what looks like an id goes into the log: the rest of a refused request is anybody's text."""
    value = fields.get(name)
    return value if isinstance(value, str) and valid(value) else None
