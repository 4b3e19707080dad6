"""What the house itself keeps, in the table `house`."""

import msgspec


class DaemonFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named fact: the person's hash, whether the last stop was clean."""

    text: str = ""
    at: int = 0


PERSON_KEY = "person"
CLEAN_STOP_KEY = "clean-stop"
# Which key the digests of this store were made with, as a hash of it.
DIGEST_KEY_KEY = "digest-key"
# The text of the policy that a person last accepted.
POLICY_KEY = "policy"
# Who stopped everything, until a person resumes: a `Halt` as JSON.
HALT_KEY = "stopped"


def format_key(name: str) -> str:
    """In which format what has this name is kept: see `kernel.declared.Kept`."""
    return f"format-{name}"


class PasskeyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of the person. Bytes are base64url without padding."""

    passkey_id: str
    name: str
    credential_id: str
    # SubjectPublicKeyInfo in DER.
    public_key: str
    # As COSE numbers it: -7, -8 or -257.
    algorithm: int
    # The site that it was made for.
    rp_id: str
    created_at: int
    # The ledger record that it was enrolled with, and the one that has it now: retention drops the first one day.
    enrolled: int
    record: int
    # How browsers may reach it; a hint for them.
    transports: tuple[str, ...] = ()
    # It may be on several devices of its owner.
    synced: bool = False
    # What it counted last; synced keys stay at 0.
    counter: int = 0
    last_used_at: int | None = None
    # Its counter went back.
    suspended: bool = False
    # The ledger record that ended it. The row stays for as long as the ledger has signatures of it.
    ended: int | None = None
