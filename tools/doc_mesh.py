"""The generated blocks of docs/bridges/mesh.md: items, standings, rows, limits, and every promise with its tests."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from bascule.kernel.rows import OTHER_NODE
from bascule.mesh import protocol
from bascule.mesh.membership import TRANSITIONS
from bascule.mesh.rows import METHODS
from bascule.mesh.settings import MeshSettings
from doc_text import HERE, code, comments_on_fields, comments_on_numbers, read, table, tests_named

sys.path.insert(0, str(HERE / "tests" / "conformance"))

from mesh_requirements import MESH_REQUIREMENTS, mesh_proofs

# By kind: from where to where, when it is said, what it does there, what it is when it comes again.
ITEMS = {
    "offer": (
        "home to copy",
        "a message for an agent there was sent",
        "whose machine, policy, room; then the agent's inbox, or it is refused",
        "the copy, or what is left of it: the same answer",
    ),
    "cancel": (
        "home to copy",
        "the ticket was cancelled",
        "the message leaves the inbox; before its offer came, a row stays that keeps the offer out",
        "its rank is not higher: confirmed, and nothing else",
    ),
    "over": (
        "home to copy",
        "its sender stopped waiting; or a machine that was put back has to hear how the ticket ended",
        "the copy shows that status; the message stays in the inbox, marked `timedOut`",
        "its rank is not higher: confirmed, and nothing else",
    ),
    "acked": ("copy to home", "the agent acknowledged the message", "the ticket is delivered", "delivered already"),
    "reply": (
        "copy to home",
        "the agent replied",
        "the first answers the ticket, later ones are kept behind it",
        "its number was there: confirmed, and nothing else",
    ),
    "receipt": (
        "both ways",
        "an item is on the disk here, or is refused",
        "the item leaves the outbox; to a copy it also says how the ticket is now",
        "no such item waits: nothing",
    ),
    "hello": (
        "both ways",
        "a connection begins, a machine is heard of again, `ledger verify --peers` asks",
        "what waits for that machine goes at once; one that was put back is noticed, and told who is revoked",
        "the same, at most every 100 ms",
    ),
}

_M = "bascule.mesh."
# By module and name: what happens over it. Every `MAX_` of the mesh is here, and what else is a limit to its users.
OVER = {
    "bascule.broker.quotas SHARE_OF_NODE": "refused as `full`; its home offers it again until its time is over",
    f"{_M}arrivals MAX_ITEMS_PER_SECOND": "no receipt, so it comes again",
    f"{_M}copies MAX_COPIES_PER_NODE": "a tenth, the oldest, is dropped; offers that are as old are refused as `late`",
    f"{_M}copies LONGEST_USE_MS": "cut to it",
    f"{_M}home USE_FOR_MS": "a message ends as `cancelled`, with the reason; a reply is the event `reply.refused`",
    f"{_M}home REOFFER_MS": "the next machine of the group gets the message, too",
    f"{_M}home ASK_AROUND_MS": "the machine that was asked longest ago is asked again",
    f"{_M}outbox RECEIPT_MS": "it goes into the mailbox as well",
    f"{_M}outbox FIRST_RETRY_MS": "it goes again, and the next pause is twice as long",
    f"{_M}outbox LONGEST_RETRY_MS": "pauses stay as long as this",
    f"{_M}protocol MAX_ITEMS": "the next letter has the rest; one with more does not count",
    f"{_M}courier MAX_LIVE_ITEMS": "the next letter has the rest",
    f"{_M}courier MAX_BATCH_BYTES": "the next letter has the rest; one item that is larger goes alone",
    f"{_M}receipts MAX_TOGETHER": "committed at once",
    f"{_M}protocol MAX_LIVES": "the oldest is forgotten, and the end of the ledger that belongs to it",
    f"{_M}protocol MAX_REVOKED_LIST": "the list is on the board alone",
    f"{_M}protocol MAX_FREE_GROUPS": "the rest is left out, in the order of names",
    f"{_M}protocol MAX_LISTED": "those that are online are listed first; the others are written to by their full name",
    f"{_M}ports MAX_VALUE_BYTES": "refused by the server, and passed over by whoever reads it; a list is cut to it",
    f"{_M}nodes MAX_EARLY": "passed over until it is put there again",
    f"{_M}nodes MAX_EARLY_BYTES": "passed over until it is put there again",
    f"{_M}nodes REACHABLE_SECONDS": "its agents are `unreachable`; what is for them goes into the mailbox",
    f"{_M}roster MAX_NODES": "the next machine is not accepted (429), and its card is not believed",
    f"{_M}cards CARD_DAYS": "the card counts for nothing; `mesh status` and `doctor` warn two weeks before",
    f"{_M}cards MAX_REVOKED": "no other machine can be revoked: begin a new mesh",
    f"{_M}admissions MAX_RENEWED": "the next sweep renews the rest",
    f"{_M}skew SKEW_WARN_MS": "`mesh status` and `doctor` say so",
    f"{_M}skew SKEW_STOP_MS": "letters are not taken; their senders say them again",
    f"{_M}join_code CODE_SECONDS": "the code is refused",
    f"{_M}join_code MAX_ADDRESSES": "the likeliest are in the code",
    f"{_M}join_code MAX_ADDRESS_CHARS": "not a whole join code",
    f"{_M}join_code MAX_CODE_CHARS": "not a whole join code",
    f"{_M}membership_protocol MAX_CODE_TEXT_CHARS": "400",
    f"{_M}membership_protocol MAX_SERVERS": "400",
    f"{_M}admissions MAX_INVITES": "429 until one of them is used or over",
    f"{_M}admissions MAX_REQUESTS": "the joiner is told that too many ask",
    f"{_M}admissions REQUEST_SECONDS": "the question is over, and the joiner is told so",
    f"{_M}admissions MAX_TRIES": "the joiner is told that too many ask",
    f"{_M}admissions FETCH_SECONDS": "the machine has to ask again",
    f"{_M}knock MAX_KNOCK_BYTES": "refused unread (with its frame twice as many)",
    f"{_M}knock MAX_ANSWER_BYTES": "not read; the joiner says that the answer cannot be used",
    f"{_M}machine.nats_post MAX_KNOCKS_PER_SECOND": "not answered; the joiner knocks again",
    f"{_M}machine.nats_post MAX_JOINING": "not answered; the joiner knocks again",
    f"{_M}machine.nats_post MAX_FAULTS": "not noted",
    f"{_M}machine.nats_post MAX_ECHO_SECONDS": "the clocks are compared with the next one",
    f"{_M}machine.connection MAX_UNSENT_BYTES": "letters are not sent now; the outbox sends them again",
    f"{_M}machine.connection MAX_PINGS": "the connection is given up, and made again",
    f"{_M}machine.nats_wire MAX_LINE_BYTES": "the connection is given up, and made again",
    f"{_M}machine.nats_wire MAX_MESSAGE_BYTES": "the connection is given up, and made again",
    f"{_M}machine.feed MAX_NUMBER": "the letter is not read",
    f"{_M}machine.hub_config MAX_PAYLOAD": "a message or reply that would be larger is refused with 413",
    f"{_M}machine.hub_config MAX_CONNECTIONS": "the server refuses the connection; it is tried again",
    f"{_M}machine.hub_config MAX_SUBSCRIPTIONS": "the server closes the connection",
    f"{_M}machine.hub MAX_STORE_BYTES": "as `DEFAULT_MAX_BYTES`; of less free disk the half",
    f"{_M}machine.layout MAIL_DAYS": "the server drops the letter",
    f"{_M}machine.layout MAX_PER_SUBJECT": "the server drops the oldest of them; the outbox sends it again",
    f"{_M}machine.layout DEFAULT_MAX_BYTES": "the server drops the oldest letters; the outbox sends them again",
    f"{_M}machine.layout MAX_CONSUMERS": "the server refuses the next machine, whose status says so",
    f"{_M}machine.layout BOARD_BYTES": "the server refuses a new value; `mesh status` says so, and it is put again",
}
_TITLES = {
    "RULE": "Rules of the protocol",
    "M": "Invariants M1 to M6",
    "TICKET": "Tickets and the ledger",
    "NAME": "Who is meant",
    "JOIN": "Joining",
    "DAY": "Bad days: nothing that was acknowledged is lost, and nothing is done twice",
    "TRUST": "Trust",
}


def blocks() -> dict[str, str]:
    return {
        "items": items(),
        "standings": standings(),
        "rows": rows(),
        "limits": limits(),
        "coverage": coverage(),
        "requirements": "\n\n".join(_sections()),
    }


def items() -> str:
    kinds = [each.__struct_config__.tag for each in protocol.AnyItem.__args__]  # type: ignore[attr-defined] # a union
    if kinds != list(ITEMS):
        raise SystemExit(f"gen_docs: the kinds of items are {kinds}, and doc_mesh describes {list(ITEMS)}")
    described = [(code(kind), *words) for kind, words in ITEMS.items()]
    return table(("kind", "from, to", "said when", "what it does there", "when it comes again"), described)


def standings() -> str:
    described = [
        (code(standing or "none"), ", ".join(f"{event} -> {code(to or 'none')}" for event, to in events.items()))
        for standing, events in TRANSITIONS.items()
    ]
    return table(("standing", "what can happen"), described)


def rows() -> str:
    open_ = [row for row in METHODS if row.who == OTHER_NODE]
    return table(("method", "does"), [(code(row.name), row.summary) for row in open_])


def limits() -> str:
    _check_all_are_named()
    reasons = comments_on_fields(read("src/bascule/mesh/settings.py"), "MeshSettings")
    over = "429 `overloaded`, for the sender of that message alone"
    described = [
        (code(name), shown(name, getattr(MeshSettings(), name)), reasons[name], f"{over}; a setting")
        for name in MeshSettings.__struct_fields__
    ]
    for key, what in OVER.items():
        path, _, name = key.partition(" ")
        value = getattr(importlib.import_module(path), name)
        why = comments_on_numbers(read(f"src/{path.replace('.', '/')}.py"))[name]
        if not why:
            raise SystemExit(f"gen_docs: {key} has no reason beside it")
        described.append((code(name), shown(name, value), why, what))
    return table(("limit", "value", "why", "over it"), described)


def _check_all_are_named() -> None:
    found = {f"{module.__name__} {name}" for module in _modules() for name in _limits_of(module)}
    if missing := sorted(found - set(OVER)):
        raise SystemExit(f"gen_docs: doc_mesh does not say what happens over {', '.join(missing)}")


def _modules() -> Iterator[ModuleType]:
    root = HERE / "src"
    for file in sorted((root / "bascule" / "mesh").rglob("*.py")):
        yield importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def _limits_of(module: ModuleType) -> Iterator[str]:
    """Those that stand in it; an import of another one's is not its own."""
    assert module.__file__ is not None
    named = comments_on_numbers(Path(module.__file__).read_text("utf-8"))
    return (name for name in named if re.match(r"MAX_", name))


