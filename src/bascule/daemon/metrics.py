"""Numbers about the daemon in Prometheus' text form. Counting is two dict look-ups; text is made on demand."""

from bisect import bisect_left
from collections.abc import Callable

# From "in memory" through "one fsync" to "something is wrong".
BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], int] = {}
        self._times: dict[str, list[float]] = {}
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._requests: dict[int, int] = {}
        # Methods whose time is that of whatever they wait for, and says nothing about the daemon.
        self.waiting: frozenset[str] = frozenset()
        self.loop_lag_s = 0.0
        self.loop_lag_max_s = 0.0

    def observe(self, method: str, outcome: str, seconds: float) -> None:
        try:
            self._calls[method, outcome] += 1
            times = self._times[method]
        except KeyError:
            times = self._first(method, outcome)
        times[bisect_left(BUCKETS, seconds)] += 1
        times[-1] += seconds

    def _first(self, method: str, outcome: str) -> list[float]:
        self._calls[method, outcome] = 1
        # One cell per bucket, one above the last, then the sum.
        return self._times.setdefault(method, [0.0] * (len(BUCKETS) + 2))

    def request(self, status: int) -> None:
        self._requests[status] = self._requests.get(status, 0) + 1

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None:
        self._gauges.append((name, help_, read))

    def lag(self, seconds: float) -> None:
        self.loop_lag_s = seconds
        self.loop_lag_max_s = max(self.loop_lag_max_s, seconds)

    def totals(self) -> tuple[int, tuple[float, ...]]:
        """All calls, and of those that do not wait how many there are per bucket, with one above the last."""
        times = [seen for method, seen in self._times.items() if method not in self.waiting]
        counts = tuple(map(sum, zip(*times, strict=True)))[:-1] if times else (0.0,) * (len(BUCKETS) + 1)
        return sum(self._calls.values()), counts

    def text(self) -> str:
        lines = [
            "# HELP bascule_calls_total Calls by method and outcome.",
            "# TYPE bascule_calls_total counter",
        ]
        for (method, outcome), count in sorted(self._calls.items()):
            lines.append(f'bascule_calls_total{{method="{method}",outcome="{outcome}"}} {count}')
        lines += [
            "# HELP bascule_call_seconds From the decoded request to the answer, waiting included.",
            "# TYPE bascule_call_seconds histogram",
        ]
        for method, times in sorted(self._times.items()):
            total = 0.0
            for bound, seen in zip((*BUCKETS, "+Inf"), times, strict=False):
                total += seen
                lines.append(f'bascule_call_seconds_bucket{{method="{method}",le="{bound}"}} {total:.0f}')
            lines.append(f'bascule_call_seconds_sum{{method="{method}"}} {times[-1]:.6f}')
            lines.append(f'bascule_call_seconds_count{{method="{method}"}} {total:.0f}')
        lines += [
            "# HELP bascule_http_responses_total HTTP answers by status.",
            "# TYPE bascule_http_responses_total counter",
        ]
        for status, count in sorted(self._requests.items()):
            lines.append(f'bascule_http_responses_total{{status="{status}"}} {count}')
        gauges = [
            *self._gauges,
            (
                "bascule_loop_lag_seconds",
                "How late the event loop was at the last look.",
                lambda: self.loop_lag_s,
            ),
            (
                "bascule_loop_lag_max_seconds",
                "The latest it was since the start.",
                lambda: self.loop_lag_max_s,
            ),
        ]
        for name, help_, read in gauges:
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge", f"{name} {_number(read())}"]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Whole numbers in full: a counter of a hundred million must not be rounded to six digits."""
    return str(int(value)) if value == int(value) else repr(value)
