"""The a2a-sdk's server as an application behind our door: JSON-RPC and HTTP+JSON, protocol 1.0 and 0.3."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.routes import ServerCallContextBuilder, create_jsonrpc_routes, create_rest_routes
from starlette.requests import Request
from starlette.routing import Router

from bascule.a2a.machine.handler import CALLER, Caller, GateHandler
from bascule.a2a.tasks import Tasks
from bascule.foundation.clock import Clock
from bascule.kernel.faults import EventLog

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]

# The SDK logs what clients sent, one line and more for each bad request: a stranger would fill the disk with it.
_LOGGERS = ("a2a", "sse_starlette")


class _Context(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        return ServerCallContext(state={"headers": dict(request.headers), CALLER: request.scope[CALLER]})


def make_application(tasks: Tasks, clock: Clock, log: EventLog) -> Callable[[Caller, Scope, Any, Any], Awaitable[None]]:
    """Serves one request of a caller; its path begins behind the handle."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
    handler = GateHandler(tasks, clock, log)
    context = _Context()
    router = Router(
        [
            *create_jsonrpc_routes(handler, "/", context_builder=context, enable_v0_3_compat=True),
            *create_rest_routes(handler, context_builder=context, enable_v0_3_compat=True),
        ],
        # An address with a slash too many is unknown, not elsewhere.
        redirect_slashes=False,
    )

    async def serve(caller: Caller, scope: Scope, receive: Any, send: Any) -> None:
        await router({**scope, CALLER: caller}, receive, send)

    return serve
