"""What the native bridge keeps: which mode a person chose where."""

import msgspec

from bascule.native.protocol import Client, Mode


class ModeRecord(msgspec.Struct, frozen=True, kw_only=True):
    client: Client
    directory: str
    mode: Mode
    chosen_at: int


def mode_key(client: str, directory: str) -> str:
    return f"{client}:{directory}"
