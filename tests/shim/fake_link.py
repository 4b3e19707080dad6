"""A scripted daemon behind `link.sock`: real sockets, one function per method or tool.

`mcp.request` is given to the function that is named for the tool, or for the MCP method (`resources_read`).
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from bascule.foundation import paths
from bascule.local_client.link import Frames, frame
from bascule.programs.mcp_stdio import mcp
from patience import PATIENCE


class Refused(Exception):
    def __init__(self, code: str, message: str = "no", **more: Any) -> None:
        super().__init__(message)
        self.data = {"code": code, "message": message, **more}


# A method returns its result, raises Refused, or returns HOLD and says nothing for now.
HOLD = object()
# Or it closes the connection.
HANG_UP = object()
Method = Callable[["Peer", dict[str, Any]], Any]


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.principal: str | None = None
        self.number: Any = None
        # The MCP request that came last.
        self.request: mcp.Request | None = None

    def answer(self, number: Any, result: Any) -> None:
        self.sock.sendall(frame({"jsonrpc": "2.0", "id": number, "result": result}))

    def answer_call(self, number: Any, request: mcp.Request, structured: dict[str, Any], **more: Any) -> None:
        """The answer to an `mcp.request`."""
        self.answer(number, {"message": request.tool_called(structured, json.dumps(structured)), **more})

    def notify(self, method: str, **params: Any) -> None:
        self.sock.sendall(frame({"jsonrpc": "2.0", "method": method, "params": params}))


class FakeLink:
    """Registers everybody, knows tokens `token-<handle>`, and otherwise does what the test says."""

    def __init__(self, state: str, **methods: Method) -> None:
        self.state = state
        self.calls: list[tuple[str, dict[str, Any]]] = []
        # Notifications, by method.
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.peers: list[Peer] = []
        self.happened = threading.Condition()
        self.methods: dict[str, Method] = {
            "hello": self._hello,
            "agents_register": self._register,
            "mcp_open": lambda _peer, _params: {},
            "mcp_request": self._mcp_request,
            **methods,
        }

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(paths.link_socket(self.state))
        self._listener.listen()
        self._listener.settimeout(0.02)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._threads[0].join(PATIENCE)
        self._listener.close()
        os.unlink(paths.link_socket(self.state))
        for peer in self.peers:
            peer.sock.close()
        for thread in self._threads[1:]:
            thread.join(PATIENCE)

    def wait_for(self, method: str, count: int = 1) -> dict[str, Any]:
        """The params of the `count`-th call of a method."""

        def seen() -> list[dict[str, Any]]:
            return [params for name, params in self.calls if name == method]

        with self.happened:
            assert self.happened.wait_for(lambda: len(seen()) >= count, PATIENCE), (method, self.calls)
            return seen()[count - 1]

    def wait_for_note(self, method: str, count: int = 1) -> dict[str, Any]:
        """The params of the `count`-th notification of a method."""

        def seen() -> list[dict[str, Any]]:
            return [params for name, params in self.notes if name == method]

        with self.happened:
            assert self.happened.wait_for(lambda: len(seen()) >= count, PATIENCE), (method, self.notes)
            return seen()[count - 1]

    def methods_called(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            # Here, for its thread may begin after the peer was closed.
            sock.settimeout(0.02)
            peer = Peer(sock)
            self.peers.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer) -> None:
        frames = Frames()
        while not self._stop.is_set():
            try:
                data = peer.sock.recv(1_000_000)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            for message in frames.feed(data):
                try:
                    goes_on = self._handle(peer, message)
                except OSError:
                    # The shim has left before it was answered, as it may.
                    goes_on = False
                if not goes_on:
                    peer.sock.close()
                    return

    def _handle(self, peer: Peer, message: dict[str, Any]) -> bool:
        method, params = message["method"], message["params"]
        with self.happened:
            if "id" not in message:
                self.notes.append((method, params))
            else:
                self.calls.append((method, params))
                if method == "mcp.request":
                    inner = params["message"]
                    self.calls.append((inner["params"].get("name", inner["method"]), params))
            self.happened.notify_all()
        if "id" not in message:
            return True
        peer.number = message["id"]
        try:
            result = self.methods[method.replace(".", "_")](peer, params)
        except Refused as refused:
            error = {"code": -32000, "message": str(refused), "data": refused.data}
            peer.sock.sendall(frame({"jsonrpc": "2.0", "id": message["id"], "error": error}))
            # The real one hangs up on a stranger whose first hello is refused.
            return method != "hello" or peer.principal is not None
        if result is HANG_UP:
            return False
        if result is not HOLD:
            peer.answer(message["id"], result)
        return True

    def _mcp_request(self, peer: Peer, params: dict[str, Any]) -> Any:
        message = params["message"]
        request = peer.request = mcp.Request(message["id"], message["method"], message["params"])
        name = request.params["name"] if request.method == "tools/call" else request.method.replace("/", "_")
        answer = self.methods[name](peer, params)
        if answer is HOLD or answer is HANG_UP:
            return answer
        if request.method == "tools/call":
            return {"message": request.tool_called(answer, json.dumps(answer))}
        return {"message": request.answer(answer)}

    def _hello(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        token = params.get("token")
        if token is not None and not token.startswith("token-"):
            raise Refused("unauthenticated")
        peer.principal = f"agent:{token[6:]}" if token else "local"
        return {"protocol": 1, "version": "0.1.0", "principal": peer.principal}

    def _register(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        out = {"agentId": params["agentId"], "status": "registered", "expiresAt": ""}
        if peer.principal != f"agent:{params['agentId']}":
            out["agentToken"] = f"token-{params['agentId']}"
        return out
