"""What the SDK has to say, into the daemon's log: its own words only.

The SDK logs with the standard library, whose last resort is stderr with a traceback, and some of its arguments and
exceptions hold what clients sent. The daemon's log never holds payloads or session ids, so a line keeps the
sentence as it stands in the SDK's source, the kind of exception, and the place it came from.
"""

import logging
from typing import TYPE_CHECKING

from bascule.kernel.journal_ports import Log

if TYPE_CHECKING:
    from types import TracebackType

# Whose loggers speak for the SDK: itself, its types, and the SSE library under it.
NAMES = ("mcp", "mcp_types", "sse_starlette")


class _ToDaemonLog(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind, _, trace = record.exc_info or (None, None, None)
        # Sentences built with their values in them are recognised by having no place for any.
        text = record.msg if record.args else f"line {record.lineno}"
        self._log(
            "mcp_sdk",
            level="error" if record.levelno >= logging.ERROR else "warning",
            module=record.name,
            said=str(text),
            error=kind.__name__ if kind is not None else None,
            at=_place(trace),
        )


def _place(trace: "TracebackType | None") -> str | None:
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


def listen(log: Log) -> None:
    for name in NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [_ToDaemonLog(log)]
        logger.setLevel(logging.WARNING)
        logger.propagate = False
