"""A mod by hand, right but for one fault that its argument names: what `bascule games check` has to find."""

import json
import os
import socket
import sys
import threading
import uuid

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
TOOL = {"name": "toy/poke", "title": "Poke", "description": "Poke it", "inputSchema": {}, "outputSchema": {}}
ATTENTION = {
    "attentionId": "a1",
    "state": "open",
    "severity": "info",
    "blocking": False,
    "stateInvalidated": False,
    "summary": "look",
    "openedAtSequence": 0,
    "latestSequence": 0,
    "totalUrgentEntries": 0,
}
METHODS = ["attention/current", "resources/list", "resources/read", "state/get"]
RESULTS = {
    "session/hello": {
        "agentId": "toy",
        "app": {"name": "Toy", "version": "1"},
        "capabilities": {"methods": METHODS, "events": ["toy/moved"]},
        "schemaVersion": "1.0",
    },
    "tools/list": {"tools": [TOOL] if FAULT != "two tools" else [TOOL, TOOL]},
    "events/subscribe": {"subscribed": ["toy/moved"] if FAULT != "no channels" else []},
    "events/unsubscribe": {"unsubscribed": ["toy/moved"]},
    "resources/list": {"resources": [{"uri": "gabp://game/map", "name": "map"}]},
    "resources/read": {"content": "map"},
    "state/get": {"state": {}, "timestamp": 1},
    "attention/current": {"attention": ATTENTION},
}
if FAULT == "no blocking":
    del ATTENTION["blocking"]
if FAULT == "no schema":
    TOOL["inputSchema"] = {"type": "object", "properties": {"x": {"type": "objekt"}}}
if FAULT == "no schema below if":
    TOOL["inputSchema"] = {"if": {"patternProperties": {"x": {"type": "objekt"}}}}
if FAULT == "no name":
    RESULTS["tools/list"] = {"tools": [{**TOOL, "name": None}]}
# What another type than the schema's once ended the check itself with.
ODD = {
    "odd welcome": ("session/hello", []),
    "odd limits": ("session/hello", {"capabilities": {"limits": {"maxMessageSize": "1MB"}}}),
    "odd channels": ("events/subscribe", {"subscribed": [["toy/moved"]]}),
    "odd resources": ("resources/list", {"resources": [{}]}),
    "odd attention": ("attention/current", {"attention": "look"}),
}
RESULTS.update([ODD[FAULT]] if FAULT in ODD else [])
if FAULT == "no title":
    del TOOL["title"]
if FAULT == "unread resource":
    del RESULTS["resources/read"]


def answer(message, session):
    """(result, error) for one request."""
    method = message["method"]
    if message["v"] != "gabp/1" and FAULT != "any version":
        return None, (-32200, "another version")
    if method == "session/hello":
        if message["params"]["token"] != os.environ["GABP_TOKEN"] and FAULT != "any token":
            return None, (-32101, "wrong token")
        session["open"] = True
    elif not session.get("open") and FAULT != "no hello":
        return None, (-32100, "say hello first")
    if method == "tools/call":
        return None, (-32400, "no such tool")
    if method in RESULTS:
        return RESULTS[method], None
    return ({}, None) if FAULT == "any method" else (None, (-32601, "no such method"))


def framed(body):
    kind = "" if FAULT == "no content type" else "Content-Type: application/json\r\n"
    return f"Content-Length: {len(body)}\r\n{kind}\r\n".encode() + body


def event(number):
    about = {"channel": "toy/moved", "seq": number, "payload": {}}
    return framed(json.dumps({"v": "gabp/1", "id": str(uuid.uuid4()), "type": "event", **about}).encode())


def serve(connection):
    session, buffer = {}, b""
    with connection:
        while data := connection.recv(1 << 16):
            if FAULT == "no pieces" and b"\r\n\r\n" not in data:
                return
            buffer += data
            while b"\r\n\r\n" in buffer:
                head, _, rest = buffer.partition(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                if length < 0:
                    if FAULT == "fragile":
                        os._exit(1)
                    return
                if len(rest) < length:
                    break
                body, buffer = rest[:length], rest[length:]
                if FAULT == "one at a time":
                    buffer = b""
                try:
                    message = json.loads(body)
                except ValueError:
                    return
                result, error = answer(message, session)
                about = {"error": {"code": error[0], "message": error[1]}} if error else {"result": result}
                message_out = {"v": "gabp/1", "id": message["id"], "type": "response", **about}
                connection.sendall(framed(json.dumps(message_out).encode()))
                if message["method"] == "events/subscribe":
                    connection.sendall(b"".join(map(event, (5, 6 if FAULT != "backward" else 4))))


def main():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0" if FAULT == "everywhere" else "127.0.0.1", int(os.environ["GABP_SERVER_PORT"])))
    listener.listen()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
