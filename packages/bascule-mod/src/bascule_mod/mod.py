"""`Mod`: what a game holds to be played, tested and watched by agents.

    mod = Mod("snake", version="1.0")

    @mod.tool
    def turn(direction: Literal["left", "right"]) -> Board:
        "Turn the snake."
        ...

    mod.start()
    while game_runs:
        mod.poll()      # agents' calls run here, on the game's own thread, for 2 ms at most
        draw()

Under a bridge (ours, or GABS) the environment says where to listen. Alone it listens nowhere, and takes up the
bridge's configuration file if one appears.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import UNSET

from bascule_mod import endpoint as endpoints
from bascule_mod.answering import DEFAULT_REQUEST_SECONDS, MOD_EXTENSIONS, Answering
from bascule_mod.attention import AttentionDesk
from bascule_mod.endpoint import BadEndpoint, Endpoint
from bascule_mod.pump import DEFAULT_STALL_SECONDS, MAX_WAITING, Pump
from bascule_mod.registry import Registry
from bascule_mod.schemas import BadTool
from bascule_mod.server import MAX_BUFFER_BYTES, MAX_EVENT_BUFFER_BYTES, Server
from bascule_mod.things import Component, ResourceEntry
from bascule_mod.tools import ToolEntry, ToolOptions, marked
from bascule_mod.version import __version__
from gabp import messages
from gabp.bridge_file import bridge_file as default_bridge_file
from gabp.envelopes import Mode, to_json
from gabp.session import SessionLimits

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("bascule.mod")

DEFAULT_BUDGET_MS = 2.0
# How often a mod alone looks for a bridge's file.
LOOK_SECONDS = 1.0
# Id, channel and number around an event's payload.
MAX_EVENT_ENVELOPE_BYTES = 4096
_NOT_NAME: Final = re.compile(r"[^a-z0-9_-]+")


class Mod:
    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        namespace: str | None = None,
        mode: Mode = Mode.COMPAT,
        endpoint: Endpoint | None = None,
        bridge_file: str | None = None,
        request_seconds: float = DEFAULT_REQUEST_SECONDS,
        stall_seconds: float = DEFAULT_STALL_SECONDS,
        on_stall: Callable[[str], None] | None = None,
        limits: SessionLimits | None = None,
        max_connections: int = messages.MAX_CONNECTIONS,
        max_event_buffer: int = MAX_EVENT_BUFFER_BYTES,
        max_buffer: int = MAX_BUFFER_BYTES,
    ) -> None:
        """`namespace`: what tool names begin with, the mod's own name unless given.

        `on_stall` is told when the game's thread is stuck in a tool; without it a line goes to the log.
        """
        if not name:
            raise BadTool("a mod needs a name")
        self.name = name
        self.version = version
        self._namespace = namespace or _as_namespace(name)
        self._limits = limits or SessionLimits()
        self._request_seconds = request_seconds
        self._started = False
        self._registry = Registry(self._announce_change)
        self._pump = Pump(stall_seconds=stall_seconds, on_stall=on_stall or log.warning)
        self.attention = AttentionDesk(lambda channel, item: self._publish(channel, to_json(item)))
        self._answering = Answering(
            self._registry,
            self._pump,
            self.attention,
            identity=self._welcome,
            limits=self._limits,
            request_seconds=request_seconds,
            on_tick=self._look_for_bridge,
        )
        self._server = self._answering.server = Server(
            self._answering,
            mode=mode,
            limits=self._limits,
            max_connections=max_connections,
            max_event_buffer=max_event_buffer,
            max_buffer=max_buffer,
        )
        self._endpoint = endpoint or endpoints.from_environment()
        self._bridge_file = bridge_file or default_bridge_file()
        self._looked = 0.0
        self._complaint: str | None = None
        self._publishing = threading.Lock()

    # -- what the game offers --

    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """`@mod.tool` or `@mod.tool(read_only=True, ...)`: see `ToolOptions` for what may be said."""
        chosen = ToolOptions(**options)

        def add(function: F) -> F:
            self._registry.add_tool(ToolEntry(function, chosen, self._namespace))
            return function

        return add if function is None else add(function)

    def add(self, owner: object) -> None:
        """Everything marked `@tool` in a module, an instance, or one such function."""
        found = list(marked(owner))
        if not found:
            raise BadTool(f"nothing in {owner!r} is marked with @tool")
        for function, options in found:
            self._registry.add_tool(ToolEntry(function, options, self._namespace))

    def remove(self, name: str) -> None:
        self._registry.remove_tool(name)

    def resource(
        self, uri: str, *, name: str | None = None, description: str = "", mime_type: str = ""
    ) -> Callable[[F], F]:
        """A function without arguments that gives text, bytes or JSON: `@mod.resource("gabp://game/board")`."""

        def add(function: F) -> F:
            about = description or " ".join((function.__doc__ or "").split())
            own = name or uri.rpartition("/")[2]
            self._registry.add_resource(ResourceEntry(uri, function, own, about, mime_type))
            return function

        return add

    def state(self, name: str) -> Callable[[Callable[..., Any]], Component]:
        """A part of the game's state: `@mod.state("score")`; with `@score.setter` it can be set."""

        def add(function: Callable[..., Any]) -> Component:
            component = Component(name, function)
            self._registry.add_component(component)
            return component

        return add

    def channel(self, name: str) -> Callable[..., None]:
        """Make an event channel known; what is returned emits on it."""
        self._registry.add_channel(name)

        def emit(payload: Any = None) -> None:
            self.emit(name, payload)

        return emit

    def emit(self, channel: str, payload: Any = None) -> None:
        """Tell every bridge that subscribed; from any thread, and without waiting for any of them."""
        if channel not in self._registry.channels:
            self._registry.add_channel(channel)
        self._publish(channel, to_json(payload))

    # -- life --

    def start(self) -> "Mod":
        """Serve on a thread of its own; the game calls `poll` every frame."""
        self._open()
        self._server.start()
        return self

    def poll(self, budget_ms: float = DEFAULT_BUDGET_MS) -> int:
        """Run what agents called, on this thread, for about so long. Returns how many steps were made."""
        return self._pump.poll(budget_ms)

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """For games without a loop of their own: serve on this thread until `until` says so, or stdin ends."""
        self._open()
        patience = 0.05
        try:
            while not until():
                self._server.run_once(0 if not self._pump.idle else patience)
                self._pump.poll(1000 * self._request_seconds)
                self._server.run_posted()
                if self._endpoint is not None and self._endpoint.transport == "stdio" and not self._server.connections:
                    # The bridge that started us has gone.
                    return
        finally:
            self._server.run_once(0)
            self.stop()

    def stop(self) -> None:
        self._server.stop()

    @contextmanager
    def running(self) -> Iterator["Mod"]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    @property
    def launched(self) -> bool:
        """Whether a bridge started this game, or its file was found; else it is alone."""
        return self._endpoint is not None

    @property
    def port(self) -> int | None:
        """Where it listens on TCP, once started."""
        return self._server.port

    @property
    def bridges(self) -> int:
        """How many are connected."""
        return sum(each.greeted for each in self._server.connections)

    def _open(self) -> None:
        if self._started:
            raise BadTool("this mod was started already")
        self._server.begin()
        self._started = True
        try:
            if self._endpoint is not None:
                self._listen(self._endpoint)
            else:
                self._look_for_bridge()
        except BadEndpoint:
            self._server.stop()
            raise

    def _listen(self, endpoint: Endpoint) -> None:
        self._answering.token = endpoint.token
        self._endpoint = endpoint
        self._server.open(endpoint)

    def _look_for_bridge(self) -> None:
        """Alone: is there a bridge by now?"""
        now = time.monotonic()
        if self._server.listening or self._endpoint is not None or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            found = endpoints.from_bridge_file(self._bridge_file, (self.name, self._namespace))
            if found is not None:
                self._listen(found)
        except (BadEndpoint, OSError) as error:
            self._endpoint = None
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("no bridge: %s", error)

    # -- inside --

    def _welcome(self) -> messages.Welcome:
        assert self._endpoint is not None
        observed = endpoints.observed()
        return messages.Welcome(
            agent_id=self._endpoint.game_id or self.name,
            app=messages.App(name=self.name, version=self.version or "0"),
            capabilities=self._registry.capabilities(
                messages.Limits(
                    max_message_size=self._limits.max_message_bytes,
                    max_concurrent_requests=min(self._limits.max_in_flight, MAX_WAITING),
                    request_timeout=max(1, round(self._request_seconds)),
                ),
                MOD_EXTENSIONS,
            ),
            schema_version=messages.SCHEMA_VERSION,
            server_info=messages.ServerInfo(name=messages.OUR_SERVER_NAME, version=__version__),
            observed=UNSET if observed is None else observed,
        )

    def _publish(self, channel: str, payload: bytes) -> None:
        if len(payload) > self._limits.max_message_bytes - MAX_EVENT_ENVELOPE_BYTES:
            raise ValueError(
                f"an event of {channel} with {len(payload)} bytes is over the limit of "
                f"{self._limits.max_message_bytes}; offer it as a resource, and tell its uri"
            )
        # Numbered and queued as one: two threads that emit at once must not swap their numbers on the way.
        with self._publishing:
            seq = self._registry.next_seq(channel)
            if self._server.connections:
                self._server.post_event(partial(self._answering.publish, channel, seq, payload), len(payload))

    def _announce_change(self) -> None:
        if self._started:
            self._publish(messages.CHANGES_CHANNEL, b"{}")


def _as_namespace(name: str) -> str:
    """`Space Snake!` as `space-snake`."""
    cleaned = _NOT_NAME.sub("-", name.lower()).lstrip("-_0123456789").rstrip("-_")
    return cleaned or "game"
