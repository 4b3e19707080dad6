"""Keeps a secret out of a stream of bytes, also where it is split over reads."""

# A shorter beginning of it at the end of a read is shown: it reveals nothing, and may be the end of a word.
MIN_HELD_BYTES = 8


class Mask:
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # The end of what came, when it may be the beginning of the secret.
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now; the rest is held until it is known what it is."""
        if not self._secret:
            return data
        data = (self._held + data).replace(self._secret, b"*" * len(self._secret))
        size = next(
            (
                size
                for size in range(min(len(self._secret) - 1, len(data)), 0, -1)
                if data.endswith(self._secret[:size])
            ),
            0,
        )
        self._held = data[len(data) - size :]
        return data[: len(data) - size]

    def held(self) -> bytes:
        """What is held, as it may be shown now."""
        return self._held if len(self._held) < MIN_HELD_BYTES else b"*" * len(self._held)
