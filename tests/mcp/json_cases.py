"""Texts that parsers read in different ways, and what we say to each: refused, or one meaning.

`VALUES` stand where any JSON may stand (payload, metadata); `BODIES` are the whole of what a caller says to send a
message, with `AGENT` and `TICKET` to be filled in.
"""

from typing import Any, NamedTuple

DEEP = 100_000


class Case(NamedTuple):
    name: str
    text: bytes
    refused: bool
    # Bodies only: the payload that must arrive, when the text is taken.
    payload: Any = None


def _spelled(table: dict[str, str | list[str] | list[bytes]], *, refused: bool) -> list[Case]:
    cases = []
    for name, texts in table.items():
        for number, text in enumerate([texts] if isinstance(texts, str) else texts):
            raw = text.encode() if isinstance(text, str) else text
            cases.append(Case(f"{name} {number}" if not isinstance(texts, str) else name, raw, refused))
    return cases


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def nested_objects(levels: int, inner: str = "1") -> str:
    return '{"a":' * levels + inner + "}" * levels


# Each has exactly one meaning, whichever door it came through; which one, an oracle of the test's own says.
TAKEN: dict[str, Any] = {
    "zero": ["0", "-0", "0.0", "-0.0", "0e5", "-0e-5", "0.000e+9"],
    "one": ["1", "1.0", "1e0", "1E0", "1e+0", "1e-0", "1.00", "10e-1", "100E-2", "0.1e1"],
    "what is not one": ["true", '"1"', "[1]", '{"1":1}', "1.0000000000000002", "-1"],
    "a hundred thousand": ["100000", "1e5", "100000.0"],
    "near two to the 53": [str(2**53 + step) for step in (-1, 0, 1, 2)] + [str(-(2**53) - 1)],
    "doubles near two to the 53": [
        "9007199254740992.0",
        "9007199254740993.0",
        "9007199254740994.0",
        "9007199254740993e0",
    ],
    "beyond 64 bits": [str(2**63 - 1), str(2**63), str(2**64 - 1), str(2**64), str(2**64 + 1), str(-(2**63) - 1)],
    "powers of ten": ["1e15", "1e16", "1e20", "1e21", "1e22", "1e23", "1e-6", "1e-7", "1e308"],
    "as integers": ["1" + "0" * 15, "1" + "0" * 20, "1" + "0" * 21, "1" + "0" * 23],
    "thirty digits": "123456789012345678901234567890",
    "thirty digits as a double": "1.2345678901234568e29",
    "the longest integer": "9" * 4_300,
    "the largest double": ["1.7976931348623157e308", "1.7976931348623158e308"],
    "the smallest double": ["5e-324", "4.9406564584124654e-324"],
    "too small to be told from nothing": ["1e-400", "-1e-400", "4.9e-325"],
    "the double that hung parsers": "2.2250738585072011e-308",
    "a tenth": ["0.1", "1e-1", "0.1000000000000000055511151231257827"],
    "nothing": ["null", "false", '""', "[]", "{}"],
    "words as text": ['"null"', '"true"', '"NaN"', '"Infinity"', '"-0"'],
    "a letter": ['"A"', '"\\u0041"'],
    "a slash": ['"/"', '"\\/"', '"\\u002f"', '"\\u002F"'],
    "composed": ['"\u00e9"', '"\\u00e9"', '"\\u00E9"'],
    "decomposed": ['"e\u0301"', '"e\\u0301"'],
    "beyond the first plane": ['"\U0001f600"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE00"'],
    "NUL in text": '"a\\u0000b"',
    "control characters, escaped": ['"\\u001f"', '"\\b\\f\\n\\r\\t"', '"\\u0008\\u000c\\u000a\\u000d\\u0009"'],
    "delete": ['"\x7f"', '"\\u007f"'],
    "line separators": ['"\u2028\u2029"', '"\\u2028\\u2029"'],
    "a byte order mark inside": ['"\ufeff"', '"\\ufeff"'],
    "no characters": ['"\uffff"', '"\\uffff"', '"\U0010ffff"'],
    "look-alikes": ['"K"', '"\u212a"', '"\u0430"', '"a"', '"\ufb01"', '"fi"', '"\u202eabc"', '"ab\u200dc"'],
    "quotes": ['"\\""', '"\\u0022"', '"\\\\"', '"\\u005c"', '"\'"'],
    "a backslash before u": '"\\\\u0041"',
    "key order": ['{"a":1,"b":2}', '{"b":2,"a":1}', '{ "b" : 2 , "a" : 1 }'],
    "keys beyond the first plane": ['{"\U0001f600":1,"\ufb33":2}', '{"\ufb33":2,"\U0001f600":1}'],
    "case of keys": ['{"id":1}', '{"ID":1}', '{"Id":1}', '{"id":1,"ID":2}'],
    "escaped keys": ['{"a":1}', '{"\\u0061":1}'],
    "composed and decomposed keys": [
        '{"\u00e9":1,"e\u0301":2}',
        '{"e\u0301":2,"\u00e9":1}',
        '{"\u00e9":2,"e\u0301":1}',
    ],
    "keys with NUL": ['{"a\\u0000":1}', '{"a\\u0000b":1,"a":2}'],
    "strange keys": [
        '{"":1}',
        '{" ":1}',
        '{"__proto__":{"x":1}}',
        '{"constructor":1}',
        '{"1":1}',
        '{"a.b":1}',
        '{"$ref":1}',
    ],
    # Of two values of one name the last counts, at every door and every depth.
    "a key twice": ['{"a":1,"a":2}', '{"a":2}', '{"a":2,"a":1}', '{"a":1,"a":1}'],
    "a key twice, escaped": ['{"a":1,"\\u0061":2}', '{"\\u0061":1,"a":2}', '{"a":1,"b":0,"\\u0061":3}'],
    "a key three times": '{"a":1,"a":2,"a":3}',
    "a key twice, of two types": ['{"a":{},"a":[]}', '{"a":1,"a":null}', '{"a":{"x":1},"a":{"y":2}}'],
    "a key twice, inside": ['{"o":{"a":1,"a":2}}', '[{"a":1,"a":2}]', '{"o":[[{"a":1,"b":1,"a":2}]]}'],
    "a key twice, far inside": nested_objects(40, '{"a":1,"\\u0061":2}'),
    "an odd key twice": ['{"":1,"":2}', '{"a\\u0000":1,"a\\u0000":2}', '{"\u00e9":1,"\\u00e9":2}'],
    "white space": [" 1 ", "\t1\t", '{\t"a"\t:\t[ 1 , 2 ]\t}'],
    "line breaks": ["\n1\n", "\r\n1", "[\n1,\n2\n]"],
    "levels": [nested(40), nested_objects(40), "[[],[[]]]", "[[[]],[]]", "[[],[],[]]"],
    "a list of one key objects": '[{"a":1},{"a":1}]',
}

