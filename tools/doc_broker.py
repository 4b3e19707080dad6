"""The generated blocks of docs/bridges/broker.md: states, limits, and what the specification asks for."""

import sys
from collections.abc import Iterator

from bascule.broker import protocol as broker
from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import TRANSITIONS, TicketEvent, TicketStatus
from bascule.broker.settings import BrokerSettings
from bascule.foundation import agreement
from doc_text import HERE, code, comments_on_fields, comments_on_numbers, read, table

sys.path.insert(0, str(HERE / "tests" / "conformance"))

from broker_requirements import REQUIREMENTS, proofs

# Settings that are called otherwise than the limit they set.
OTHER_NAMES = {"reject_offline": "offline"}


def blocks() -> dict[str, str]:
    return {
        "states": states(),
        "limits": limits(),
        "wire-limits": wire_limits(),
        "coverage": coverage(),
        "requirements": requirements(),
    }


def states() -> str:
    rows = [
        (
            code(status.value),
            *(
                code(TRANSITIONS[status, event].value) if (status, event) in TRANSITIONS else ""
                for event in TicketEvent
            ),
        )
        for status in TicketStatus
    ]
    return table(("from", *(event.value for event in TicketEvent)), rows)


def limits() -> str:
    comments = comments_on_fields(read("src/bascule/broker/limits.py"), "BrokerLimits")
    rows = []
    for name in BrokerLimits.__struct_fields__:
        key = OTHER_NAMES.get(name, name)
        setting = code(key) if key in BrokerSettings.__struct_fields__ else ""
        rows.append((code(name), shown(name, getattr(BrokerLimits(), name)), comments[name], setting))
    return table(("limit", "default", "why", "setting"), rows)


def wire_limits() -> str:
    rows = []
    for module, path in (
        (broker, "src/bascule/broker/protocol.py"),
        (agreement, "src/bascule/foundation/agreement.py"),
    ):
        rows += [
            (code(name), shown(name, value), why)
            for name, why in comments_on_numbers(read(path)).items()
            # Of what both sides agree on, the limits.
            if isinstance(value := getattr(module, name), int) and (module is broker or name.startswith("MAX_"))
        ]
    return table(("limit", "value", "why"), rows)


def shown(name: str, value: int) -> str:
    """The number, and in words what nobody can read at a glance."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.lower().endswith("_ms") and value >= 60_000:
        for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
            if value % size == 0:
                return f"{value} ({value // size} {unit})"
    if name.endswith("_bytes"):
        for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
            if value % size == 0:
                return f"{value} ({value // size} {unit})"
    return str(value)


def coverage() -> str:
    counted = {
        status: sum(row.status == status for row in REQUIREMENTS.values()) for status in ("done", "differs", "later")
    }
    tests = {test for name, found in proofs().items() if name in REQUIREMENTS for test in found}
    return (
        f"{len(REQUIREMENTS)} requirements: {counted['done']} met as written, {counted['differs']} met in another way, "
        f"{counted['later']} not built yet. {len(tests)} tests name them."
    )


def requirements() -> str:
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    proved = proofs()
    sections = list(dict.fromkeys((name.startswith("DEC-"), row.section) for name, row in REQUIREMENTS.items()))
    for decided, section in sections:
        rows = [
            (name, _what(name), row.level, row.status, tests_named(proved.get(name, [])))
            for name, row in REQUIREMENTS.items()
            if row.section == section and name.startswith("DEC-") is decided
        ]
        title = f"### Decided: {section.lower()}" if decided else f"### Section {section}"
        yield f"{title}\n\n" + table(("id", "what", "level", "status", "shown by"), rows)


def _what(name: str) -> str:
    row = REQUIREMENTS[name]
    return f"{row.sentence} *{row.note}*" if row.note else row.sentence


def tests_named(names: list[str]) -> str:
    """Test names are sentences: shown as such, each a link to its file."""
    links = []
    for name in names:
        file, _, test = name.partition("::")
        links.append(f"[{test.removeprefix('test_').replace('_', ' ')}](../../tests/conformance/{file})")
    return "<br>".join(links)
