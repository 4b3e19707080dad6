"""A second opinion: does another parser, which reads as bash does, see commands where ours sees none?

Ours reads as `sh` does and is strict; tree-sitter-bash is widely used and forgiving. A bug in either that hides a
command from the person who is asked shows as a difference here, and a text they differ on is opaque.
"""

from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Parser, Query, QueryCursor

from bascule.kernel.policy.shell.text import CHARS_PER_SECOND_STEP, Parsed


@cache
def _bash() -> tuple[Language, Query]:
    language = Language(tree_sitter_bash.language())
    return language, Query(language, "(command_name) @name")


def disagreement(text: str, parsed: Parsed) -> str | None:
    """The first program that only the other parser sees; None when there is none, or it has no opinion.

    `OverBudget` when it would take too long to ask it.
    """
    # It takes long quoted texts as one piece, as ours does.
    parsed.budget.spend(max(0, len(text) - parsed.bulk) // CHARS_PER_SECOND_STEP)
    language, query = _bash()
    # A parser of one's own each time: they hold state, and a command may be read on any thread.
    encoded = text.encode("utf-8", "surrogatepass")
    root = Parser(language).parse(encoded).root_node
    if root.has_error:
        return None
    ours = {command.words[0].start for command in parsed.commands if command.words}
    for node in QueryCursor(query).captures(root).get("name", ()):
        start = node.start_byte
        at = start if len(encoded) == len(text) else len(encoded[:start].decode("utf-8", "surrogatepass"))
        if at not in ours and not any(begin <= at < end for begin, end in parsed.unplaced):
            name = encoded[start : node.end_byte].decode("utf-8", "replace")
            return f"{name}, a command to one parser and not to another"
    return None
