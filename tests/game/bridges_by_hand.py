"""A bridge without asyncio: one session over one blocking socket, for tests of the mod's side."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from bascule_mod import Mod
from gabp import messages
from gabp.bridge_session import Answered, BridgeSession, Came, Refused, Welcomed
from gabp.envelopes import Mode, to_json
from gabp.errors import GameError
from gabp.session import Broken, Noted
from patience import PATIENCE


@contextmanager
def pumped(mod: Mod) -> Iterator[Mod]:
    """Started, and polled by a thread that stands for the game's loop."""
    going = True

    def loop() -> None:
        while going:
            mod.poll()
            time.sleep(0.001)

    with mod.running():
        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield mod
        finally:
            going = False
            thread.join(PATIENCE)


class HandBridge:
    def __init__(self, mod: Mod, *, token: str | None = None, mode: Mode = Mode.STRICT, welcome: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", mod.port), PATIENCE)
        self.session = BridgeSession(mode)
        self.answers: dict[str, Answered] = {}
        self.events: list[Came] = []
        self.others: list[object] = []
        self._ended = False
        self.session.hello(
            messages.HelloParams(
                token=mod._answering.token if token is None else token,
                bridge_version="1",
                platform="linux",
                launch_id="550e8400-e29b-41d4-a716-446655440000",
            )
        )
        self.flush()
        if welcome:
            self.wait(lambda: self.session.welcome is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def flush(self) -> None:
        self._socket.sendall(self.session.take())

    def send(self, method: str, params: dict[str, Any]) -> str:
        id_ = self.session.request(method, to_json(params))
        self.flush()
        return id_

    def read(self, seconds: float = 0.01) -> None:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(1 << 20)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended = True
            return
        for happening in self.session.receive(data):
            match happening:
                case Answered():
                    self.answers[happening.id] = happening
                case Came():
                    self.events.append(happening)
                case Welcomed() | Refused() | Noted() | Broken():
                    self.others.append(happening)

    def wait(self, condition: Callable[[], bool], act: Callable[[], object] = lambda: None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            act()
            self.read()

    def has(self, id_: str, seconds: float) -> bool:
        self.read(seconds)
        return id_ in self.answers

    def until(self, id_: str, act: Callable[[], object] = lambda: None) -> Answered:
        self.wait(lambda: id_ in self.answers, act)
        return self.answers[id_]

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        answer = self.until(self.send(method, params))
        if answer.error is not None:
            raise answer.error
        return answer.value

    def call(self, name: str, **arguments: Any) -> Any:
        return json.loads(bytes(self.ask(messages.TOOLS_CALL, {"name": name, "arguments": arguments})))

    def error(self, method: str, params: dict[str, Any]) -> GameError:
        error = self.until(self.send(method, params)).error
        assert error is not None
        return error

    def refused(self) -> GameError:
        self.wait(lambda: bool(self.others))
        refused = self.others[0]
        assert isinstance(refused, Refused)
        return refused.error

    def closed(self) -> bool:
        self.wait(lambda: self._ended)
        return True
