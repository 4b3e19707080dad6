"""Globs over paths of a workspace, which match at any depth: `.env`, `.git/**`.

`*` and `?` stay within one name, `**` crosses names, and `x/**` is x and everything beneath it. A glob that begins
with `/` is about an absolute path (`spaces.open`) and matches from its start only.
"""

import re
import unicodedata
from functools import lru_cache
from posixpath import normpath

# Left out by some file systems when they compare names, and so by an attacker who wants `.g\u200cit` to be `.git`.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_TRAILING = re.compile(r"(?<=[^/. ])[. ]+(?=/|\Z)")


def normal(path: str, directory: str = "") -> str:
    """Without empty, `.` and `..` steps as far as text tells; links are the file system's business."""
    joined = f"{directory}/{path}" if directory and not path.startswith("/") else path
    return normpath(joined) if joined else ""


def shell_path(path: str, directory: str = "") -> str:
    """The same for a word of a shell, where `~` at the beginning is a home; a file of that name is written `./~`.

    A home is no step that `..` could take back: `~/../x` stays as it is.
    """
    if not path.startswith("~"):
        if not directory.startswith("~") or path.startswith("/"):
            return normal(path, directory)
        path = f"{directory}/{path}"
    home, _, rest = path.partition("/")
    inside = normpath(rest).lstrip("/") if rest else "."
    return home if inside in (".", "") else f"{home}/{inside}"


def path_matches(glob: str, path: str, *, exact: bool) -> bool:
    """`exact` is for rules that allow; one that restricts means what a file system may take for the same name as well.

    Some compare names without case (`.GIT`), without ignorable characters, or in another normal form: there `.ßh` is
    `.ssh`, and `.gitcon\N{LATIN SMALL LIGATURE FI}g` is `.gitconfig`. FAT and shares of Windows leave out points and
    spaces at the end of a name: `.git.` is `.git`.
    """
    if _compiled(glob, exact).fullmatch(path) is not None:
        return True
    if exact or (path.isascii() and _TRAILING.search(path) is None):
        return False
    return _compiled(_folded(glob), exact).fullmatch(_folded(path)) is not None


def matches_any(globs: tuple[str, ...], path: str) -> bool:
    """Whether one of many globs that restrict means the path: at the cost of one, for a path that none means."""
    if not globs:
        return False
    if _one_matches(globs, path):
        return True
    if path.isascii() and _TRAILING.search(path) is None:
        return False
    return _one_matches(_folded_globs(globs), _folded(path))


def _one_matches(globs: tuple[str, ...], path: str) -> bool:
    by_name, others = _by_name(globs)
    # Anchored ones and those whose first name is a pattern are looked at; the rest only where that name is a step.
    if others is not None and others.fullmatch(path) is not None:
        return True
    return any(
        _compiled(glob, exact=False).fullmatch(path) is not None
        for step in dict.fromkeys(_key(path).split("/"))
        for glob in by_name.get(step, ())
    )


def _key(text: str) -> str:
    """The same for all that `re.IGNORECASE` takes for one name: to it an I with and one without its dot are an i."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.replace("i\u0307", "i").replace("\u0131", "i")


@lru_cache(64)
def _folded_globs(globs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_folded, globs))


@lru_cache(64)
def _by_name(globs: tuple[str, ...]) -> tuple[dict[str, list[str]], re.Pattern[str] | None]:
    by_name: dict[str, list[str]] = {}
    others = []
    for glob in globs:
        first = glob.partition("/")[0]
        if not first or not first.isascii() or "*" in first or "?" in first:
            others.append(_compiled(glob, exact=False).pattern)
        else:
            by_name.setdefault(first.casefold(), []).append(glob)
    return by_name, re.compile("|".join(others), re.DOTALL | re.IGNORECASE) if others else None


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _IGNORED.sub("", text)).casefold())
    return _TRAILING.sub("", plain)


@lru_cache(1_024)
def _compiled(glob: str, exact: bool) -> re.Pattern[str]:
    anchored = glob.startswith("/")
    pieces = re.split(r"(\*\*|\*|\?)", glob.removesuffix("/**").rstrip("/"))
    steps = [{"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece) or re.escape(piece) for piece in pieces]
    beneath = "(?:/.*)?" if glob.endswith(("/**", "/")) else ""
    before = "" if anchored else "(?:.*/)?"
    return re.compile(f"{before}{''.join(steps)}{beneath}", re.DOTALL | (re.NOFLAG if exact else re.IGNORECASE))
