"""Which apps an agent may look at, or act in: a person said so once, and is not asked again.

Only a person's own yes is kept. What a policy allows needs no memory, and what a person allowed for ten minutes must
not become a permission for ever because it was used.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from bascule.audit.journal import Table, Transaction
from bascule.audit.ports import JournalStore
from bascule.call import Principal
from bascule.clock import Clock
from bascule.wire.canonical import digest

# More apps than anybody lets one agent use; the oldest yes is forgotten, and asked for again.
MAX_PER_PRINCIPAL: Final = 200

Doing = Literal["look", "act"]
Seen = Literal["new", "same"]


class App(NamedTuple):
    """The bundleId is what an app says of itself; the program's file is what the system says of it."""

    name: str
    program: str | None


class AllowedApp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    principal: str
    doing: Doing
    app: str
    program: str | None
    # Milliseconds.
    at: int
    approval_id: str


class Apps:
    def __init__(self, store: JournalStore, clock: Clock, *, max_per_principal: int = MAX_PER_PRINCIPAL) -> None:
        self._clock = clock
        self._max = max_per_principal
        self.table: Table[AllowedApp] = Table("desktop_apps", AllowedApp)
        self.table.rows.update(store.load("desktop_apps", AllowedApp))
        # A yes that is being spent: it is kept when its call ends, and a wait may take a minute.
        self._meanwhile: Counter[str] = Counter()

    def compare(self, principal: Principal, doing: Doing, app: App) -> Seen:
        key = _key(principal, doing, app)
        return "same" if key in self.table.rows or key in self._meanwhile else "new"

    @contextlib.contextmanager
    def spending(self, principal: Principal, doing: Doing, app: App) -> Iterator[None]:
        """A person's yes counts from now on, not only once the call it was given for has ended."""
        key = _key(principal, doing, app)
        self._meanwhile[key] += 1
        try:
            yield
        finally:
            self._meanwhile[key] -= 1
            if not self._meanwhile[key]:
                del self._meanwhile[key]

    def of(self, principal: Principal) -> list[str]:
        mine = (each for each in self.table.rows.values() if each.principal == principal and each.doing == "look")
        return sorted({each.app for each in mine})

    def add(self, tx: Transaction, principal: Principal, doing: Doing, app: App, *, approval_id: str) -> None:
        key = _key(principal, doing, app)
        if key in self.table.rows:
            return
        mine = [(each.at, name) for name, each in self.table.rows.items() if each.principal == principal]
        if len(mine) >= self._max:
            tx.put(self.table, min(mine)[1], None)
        record = AllowedApp(
            principal=principal,
            doing=doing,
            app=app.name,
            program=app.program,
            at=self._clock.wall_ms(),
            approval_id=approval_id,
        )
        tx.put(self.table, key, record)

    def forget(self, tx: Transaction, principal: Principal | None = None) -> int:
        """Of one principal, or of everybody; how many."""
        gone = [key for key, each in self.table.rows.items() if principal in (None, each.principal)]
        for key in gone:
            tx.put(self.table, key, None)
        return len(gone)


def _key(principal: Principal, doing: Doing, app: App) -> str:
    # An app names itself, with any character: only a digest keeps two of them apart for certain.
    return digest([principal, doing, *app])
