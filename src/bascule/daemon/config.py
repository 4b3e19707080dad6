"""Settings: what they are, where they come from, and a helpful word when they are wrong.

From weakest to strongest: the defaults, the file (`config.toml` or `broker.config.json` in the config
directory, or `--config`), the environment, the command line. Every key has an environment variable:
`BASCULE_` and its name, and for those the broker spec names, the spec's own. Files and environment are
read only here, and never from a workspace.
"""

import os
import re
import tomllib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bascule.broker.limits import Limits
from bascule.broker.protocol import AgentIdText
from bascule.daemon.quota import BURST_CALLS, CALLS_PER_SECOND
from bascule.foundation import paths
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.ids import is_house_handle
from bascule.kernel.consent.limits import MCP_SLICE_SECONDS
from bascule.kernel.consent.limits import Limits as ApprovalLimits
from bascule.kernel.policy.presets import NAMES
from bascule.local_client.exits import WrongUsage
from bascule.programs.mcp_stdio.tools import DEFAULT_TOOLSETS, toolsets_in
from bascule.workspace.limits import WorkspaceLimits
from gabp import codec

DEFAULT_PORT = 5050
# A settings file is a page, not a database.
MAX_CONFIG_BYTES = 256 * 1024

_defaults = Limits()
_work = WorkspaceLimits()
_Ms = Annotated[int, Meta(ge=1)]
_Count = Annotated[int, Meta(ge=1)]
_LONGEST_HOLD_MS = round(MCP_SLICE_SECONDS * 1000)


class BadConfig(InvalidRequest):
    """A setting is wrong; the message names file, key and remedy."""


