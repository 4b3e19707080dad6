"""Requests as no library would send them: bytes, with HOST, PORT and TOKEN to be filled in.

HIDDEN stands where an attacker would put a second request for whoever reads the first one differently.
"""

HIDDEN = b"<hidden>"
GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /agents/register HTTP/1.1\r\n"
WHO = b"Host: HOST\r\nAuthorization: Bearer TOKEN\r\n"
BEARER = b"Authorization: Bearer TOKEN\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
# Would register, if it got through.
BODY = b'{"agentId":"Intruder"}'


def posted(*head: bytes, body: bytes = BODY) -> bytes:
    return POST + WHO + JSON + b"".join(head) + END + body


def in_chunks(size: bytes, end: bytes = b"\r\n0\r\n\r\n") -> bytes:
    return posted(CHUNKED, body=size + BODY + end)


def length(value: bytes) -> bytes:
    return posted(b"Content-Length: " + value + END) + HIDDEN


def coded(*value: bytes) -> bytes:
    return (
        posted(*(b"Transfer-Encoding:" + each + END for each in value), body=b"16\r\n" + BODY + b"\r\n0\r\n\r\n")
        + HIDDEN
    )


def got(target: bytes, *, verb: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    return verb + b" " + target + b" " + version + END + WHO + END + HIDDEN


def host(*value: bytes) -> bytes:
    return GET + b"".join(b"Host:" + each + END for each in value) + BEARER + END + HIDDEN


def header(line: bytes) -> bytes:
    return GET + WHO + line + END + END + HIDDEN


# Refused with a 4xx and closed.
REFUSED = {
    # Line ends and header lines.
    "bare LF everywhere": (GET + WHO + END).replace(b"\r", b"") + HIDDEN,
    "bare LF after one line": GET + b"Host: HOST\n" + BEARER + END + HIDDEN,
    "bare LF as the end of the head": GET + WHO + b"\n" + HIDDEN,
    "bare CR in a value": header(b"X: a\rb"),
    "a header behind a bare CR": header(b"X: a\rContent-Length: 999"),
    "a folded line": header(b"X: a\r\n b"),
    "a line folded by a tab": header(b"X: a\r\n\tb"),
    "a fold before any header": GET + b" X: a\r\n" + WHO + END + HIDDEN,
    "a folded Transfer-Encoding": coded(b"\r\n chunked"),
    "a space before the colon": header(b"Content-Length : 999"),
    "a tab before the colon": posted(b"Transfer-Encoding\t: chunked\r\nContent-Length: 0\r\n", body=b"") + HIDDEN,
    "no colon": header(b"nonsense"),
    "no name": header(b": a"),
    "a NUL in a value": header(b"X: a\0b"),
    "a NUL in a name": header(b"X\0: a"),
    "a control character in a value": header(b"X: a\x01b"),
    "a DEL in a value": header(b"X: a\x7fb"),
    "a letter beyond ASCII in a name": header(b"X\xff: a"),
    "two Authorizations": header(b"Authorization: Bearer TOKEN"),
    # How long the body is.
    "two lengths": posted(b"Content-Length: 0\r\nContent-Length: 22\r\n") + HIDDEN,
    "the same length twice": posted(b"Content-Length: 22\r\nContent-Length: 22\r\n") + HIDDEN,
    "the same length twice in one line": length(b"22, 22"),
    "a negative length": length(b"-22"),
    "a signed length": length(b"+22"),
    "a length in hex": length(b"0x16"),
    "a length with a space inside": length(b"2 2"),
    "a length with an underscore": length(b"2_2"),
    "a length with a fraction": length(b"22.0"),
    "a length in quotes": length(b'"22"'),
    "a length beyond 64 bits": length(b"18446744073709551638"),
    "a length of forty digits": length(b"9" * 40),
    "a length behind a form feed": length(b"\x0c22"),
    "a length in Arabic digits": length("\u0662\u0662".encode()),
    "no digits in a length": length(b""),
    "chunks and a length": posted(CHUNKED, b"Content-Length: 5\r\n", body=b"0\r\n\r\n") + HIDDEN,
    "a length and chunks": posted(b"Content-Length: 5\r\n", CHUNKED, body=b"0\r\n\r\n") + HIDDEN,
    # Transfer codings.
    "gzip": coded(b" gzip"),
    "identity": coded(b" identity"),
    "identity and a length": posted(b"Transfer-Encoding: identity\r\nContent-Length: 22\r\n") + HIDDEN,
    "gzip inside chunks": coded(b" gzip, chunked"),
    "chunks inside gzip": coded(b" chunked, gzip"),
    "chunked twice": coded(b" chunked, chunked"),
    "chunked in two lines": coded(b" chunked", b" chunked"),
    "chunked, then identity": coded(b" chunked", b" identity"),
    "identity, then chunked": coded(b" identity", b" chunked"),
    "a coding nobody knows": coded(b" xchunked"),
    "chunked behind a vertical tab": coded(b" \x0bchunked"),
    "chunked in quotes": coded(b' "chunked"'),
    "chunked with a parameter": coded(b" chunked;q=1"),
    "chunked and a comma": coded(b" chunked,"),
    "an empty coding": posted(b"Transfer-Encoding:\r\nContent-Length: 0\r\n", body=b"") + HIDDEN,
    "chunks in HTTP/1.0": coded(b" chunked").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "an underscore for a dash": posted(b"Transfer_Encoding: chunked\r\nContent-Length: 0\r\n", body=b"") + HIDDEN,
    # Chunks.
    "a negative chunk": in_chunks(b"-16\r\n") + HIDDEN,
    "a signed chunk": in_chunks(b"+16\r\n") + HIDDEN,
    "a chunk in 0x": in_chunks(b"0x16\r\n") + HIDDEN,
    "a chunk beyond 64 bits": in_chunks(b"10000000000000016\r\n") + HIDDEN,
    "a chunk without a size": in_chunks(b"\r\n") + HIDDEN,
    "a chunk behind a space": in_chunks(b" 16\r\n") + HIDDEN,
    "a chunk before a space": in_chunks(b"16 \r\n") + HIDDEN,
    "a chunk with an underscore": in_chunks(b"1_6\r\n") + HIDDEN,
    "a chunk with bare LF": in_chunks(b"16\n", b"\n0\n\n") + HIDDEN,
    "a chunk longer than it says": in_chunks(b"10\r\n") + HIDDEN,
    "a chunk with no end of its own": in_chunks(b"16\r\n", b"0\r\n\r\n") + HIDDEN,
    "an extension with bare LF": in_chunks(b"16;a=b\n") + HIDDEN,
    "an extension whose quote does not end": in_chunks(b'16;a="b\r\n') + HIDDEN,
    "a length in the trailer": in_chunks(b"16\r\n", b"\r\n0\r\nContent-Length: 5\r\n\r\n") + HIDDEN,
    "a type in the trailer": POST + WHO + CHUNKED + END + b"16\r\n" + BODY + b"\r\n0\r\n" + JSON + END + HIDDEN,
    # Which host.
    "no Host": host(),
    "no Host in HTTP/1.0": host().replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "the same Host twice": host(b" HOST", b" HOST"),
    "two Hosts, ours last": host(b" evil.test", b" HOST"),
    "two Hosts, ours first": host(b" HOST", b" evil.test"),
    "a list of Hosts": host(b" HOST, evil.test"),
    "a user before the Host": host(b" evil@HOST"),
    "a path behind the Host": host(b" HOST/x"),
    "a port with a zero before it": host(b" 127.0.0.1:0PORT"),
    "our name with a dot behind it": host(b" localhost.:PORT"),
    "our address as one number": host(b" 2130706433:PORT"),
    "our address in short": host(b" 127.1:PORT"),
    "our address mapped into IPv6": host(b" [::ffff:127.0.0.1]:PORT"),
    "another Host, ours as forwarded": GET + b"Host: evil.test\r\nX-Forwarded-Host: HOST\r\n" + BEARER + END + HIDDEN,
    # Targets, verbs and versions.
    "a target with our own host": got(b"http://HOST/healthz"),
    "a target with another host": got(b"http://evil.test/healthz"),
    "a target with a user": got(b"http://user:word@HOST/healthz"),
    "a target in https": got(b"https://HOST/healthz"),
    "a file as target": got(b"file:///etc/passwd"),
    "a host and port as target": got(b"evil.test:443"),
    "CONNECT": got(b"evil.test:443", verb=b"CONNECT"),
    "CONNECT to a path": got(b"/healthz", verb=b"CONNECT"),
    "OPTIONS of everything": got(b"*", verb=b"OPTIONS"),
    "everything": got(b"*"),
    "a target without a slash": got(b"healthz"),
    "a target with backslashes": got(b"\\healthz"),
    "a fragment": got(b"/healthz#x"),
    "a NUL in the target": got(b"/health\0z"),
    "a letter beyond ASCII in the target": got(b"/h\xc3\xa9althz"),
    "a space in the target": got(b"/health z"),
    "a verb nobody knows": got(b"/healthz", verb=b"FLY"),
    "a verb in small letters": got(b"/healthz", verb=b"get"),
    "a verb behind a space": b" " + got(b"/healthz"),
    "tabs in the request line": b"GET\t/healthz\tHTTP/1.1\r\n" + WHO + END + HIDDEN,
    "HTTP/0.9": b"GET /healthz\r\n\r\n" + HIDDEN,
    "HTTP/1.2": got(b"/healthz", version=b"HTTP/1.2"),
    "HTTP/1.10": got(b"/healthz", version=b"HTTP/1.10"),
    "HTTP/2.0": got(b"/healthz", version=b"HTTP/2.0"),
    "HTTP/9.9": got(b"/healthz", version=b"HTTP/9.9"),
    "http in small letters": got(b"/healthz", version=b"http/1.1"),
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    # Names in paths: an encoded slash is no step, and nothing is decoded twice.
    "an encoded slash in a name": got(b"/tickets/a%2fb"),
    "an encoded NUL in a name": got(b"/tickets/a%00b"),
    "an encoded line end in a name": got(b"/tickets/a%0d%0aX:%20y"),
    "an encoding cut off": got(b"/tickets/%"),
    "an encoding that is none": got(b"/tickets/%zz"),
    "an overlong slash": got(b"/tickets/%c0%af"),
    "dots encoded twice": got(b"/tickets/%252e%252e"),
    "the name of a name": got(b"/tickets/{}"),
    "the name of a name further on": got(b"/agents/{}/inbox"),
    "an empty name": got(b"/agents//inbox"),
    "a query of 8,000 bytes": got(b"/events/recent?" + b"a" * 8_000),
    # Too much.
    "a header of 64 KiB": header(b"X: " + b"y" * 65_536),
    "a thousand headers": header(b"\r\n".join(b"X-%d: y" % number for number in range(1_000))),
    "a hundred headers of one name": header(b"\r\n".join([b"X: y"] * 101)),
    "a target of 100,000 bytes": got(b"/" + b"a" * 100_000),
    "a verb of 100,000 bytes": got(b"/healthz", verb=b"G" * 100_000),
    # Other protocols.
    "an upgrade with a body": GET + WHO + UPGRADE + b"Upgrade: h2c\r\nContent-Length: 5\r\n" + END + b"GET /" + HIDDEN,
    "an upgrade with chunks": GET
    + WHO
    + UPGRADE
    + b"Upgrade: h2c\r\n"
    + CHUNKED
    + END
    + b"1\r\nx\r\n0\r\n\r\n"
    + HIDDEN,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100 + b"\r\n\r\n" + HIDDEN,
    "SSH": b"SSH-2.0-x\r\n" + HIDDEN,
    "SMTP": b"EHLO x\r\n" + HIDDEN,
    "Redis": b"*1\r\n$4\r\nPING\r\n" + HIDDEN,
    "SOCKS": b"\x05\x01\x00" + HIDDEN,
    "a link frame": b"Content-Length: 2\r\n\r\n{}" + HIDDEN,
    "a proxy's preface": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + GET + WHO + END + HIDDEN,
    # Well formed and refused; the request behind it goes down with it.
    "no JSON": POST + WHO + b"Content-Length: 22\r\n\r\n" + BODY + HIDDEN,
    "not even an object": posted(b"Content-Length: 2\r\n", body=b"[]") + HIDDEN,
}

WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

# Answered, and nothing behind it is read: what the sender asked for beside it does not exist here.
ANSWERED_AND_CLOSED = {
    "an upgrade to h2c": GET + WHO + UPGRADE + b"Upgrade: h2c\r\n" + END + HIDDEN,
    "an upgrade to WebSocket": GET + WHO + WEBSOCKET + END + HIDDEN,
    "HTTP/1.0": GET.replace(b"1.1", b"1.0") + WHO + END + HIDDEN,
    "HTTP/1.0 that would stay": GET.replace(b"1.1", b"1.0") + WHO + b"Connection: keep-alive\r\n" + END + HIDDEN,
    "a request that ends the connection": GET + WHO + b"Connection: close\r\n" + END + HIDDEN,
}

# Odd, but read by everybody alike: answered with this status, and the connection goes on in step.
ANSWERED = {
    "two spaces before the target": (got(b"/healthz", verb=b"GET ").replace(HIDDEN, b""), 200),
    "empty lines before the request": (b"\r\n\r\n" + GET + WHO + END, 200),
    "a tab before the value": (GET + b"Host:\tHOST\r\n" + BEARER + END, 200),
    "a letter beyond ASCII in a value": (GET + WHO + b"X: \xff\r\n" + END, 200),
    "a body nobody reads": (GET + WHO + b"Content-Length: 5\r\n" + END + b"GET /", 200),
    "a verb in a header": (GET + WHO + b"X-HTTP-Method-Override: POST\r\n" + END, 200),
    "two slashes": (b"GET //healthz HTTP/1.1\r\n" + WHO + END, 200),
    "another host behind two slashes": (b"GET //evil.test/healthz HTTP/1.1\r\n" + WHO + END, 404),
    "dots": (b"GET /tickets/../healthz HTTP/1.1\r\n" + WHO + END, 404),
    "encoded dots": (b"GET /tickets/%2e%2e/healthz HTTP/1.1\r\n" + WHO + END, 404),
    "an encoded slash between steps": (b"GET /agents%2fJerry HTTP/1.1\r\n" + WHO + END, 404),
    "a parameter behind a semicolon": (b"GET /healthz;x=1 HTTP/1.1\r\n" + WHO + END, 404),
    "a path of 8,000 bytes": (b"GET /" + b"a" * 8_000 + b" HTTP/1.1\r\n" + WHO + END, 404),
    "TRACE": (b"TRACE /healthz HTTP/1.1\r\n" + WHO + END, 405),
    "HEAD": (b"HEAD /nowhere HTTP/1.1\r\n" + WHO + END, 404),
    "OPTIONS": (b"OPTIONS /healthz HTTP/1.1\r\n" + WHO + END, 405),
    "a token in the query": (b"GET /healthz?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n" + END, 401),
    "a body behind a refusal": (POST + b"Host: HOST\r\n" + JSON + b"Content-Length: 22\r\n" + END + BODY, 401),
    "chunks behind a refusal": (
        POST + b"Host: HOST\r\n" + JSON + CHUNKED + END + b"16\r\n" + BODY + b"\r\n0\r\n\r\n",
        401,
    ),
    "a trailer": (GET + WHO + CHUNKED + END + b"1\r\nx\r\n0\r\nHost: evil.test\r\nOrigin: x\r\n\r\n", 200),
    "a chunk extension": (GET + WHO + CHUNKED + END + b'1;a="b";c\r\nx\r\n0;d\r\n\r\n', 200),
    "CHUNKED": (GET + WHO + CHUNKED.upper() + END + b"1\r\nx\r\n0\r\n\r\n", 200),
}
