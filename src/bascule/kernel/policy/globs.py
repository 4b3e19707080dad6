"""Whether a glob means a text, as `fnmatch` has it.

`fnmatch` itself keeps the last 32,768 patterns that it was shown. Policies come from callers too (`policy.replay`), so
here few are kept, and `rules` lets none be long.
"""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

# The globs of a long policy, and of the one that it is compared with; at most 32 KiB each.
_REMEMBERED = 2_048


def glob_matches(text: str, glob: str) -> bool:
    """All of the text, upper and lower case apart."""
    return _matcher(glob)(text) is not None


@lru_cache(_REMEMBERED)
def _matcher(glob: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(translate(glob)).match
