"""Which apps an agent may look at, or act in: a person said so once, and is not asked again.

Only a person's own yes is kept. What a policy allows needs no memory, and what a person allowed for ten minutes must
not become a permission for ever because it was used.
"""

from typing import Final, Literal, NamedTuple
from weakref import WeakSet

import msgspec

from bascule.foundation.clock import Clock
from bascule.kernel.call import Principal
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
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


class AppApproval:
    """A person's yes to an app. It counts already while the call it is spent for lasts (`with`)."""

    __slots__ = ("__weakref__", "app", "approval_id", "counts", "doing", "forgotten", "principal")

    def __init__(self, principal: Principal, doing: Doing, app: App, approval_id: str) -> None:
        self.principal = principal
        self.doing = doing
        self.app = app
        self.approval_id = approval_id
        self.counts = False
        # Its principal was revoked, or the desktop disabled: it is not kept.
        self.forgotten = False

    def __enter__(self) -> None:
        self.counts = not self.forgotten

    def __exit__(self, *_: object) -> None:
        self.counts = False


class Apps:
    def __init__(self, store: JournalStore, clock: Clock, *, max_per_principal: int = MAX_PER_PRINCIPAL) -> None:
        self._clock = clock
        self._max = max_per_principal
        self.table: Table[AllowedApp] = Table("desktop_apps", AllowedApp)
        self.table.rows.update(store.load("desktop_apps", AllowedApp))
        # Being spent: each is kept when its call ends, and a wait may take a minute.
        self._spent: WeakSet[AppApproval] = WeakSet()

    def compare(self, principal: Principal, doing: Doing, app: App) -> Seen:
        key = _key(principal, doing, app)
        if key in self.table.rows:
            return "same"
        wanted = (principal, doing, app)
        return (
            "same"
            if any(yes.counts and (yes.principal, yes.doing, yes.app) == wanted for yes in self._spent)
            else "new"
        )

    def spend(self, principal: Principal, doing: Doing, app: App, *, approval_id: str) -> AppApproval:
        yes = AppApproval(principal, doing, app, approval_id)
        self._spent.add(yes)
        return yes

    def of(self, principal: Principal) -> list[str]:
        mine = (each for each in self.table.rows.values() if each.principal == principal and each.doing == "look")
        return sorted({each.app for each in mine})

    def keep(self, tx: Transaction, yes: AppApproval) -> None:
        """With the record of the call that it was spent for."""
        key = _key(yes.principal, yes.doing, yes.app)
        if yes.forgotten or key in self.table.rows:
            return
        mine = [(each.at, name) for name, each in self.table.rows.items() if each.principal == yes.principal]
        if len(mine) >= self._max:
            tx.put(self.table, min(mine)[1], None)
        record = AllowedApp(
            principal=yes.principal,
            doing=yes.doing,
            app=yes.app.name,
            program=yes.app.program,
            at=self._clock.wall_ms(),
            approval_id=yes.approval_id,
        )
        tx.put(self.table, key, record)

    def forget(self, tx: Transaction, principal: Principal | None = None) -> int:
        """Of one principal, or of everybody; how many. What is being spent is not kept."""
        for yes in self._spent:
            if principal in (None, yes.principal):
                yes.forgotten, yes.counts = True, False
        gone = [key for key, each in self.table.rows.items() if principal in (None, each.principal)]
        for key in gone:
            tx.put(self.table, key, None)
        return len(gone)


def _key(principal: Principal, doing: Doing, app: App) -> str:
    # An app names itself, with any character: only a digest keeps two of them apart for certain.
    return digest([principal, doing, *app])
