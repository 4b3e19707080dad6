"""What its user may set about the daemon's records."""

from bascule.kernel.settings import Count, Settings


class AdminSettings(Settings, frozen=True, kw_only=True):
    # How long ledger records are kept, in days.
    ledger_days: Count = 90