class DeclaredAgent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An agent known before it registers: messages to it are queued."""

    agent_id: AgentIdText
    type: str = "agent"
    metadata: dict[str, Any] = {}
    # A tmux pane hint, as `metadata.paneId`.
    pane: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting; the comment above a key is its documentation."""

    # TCP port on 127.0.0.1; 0 turns TCP off (the unix sockets stay).
    port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_PORT
    # How much survives: fsync (power loss), relaxed (a crash of Bascule), memory (nothing).
    durability: Literal["fsync", "relaxed", "memory"] = "fsync"
    # off: TCP needs no token, and plain curl works as in the broker spec; Host and Origin stay checked.
    auth: Literal["on", "off"] = "on"
    # The policy in force: restrictive, standard or permissive.
    policy: str = "standard"
    # What a message to a known but offline agent gets: queued, or the spec's 404.
    offline: Literal["queue", "reject"] = "queue"
    # How long a sender waits for a reply unless it says otherwise, in milliseconds.
    default_timeout_ms: _Ms = _defaults.default_timeout_ms
    # How long a settled ticket is kept, in milliseconds.
    ticket_ttl_ms: _Ms = _defaults.ticket_ttl_ms
    # How long a receiver has to acknowledge before a message is offered again, in milliseconds.
    lease_ms: _Ms = _defaults.lease_ms
    # The largest payload of a message or reply, in bytes.
    max_payload_bytes: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024)] = _defaults.max_payload_bytes
    # Messages waiting in one inbox.
    max_inbox_messages: _Count = _defaults.max_inbox_messages
    # Bytes waiting in one inbox.
    max_inbox_bytes: _Count = _defaults.max_inbox_bytes
    # Of these from one sender.
    max_inbox_messages_per_sender: _Count = _defaults.max_inbox_messages_per_sender
    # Bytes of these from one sender.
    max_inbox_bytes_per_sender: _Count = _defaults.max_inbox_bytes_per_sender
    # Unsettled tickets of one sender.
    max_open_tickets: _Count = _defaults.max_open_tickets
    # Messages and replies of one principal that are kept, settled tickets included.
    max_kept_messages: _Count = _defaults.max_kept_messages
    # Bytes of them.
    max_kept_bytes: _Count = _defaults.max_kept_bytes
    # Long polls one principal may hold open.
    max_waits: _Count = _defaults.max_waits
    # Registered agents, online or not.
    max_agents: _Count = _defaults.max_agents
    # Calls per second of one principal; 0 for no limit.
    calls_per_second: Annotated[float, Meta(ge=0)] = CALLS_PER_SECOND
    # Calls one principal may make at once before that counts.
    burst_calls: Annotated[float, Meta(ge=1)] = BURST_CALLS
    # How long ledger records are kept, in days.
    ledger_days: _Count = 90
    # Where commands of agents run: bubblewrap, or none, which every shell event then says. With none a command can do
    # whatever you can.
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    # Whether commands in the sandbox reach the network.
    workspace_network: Literal["off", "on"] = "off"
    # More directories that commands may read, with commas: toolchains outside /usr, as in ~/.pyenv,~/.cargo.
    workspace_readable: str = ""
    # Directories that are spaces.
    max_spaces: _Count = _work.max_spaces
    # Runs of one principal under way.
    max_runs: _Count = _work.max_runs
    # How long a run may work, in milliseconds, not counting what it waits for turns and answers.
    max_run_ms: _Ms = _work.max_run_ms
    # Runs of one space whose answers and changes are kept.
    max_kept_runs: _Count = _work.max_kept_runs
    # Commands in the background of one space.
    max_processes: _Count = _work.max_processes
    # Where evidence of what was done on the desktop may lie: a call's workspacePath must be beneath it. Unless set,
    # your home directory.
    desktop_root: str | None = None
    # More apps that nobody looks at or acts in, whatever anybody approves, as globs over app ids, with commas. Password
    # managers, keyrings and screen lockers are kept out already.
    desktop_keep_out: str = ""
    # Serve MCP over HTTP at /mcp; off saves half a second at start and 40 MB. `bascule mcp` works either way.
    mcp: Literal["on", "off"] = "on"
    # Which tools /mcp shows, by set, with commas: agents, workspace, desktop, games.
    mcp_toolsets: str = ",".join(DEFAULT_TOOLSETS)
    # How /mcp labels text of other agents for the model: peer, colleague or untrusted.
    mcp_trust_label: Literal["peer", "colleague", "untrusted"] = "peer"
    # How long a call is held for a person's answer at most, in milliseconds; then its caller hears that it waits, and
    # calls again. Over HTTP no call is held longer than 25 seconds. Lower it for clients that give up sooner.
    approval_hold_ms: Annotated[int, Meta(ge=1, le=_LONGEST_HOLD_MS)] = _LONGEST_HOLD_MS
    # Tell the person when something waits for them: a desktop notification, a line in tmux.
    announce: Literal["on", "off"] = "on"
    # What the terminal shows: human, json or off. The log file always holds JSON lines.
    log: Literal["human", "json", "off"] = "human"
    # The least important lines that are logged.
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    # A JSON file with a list of agents to know from the start (the broker spec's registry file).
    agent_registry: str | None = None
    # Agents to know from the start: agentId, type, metadata, pane.
    agents: list[DeclaredAgent] = []
    # Certificate and key (PEM files) to serve TCP with TLS; both or neither.
    tls_cert: str | None = None
    tls_key: str | None = None

    def limits(self) -> Limits:
        return Limits(
            default_timeout_ms=self.default_timeout_ms,
            ticket_ttl_ms=self.ticket_ttl_ms,
            lease_ms=self.lease_ms,
            max_payload_bytes=self.max_payload_bytes,
            max_inbox_messages=self.max_inbox_messages,
            max_inbox_bytes=self.max_inbox_bytes,
            max_inbox_messages_per_sender=self.max_inbox_messages_per_sender,
            max_inbox_bytes_per_sender=self.max_inbox_bytes_per_sender,
            max_open_tickets=self.max_open_tickets,
            max_kept_messages=self.max_kept_messages,
            max_kept_bytes=self.max_kept_bytes,
            max_waits=self.max_waits,
            max_agents=self.max_agents,
            reject_offline=self.offline == "reject",
        )

    def approval_limits(self) -> ApprovalLimits:
        return ApprovalLimits(hold_seconds=self.approval_hold_ms / 1000)

    def readable_directories(self) -> tuple[str, ...]:
        named = (each.strip() for each in self.workspace_readable.split(","))
        return tuple(os.path.abspath(paths.expand(each)) for each in named if each)

    def desktop_directory(self) -> str:
        return os.path.abspath(paths.expand(self.desktop_root)) if self.desktop_root else paths.home()

    def kept_out(self) -> tuple[str, ...]:
        # In lower case, as the ids are when they are compared.
        return tuple(each.strip().lower() for each in self.desktop_keep_out.split(",") if each.strip())

    def workspace_limits(self) -> WorkspaceLimits:
        return WorkspaceLimits(
            max_spaces=self.max_spaces,
            max_runs=self.max_runs,
            max_run_ms=self.max_run_ms,
            max_kept_runs=self.max_kept_runs,
            max_processes=self.max_processes,
        )


