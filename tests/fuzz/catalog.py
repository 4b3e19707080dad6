"""What is fuzzed, how often, and from where it starts. Nothing of ours is imported here: the runner instruments it."""

from typing import NamedTuple


class Target(NamedTuple):
    # The module beside this one that has a function of the target's name.
    module: str
    # Executions in a normal run; a long one has LONG_FACTOR times as many.
    runs: int
    # Whole inputs to start from, and words that a guess would hardly find.
    seeds: tuple[bytes, ...] = ()
    words: tuple[bytes, ...] = ()
    max_bytes: int = 128
    # Branches that a run reaches at least; about half of what one does reach.
    least_coverage: int = 20
    # Packages whose branches guide it. To instrument all of a daemon takes ten seconds, more than most runs.
    instrumented: tuple[str, ...] = ("bascule", "bascule_mod", "gabp")


LONG_FACTOR = 100

# What reads a daemon's answers in somebody else's process.
_CLIENTS = ("bascule.local_client", "bascule.programs.mcp_stdio")

_JSON = (
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b"1e400",
    b"-0",
    b"9007199254740993",
    b'{"',
    b'":',
    b"[[[[",
    b"NaN",
)
_FRAME = (
    b"Content-Length: ",
    b"Content-Type: application/json",
    b"\r\n\r\n",
    b"\r\n",
    b"\n\n",
    b": 0",
    b": 5",
    b": 65",
)
_RPC = (b'"jsonrpc":"2.0"', b'"id":', b'"method":', b'"params":', b'"result":', b'"error":', b'"code":', b'"message":')
_HTTP = (b"HTTP/1.1 200 OK", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Retry-After: ", b"\r\n0\r\n\r\n")
_ANSWER = b"\x00HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_CHUNKS = b"\x00HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n"
_EVENTS = b'\x00HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\nevent: reply\ndata: {"a":1}\n\n\r\n0\r\n\r\n'
_REFUSED = (
    b'\x00HTTP/1.1 429 No\r\nContent-Length: 44\r\nRetry-After: 1\r\n\r\n{"error":{"code":"overloaded","message":"no"}}'
)
_HELLO = b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"version":"x"}}'


def _calls(*calls: tuple[str, str]) -> tuple[bytes, ...]:
    texts = [
        f'{{"jsonrpc":"2.0","id":{number},"method":"{name}","params":{params}}}'
        for number, (name, params) in enumerate(calls, 2)
    ]
    return tuple(b"\x00" + _HELLO + b"\n" + text.encode() for text in texts)


_GABP = (
    b'"v":"gabp/1"',
    b'"id":"550e8400-e29b-41d4-a716-446655440000"',
    b'"type":"request"',
    b'"type":"response"',
    b'"type":"event"',
    b'"method":"tools/call"',
    b'"channel":"c"',
    b'"seq":',
    b'"payload":',
    b'"result":',
    b'"error":{"code":-1,"message":"x"}',
    b'"params":{}',
)
_GABP_MESSAGES = (
    b'{"v":"gabp/1","id":"550e8400-e29b-41d4-a716-446655440000","type":"request","method":"tools/call","params":{"name":"a/b"}}',
    b'{"v":"gabp/1","id":"550e8400-e29b-41d4-a716-446655440000","type":"response","result":null}',
    b'{"v":"gabp/1","id":"550e8400-e29b-41d4-a716-446655440000","type":"event","channel":"c","seq":1,"payload":{}}',
    b'{"v":"gabp/1","id":"x","type":"response","result":null,"error":{"code":1,"message":"x"}}',
)


