"""STOP EVERYTHING as methods."""

from typing import Annotated

from msgspec import Meta

from bascule.kernel.rows import LOCAL_USER, PERSON_ONLY, Changes, Effect, Http, Nothing, Params, Result, rows_of

# A note to oneself, shown in one line.
MAX_STOP_REASON_CHARS = 200


class StopParams(Params, frozen=True, kw_only=True):
    # For the user of this machine; agents are not sent it.
    reason: Annotated[str, Meta(max_length=MAX_STOP_REASON_CHARS)] | None = None


class StoppedBridge(Result, frozen=True, kw_only=True):
    bridge: str
    # What was ended there.
    text: str


class StopResult(Result, frozen=True, kw_only=True):
    stopped: bool
    at: str | None = None
    by: str | None = None
    results: list[StoppedBridge] = []


# Any user of the machine may stop, at once and without a passphrase; it only ever ends things.
ADMIN_STOP = Changes[StopParams, StopResult](
    "admin.stop",
    "Stop everything: end what is under way, and let nothing begin until a person resumes.",
    Http("POST", "/v1/stop"),
    effect=Effect.PROCESS_CONTROL,
    who=LOCAL_USER,
    urgent=True,
)
ADMIN_RESUME = Changes[Nothing, StopResult](
    "admin.resume",
    "Let things begin again after everything was stopped; only the person may.",
    Http("POST", "/v1/resume"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)

METHODS = rows_of(globals())
