"""Params as plain JSON values: the form that digests of calls are taken over."""

from typing import Any

import msgspec


def plain_params(params: Any) -> Any:
    """The params as JSON values with what stands at its default left out: saying a default is the same call."""
    if not isinstance(params, msgspec.Struct):
        return msgspec.to_builtins(params)
    out = {}
    for field in msgspec.structs.fields(params):
        value = getattr(params, field.name)
        if field.default is not msgspec.NODEFAULT:
            default = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            default = msgspec.NODEFAULT
        if value is msgspec.UNSET or _is_default(value, default):
            continue
        out[field.encode_name] = msgspec.to_builtins(value)
    tag = params.__struct_config__.tag
    if tag is not None:
        out[params.__struct_config__.tag_field or "type"] = tag
    return out


def _is_default(value: Any, default: Any) -> bool:
    # A number that went through the store may come back as 30000.0 where the default says 30000.
    same_kind = type(value) is type(default) or {type(value), type(default)} == {int, float}
    return same_kind and bool(value == default)
