"""What somebody looks for in the ledger, as one line: `who:Jerry method:desktop.* outcome:denied since:2h ann`.

A word with a name looks at that field, as a glob, case-sensitive because handles are. A bare word is looked for in
subject, method and principal, anywhere. All words must match; one in double quotes may hold blanks.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import translate
from typing import NamedTuple

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.call import Principal, agent_of
from bascule.kernel.ledger import Record

FIELDS = ("who", "method", "outcome", "rule", "subject", "since", "until")
# More conditions than a person keeps in mind; each costs a comparison per record.
MAX_WORDS = 20

_WORD = re.compile(r'(?:([A-Za-z]+):)?(?:"([^"]*)"|(\S+))')
_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
# `agent:Jerry` is a principal as the ledger writes it, and no field of ours.
_PRINCIPAL = "agent"

Matches = Callable[[Record], bool]
# Of one field.
Glob = Callable[[str], object]


class Query(NamedTuple):
    conditions: tuple[Matches, ...]

    def matches(self, record: Record) -> bool:
        return all(condition(record) for condition in self.conditions)


def parse_query(text: str, now_ms: int) -> Query:
    """`now_ms` is what `since:2h` counts from."""
    found = list(_WORD.finditer(text))
    if len(found) > MAX_WORDS:
        raise InvalidRequest(
            f"the query has {len(found)} words; at most {MAX_WORDS} are looked for",
            hint="leave some out; words in double quotes count as one",
        )
    return Query(tuple(_condition(word, now_ms) for word in found))


def _condition(word: re.Match[str], now_ms: int) -> Matches:
    field, quoted, plain = word.groups()
    value = quoted if quoted is not None else plain
    if field is None or (field == _PRINCIPAL and quoted is None):
        return _anywhere(word[0].strip('"') if field is None else word[0])
    match field:
        case "who":
            who = _glob(value)
            return lambda record: _is_who(record.principal, who)
        case "method":
            method = _glob(value)
            return lambda record: bool(method(record.method))
        case "outcome":
            outcome = _glob(value)
            # `denied` finds `policy_denied`: people do not know codes by heart.
            return lambda record: bool(outcome(record.outcome)) or value in record.outcome.split("_")
        case "rule":
            rule = _glob(value)
            return lambda record: bool(rule(record.rule or ""))
        case "subject":
            subject = _glob(value)
            return lambda record: bool(subject(record.subject or ""))
        case "since":
            since = _moment(value, now_ms)
            return lambda record: record.at >= since
        case "until":
            until = _moment(value, now_ms)
            return lambda record: record.at < until
        case _:
            raise InvalidRequest(
                f"there is no field `{field}:` to look in",
                hint=f"fields are {', '.join(f'{each}:' for each in FIELDS)}; put a word with a colon in double quotes",
            )


def _anywhere(word: str) -> Matches:
    wanted = word.casefold()
    return lambda record: any(
        wanted in text.casefold() for text in (record.subject, record.method, record.principal) if text
    )


def _glob(text: str) -> Glob:
    """Compiled once for a query, and kept by nobody but `re`, which remembers some hundred: `fnmatch` keeps 32,768
    patterns for good, and whoever searches chooses them."""
    return re.compile(translate(text)).match


def _is_who(principal: str, glob: Glob) -> bool:
    """By handle or as the ledger writes it: Jerry, agent:Jerry, local, person."""
    return bool(glob(principal) or glob(agent_of(Principal(principal)) or ""))


def _moment(text: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
        # What names no zone is UTC, as everywhere in the ledger.
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{text!r} is not a time", hint="write 2026-11-17, 2026-11-17T08:30, or how long ago: 30m, 2h, 7d"
        ) from error
