"""Settings: where they come from, and a helpful word when they are wrong.

From weakest to strongest: the defaults, the file (`config.toml` or `broker.config.json` in the config
directory, or `--config`), the environment, the command line. Every key has an environment variable:
`BASCULE_` and its name, and for those the broker spec names, the spec's own. Files and environment are
read only here, and never from a workspace.

The keys are those of the daemon itself, and of every bridge in the list (`Declared.settings`).
"""

import os
import re
import ssl
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_origin

from msgspec import Meta, structs

from bascule.bridge_list import BRIDGES
from bascule.daemon.console_port import extra_origins, wanted_port
from bascule.daemon.quota import BURST_CALLS, CALLS_PER_SECOND
from bascule.foundation.agreement import DEFAULT_PORT
from bascule.kernel.consent.limits import MCP_SLICE_SECONDS, ConsentLimits
from bascule.kernel.declared import Declared
from bascule.kernel.policy.presets import DEFAULT_PRESET, NAMES
from bascule.kernel.settings import BadConfig, Config, Settings, read_file
from bascule.local_client.exits import WrongUsage
from bascule.surfaces.mcp.tools import chosen, toolsets_of
from gabp import codec

_LONGEST_HOLD_MS = round(MCP_SLICE_SECONDS * 1000)


class DaemonSettings(Settings, frozen=True, kw_only=True):
    spec_variables: ClassVar[Mapping[str, str]] = {"port": "BRIDGE_PORT"}

    # TCP port on 127.0.0.1; 0 turns TCP off (the unix sockets stay).
    port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_PORT
    # Port of the web console on localhost, 127.0.0.1 and ::1 alike; "off" for none, 0 for any that is free. Unless set,
    # it is 5051 for the daemon of your own state directory, and off for every other.
    console_port: int | str | None = None
    # More origins at which a browser may find the console, with commas: `ssh -L 6051:localhost:5051` makes it
    # http://localhost:6051.
    console_origins: str | None = None
    # How much survives: fsync (power loss), relaxed (a crash of Bascule), memory (nothing).
    durability: Literal["fsync", "relaxed", "memory"] = "fsync"
    # off: TCP needs no token, and plain curl works as in the broker spec; Host and Origin stay checked.
    auth: Literal["on", "off"] = "on"
    # The policy in force: restrictive, standard or permissive.
    policy: str = DEFAULT_PRESET
    # Calls per second of one principal; 0 for no limit.
    calls_per_second: Annotated[float, Meta(ge=0)] = CALLS_PER_SECOND
    # Calls one principal may make at once before that counts.
    burst_calls: Annotated[float, Meta(ge=1)] = BURST_CALLS
    # Serve MCP over HTTP at /mcp; its first request loads the MCP SDK, which takes half a second and 40 MB.
    # `bascule mcp` works either way.
    mcp: Literal["on", "off"] = "on"
    # Which tools /mcp shows, by set, with commas. Unless set, those that are shown by default.
    mcp_toolsets: str | None = None
    # How /mcp labels text of other agents for the model: peer, colleague or untrusted.
    mcp_trust_label: Literal["peer", "colleague", "untrusted"] = "peer"
    # How long a call is held for a person's answer at most, in milliseconds; then its caller learns that it waits, and
    # calls again. Over HTTP no call is held longer than 25 seconds. Lower it for clients that give up sooner.
    approval_hold_ms: Annotated[int, Meta(ge=1, le=_LONGEST_HOLD_MS)] = _LONGEST_HOLD_MS
    # Tell the person when something waits for them: a desktop notification, a line in tmux.
    announce: Literal["on", "off"] = "on"
    # What the terminal shows: human, json or off. The log file always holds JSON lines.
    log: Literal["human", "json", "off"] = "human"
    # The least important lines that are logged.
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # Certificate and key (PEM files) to serve TCP with TLS; both or neither.
    tls_cert: str | None = None
    tls_key: str | None = None

    def approval_limits(self) -> ConsentLimits:
        return ConsentLimits(hold_seconds=self.approval_hold_ms / 1000)

    def check(self, _ours: Sequence[str], /) -> None:
        if self.tls_cert is None or self.tls_key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise BadConfig(
                f"{self.tls_cert} and {self.tls_key} cannot be used for TLS: {error}",
                hint="tls_cert is a PEM certificate, tls_key its private key",
            ) from error


CONFIG_FILES = ("config.toml", "broker.config.json")
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def settings_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[type[Settings], ...]:
    """The Structs whose fields are the keys."""
    return (DaemonSettings, *(kind for bridge in bridges if (kind := bridge.settings()) is not None))