TARGETS = {
    "gabp_streams": Target(
        "games",
        4_000,
        tuple(
            b"\x01\x80Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b" % (len(text), text)
            for text in _GABP_MESSAGES
        ),
        (*_GABP, *_FRAME, *_JSON),
        512,
    ),
    "game_sessions": Target(
        "games",
        2_500,
        tuple(bytes([kind]) + text for kind in range(4) for text in _GABP_MESSAGES),
        (*_GABP, *_JSON, b"\n", b"session/hello", b"events/subscribe", b"attention/opened"),
        512,
    ),
    "tool_schemas": Target(
        "games",
        15_000,
        (
            b'{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}\n{"x":"a"}',
            b'{"anyOf":[{"$ref":"#"},{"pattern":"(a+)+$"}]}\n"aaaa"',
            b'{"items":{"enum":[1]},"uniqueItems":true}\n[1,1]',
        ),
        (*_JSON, b'"$ref":"#/', b'"$defs":{', b'"pattern":"', b'"anyOf":[', b'"oneOf":[', b'"allOf":[', b'"not":'),
        256,
    ),
    "frames": Target(
        "readers",
        80_000,
        (
            b"\x02\x40\x80Content-Length: 2\r\n\r\n{}",
            b"\x00Content-Type: x\r\ncontent-length:3\r\n\r\nabcContent-Length: 0\r\n\r\n",
        ),
        _FRAME,
    ),
    "events": Target(
        "readers",
        15_000,
        (b"\x01\x80\xef\xbb\xbfid: 7\nevent: reply\ndata: a\ndata: b\n\n", b"\x00: ping\r\rdata\r\n\r\n"),
        (b"data: ", b"event: ", b"id: ", b"retry: ", b"\xef\xbb\xbf", b"\r\n\r\n", b"id: \0"),
    ),
    "door_frames": Target("readers", 10_000, (b"\x02\x40\x80Content-Length: 2\r\n\r\n{}",), _FRAME),
    "envelopes": Target(
        "texts",
        200_000,
        (
            _HELLO,
            b'{"jsonrpc":"2.0","id":"a","result":null}',
            b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
        ),
        (*_RPC, *_JSON),
    ),
    "params": Target(
        "texts",
        350_000,
        (
            b'\x00{"agentId":"Jerry","payload":{"a":[1,2.5,null]}}',
            b'\x05{"ticketId":"t-1","payload":"x"}',
            b'\x02{"waitMs":5}',
        ),
        (*_JSON, b'"agentId":', b'"payload":', b'"ticketId":', b'"waitMs":', b'"metadata":{}', b'"limit":'),
    ),
    "values": Target(
        "texts",
        120_000,
        (
            b'{"b":[1,-0.0,1e21,5e-324,true,null],"\xc3\xa9":"\\u001f\\ud83d\\ude00"}',
            b"[123456789012345678901234567890]",
            b"1e-7",
        ),
        _JSON,
    ),
    "paths": Target(
        "texts",
        200_000,
        (b"\x00/agents/Jerry/inbox?waitMs=5", b"\x01/agents/register", b"\x00/tickets/%2e%2e?a=b&a=c"),
        (
            b"/agents/",
            b"/tickets/",
            b"/replies/",
            b"/events",
            b"{}",
            b"%00",
            b"%ff",
            b"?waitMs=",
            b"&limit=",
            b"nan",
            b"/inbox",
        ),
    ),
    "answers": Target(
        "outside",
        3_000,
        (_ANSWER, _CHUNKS, _EVENTS, _REFUSED),
        (*_HTTP, b"\xb2", b"-1\r\n", b"data: "),
        192,
        instrumented=_CLIENTS,
    ),
    "settings": Target(
        "outside",
        2_000,
        (b"\x00port = 5051\npolicy = 'standard'\n[[agents]]\nagentId = 'Jerry'\n", b'\x01{"port":5051}', b"\x025051"),
        (
            b"port = ",
            b"agents",
            b"[[",
            b"]]",
            b"'''",
            b"1979-05-27T07:32:00Z",
            b"nan",
            b"inf",
            b"0x",
            b"tls_cert = 'x'",
        ),
        256,
        instrumented=("bascule.daemon.config", "bascule.kernel.settings", "bascule.foundation"),
    ),
    "arguments": Target(
        "outside",
        300,
        (b"up\0--port\x005051\0-d", b"ledger\0verify\0--json", b"setup\0claude\0--undo", b"doctor"),
        (b"--", b"--state-dir", b"--config", b"logs", b"agents", b"person", b"clean", b"service", b"\0"),
        # argparse is not ours and not instrumented.
        least_coverage=3,
        instrumented=("bascule.cli",),
    ),
    "shim_lines": Target(
        "outside",
        800,
        (
            b'\x00{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"x"}}}\n',
            b'\x00{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_message","arguments":{"to":"a","message":"b"}}}\n',
            b'\x00{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"agent-bridge://recent"}}\n',
        ),
        (
            *_RPC,
            b"tools/list",
            b"tools/call",
            b"notifications/cancelled",
            b'"requestId":',
            b'"_meta":{',
            b'"arguments":{',
            b'"name":"co_workers"',
            b"\n",
        ),
        256,
        instrumented=_CLIENTS,
    ),
    "shim_link": Target(
        "outside",
        1_000,
        (
            # Introduced, and told of something that happened.
            (
                b'\x00{"jsonrpc":"2.0","id":1,"result":{"principal":"local","protocol":1,"version":"x","agentId":"Jerry","agentToken":"x"}}\n'
                b'{"jsonrpc":"2.0","id":2,"result":{"principal":"local","protocol":1,"version":"x","agentId":"Jerry","agentToken":"x"}}\n'
                b'{"jsonrpc":"2.0","id":3,"result":{"principal":"local","protocol":1,"version":"x","agentId":"Jerry","agentToken":"x"}}\n'
                b'{"jsonrpc":"2.0","method":"events.item","params":{"stream":4,"item":{"id":5}}}'
            ),
            b'\x00{"jsonrpc":"2.0","method":"mcp.message","params":{"message":{"method":"x"}}}',
            b'\x00{"jsonrpc":"2.0","method":"mcp.become","params":{"number":3,"wanted":{"agentId":"Tom"}}}',
            b'\x00{"jsonrpc":"2.0","id":5,"result":{"message":{"id":2,"result":{}},"confirm":true}}',
            b'\x00{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":{"code":"overloaded","retryAfterMs":1}}}',
        ),
        (*_RPC, b'"data":', b'"stream":', b'"item":', b'"agentToken":"x"', b'"retryAfterMs":', b"null", b"[]"),
        512,
        instrumented=_CLIENTS,
    ),
    "link_door": Target(
        "doors",
        400,
        (
            *_calls(
                ("agents.register", '{"agentId":"Ada"}'),
                ("messages.send", '{"agentId":"Jerry","payload":"x","expectReply":true}'),
                ("inbox.take", '{"agentId":"Jerry"}'),
                ("replies.wait", '{"ticketId":"t-1","waitMs":5}'),
                ("replies.post", '{"ticketId":"t-1","payload":[]}'),
                ("events.stream", "{}"),
                ("tickets.list", "{}"),
                ("ledger.tail", "{}"),
                ("daemon.status", "{}"),
                ("mcp.open", '{"toolsets":["agents"],"trust":"peer"}'),
            ),
            (
                b'\x00{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"version":"x","token":"jerry"}}\n'
                b'{"jsonrpc":"2.0","id":2,"method":"mcp.open","params":{"toolsets":["agents"],"trust":"peer"}}\n'
                b'{"jsonrpc":"2.0","id":3,"method":"mcp.request","params":{"call":"c-1","leftMs":5,"message":'
                b'{"id":1,"method":"tools/call","params":{"name":"wait_for_message","arguments":{"waitMs":1}}}}}\n'
                b'{"jsonrpc":"2.0","method":"mcp.message","params":{"message":{"method":"notifications/cancelled",'
                b'"params":{"requestId":1}}}}\n{"jsonrpc":"2.0","method":"mcp.done","params":{"call":"c-1"}}'
            ),
            b'\x00{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"version":"x","token":"jerry"}}',
            b'\x00{"jsonrpc":"2.0","method":"$/cancel","params":{"id":2}}',
            b"\x01Content-Length: 2\r\n\r\n{}",
        ),
        (
            *_RPC,
            *_FRAME,
            b"\n",
            b"$/cancel",
            b"agents.list",
            b"conversations.show",
            b"messages.broadcast",
            b'"agentId":"Jerry"',
            b'"waitMs":',
        ),
        1_024,
        instrumented=("bascule.surfaces", "bascule.kernel", "bascule.broker", "bascule.wire", "gabp"),
    ),
}

# Bugs put in on purpose: each must be found, or the fuzzer is blind.
PLANTED = {
    # Behind four letters that no guess finds without the coverage of the code.
    "magic": Target("planted", 2_000_000, max_bytes=16),
    # A frame reader that overlooks the end of a header when a cut goes through it.
    "cut_blind": Target("planted", 2_000_000, TARGETS["frames"].seeds, _FRAME),
    # A parser that never comes to an end for one input.
    "endless": Target("planted", 2_000_000, max_bytes=16),
    # One that keeps what it reads.
    "hoarder": Target("planted", 2_000_000, max_bytes=16),
}
