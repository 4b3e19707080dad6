"""The daemon's own methods: status, the ledger, cleaning up, the person."""

from typing import Annotated, Any

from msgspec import Meta

from bascule.kernel.limits import MAX_PASSPHRASE_CHARS
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import (
    LOCAL_USER,
    Changes,
    Effect,
    Http,
    Nothing,
    Params,
    Reads,
    Result,
    rows_of,
)

MAX_LEDGER_PAGE = 1_000


class StoppedView(Result, frozen=True, kw_only=True):
    """Since when everything is stopped."""

    at: str
    by: str
    # For the user of this machine only.
    reason: str | None = None


class StatusResult(Result, frozen=True, kw_only=True):
    version: str
    protocol: int
    pid: int
    started_at: str
    uptime_s: float
    state_dir: str
    doors: dict[str, str]
    durability: str
    policy: str
    auth: str
    person: bool
    agents_online: int
    agents: int
    tickets_open: int
    tickets: int
    ledger_records: int
    ledger_head: str
    # What speaks against the ledger since the last start: it ends before, or differs from, what was anchored.
    ledger_problem: str | None = None
    # Who the daemon takes the caller for.
    principal: str
    # Present while everything is stopped: `admin.resume`.
    stopped: StoppedView | None = None


class LedgerTailParams(Params, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_LEDGER_PAGE)] = 20
    # Only records with a smaller number: pages backwards.
    before: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class LedgerShowParams(Params, frozen=True, kw_only=True):
    # A record number, or a ticket id, handle or method whose records are wanted.
    what: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Annotated[int, Meta(ge=1, le=MAX_LEDGER_PAGE)] = 100


class LedgerRecord(Result, frozen=True, kw_only=True):
    seq: int
    at: str
    principal: str
    method: str
    outcome: str
    subject: str | None = None
    rule: str | None = None
    details: dict[str, Any] = {}
    hash: str


class VerifyResult(Result, frozen=True, kw_only=True):
    ok: bool
    records: int
    first: int
    last: int
    head: str
    anchors: int
    faults: list[str]
    seconds: float


class GcParams(Params, frozen=True, kw_only=True):
    dry_run: bool = False


class GcResult(Result, frozen=True, kw_only=True):
    dry_run: bool
    items: list[GcItem]


class BackupResult(Result, frozen=True, kw_only=True):
    # In the state directory; the command that asked for it moves it away.
    path: str
    bytes: int


class PassphraseParams(Params, frozen=True, kw_only=True):
    passphrase: Annotated[str, Meta(min_length=1, max_length=MAX_PASSPHRASE_CHARS)]


class PersonResult(Result, frozen=True, kw_only=True):
    set: bool
    # Seconds this connection stays unlocked.
    unlocked_s: float | None = None


DAEMON_STATUS = Reads[Nothing, StatusResult](
    "daemon.status", "Say what runs, where it listens and how much it holds.", Http("GET", "/status")
)
DAEMON_GC = Changes[GcParams, GcResult](
    "daemon.gc", "Remove what is past its retention now, or say what would go.", effect=Effect.ADMIN, who=LOCAL_USER
)
DAEMON_BACKUP = Changes[Nothing, BackupResult](
    "daemon.backup", "Copy the database, consistently, into the state directory.", effect=Effect.ADMIN, who=LOCAL_USER
)
LEDGER_TAIL = Reads[LedgerTailParams, list[LedgerRecord]](
    "ledger.tail", "Show the newest ledger records.", who=LOCAL_USER
)
LEDGER_SHOW = Reads[LedgerShowParams, list[LedgerRecord]](
    "ledger.show", "Show the ledger records of one ticket, handle, method or number.", who=LOCAL_USER
)
LEDGER_VERIFY = Reads[Nothing, VerifyResult](
    "ledger.verify", "Check every record's hash, the chain and the anchors.", who=LOCAL_USER
)
PERSON_SET = Changes[PassphraseParams, PersonResult](
    "person.set", "Set the person's passphrase, once.", effect=Effect.ADMIN, who=LOCAL_USER
)
PERSON_UNLOCK = Changes[PassphraseParams, PersonResult](
    "person.unlock", "Make this link connection the person's for 15 minutes.", effect=Effect.ADMIN, who=LOCAL_USER
)
PERSON_STATUS = Reads[Nothing, PersonResult](
    "person.status", "Say whether a passphrase is set and whether this connection is unlocked."
)

METHODS = rows_of(globals())
