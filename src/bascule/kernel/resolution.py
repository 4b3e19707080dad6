"""What a call means at this moment: which window, which tool, which file. Its bridge finds out; the gate judges it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from bascule.foundation.errors import BasculeError
from bascule.kernel.call import Call
from bascule.kernel.consent.blocks import Preview
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.policy.rules import Rule


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged, shown to a person, and then acted on."""

    # What rules and timed rules see besides the params: {**params, "about": ...}.
    facts: Mapping[str, Any] | None = None
    # The same params by the path they really lead to: judged as well, and the stricter verdict counts.
    leads_to: msgspec.Struct | None = None
    # Added to the reason when the verdict on `leads_to` is the stricter one.
    led: str = ""
    # The bridge's own verdict; it counts where it is at least as strict as the policy's.
    verdict: Verdict | None = None
    # What an approval is for besides the params: digests of scripts, of the tree that is taken over, an element.
    bound: Mapping[str, Any] = {}
    # For the handler: it acts on exactly this (`RecordedEffect.resolution`).
    resolved: Any = None
    # It cannot be taken back: of a method that is recorded behind, this call is recorded ahead.
    record_first: bool = False
    # What the ledger names as its subject where the params do not say.
    subject: str | None = None
    # For the person; the view makes every character visible.
    summary: str | None = None
    preview: Preview = ""
    offers: tuple[Rule, ...] = ()
    # A PNG for the person, kept as a file for as long as the question is open.
    picture: bytes | None = None
    # Called when a person would be asked: the same with `bound`, `summary` and `preview`, where these cost time.
    describe: Callable[[Verdict], Awaitable["Resolution"]] | None = None
    # Called when nobody has been asked this yet: looks once more, and takes a picture of what it sees.
    illustrate: Callable[[], Awaitable["Resolution"]] | None = None
    # Called when a person has approved, in place of resolving again: the handler itself compares with the world when it
    # acts, and refuses what has changed.
    renew: Callable[[], Awaitable["Resolution"]] | None = None
    # Puts a refusal into the form of the bridge's own protocol.
    adapt: Callable[[BasculeError], None] | None = None

    def adapted(self, refusal: BasculeError) -> BasculeError:
        if self.adapt is not None:
            self.adapt(refusal)
        return refusal


class Resolve(Protocol):
    def __call__(self, call: Call, params: Any, /) -> Resolution | Awaitable[Resolution]:
        """For every call of its method that the policy does not deny, and again (or `renew`) after a person's yes."""


# Of a method without `resolve`: its params say everything.
PLAIN = Resolution()
