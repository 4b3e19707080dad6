"""One look at the whole daemon, for the history of its numbers; cheap, because it is made while nothing happens."""

import os
import time
from collections.abc import Callable

from bascule.admin.history import MetricsHistory, Sample
from bascule.daemon.metrics import Metrics
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.ports import CountMail

_STATM = "/proc/self/statm"


class Sampler:
    def __init__(
        self,
        metrics: Metrics,
        history: MetricsHistory,
        *,
        store: JournalStore,
        mail: CountMail,
        approvals_pending: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._history = history
        self._store = store
        self._mail = mail
        self._approvals_pending = approvals_pending
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def look(self, lag_seconds: float) -> None:
        """`lag_seconds`: how late the event loop was."""
        self._metrics.lag(lag_seconds)
        calls, times = self._metrics.totals()
        mail = self._mail()
        self._history.add(
            Sample(
                calls=calls,
                times=times,
                cpu_seconds=time.process_time(),
                lag_seconds=lag_seconds,
                rss_bytes=self._rss_bytes(),
                store_bytes=self._store.size_bytes(),
                approvals_pending=self._approvals_pending(),
                agents_online=mail.agents_online,
                tickets_open=mail.tickets_open,
            )
        )

    def _rss_bytes(self) -> int | None:
        """Linux only; elsewhere it is not known."""
        try:
            with open(_STATM, "rb", buffering=0) as file:
                return int(file.read(256).split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return None