def shown(name: str, value: object) -> str:
    """The number, in the unit that its name says."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(name, each)}" for key, each in value.items())
    assert isinstance(value, int | float), name
    lower = name.lower()
    if isinstance(value, float) and value < 1:
        return f"{value:.0%}".replace("%", " %")
    if "bytes" in lower or lower == "max_payload":
        return _in_units(value, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), "B")
    if lower.endswith("_ms"):
        return _in_units(value, (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)), "ms")
    if lower.endswith("_days"):
        return f"{value} d"
    if lower.endswith("_seconds"):
        return _in_units(value, (("h", 3_600), ("min", 60)), "s")
    return f"{value:,g}" if value < 10**6 else f"{value:,}"


def _in_units(value: float, units: tuple[tuple[str, int], ...], least: str) -> str:
    for unit, size in units:
        if value >= size and value % size == 0:
            return f"{value / size:,g} {unit}"
    return f"{value:,g} {least}" if value < 10**6 else f"{value:,} {least}"


def coverage() -> str:
    tests = {test for found in mesh_proofs().values() for test in found}
    return f"{len(MESH_REQUIREMENTS)} promises. {len(tests)} tests name them."


def _sections() -> Iterator[str]:
    proved = mesh_proofs()
    for section in dict.fromkeys(row.section for row in MESH_REQUIREMENTS.values()):
        described = [
            (name, f"{row.sentence} *{row.note}*" if row.note else row.sentence, tests_named(proved.get(name, [])))
            for name, row in MESH_REQUIREMENTS.items()
            if row.section == section
        ]
        yield f"### {_TITLES[section]}\n\n" + table(("id", "what", "shown by"), described)
