"""A resource in pieces: what a reader with little room asks for."""

import json

from bascule.game.protocol import ResourceContent, ResourceParams
from gabp import messages


def piece_of(result: messages.ResourcesReadResult, params: ResourceParams, *, kept: int | None) -> ResourceContent:
    """The part that was asked for. `kept`: the whole has so many bytes, and was cut where it is kept."""
    content = result.content
    next_offset: int | None = None
    if kept is not None and isinstance(content, str):
        end = params.offset + len(content.encode())
        next_offset = end if content and end < kept else None
    elif isinstance(content, str) or params.offset:
        content, next_offset = _cut(content, params)
    elif len(text := json.dumps(content, ensure_ascii=False)) > params.limit:
        content, next_offset = _cut(text, params)
    return ResourceContent(
        game_id=params.game_id,
        uri=params.uri,
        content=content,
        mime_type=result.mime_type if isinstance(result.mime_type, str) else None,
        encoding=result.encoding if isinstance(result.encoding, str) else None,
        next_offset=next_offset,
    )


def _cut(content: object, params: ResourceParams) -> tuple[str, int | None]:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    end = params.offset + params.limit
    return text[params.offset : end], end if end < len(text) else None
