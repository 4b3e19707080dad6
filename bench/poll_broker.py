"""A broker to poll: messages in an SQLite file behind two HTTP routes, as claude-peers and its kin have it.

`/send` stores a message, `/poll` hands over what is new for somebody and marks it delivered. Nobody is told
that anything came: each side asks again, usually every second. Our own few lines, after the published
descriptions of such tools, not their code.
"""

import json
import os
import sqlite3
import sys

import uvicorn_program

_STORE = "INSERT INTO messages (sender, receiver, text) VALUES (:from, :to, :text)"
_NEW = "SELECT id, sender, text FROM messages WHERE receiver = ? AND delivered = 0 ORDER BY id"


class Broker:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, sender TEXT, receiver TEXT, text TEXT,"
            " delivered INTEGER NOT NULL DEFAULT 0)"
        )
        self._database.execute("CREATE INDEX unread ON messages (receiver, delivered)")

    def send(self, message: dict[str, str]) -> list[dict[str, str]]:
        self._database.execute(_STORE, message)
        return []

    def poll(self, request: dict[str, str]) -> list[dict[str, str]]:
        found = self._database.execute(_NEW, (request["id"],)).fetchall()
        if found:
            self._database.execute(
                "UPDATE messages SET delivered = 1 WHERE receiver = ? AND delivered = 0 AND id <= ?",
                (request["id"], found[-1][0]),
            )
        return [{"from": sender, "text": text} for _, sender, text in found]

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        more = True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        request = json.loads(body)
        answer = json.dumps(self.send(request) if scope["path"] == "/send" else self.poll(request)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn_program.run(lambda _address: Broker(os.path.join(os.path.dirname(sys.argv[1]), "poll.db")))
