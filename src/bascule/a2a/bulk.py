"""How much work a JSON text makes: its values, not its bytes. No I/O.

The a2a-sdk makes an object of protobuf of every value, several times over: 2 MiB of `[0,0,...` from one client kept the
daemon's loop for twenty seconds.
"""

# Less than a tenth of a second for the SDK; a table of a thousand lines with some columns fits.
MAX_VALUES = 10_000

_BETWEEN_VALUES = (b",", b"[", b"{")


def has_too_many_values(data: bytes, most: int = MAX_VALUES) -> bool:
    """Whether this text has more than `most` values, where an empty list counts twice; of what is not JSON it says the
    same as quickly."""
    if b"\0" in data:
        # Not JSON in UTF-8. A reader that guesses UTF-16 would see other commas than we do.
        return True
    if _count(data) <= most:
        return False
    # Perhaps they are in a text. Backslashes are in strings alone, and there they come in pairs from the left.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * most:
        # A name and a value have two quotes each: so many strings need not be cut out to be counted.
        return True
    return _count(b"".join(plain.split(b'"')[::2])) > most


def _count(data: bytes) -> int:
    return sum(map(data.count, _BETWEEN_VALUES))
