"""The pages below docs/reference/: wholly made from rows, routes, settings, errors and parsers."""

import argparse
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from bascule.bridge_list import BRIDGES, methods_of
from bascule.daemon import config
from bascule.daemon.compose import Daemon, routes_of
from bascule.daemon.logs import DaemonLog
from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import ALL_ERRORS
from bascule.kernel.blob import Blob
from bascule.kernel.call import Grade
from bascule.kernel.route import Route
from bascule.kernel.rows import Row
from bascule.kernel.settings import Settings
from bascule.local_client.exits import BY_STATUS, EXIT_CODES
from bascule.stores.memory import MemoryStore
from bascule.surfaces.mcp.mount import Mount
from bascule.surfaces.mcp.tools import toolsets_of
from bascule.surfaces.openapi import describe
from doc_text import code, comments_on_fields, fence, kind_of, page, read, table

ROUTES = routes_of()
ROWS = methods_of()

BY_NAME: dict[str, Row] = {row.name: row for row in ROWS}
REF = "{name}"


def handlers() -> dict[str, str]:
    """Method -> `module:function`, as a daemon binds them."""

    async def composed() -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            clock = SystemClock()
            log = DaemonLog(clock, path=None, terminal=None, form="json", level="error")
            daemon = Daemon(
                config.from_values({"announce": "off"}), folder, clock, log, MemoryStore(), config_dir=folder
            )
            bound = [each for bridge in daemon.bridges.values() for each in bridge.methods]
            await daemon.close()
        return {each.row.name: f"{each.handler.__module__}:{each.handler.__qualname__}" for each in bound}

    return asyncio.run(composed())


def who(row: Row) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), str(row.who))


def proof(row: Row) -> str:
    """Of a row whose params decide, the docstring of that function names every grade."""
    if isinstance(row.proof, Grade):
        return row.proof.name.lower().replace("_", " ")
    assert row.proof.__doc__, f"{row.name}: the function of its proof says nothing about itself"
    sentence = row.proof.__doc__.rstrip(".")
    return sentence[:1].lower() + sentence[1:]


# -- methods --------------------------------------------------------------------------------------


def methods() -> str:
    rows = [
        (
            code(row.name),
            row.summary,
            code(who(row)),
            row.effect.value,
            row.shape.value,
            row.record.value,
            proof(row),
        )
        for row in ROWS
    ]
    return page(
        "Methods",
        "Everything one can ask the daemon, the same under every door: over the link by these names, over HTTP by the "
        "[routes](http.md). The words are explained in the [glossary](../glossary.md).",
        "*who*: whose call it may be. *effect*: what the policy judges. *shape*: how the answer comes. *record*: when "
        "the ledger knows. *proof*: what a session of the [console](../console.md) must have shown for it in the "
        "person's name; nobody else is asked for it.",
        table(("method", "what it does", "who", "effect", "shape", "record", "proof"), rows),
        *(f"## {row.name}\n\n{_shape_of(row)}" for row in ROWS),
    )


def _shape_of(row: Row) -> str:
    parts = [row.summary]
    params = _fields(row.params)
    if params:
        parts.append(table(("param", "type", "default"), params))
    else:
        parts.append("No params.")
    parts.append(f"Result: {_result(row)}")
    return "\n\n".join(parts)


def _fields(struct: Any) -> list[tuple[str, str, str]]:
    schema = _schema(struct)
    required = set(schema.get("required", ()))
    return [
        (code(name), kind_of(_resolved(each, struct)), "required" if name in required else _default(each))
        for name, each in schema.get("properties", {}).items()
    ]


def _schema(struct: Any) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([struct], ref_template=REF)
    found: dict[str, Any] = components[schema["$ref"]]
    return found


def _resolved(schema: dict[str, Any], struct: Any) -> dict[str, Any]:
    """Enumerations are shown where they are used."""
    _, components = msgspec.json.schema_components([struct], ref_template=REF)
    for each in (schema, *schema.get("anyOf", ())):
        if "enum" in components.get(each.get("$ref", ""), {}):
            return {"enum": components[each["$ref"]]["enum"]}
    return schema


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, {}, []) else code(json.dumps(value))


def _result(row: Row) -> str:
    if row.result is Blob:
        return "bytes over HTTP; elsewhere `{contentType, base64}`"
    if row.result in (None, type(None)):
        return "nothing"
    (schema,), components = msgspec.json.schema_components([row.result], ref_template=REF)
    choices = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    (kept,) = choices
    many = kept.get("type") == "array"
    struct = components[(kept["items"] if many else kept)["$ref"]]
    required = set(struct.get("required", ()))
    names = [name if name in required else f"{name}?" for name in struct["properties"]]
    form = code("{" + ", ".join(names) + "}")
    words = {"stream": f"items {form}"}
    if type(None) in get_args(row.result):
        words["wait"] = f"{form}, or nothing when the time is over"
    return ("a list of " if many else "") + words.get(row.shape.value, form)


