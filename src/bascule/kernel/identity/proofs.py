"""What a person showed for exactly these calls."""

from typing import Any, Protocol

import msgspec

from bascule.wire.canonical import digest


class ProofBook(Protocol):
    def take(self, proof_id: str, session_id: str, method: str, digest: str) -> str | None:
        """Spend the proof for exactly this call: its id for the ledger, or None."""


def call_digest(method: str, params: Any) -> str:
    """SHA-256 over canonical JSON of the method and its params; fields at their default are left out."""
    plain = msgspec.to_builtins(params)
    if isinstance(params, msgspec.Struct):
        usual = {field.encode_name: field.default for field in msgspec.structs.fields(params)}
        plain = {name: value for name, value in plain.items() if value != usual[name]}
    return digest({"method": method, "params": plain})
