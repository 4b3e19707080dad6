"""How much of a mod's words reaches an agent or a person: each text has a limit, and what was cut says so.

A mod writes descriptions, summaries and errors, and a model reads all of it. What is cut here is seen by nobody; a
tool's hash is over the whole of what the mod sent.
"""

from typing import Any, Final

from msgspec import UNSET, structs

from gabp import messages
from gabp.codec import encode

# A page of text: the longest description of RimBridgeServer's 123 tools has a third of it.
MAX_DESCRIPTION_CHARS = 4_000
# Names, titles, versions, field names: one line.
MAX_TITLE_CHARS = 200
MAX_TAGS = 32
# Of a tool's input or output schema. A tool with a larger one cannot be shown, so it is left out.
MAX_SCHEMA_BYTES = 64 * 1024
# What a mod says went wrong.
MAX_ERROR_CHARS = 4_000
# And its details, which go to the caller word for word.
MAX_ERROR_DATA_BYTES = 64 * 1024
# What a game wants looked at.
MAX_SUMMARY_CHARS = 2_000
MAX_SAMPLES = 20
# As long as one may be when it is acknowledged; nobody's is longer.
MAX_ATTENTION_ID_CHARS = 256
# Of a game's list; those beyond are found with `pattern` or `namespace`.
MAX_RESOURCES = 1_000
# Names in a welcome: methods, channels, extensions.
MAX_NAMES = 500

# What the mod SDK tags such tools with; GABS's users do by hand.
DESTRUCTIVE: Final = "destructive"
_CUT: Final = "… ({} characters, cut)"


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _CUT.format(len(text))


def bounded_tool(tool: messages.Tool) -> messages.Tool:
    """As it is shown; the schemas are the caller's to judge."""
    tags = tool.tags
    return structs.replace(
        tool,
        title=None if tool.title is None else cut(tool.title, MAX_TITLE_CHARS),
        description=None if tool.description is None else cut(tool.description, MAX_DESCRIPTION_CHARS),
        tags=_tags(tags) if isinstance(tags, list) else tags,
        version=cut(tool.version, MAX_TITLE_CHARS) if isinstance(tool.version, str) else tool.version,
    )


def _tags(tags: list[str]) -> list[str]:
    # The one that makes a tool ask must not be lost among others.
    first = sorted(tags, key=lambda tag: tag != DESTRUCTIVE)
    return [cut(tag, MAX_TITLE_CHARS) for tag in (first[:MAX_TAGS] if len(tags) > MAX_TAGS else tags)]


def bounded_attention(item: messages.Attention) -> messages.Attention:
    sample = item.sample
    return structs.replace(
        item,
        attention_id=item.attention_id[:MAX_ATTENTION_ID_CHARS],
        summary=cut(item.summary, MAX_SUMMARY_CHARS),
        causal_operation_id=_line(item.causal_operation_id),
        causal_method=_line(item.causal_method),
        sample=[structs.replace(each, message=cut(each.message, MAX_SUMMARY_CHARS)) for each in sample[:MAX_SAMPLES]]
        if isinstance(sample, list)
        else sample,
    )


def bounded_resources(found: list[messages.Resource]) -> list[messages.Resource]:
    return [
        structs.replace(
            each,
            name=cut(each.name, MAX_TITLE_CHARS),
            description=cut(each.description, MAX_DESCRIPTION_CHARS)
            if isinstance(each.description, str)
            else each.description,
            mime_type=_line(each.mime_type),
        )
        for each in found[:MAX_RESOURCES]
    ]


def bounded_names(names: object) -> list[str]:
    return [cut(each, MAX_TITLE_CHARS) for each in names[:MAX_NAMES]] if isinstance(names, list) else []


def bounded_data(data: Any) -> Any:
    """An error's details, or how large they were."""
    if data is UNSET or data is None:
        return data
    size = len(encode(data))
    return data if size <= MAX_ERROR_DATA_BYTES else {"dropped": f"{size} bytes, over {MAX_ERROR_DATA_BYTES}"}


def _line(text: Any) -> Any:
    return cut(text, MAX_TITLE_CHARS) if isinstance(text, str) else text
