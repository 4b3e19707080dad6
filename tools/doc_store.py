"""The generated block of docs/data-model.md: which tables there are, whose, and of what."""

from typing import Any, get_args

from bascule.bridge_list import BRIDGES
from bascule.kernel.effects import BegunRow
from bascule.kernel.ledger import Segment
from doc_text import code, table

# Of the kernel itself; the table `ledger` beside them is no table of Structs.
KERNEL = {"begun": BegunRow, "segments": Segment}


def blocks() -> dict[str, str]:
    owned = [(bridge.name, name, row) for bridge in BRIDGES for name, row in bridge.tables().items()]
    owned += [("kernel", name, row) for name, row in KERNEL.items()]
    return {"tables": table(("table", "owner", "rows are", "in"), [_line(*each) for each in owned])}


def _line(owner: str, name: str, row: Any) -> tuple[str, ...]:
    # A table whose rows differ in kind has a union of tagged Structs.
    kinds = get_args(row) or (row,)
    files = dict.fromkeys(f"src/{kind.__module__.replace('.', '/')}.py" for kind in kinds)
    return code(name), owner, ", ".join(code(kind.__name__) for kind in kinds), ", ".join(map(code, files))