LEFT: dict[str, Any] = {
    "not a number": ["NaN", "nan", "-NaN", "Infinity", "-Infinity", "inf", "1e999", "-1e999", "1e400", "[1e309]"],
    "numbers of other languages": ["+1", ".5", "-.5", "1.", "1.e5", "01", "-01", "00", "0x10", "0b1", "0o7", "1_000"],
    "half a number": ["1e", "1e+", "-", "--1", "1.2.3", "1e5.5", "1d", "1n", "1f"],
    "too many digits": ["9" * 4_301, "9" * 5_000, "-" + "9" * 5_000, "[" + "1" * 5_000 + "]"],
    "words of other languages": ["True", "False", "None", "NULL", "undefined", "tru", "nulll", "nil", "yes"],
    "single quotes": ["'a'", "{'a':1}", "`a`"],
    "text without an end": ['"a', '"a\\"', '"\\'],
    "raw control characters": [b'"a\x00b"', b'"\x1f"', b'"a\tb"', b'{"a\x01":1}'],
    "raw line breaks in text": [b'"a\nb"', b'"a\rb"'],
    "escapes of other languages": [
        '"\\x41"',
        '"\\u12"',
        '"\\u{41}"',
        '"\\U00000041"',
        '"\\a"',
        '"\\\'"',
        '"\\0"',
        '"\\u004g"',
    ],
    "half a surrogate pair": [
        '"\\ud800"',
        '"\\udc00"',
        '"\\udc00\\ud800"',
        '"\\ud800\\u0041"',
        '"\\ud800x"',
        '"\\uD83D"',
    ],
    "half a surrogate pair in a key": ['{"\\ud800":1}', '{"a\\udfff":1}'],
    "surrogates as bytes": [b'"\xed\xa0\x80"', b'"\xed\xa0\xbd\xed\xb8\x80"'],
    "overlong": [
        b'"\xc0\x80"',
        b'"\xc0\xaf"',
        b'"\xc1\xbf"',
        b'"\xe0\x80\xaf"',
        b'"\xf0\x80\x80\xaf"',
        b'{"\xc1\xa1":1}',
    ],
    "beyond Unicode": [b'"\xf4\x90\x80\x80"', b'"\xf8\x88\x80\x80\x80"', b'"\xff"', b'"\xfe"'],
    "broken UTF-8": [b'"\xc3"', b'"\x80"', b'"\xe9"', b'"\xe2\x82"', b'{"\xff":1}'],
    "comments": ["/* a */1", "1/* a */", "[1,/* a */2]", "[1,#a\n2]"],
    "trailing commas": ["[1,]", '{"a":1,}', "[,1]", "[1,,2]", "{,}", "[,]"],
    "objects of other languages": [
        "{a:1}",
        "{1:1}",
        "{null:1}",
        '{"a"}',
        '{"a":}',
        '{"a" 1}',
        '{"a"=1}',
        '{"a":1;"b":2}',
    ],
    "commas left out": ["[1 2]", '{"a":1 "b":2}'],
    "brackets": ["[", "{", "[1", '{"a":1', "[}", "{]", "[1}", "]", "(1)"],
    "more than one": ["1 2", "{} {}", '"a" "b"', "1x", '"a"b'],
    "other white space": [b"\x0b1", b"\x0c1", "\u00a01", "\u20281", "\ufeff1", "1\u200b"],
    "levels": [nested(65), nested(1_000), nested(DEEP), nested_objects(65), nested_objects(DEEP), "[" * DEEP],
    # Where Python's own parser still reads and its writer no longer writes.
    "levels at the edge": [write(levels) for levels in range(950, 996, 5) for write in (nested, nested_objects)],
    "nothing at all": "",
}

