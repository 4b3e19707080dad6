"""Brace words: `{~,x}` is one name to sh and two arguments to bash, so both are read.

bash replaces braces before anything else, so what comes out may begin with a home or an option. Ranges (`{1..9}`) stay
as they are: what they become is letters and numbers.
"""

from collections.abc import Iterator
from itertools import pairwise
from shlex import quote

from bascule.kernel.policy.shell.text import Budget, Part, Unreadable, Word

# Arguments that one line's braces may become. `{a,b}{a,b}...` doubles with each pair.
MAX_WORDS = 256
# A part of a word, or one character of what is not quoted.
_Piece = Part | str


def as_bash_reads(words: list[Word], budget: Budget) -> list[Word] | None:
    """The words that bash makes of these; None when it is the same."""
    if not any(_may_expand(word) for word in words):
        return None
    found: list[Word] = []
    for word in words:
        found.extend(expanded(word, budget))
        if len(found) > MAX_WORDS + len(words):
            raise Unreadable(f"braces that become more than {MAX_WORDS} words")
    return None if found == words else found


def expanded(word: Word, budget: Budget) -> list[Word]:
    if not _may_expand(word):
        return [word]
    pieces = [piece for part in word.parts for piece in _pieces(part)]
    return [_word(each, word) for each in _expand(pieces, budget) if each]


def _may_expand(word: Word) -> bool:
    return (
        "{" in word.source and "," in word.source and any(_is_plain(part) and "{" in part.text for part in word.parts)
    )


def _is_plain(part: Part) -> bool:
    return part.kind == "fixed" and not part.quoted


def _pieces(part: Part) -> Iterator[_Piece]:
    return iter(part.text) if _is_plain(part) else iter([part])


def _expand(pieces: list[_Piece], budget: Budget) -> list[list[_Piece]]:
    start = 0
    while True:
        try:
            start = pieces.index("{", start)
        except ValueError:
            return [pieces]
        # Each character is looked at once for every brace before it.
        budget.spend(1 + (len(pieces) - start) // 8)
        cuts = _cuts(pieces, start)
        if len(cuts) > 2:
            break
        start += 1
    found: list[list[_Piece]] = []
    rests = _expand(pieces[cuts[-1] + 1 :], budget)
    for begin, end in pairwise(cuts):
        for middle in _expand(pieces[begin + 1 : end], budget):
            for rest in rests:
                budget.spend(1 + (start + len(middle) + len(rest)) // 8)
                found.append([*pieces[:start], *middle, *rest])
                if len(found) > MAX_WORDS:
                    raise Unreadable(f"braces that become more than {MAX_WORDS} words")
    return found


def _cuts(pieces: list[_Piece], start: int) -> list[int]:
    """Where the brace at `start` begins, its commas and its end; nothing when it has no end."""
    cuts = [start]
    depth = 0
    for at in range(start + 1, len(pieces)):
        piece = pieces[at]
        if piece == "{":
            depth += 1
        elif piece == "," and depth == 0:
            cuts.append(at)
        elif piece == "}":
            if depth == 0:
                return [*cuts, at]
            depth -= 1
    return []


def _word(pieces: list[_Piece], word: Word) -> Word:
    parts: list[Part] = []
    plain: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            plain.append(piece)
            continue
        if plain:
            parts.append(Part("fixed", "".join(plain)))
            plain = []
        parts.append(piece)
    if plain:
        parts.append(Part("fixed", "".join(plain)))
    return Word(tuple(parts), "".join(map(_source, parts)), differs=word.differs)


def _source(part: Part) -> str:
    match part.kind:
        case "fixed":
            return quote(part.text) if part.quoted else part.text
        case "variable":
            return f'"${{{part.text}}}"' if part.quoted else f"${{{part.text}}}"
        case "dynamic":
            return f'"{part.text}"' if part.quoted else part.text
