"""An answer of bytes: a picture. HTTP writes it as it is; link and MCP as `{contentType, base64}`."""

import msgspec

# What a browser shows or saves and never executes: bytes that we hand on may have been chosen by an agent.
INERT_TYPES = frozenset({"image/png", "application/octet-stream"})


class Blob(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A handler answers with it where JSON would be the wrong form."""

    content_type: str
    # msgspec writes bytes as base64, so every JSON door has it in this form without a word of its own.
    data: bytes = msgspec.field(name="base64")

    def __post_init__(self) -> None:
        if self.content_type not in INERT_TYPES:
            raise ValueError(f"no door serves {self.content_type!r}: one of {', '.join(sorted(INERT_TYPES))}")