VALUES: list[Case] = _spelled(TAKEN, refused=False) + _spelled(LEFT, refused=True)


def _body(rest: str) -> bytes:
    return ('{"agentId":"AGENT","ticketId":"TICKET",' + rest + "}").encode()


_PLAIN = _body('"payload":1')
_GOOD_BODIES: dict[str, tuple[bytes, Any]] = {
    "as it should be": (_PLAIN, 1),
    "white space around": (b" \t\r\n" + _PLAIN + b"\r\n\t ", 1),
    "payload twice": (_body('"payload":1,"payload":2'), 2),
    "payload twice, escaped": (_body('"payload":1,"p\\u0061yload":2'), 2),
    "payload, escaped, before itself": (_body('"\\u0070ayload":1,"payload":2'), 2),
    "metadata twice": (_body('"payload":1,"metadata":{"v":1},"metadata":{"v":1}'), 1),
    "the ticket twice": (b'{"agentId":"AGENT","ticketId":"TICKET-x","payload":1,"ticketId":"TICKET"}', 1),
    "the ticket, escaped": (b'{"agentId":"AGENT","\\u0074icketId":"TICKET","payload":1}', 1),
    "null for what may be left out": (_body('"payload":1,"timeoutMs":null,"conversationId":null'), 1),
    "null for a payload": (_body('"payload":null'), None),
    "unknown names in metadata": (_body('"payload":1,"metadata":{"Payload":2,"payload":3}'), 1),
}
_BAD_BODIES: dict[str, bytes] = {
    "a byte order mark": b"\xef\xbb\xbf" + _PLAIN,
    "UTF-16, little end first": _PLAIN.decode().encode("utf-16-le"),
    "UTF-16, big end first": _PLAIN.decode().encode("utf-16-be"),
    "UTF-16 with its mark": _PLAIN.decode().encode("utf-16"),
    "UTF-32, little end first": _PLAIN.decode().encode("utf-32-le"),
    "UTF-32, big end first": _PLAIN.decode().encode("utf-32-be"),
    "UTF-32 with its mark": _PLAIN.decode().encode("utf-32"),
    "two objects": _PLAIN + b"{}",
    "two lines": _PLAIN + b"\n" + _PLAIN,
    "a word behind": _PLAIN + b" x",
    "NUL behind": _PLAIN + b"\0",
    "NUL before": b"\0" + _PLAIN,
    "a comma behind": _PLAIN + b",",
    "a comment behind": _PLAIN + b" // me",
    "a comment before": b"/* me */" + _PLAIN,
    "a prefix against scripts": b")]}',\n" + _PLAIN,
    "a record separator": b"\x1e" + _PLAIN,
    "a list around": b"[" + _PLAIN + b"]",
    "as text": b'"' + _PLAIN.replace(b'"', b'\\"') + b'"',
    "only white space": b"  ",
    "null": b"null",
    "a number": b"1",
    "a list": b"[]",
    "a large letter": _body('"Payload":1'),
    "all large letters": _body('"PAYLOAD":1'),
    "both cases": _body('"payload":1,"Payload":2'),
    "a space in a name": _body('"payload ":1,"payload":2'),
    "NUL in a name": _body('"payload\\u0000":1,"payload":2'),
    "a name that looks alike": _body('"p\u0430yload":1,"payload":2'),
    "an underscore": _body('"payload":1,"expect_reply":false'),
    "a ticket in another case": b'{"agentId":"AGENT","ticketID":"TICKET","payload":1}',
    "a name nobody knows": _body('"payload":1,"priority":1'),
    "a prototype": _body('"payload":1,"__proto__":{"expectReply":false}'),
    "a number for a ticket": b'{"agentId":"AGENT","ticketId":1,"payload":1}',
    "a ticket of full-width digits": b'{"agentId":"AGENT","ticketId":"\xef\xbc\x91","payload":1}',
    "text for a switch": _body('"payload":1,"expectReply":"true"'),
    "a number for a switch": _body('"payload":1,"expectReply":1'),
    "null for a switch": _body('"payload":1,"expectReply":null'),
    "text for a time": _body('"payload":1,"timeoutMs":"5000"'),
    "a switch for a time": _body('"payload":1,"timeoutMs":true'),
    "a whole time as a double": _body('"payload":1,"timeoutMs":5000.0'),
    "a whole time with an exponent": _body('"payload":1,"timeoutMs":5e3'),
    "a broken time": _body('"payload":1,"timeoutMs":1.5'),
    "a time before now": _body('"payload":1,"timeoutMs":-1'),
    "a time beyond 64 bits": _body('"payload":1,"timeoutMs":18446744073709556616'),
    "a list for metadata": _body('"payload":1,"metadata":[]'),
    "pairs for metadata": _body('"payload":1,"metadata":[["a",1]]'),
    "null for metadata": _body('"payload":1,"metadata":null'),
    "no payload": b'{"agentId":"AGENT","ticketId":"TICKET"}',
}

BODIES: list[Case] = [
    *(Case(name, text, refused=False, payload=payload) for name, (text, payload) in _GOOD_BODIES.items()),
    *(Case(name, text, refused=True) for name, text in _BAD_BODIES.items()),
]
