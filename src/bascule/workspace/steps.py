"""From the operations of a message to the steps of a run. Blocking for long messages: called on a thread then."""

from typing import Any

from bascule.workspace.protocol import OperationType
from bascule.workspace.records import Step
from bascule.workspace.validation import OPERATION_TYPES, BadOperation, parse_operation


def steps_of(items: list[Any], ids: list[str]) -> list[Step]:
    """What is wrong with one is kept for its turn: then its event says so."""
    steps = []
    for place, (item, id_) in enumerate(zip(items, ids, strict=True)):
        try:
            steps.append(Step(id=id_, operation=parse_operation(item)))
        except BadOperation as error:
            steps.append(Step(id=id_, problem=str(error.within(f"operations[{place}]"))))
    return steps


def declared_type(item: Any) -> OperationType | None:
    """The `type` of an operation, valid or not; None when it has none that we know."""
    declared = item.get("type") if isinstance(item, dict) else None
    return next((type_ for type_ in OPERATION_TYPES if type_ == declared), None)
