"""A broker on a disk whose n-th system call fails, for every n: run by itself, libfiu between SQLite and the kernel.

The first argument says as JSON what fails and how; the answer is one JSON object for each n.
"""

import ctypes
import errno
import json
import shutil
import sqlite3
import sys
import tempfile

from bascule.admin.ledger_methods import verify
from bascule.bridge_list import tables_of
from bascule.broker.records import Message
from bascule.foundation.errors import StorageFull
from bascule.kernel.ledger import Segment
from bascule.stores import sqlite
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.schema import StoreUnusable
from bascule.stores.sqlite import SqliteStore
from bascule.testing.house import House

ACTS = 12
# A run in which the n-th call never comes ends the story; this many would be a loop.
MOST = 400

_fiu = ctypes.CDLL("libfiu.so.0")
_Decide = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_uint),
)


class Fault:
    """Counts calls while it is armed, and fails the n-th; with `sticky`, all from there on."""

    def __init__(self, call: str, *, sticky: bool) -> None:
        self._sticky = sticky
        self._left = 0
        self._armed = False
        self.happened = False
        # Kept: libfiu holds no reference.
        self._decide = _Decide(self._fails)
        _fiu.fiu_init(0)
        done = _fiu.fiu_enable_external(call.encode(), 1, ctypes.c_void_p(errno.EIO), 0, self._decide)
        assert done == 0

    def arm(self, number: int) -> None:
        self._left = number
        self._armed = True
        self.happened = False

    def disarm(self) -> None:
        self._armed = False

    def _fails(self, _name: bytes, _number: object, _info: object, _flags: object) -> int:
        if not self._armed:
            return 0
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._sticky):
            self.happened = True
            return 1
        return 0


def live(path: str, fault: Fault, number: int, *, late: bool) -> dict[str, object]:
    """One life: which acts were acknowledged, which refused, and what is missing after a kill."""
    acked: dict[str, str] = {}
    refused = 0
    if not late:
        fault.arm(number)
    try:
        house = House(store=SqliteStore(path, tables=tables_of()))
    except (StoreUnusable, OSError) as error:
        fault.disarm()
        return {"number": number, "happened": fault.happened, "unopened": str(error)}
    if late:
        fault.arm(number)
    for act in range(ACTS):
        name = f"t{act}"
        try:
            if act == 0:
                house.call("local", "agents.register", {"agentId": "Jerry"})
            else:
                payload = f"{name} {'x' * (act % 3 * 3_000)}"
                house.call("local", "messages.send", {"agentId": "Jerry", "payload": payload, "ticketId": name})
                acked[name] = payload
        except StorageFull:
            refused += 1
            if act == 0:
                break
    fault.disarm()
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, f"{path}.killed{suffix}")
    house.close()
    return {
        "number": number,
        "happened": fault.happened,
        "acked": len(acked),
        "refused": refused,
        "wrong": look(f"{path}.killed", acked) + look(path, acked),
    }


def look(path: str, acked: dict[str, str]) -> list[str]:
    store = SqliteStore(path, tables=tables_of())
    try:
        messages = {key: json.loads(bytes(message.payload)) for key, message in store.load("messages", Message)}
        wrong = [f"{name} is not there" for name, payload in acked.items() if messages.get(f"{name}/0") != payload]
        segments = [segment for _, segment in store.load("segments", Segment)]
        anchors = AnchorFile(path + ".anchors")
        return wrong + store.read_ledger(lambda ledger: verify(ledger, segments, anchors)).result().faults
    finally:
        store.close()


def acknowledge_anyway() -> None:
    """The bug to be found: a commit that failed is taken for done."""
    transact = SqliteStore._transact

    def carelessly(self: SqliteStore, batch: object) -> None:
        try:
            transact(self, batch)
        except sqlite3.Error:
            return

    SqliteStore._transact = carelessly


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.get("careless"):
        acknowledge_anyway()
    if options.get("fold"):
        sqlite.WAL_CHECKPOINT_PAGES = 2
    fault = Fault(options["call"], sticky=options.get("sticky", False))
    lives = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, MOST, options.get("step", 1)):
            lives.append(live(f"{folder}/{number}.db", fault, number, late=options.get("late", False)))
            if not lives[-1]["happened"]:
                break
    sys.stdout.write(json.dumps(lives))


main()
