"""The person's passkeys: table `passkeys`, and which of its rows count.

A row counts if the ledger has the record of its enrolment: the row names that record, and the record the key. So a
program that writes a key of its own into the store gains nothing by the row alone. Retention drops old records by whole
segments; before it does, `keep` records the keys of these segments once more.
"""

from collections.abc import Callable

import msgspec

from bascule.admin.passkey_protocol import AllowedCredential, PasskeyParams, PasskeyRevoked, PasskeyView
from bascule.admin.records import PasskeyRecord
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, Forbidden, NotFound
from bascule.kernel.call import DAEMON, Call, Principal
from bascule.kernel.identity.proof_records import KEPT, SUSPENDED, KeptKey, kept_keys
from bascule.kernel.identity.webauthn import (
    MAX_PUBLIC_KEY_BYTES,
    AuthenticatorData,
    CeremonyRefused,
    PublicKey,
    check_counter,
    from_base64url,
)
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, LedgerReader, Log
from bascule.kernel.ledger import read_record
from bascule.kernel.rows import Nothing
from gabp.codec import BadJson

# A person has a laptop, a phone and two keys on a ring. A browser is handed all of them with every challenge.
MAX_PASSKEYS = 16


class Passkeys:
    def __init__(self, store: JournalStore, journal: Journal, clock: Clock, log: Log) -> None:
        self._journal = journal
        self._clock = clock
        self.table: Table[PasskeyRecord] = Table("passkeys", PasskeyRecord)
        # Called with the id of a key that counts no longer.
        self.on_end: list[Callable[[str], None]] = []
        rows = dict(store.load("passkeys", PasskeyRecord))
        if rows:
            vouched = store.read_ledger(lambda ledger: _vouched(ledger, rows)).result()
            for passkey_id in rows.keys() - vouched:
                # Not removed: who looks into it finds the row as it was.
                log("passkey_ignored", level="error", passkey=passkey_id, why="the ledger has no record of it")
            self.table.rows.update({passkey_id: rows[passkey_id] for passkey_id in vouched})

    # -- looking --

    def in_use(self) -> list[PasskeyRecord]:
        """Those that may sign, the oldest first."""
        return sorted(
            (each for each in self.table.rows.values() if each.ended is None and not each.suspended),
            key=lambda each: each.created_at,
        )

    def count(self) -> int:
        return len(self.in_use())

    def allowed(self) -> list[AllowedCredential]:
        return [AllowedCredential(id=each.credential_id, transports=list(each.transports)) for each in self.in_use()]

    def find(self, credential_id: str) -> PasskeyRecord:
        """The key in use with this credential; `Forbidden` says why there is none."""
        found = self.with_credential(credential_id)
        if found is None or found.ended is not None:
            raise Forbidden(
                "this passkey is not enrolled here", hint="`bascule person passkey add` enrols it, `list` shows yours"
            )
        if found.suspended:
            raise Forbidden(
                f"the passkey {found.name!r} is suspended: its counter went back, so there may be a copy of it",
                hint=f"revoke it (`bascule person passkey revoke {found.passkey_id}`) and enrol it anew",
            )
        return found

    def with_credential(self, credential_id: str) -> PasskeyRecord | None:
        return next((each for each in self.table.rows.values() if each.credential_id == credential_id), None)

    def list_passkeys(self, call: Call, params: Nothing) -> list[PasskeyView]:
        return [
            PasskeyView(
                passkey_id=each.passkey_id,
                name=each.name,
                created_at=rfc3339(each.created_at),
                last_used_at=rfc3339(each.last_used_at) if each.last_used_at is not None else None,
                suspended=each.suspended,
                synced=each.synced,
            )
            for each in sorted(self.table.rows.values(), key=lambda each: each.created_at)
            if each.ended is None
        ]

    # -- changing --

    def check_room(self) -> None:
        if sum(each.ended is None for each in self.table.rows.values()) >= MAX_PASSKEYS:
            raise Conflict(
                f"{MAX_PASSKEYS} passkeys are enrolled", hint="revoke one: `bascule person passkey list` shows them"
            )

    def enrol(self, tx: Transaction, make: Callable[[int], PasskeyRecord]) -> PasskeyRecord:
        """Add a key in the transaction of its record. `make` gets the number of that record: nothing else is committed
        between here and there."""
        self.check_room()
        passkey = make(self._journal.chain.seq + 1)
        tx.put(self.table, passkey.passkey_id, passkey)
        return passkey

    def use(
        self, tx: Transaction, passkey: PasskeyRecord, authenticator: AuthenticatorData, principal: Principal
    ) -> None:
        """It has signed. A counter that went back suspends it, whatever becomes of `tx`."""
        try:
            check_counter(passkey.counter, authenticator.counter)
        except CeremonyRefused as refused:
            self._suspend(passkey, refused.message, principal)
            raise Forbidden(
                f"the passkey {passkey.name!r} is suspended: {refused.message}",
                hint="sign in with another key or the passphrase, then revoke this one and enrol it anew",
            ) from None
        used = msgspec.structs.replace(passkey, counter=authenticator.counter, last_used_at=self._clock.wall_ms())
        tx.put(self.table, passkey.passkey_id, used)

    def _suspend(self, passkey: PasskeyRecord, why: str, principal: Principal) -> None:
        tx = Transaction()
        tx.put(self.table, passkey.passkey_id, msgspec.structs.replace(passkey, suspended=True))
        tx.subject = passkey.passkey_id
        tx.details = {"reason": why}
        self._journal.commit(tx, principal, SUSPENDED)
        self._ended(passkey)

    def revoke(self, call: Call, params: PasskeyParams, tx: Transaction) -> PasskeyRevoked:
        passkey = self.table.rows.get(params.passkey_id)
        if passkey is None or passkey.ended is not None:
            raise NotFound(f"no passkey {params.passkey_id}", hint="`bascule person passkey list` shows yours")
        tx.put(self.table, passkey.passkey_id, msgspec.structs.replace(passkey, ended=self._journal.chain.seq + 1))
        tx.subject = passkey.passkey_id
        tx.details = {"process": getattr(call.connection, "peer", None)}
        self._ended(passkey)
        return PasskeyRevoked(passkey_id=passkey.passkey_id)

    def _ended(self, passkey: PasskeyRecord) -> None:
        """At once, not after its commit: a full disk must not keep anybody signed in with it."""
        for callback in self.on_end:
            callback(passkey.passkey_id)

    def keep(self, before: int) -> None:
        """Records below this number are about to be dropped: record again what they say of keys."""
        old = [each for each in self.table.rows.values() if each.record < before]
        if not old:
            return
        tx = Transaction()
        number = self._journal.chain.seq + 1
        kept: dict[str, KeptKey] = {}
        for passkey in old:
            if passkey.ended is not None and passkey.ended < before:
                # No signature of it is left in the ledger.
                tx.put(self.table, passkey.passkey_id, None)
                continue
            tx.put(self.table, passkey.passkey_id, msgspec.structs.replace(passkey, record=number))
            kept[passkey.passkey_id] = msgspec.structs.replace(
                kept_key(passkey), enrolled=passkey.enrolled, ended=passkey.ended
            )
        tx.subject = "passkeys"
        tx.details = {"keys": msgspec.to_builtins(kept)}
        self._journal.commit(tx, DAEMON, KEPT)


def kept_key(passkey: PasskeyRecord) -> KeptKey:
    """As the ledger has it."""
    return KeptKey(
        credential_id=passkey.credential_id,
        public_key=passkey.public_key,
        algorithm=passkey.algorithm,
        rp_id=passkey.rp_id,
    )


def public_key(passkey: PasskeyRecord) -> PublicKey:
    return PublicKey(from_base64url(passkey.public_key, MAX_PUBLIC_KEY_BYTES), passkey.algorithm)


def _vouched(ledger: LedgerReader, rows: dict[str, PasskeyRecord]) -> set[str]:
    """The rows whose record is in the ledger and says the same key."""
    return {passkey_id for passkey_id, row in rows.items() if _is_vouched(ledger, passkey_id, row)}


def _is_vouched(ledger: LedgerReader, passkey_id: str, row: PasskeyRecord) -> bool:
    for found in ledger.span(row.record, 1):
        if found.seq == row.record:
            try:
                kept = kept_keys(read_record(found)).get(passkey_id)
            except (msgspec.ValidationError, BadJson):
                return False
            same = kept is not None and msgspec.structs.replace(kept, enrolled=None, ended=None) == kept_key(row)
            return same and row.passkey_id == passkey_id
    return False
