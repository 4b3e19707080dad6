"""A connection whose token is no longer good, with an MCP session on it and a peer that does not read."""

import json

from doors import _Scene, _Transport


def frame(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


OPENING = (
    frame(id=1, method="hello", params={"protocol": 1, "version": "x", "token": "jerry"}),
    frame(id=2, method="mcp.open", params={"toolsets": ["agents"], "trust": "peer"}),
)


def test_the_mcp_session_of_a_disowned_connection_ends_at_once():
    scene = _Scene()
    try:
        connection = scene.house.run(lambda: scene._opened(_Transport(scene._sock)))
        for each in OPENING:
            scene.house.run(lambda each=each: connection.data_received(each))
        (session,) = scene._mcp_sessions._sessions
        scene.house.run(connection.disown)
        assert session not in scene._mcp_sessions._sessions
        scene.house.run(lambda: connection.connection_lost(None))
    finally:
        scene.close()
