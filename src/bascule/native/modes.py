"""What hooks do, per client and directory: the choice for the nearest directory above counts."""

from bascule.foundation.errors import Conflict
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.policy.paths import normal
from bascule.native.protocol import Client, Mode, ModeView
from bascule.native.records import ModeRecord, mode_key

DEFAULT_MODE: Mode = "observe"
_STRICTER: tuple[Mode, ...] = ("observe", "warn", "enforce")
# A person chooses for a few directories; every one is looked at in every report.
MAX_CHOICES = 200


class Modes:
    def __init__(self, store: JournalStore) -> None:
        self.table: Table[ModeRecord] = Table("native_modes", ModeRecord)
        self.table.rows.update(store.load("native_modes", ModeRecord))

    def of(self, client: str, directory: str | None) -> Mode:
        here = normal(directory or "/")
        while True:
            record = self.table.rows.get(mode_key(client, here))
            if record is not None:
                return record.mode
            if here in ("/", "", "."):
                return DEFAULT_MODE
            here = here.rpartition("/")[0] or "/"

    def strictest(self, client: str) -> Mode:
        """For a call of which nobody knows where it is made."""
        chosen = [record.mode for record in self.table.rows.values() if record.client == client]
        return max((DEFAULT_MODE, *chosen), key=_STRICTER.index)

    def choose(self, tx: Transaction, client: Client, directory: str, mode: Mode, now_ms: int) -> ModeView:
        place = normal(directory)
        if len(self.table.rows) >= MAX_CHOICES and mode_key(client, place) not in self.table.rows:
            raise Conflict(
                f"there are {MAX_CHOICES} choices already", hint="choose for a directory that holds several of them"
            )
        record = ModeRecord(client=client, directory=place, mode=mode, chosen_at=now_ms)
        # What is said everywhere anyway need not be kept.
        is_default = mode == DEFAULT_MODE and place == "/"
        tx.put(self.table, mode_key(client, place), None if is_default else record)
        return ModeView(client=client, directory=place, mode=mode)

    def views(self) -> list[ModeView]:
        return [
            ModeView(client=record.client, directory=record.directory, mode=record.mode)
            for record in sorted(self.table.rows.values(), key=lambda each: (each.client, each.directory))
        ]