# -- HTTP -----------------------------------------------------------------------------------------


def http() -> str:
    found = handlers()
    return page(
        "HTTP API",
        "On `127.0.0.1` (port 5050 unless set) with `Authorization: Bearer <token>`, and on the unix socket "
        "`http.sock` without. The same as a program reads it: the daemon serves its OpenAPI description at "
        "`GET /openapi.json`, and `make docs` writes it to `docs/reference/openapi.json`. "
        "What an error means: [errors](errors.md). How it works: [broker](../bridges/broker.md), "
        "[workspace](../bridges/workspace.md).",
        table(
            ("route", "method", "who", "effect", "shape", "record", "spec", "handler"),
            [_route_row(route, found) for route in ROUTES],
        ),
        "*spec*: the section of the agent broker specification; empty for what we add beside it. Path names in braces "
        "are params of the method, and `{path...}` is the rest of the path; the other params stand in the query of a "
        "GET and in the JSON body of every other verb.",
        *(_route(route) for route in ROUTES if route.method in BY_NAME),
        "## Pages",
        "`/healthz` answers `ok` while the process lives; `/readyz` answers 200 when calls are taken and the store "
        "can be written, else 503; `/metrics` is Prometheus' text form; `/openapi.json` is the description of this "
        "API. They need the token like every other route. At `/mcp` the daemon speaks MCP (streamable HTTP) with the "
        "agent whose agentToken is the bearer.",
    )


def _route_row(route: Route, found: dict[str, str]) -> tuple[str, ...]:
    row = BY_NAME.get(route.method)
    at = code(f"{route.verb} {route.path}")
    if row is None:
        handler: Any = Mount if route.method.startswith("mcp.") else Daemon.web_app
        return at, "", "", "", "", "", "", code(f"{handler.__module__}:{handler.__qualname__}")
    link = f"[{route.method}](methods.md#{route.method.replace('.', '').lower()})"
    columns = (code(who(row)), row.effect.value, row.shape.value, row.record.value, route.section)
    return at, link, *columns, code(found[route.method])


def _route(route: Route) -> str:
    row = BY_NAME[route.method]
    in_path = set(route.names)
    elsewhere = "query" if route.verb == "GET" else "body"
    rows = [
        (name, "path" if name.strip("`") in in_path else elsewhere, kind, default)
        for name, kind, default in _fields(row.params)
    ]
    match row.shape.value:
        case "stream":
            answer = f"200, server-sent events: {_result(row)}"
        case "wait":
            answer = f"200: {_result(row)} (204)"
        case _ if route.status == 204:
            answer = "204, no content"
        case _:
            answer = f"{route.status}: {_result(row)}"
    parts = [f"## {route.verb} {route.path}", row.summary]
    if rows:
        parts.append(table(("param", "in", "type", "default"), rows))
    return "\n\n".join([*parts, f"Answer: {answer}"])


def openapi() -> str:
    return json.dumps(describe(ROWS, ROUTES), indent=2, ensure_ascii=False) + "\n"


# -- settings -------------------------------------------------------------------------------------

EXAMPLE_TOML = """\
# ~/.config/bascule/config.toml
port = 5060
default_timeout_ms = 600_000
offline = "reject"

# Known from the start: messages to it wait until it registers.
[[agents]]
agentId = "Jerry"
type = "codex"
pane = "%0"
"""

EXAMPLE_JSON = """\
{
  "port": 5060,
  "defaultTimeoutMs": 600000,
  "offline": "reject",
  "agents": [{"agentId": "Jerry", "type": "codex", "pane": "%0"}]
}
"""


def settings() -> str:
    declared = [(bridge.name, bridge.settings()) for bridge in BRIDGES]
    sections = [("daemon", config.DaemonSettings), *((name, kind) for name, kind in declared if kind is not None)]
    return page(
        "Settings",
        "From weakest to strongest: the defaults, a file, the environment, the options of `bascule up`. The file is "
        f"{' or '.join(code(name) for name in config.CONFIG_FILES)} in `~/.config/bascule` (`BASCULE_CONFIG_DIR`), or "
        "what `--config` names. In JSON keys may also be written in camel case. A key that does not exist is an error, "
        "and the message says which was probably meant.",
        *(part for name, kind in sections for part in (f"## {name.capitalize()}", _keys(kind))),
        "## Toolsets",
        "The names that `mcp_toolsets` takes, and `--toolset` of `bascule mcp` and `bascule setup`:",
        table(
            ("set", "an agent can", "shown by default"),
            [(code(each.name), each.sentence, "yes" if each.by_default else "") for each in toolsets_of()],
        ),
        "## Other variables",
        "`BASCULE_STATE_DIR` (where the daemon keeps its things), `BRIDGE_BROKER_URL` (another "
        "broker for the helpers, on loopback; the daemon's own address means its socket), `BRIDGE_BROKER_CA` (the PEM "
        "file that vouches for that broker's certificate, with https), `BRIDGE_AGENT_ID`, "
        "`BRIDGE_AGENT_TOKEN` and `BRIDGE_TICKET` (who and about what a helper speaks). The limits behind these keys, "
        "and those that are not settings, are in "
        "[the broker's page](../bridges/broker.md#limits).",
        "## TOML",
        fence("toml", EXAMPLE_TOML),
        "## JSON",
        fence("json", EXAMPLE_JSON),
    )


