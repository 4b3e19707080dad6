"""Forms that a client puts before its user, in the ways that the revisions have for it.

Since 2026-07-28 a call's answer may be a question: the client makes the call again with what was filled in. In a task
it is found and answered with the task. Before that the server asks by a request of its own.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from bascule.foundation.deferred import Deferred, within
from bascule.kernel.tool import AskForm

METHOD = "elicitation/create"
# As long as a question to the person waits.
FORM_SECONDS = 15 * 60.0
# The one form that a call can lead to.
_KEY = "form"


class FormNeeded(Exception):
    """The call goes on when the client has filled this in."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        super().__init__("a form is to be filled in")
        self.request = request

    def result(self) -> dict[str, Any]:
        return {"resultType": "input_required", "inputRequests": {_KEY: self.request}}


def form_request(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": METHOD, "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def form_by_retry(params: Mapping[str, Any]) -> AskForm:
    """For a call of 2026-07-28 that is no task."""
    answers = params.get("inputResponses")
    filled = answers.get(_KEY) if isinstance(answers, dict) else None

    async def ask(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(filled, dict):
            return filled
        raise FormNeeded(form_request(message, schema))

    return ask


class ClientForms:
    """For 2025 revisions over the link: requests of ours to the client, and its answers."""

    def __init__(self, notify: Callable[[dict[str, Any]], None], seconds: float = FORM_SECONDS) -> None:
        self._notify = notify
        self._seconds = seconds
        self._open: dict[int | str, Deferred[Mapping[str, Any]]] = {}
        self._numbers = count(1)

    async def ask(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        number = f"form-{next(self._numbers)}"
        later = self._open[number] = Deferred()
        self._notify({"jsonrpc": "2.0", "id": number, **form_request(message, schema)})
        try:
            return await later if await within(self._seconds, later) else {"action": "cancel"}
        finally:
            del self._open[number]

    def filled(self, number: int | str, result: Mapping[str, Any]) -> None:
        """An answer; one that nobody asked for is dropped."""
        later = self._open.get(number)
        if later is not None and not later.done():
            later.set_result(result)
