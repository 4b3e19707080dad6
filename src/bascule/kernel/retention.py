"""What is removed when it is past its retention, as `daemon.gc` and every sweep report it."""

from bascule.kernel.rows import Result


class GcItem(Result, frozen=True, kw_only=True):
    what: str
    count: int
    why: str
