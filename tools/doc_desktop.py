"""The generated blocks of docs/bridges/desktop.md: methods, limits, and what the contract asks for."""

import sys
from collections.abc import Iterator

import msgspec

from bascule.desktop import protocol as desktop
from bascule.desktop.host_methods import METHODS
from bascule.programs.desktop_host.linux.sessions import KINDS
from doc_text import HERE, code, comments_on_numbers, read, table

sys.path.insert(0, str(HERE / "tests" / "conformance"))

from desktop_requirements import REQUIREMENTS, TESTS, proofs


def blocks() -> dict[str, str]:
    return {
        "methods": methods(),
        "limits": limits(),
        "sessions": sessions(),
        "coverage": coverage(),
        "requirements": requirements(),
    }


def methods() -> str:
    rows = [
        (
            code(row.name),
            row.kind.value,
            "yes" if row.confirmed else "",
            "contract" if row.contract else "addition",
            ", ".join(
                code(name) for name in row.wire_type().__struct_encode_fields__ if name not in ("meta", "confirm")
            ),
        )
        for row in METHODS.values()
    ]
    return table(("method", "kind", "confirm", "from", "parameters beside meta"), rows)


def sessions() -> str:
    """What each kind of session can do where everything answers, as `health.capabilities` says it."""
    kinds = [msgspec.to_builtins(kind.capabilities) for kind in KINDS]
    rows = [(code(name), *(_shown(kind[name]) for kind in kinds)) for name in kinds[0] if name != "session"]
    return table(("capability", *(kind["session"] for kind in kinds)), rows)


def _shown(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def limits() -> str:
    comments = comments_on_numbers(read("src/bascule/desktop/protocol.py"))
    rows = [
        (code(name), str(value), comments[name])
        for name in comments
        if isinstance(value := getattr(desktop, name), int)
    ]
    return table(("limit", "value", "why"), rows)


def coverage() -> str:
    counted = {
        status: sum(row.status == status for row in REQUIREMENTS.values()) for status in ("done", "differs", "later")
    }
    tests = {test for found in proofs().values() for test in found}
    return (
        f"{len(REQUIREMENTS)} requirements: {counted['done']} met as written, {counted['differs']} met in another way, "
        f"{counted['later']} not built yet. {len(tests)} tests name them."
    )


def requirements() -> str:
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    proved = proofs()
    for section in dict.fromkeys(row.section for row in REQUIREMENTS.values()):
        rows = [
            (
                name,
                f"{row.sentence} *{row.note}*" if row.note else row.sentence,
                row.status,
                _tests(proved.get(name, [])),
            )
            for name, row in REQUIREMENTS.items()
            if row.section == section
        ]
        yield f"### Section {section}\n\n" + table(("id", "what", "status", "shown by"), rows)


def _tests(names: list[str]) -> str:
    links = []
    for name in names:
        file, _, test = name.partition("::")
        folder = next(folder for folder in TESTS if (folder / file).is_file())
        links.append(f"[{test.removeprefix('test_').replace('_', ' ')}](../../tests/{folder.name}/{file})")
    return "<br>".join(links)
