"""What its user may set about agents' own tools."""

from bascule.kernel.settings import Settings


class NativeSettings(Settings, frozen=True, kw_only=True):
    # Whether the first 200 characters of what an agent was asked are kept with each of its calls, for `bascule blame`.
    # They are in the store alone, which no other user can read: in no log, ledger, event or metric.
    native_keep_prompts: bool = False