def environment_names(kind: type[Settings], key: str) -> tuple[str, ...]:
    own = f"BASCULE_{key.upper()}"
    return (own, kind.spec_variables[key]) if key in kind.spec_variables else (own,)


def load(
    config_dir: str,
    environment: Mapping[str, str],
    *,
    file: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    bridges: Iterable[Declared] = BRIDGES,
) -> Config:
    bridges = tuple(bridges)
    values: dict[str, Any] = {}
    path = file or _find(config_dir)
    if path is not None:
        values.update(_read(path))
    for kind in settings_of(bridges):
        for field in structs.fields(kind):
            for name in environment_names(kind, field.name):
                if name in environment:
                    values[field.name] = _from_environment(field, name, environment[name])
                    break
    values.update({key: value for key, value in (overrides or {}).items() if value is not None})
    return from_values(values, path=path, bridges=bridges)


def from_values(values: Mapping[str, Any], *, path: str | None = None, bridges: Iterable[Declared] = BRIDGES) -> Config:
    """Each value converted by the Struct that has its key; `path` is for the error."""
    bridges = tuple(bridges)
    kinds = settings_of(bridges)
    owners = _owners(kinds)
    unknown = sorted(set(values) - set(owners))
    if unknown:
        close = _closest(unknown[0], owners)
        raise BadConfig(
            f"{path or 'settings'}: unknown key {unknown[0]!r}",
            hint=f"did you mean {close!r}?" if close else "docs/reference/config.md lists the keys",
        )
    try:
        config = Config(
            tuple(
                codec.convert({key: value for key, value in values.items() if owners[key] is kind}, kind, lax=True)
                for kind in kinds
            )
        )
    except codec.BadJson as error:
        where = f"{path}: " if path else ""
        raise BadConfig(f"{where}{error.message}", hint="docs/reference/config.md lists the keys") from error
    _check(config.of(DaemonSettings), bridges)
    return config


def _check(own: DaemonSettings, bridges: Iterable[Declared]) -> None:
    if own.policy not in NAMES:
        raise BadConfig(f"policy = {own.policy!r} is none of {', '.join(NAMES)}", hint="choose one of them")
    try:
        if own.mcp_toolsets is not None:
            chosen(toolsets_of(bridges), own.mcp_toolsets)
    except WrongUsage as error:
        raise BadConfig(f"mcp_toolsets: {error.message}", hint="name some of them, with commas") from error
    if (own.tls_cert is None) != (own.tls_key is None):
        raise BadConfig("tls_cert and tls_key belong together", hint="set both, or neither")
    wanted_port(own.console_port, "")
    extra_origins(own.console_origins)


def _owners(kinds: Iterable[type[Settings]]) -> dict[str, type[Settings]]:
    owners: dict[str, type[Settings]] = {}
    variables: dict[str, type[Settings]] = {}
    for kind in kinds:
        for key in kind.__struct_fields__:
            for names, name in ((owners, key), *((variables, each) for each in environment_names(kind, key))):
                if name in names:
                    raise ValueError(f"the setting {name!r} is declared twice: {names[name].__name__}, {kind.__name__}")
                names[name] = kind
    return owners


def _find(config_dir: str) -> str | None:
    found = [path for name in CONFIG_FILES if os.path.exists(path := os.path.join(config_dir, name))]
    if len(found) > 1:
        raise BadConfig(f"both {found[0]} and {found[1]} exist", hint="keep one of them")
    return found[0] if found else None


def _read(path: str) -> dict[str, Any]:
    data = read_file(path)
    try:
        values = tomllib.loads(data.decode()) if path.endswith(".toml") else codec.decode(data, dict[str, Any])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} is not TOML: {error}", hint="docs/reference/config.md shows an example") from error
    except codec.BadJson as error:
        raise BadConfig(f"{path} is not JSON: {error.message}") from error
    # JSON people write camelCase, TOML people snake_case; both are taken.
    out: dict[str, Any] = {}
    for key, value in values.items():
        name = _CAMEL.sub(r"_\1", key).lower()
        if name in out:
            raise BadConfig(f"{path}: {name!r} is set twice, in two spellings", hint="keep one of them")
        out[name] = value
    return out


def _from_environment(field: structs.FieldInfo, name: str, text: str) -> Any:
    if field.type is bool:
        return {"true": True, "false": False}.get(text, text)
    if get_origin(field.type) is not list:
        return text
    try:
        return codec.decode(os.fsencode(text), list[dict[str, Any]])
    except codec.BadJson as error:
        raise BadConfig(f"{name}: {error.message}", hint=f"it is a JSON list of {field.name}") from error


def _closest(word: str, keys: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error message

    found = get_close_matches(word, list(keys), 1)
    return found[0] if found else None
