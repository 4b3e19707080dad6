"""Takes TLS connections, few at a time until each has shown that it speaks TLS.

asyncio's own server accepts all that come and hears of one when its handshake is over: strangers who say nothing would
take every file that the daemon may open.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from bascule.foundation.tasks import Tasks

# A handshake takes some round trips; who comes while so many are under way is sent away, and tries again.
MAX_HANDSHAKES = 64
# The process has no file left for another connection: it is looked again after this.
_NO_FILES_SECONDS = 1.0


class TlsServer:
    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        make_connection: Callable[[], asyncio.Protocol],
        tasks: Tasks,
        *,
        backlog: int,
        seconds: float,
        most: int = MAX_HANDSHAKES,
    ) -> None:
        """`seconds`: what a handshake may take."""
        self._sock = sock
        self._context = context
        self._make_connection = make_connection
        self._tasks = tasks
        self._seconds = seconds
        self._most = most
        self._handshakes = 0
        sock.setblocking(False)
        sock.listen(backlog)
        self._accepting = tasks.start(self._accept(), "taking TLS connections")

    def close(self) -> None:
        self._accepting.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._accepting})
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._sock)
            except OSError:
                await asyncio.sleep(_NO_FILES_SECONDS)
                continue
            if self._handshakes >= self._most:
                connection.close()
                continue
            self._handshakes += 1
            self._tasks.start(self._shake_hands(connection), "a TLS handshake")

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop, taken = asyncio.get_running_loop(), False
        try:
            # Who does not speak TLS, leaves or takes too long: `OSError` each time.
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(
                    self._make_connection, connection, ssl=self._context, ssl_handshake_timeout=self._seconds
                )
                taken = True
        finally:
            self._handshakes -= 1
            if not taken:
                connection.close()
