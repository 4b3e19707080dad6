"""A question to the person opens the console in front of them, where the client of the call that asks can do that.

MCP calls it elicitation by URL. It shows a page and answers nothing: whatever the client says to it is dropped. A form
is never sent: hooks and wrappers fill forms in.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bascule.kernel.call import Principal
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.states import ApprovalState

METHOD = "elicitation/create"
# Ours alone: clients put it before the user, and no agent may choose words there.
MESSAGE = "An agent waits for your answer. The console of Bascule shows what it asks for."


class Page(NamedTuple):
    approval_id: str
    url: str

    def params(self) -> Mapping[str, Any]:
        return {"mode": "url", "message": MESSAGE, "url": self.url, "elicitationId": self.approval_id}


Show = Callable[[Page], None]


class Pages:
    def __init__(self, desk: Desk, console: Callable[[], str | None]) -> None:
        """`console`: its address, if there is one."""
        self._console = console
        # Tool calls under way whose client opens pages, the newest last.
        self._open: dict[Principal, dict[object, Show]] = {}
        desk.on_news.append(self._on_news)

    @contextlib.contextmanager
    def shown_with(self, principal: Principal, show: Show | None) -> Iterator[None]:
        """While it lasts, `show` is called with what this principal asks the person."""
        if show is None:
            yield
            return
        key = object()
        mine = self._open.setdefault(principal, {})
        mine[key] = show
        try:
            yield
        finally:
            del mine[key]
            if not mine:
                del self._open[principal]

    def _on_news(self, approval: Approval) -> None:
        if approval.state is not ApprovalState.PENDING:
            return
        calls, console = self._open.get(approval.question.principal), self._console()
        if calls and console is not None:
            # One of them is enough: it is the same person.
            show = next(reversed(calls.values()))
            show(Page(approval.approval_id, f"{console}/#/approvals/{approval.approval_id}"))