# Names of the broker spec (10) and what people expect beside them; `BASCULE_<KEY>` works for every key.
SPEC_VARIABLES = {
    "default_timeout_ms": "BRIDGE_DEFAULT_TIMEOUT_MS",
    "agent_registry": "BRIDGE_AGENT_REGISTRY",
    "port": "BRIDGE_PORT",
}
CONFIG_FILES = ("config.toml", "broker.config.json")
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def environment_names(key: str) -> tuple[str, ...]:
    own = f"BASCULE_{key.upper()}"
    return (own, SPEC_VARIABLES[key]) if key in SPEC_VARIABLES else (own,)


def load(
    config_dir: str,
    environment: dict[str, str],
    *,
    file: str | None = None,
    overrides: dict[str, Any] | None = None,
) -> Config:
    values: dict[str, Any] = {}
    path = file or _find(config_dir)
    if path is not None:
        values.update(_read_file(path))
    for key in Config.__struct_fields__:
        for name in environment_names(key):
            if name in environment:
                values[key] = _from_environment(key, name, environment[name])
                break
    values.update({key: value for key, value in (overrides or {}).items() if value is not None})
    config = _convert(values, path)
    if config.policy not in NAMES:
        raise BadConfig(f"policy = {config.policy!r} is none of {', '.join(NAMES)}", hint="choose one of them")
    try:
        toolsets_in(config.mcp_toolsets)
    except WrongUsage as error:
        raise BadConfig(f"mcp_toolsets: {error.message}", hint="name some of them, with commas") from error
    if (config.tls_cert is None) != (config.tls_key is None):
        raise BadConfig("tls_cert and tls_key belong together", hint="set both, or neither")
    return config


def declared_agents(config: Config) -> list[DeclaredAgent]:
    """Agents of the settings and of the registry file."""
    agents = list(config.agents)
    if config.agent_registry is not None:
        path = paths.expand(config.agent_registry)
        try:
            agents.extend(codec.decode(_read_bytes(path), list[DeclaredAgent]))
        except codec.BadJson as error:
            raise BadConfig(
                f"{path}: {error.message}", hint="the registry is a JSON list of {agentId, type, metadata}"
            ) from error
    for agent in agents:
        if is_house_handle(agent.agent_id):
            raise BadConfig(
                f"agent {agent.agent_id!r} cannot be declared: handles like this are those of spaces",
                hint="choose a handle that does not begin with spc_",
            )
    return agents


def _find(config_dir: str) -> str | None:
    found = [path for name in CONFIG_FILES if os.path.exists(path := os.path.join(config_dir, name))]
    if len(found) > 1:
        raise BadConfig(f"both {found[0]} and {found[1]} exist", hint="keep one of them")
    return found[0] if found else None


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}", hint="check the path and its mode") from error
    if len(data) > MAX_CONFIG_BYTES:
        raise BadConfig(f"{path} is larger than {MAX_CONFIG_BYTES} bytes", hint="this is not a settings file")
    return data


def _read_file(path: str) -> dict[str, Any]:
    data = _read_bytes(path)
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


def _from_environment(key: str, name: str, text: str) -> Any:
    if key == "agents":
        try:
            return codec.decode(os.fsencode(text), list[dict[str, Any]])
        except codec.BadJson as error:
            raise BadConfig(f"{name}: {error.message}", hint="it is a JSON list of agents") from error
    return text


def _convert(values: dict[str, Any], path: str | None) -> Config:
    unknown = sorted(set(values) - set(Config.__struct_fields__))
    if unknown:
        close = _closest(unknown[0])
        raise BadConfig(
            f"{path or 'settings'}: unknown key {unknown[0]!r}",
            hint=f"did you mean {close!r}?" if close else "docs/reference/config.md lists the keys",
        )
    try:
        return codec.convert(values, Config, lax=True)
    except codec.BadJson as error:
        where = f"{path}: " if path else ""
        raise BadConfig(f"{where}{error.message}", hint="docs/reference/config.md lists the keys") from error


def _closest(word: str) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error message

    found = get_close_matches(word, Config.__struct_fields__, 1)
    return found[0] if found else None