def _keys(kind: type[Settings]) -> str:
    comments = comments_on_fields(Path(inspect.getfile(kind)).read_text("utf-8"), kind.__name__)
    schema = _schema(kind)["properties"]
    rows = []
    for key in kind.__struct_fields__:
        if not comments[key]:
            raise SystemExit(f"gen_docs: the setting {key} of {kind.__name__} has no comment above it")
        default = getattr(kind(), key)
        shown = "" if default in (None, []) else code(json.dumps(default))
        names = ", ".join(code(name) for name in config.environment_names(kind, key))
        form = f"list of {key}" if schema[key].get("type") == "array" else kind_of(schema[key])
        rows.append((code(key), comments[key], form, shown, names))
    return table(("key", "meaning", "type", "default", "environment"), rows)


# -- errors and exit codes ------------------------------------------------------------------------


def errors() -> str:
    rows = [
        (
            code(error.code),
            error.status,
            (error.__doc__ or "").splitlines()[0],
            BY_STATUS.get(error.status, 1),
        )
        for error in ALL_ERRORS
    ]
    return page(
        "Errors",
        "A program branches on `code`, a person or a model reads `message` and `hint`:",
        fence("json", '{"error": {"code": "not_found", "message": "unknown ticket", "hint": "check the id; ..."}}'),
        "`details` holds what a program may want to act on, such as a free handle. 429 and 503 carry `Retry-After` in "
        "seconds. Over the link the same object is the `data` of a JSON-RPC error with code -32000. The texts people "
        "meet most are in [troubleshooting](../troubleshooting.md).",
        table(("code", "HTTP", "meaning", "exit code of a helper"), rows),
    )


def exit_codes() -> str:
    return page(
        "Exit codes",
        "Of `bascule`, `bridgectl` and the `bridge-*` helpers. The sentence on stderr says what to do next. "
        "`bascule exec` and `bridge-wrap` end with the exit code of the program that they run.",
        table(("code", "meaning"), EXIT_CODES.items()),
    )


# -- commands -------------------------------------------------------------------------------------

# argparse breaks and groups lines in its own way from Python 3.13 on: the page is made and compared before that only.
LAST_PYTHON = (3, 12)
COLUMNS = "100"


def commands() -> str:
    os.environ["COLUMNS"] = COLUMNS
    parts = []
    for prog, text in _helps():
        level = "##" if " " not in prog else "###"
        parts += [f"{level} {prog}", fence("text", text)]
    return page("Commands", "What `--help` says, of every command.", *parts)


def _helps() -> Iterator[tuple[str, str]]:
    from bascule.cli import bridgectl, main

    for parser in [*_walk(main.build_parser()), *_walk(bridgectl._parser())]:  # noqa: SLF001 - its subcommands are in it
        words = parser.prog.split()
        # Served before the parser is built, so that the parser's own idea of it is a stub.
        is_stub = words in (["bascule", "mcp"], ["bascule", "badge"])
        yield parser.prog, _text(words) if is_stub else parser.format_help()
    for name in _scripts():
        if name.startswith("bridge-"):
            yield name, _text([name])


def _scripts() -> dict[str, str]:
    scripts: dict[str, str] = tomllib.loads(read("pyproject.toml"))["project"]["scripts"]
    return scripts


def _text(words: list[str]) -> str:
    """What a command prints for `--help`, run in this process as its installed script would."""
    module, _, function = _scripts()[words[0]].partition(":")
    entry = getattr(importlib.import_module(module), function)
    arguments, sys.argv = sys.argv, [*words, "--help"]
    try:
        with io.StringIO() as out, contextlib.redirect_stdout(out):
            with contextlib.suppress(SystemExit):
                entry()
            return out.getvalue()
    finally:
        sys.argv = arguments


def _walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to its subcommands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for below in action.choices.values():
                yield from _walk(below)
