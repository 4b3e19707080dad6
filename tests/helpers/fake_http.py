"""A scripted daemon behind `http.sock` or a loopback port: real sockets, answers from a list."""

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from patience import PATIENCE


@dataclass
class Got:
    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def bearer(self) -> str | None:
        return self.headers.get("authorization", "").removeprefix("Bearer ") or None


def answer(status: int, body: Any = None, **headers: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def refusal(status: int, code: str, message: str = "no", **more: Any) -> bytes:
    headers = {"Retry_After": str(more.pop("retry_after"))} if "retry_after" in more else {}
    return answer(status, {"error": {"code": code, "message": message, **more}}, **headers)


# What a script holds: bytes to send, or a function of the request; None closes without a word.
Step = bytes | None | Callable[[Got], "bytes | None"]


@dataclass
class FakeHttp:
    address: str | tuple[str, int]
    script: list[Step]
    got: list[Got] = field(default_factory=list)

    def __enter__(self) -> Self:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        self._listener.settimeout(0.05)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        self._listener.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                peer, _ = self._listener.accept()
            except TimeoutError:
                continue
            with peer:
                peer.settimeout(PATIENCE)
                got = self._read(peer)
                if got is None:
                    continue
                self.got.append(got)
                # A client that asks once more than the script foresaw is hung up on; `got` shows it.
                step = self.script.pop(0) if self.script else None
                data = step(got) if callable(step) else step
                if data:
                    peer.sendall(data)

    @staticmethod
    def _read(peer: socket.socket) -> Got | None:
        """None for a client that left before it had asked for anything."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        length = int(headers.get("content-length", "0"))
        while len(body) < length:
            body += peer.recv(65536)
        verb, path, _ = lines[0].split(" ")
        return Got(verb, path, headers, body)
