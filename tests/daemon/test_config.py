"""Settings: every key from every source, which source wins, and what is said about a wrong one."""

import json
import os
from typing import ClassVar

import pytest

from bascule.broker.settings import BrokerSettings, DeclaredAgent
from bascule.daemon.config import (
    CONFIG_FILES,
    DaemonSettings,
    environment_names,
    from_values,
    load,
    settings_of,
)
from bascule.kernel.declared import Declared
from bascule.kernel.settings import MAX_FILE_BYTES, BadConfig, Config, Settings

AGENTS = [{"agentId": "Tom", "type": "script", "metadata": {"k": "v"}, "pane": "%3"}]
DECLARED = [DeclaredAgent(agent_id="Tom", type="script", metadata={"k": "v"}, pane="%3")]
# A value of each key that is not its default; a new key without a line here fails the test below.
SAMPLES = {
    "port": 6060,
    "console_port": "off",
    "console_origins": "http://localhost:6051",
    "durability": "relaxed",
    "auth": "off",
    "policy": "restrictive",
    "offline": "reject",
    "native_checkpoint_ms": 151,
    "native_keep_prompts": True,
    "mesh_outbox_items": 99,
    "mesh_outbox_bytes": 98_304,
    "default_timeout_ms": 1_001,
    "ticket_ttl_ms": 1_002,
    "lease_ms": 1_003,
    "max_payload_bytes": 1_004,
    "max_inbox_messages": 1_005,
    "max_inbox_bytes": 1_006,
    "max_inbox_messages_per_sender": 1_017,
    "approval_hold_ms": 9_000,
    "max_inbox_bytes_per_sender": 1_018,
    "max_open_tickets": 1_007,
    "max_open_tickets_outside": 1_018,
    "a2a_port": "5054",
    "a2a_listen": "127.0.0.3",
    "a2a_url": "https://agents.example.org",
    "a2a_tls_cert": "a2a-cert.pem",
    "a2a_tls_key": "a2a-key.pem",
    "max_kept_messages": 1_010,
    "max_kept_bytes": 1_011,
    "max_waits": 1_008,
    "max_agents": 1_009,
    "calls_per_second": 10.5,
    "burst_calls": 11.5,
    "ledger_days": 12,
    "sandbox": "none",
    "workspace_network": "on",
    "workspace_readable": "/opt/tools",
    "max_spaces": 1_012,
    "max_runs": 1_013,
    "max_run_ms": 1_014,
    "max_kept_runs": 1_015,
    "max_processes": 1_016,
    "desktop_root": "/home/me/projects",
    "desktop_keep_out": "org.example.Bank",
    "desktop_trust": "held",
    "announce": "off",
    "mcp": "off",
    "mcp_toolsets": "agents",
    "mcp_trust_label": "untrusted",
    "log": "json",
    "log_level": "debug",
    "agent_registry": "/etc/agents.json",
    "agents": AGENTS,
    "tls_cert": "/etc/cert.pem",
    "tls_key": "/etc/key.pem",
}
# What must be set beside a key for the whole to make sense.
BESIDE = {"tls_cert": {"tls_key": "/k"}, "tls_key": {"tls_cert": "/c"}}


OWNERS = {key: kind for kind in settings_of() for key in kind.__struct_fields__}


def value(config: Config, key: str) -> object:
    return getattr(config.of(OWNERS[key]), key)


def expected(key: str) -> object:
    return DECLARED if key == "agents" else SAMPLES[key]


def camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)


def toml(values: dict[str, object]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if key != "agents"]
    for agent in values.get("agents", []):
        fields = {**agent, "metadata": "{k = 'v'}"}
        lines.append("[[agents]]")
        lines += [f"{key} = {value if key == 'metadata' else json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(lines)


def test_every_key_has_a_sample_here():
    assert set(SAMPLES) == set(OWNERS)
    assert [key for key in SAMPLES if value(from_values({}), key) == expected(key)] == []


@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_can_be_set_in_toml(tmp_path, key):
    (tmp_path / "config.toml").write_text(toml({key: SAMPLES[key], **BESIDE.get(key, {})}))
    assert value(load(str(tmp_path), {}), key) == expected(key)


@pytest.mark.parametrize("style", [camel, str], ids=["camelCase", "snake_case"])
@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_can_be_set_in_json(tmp_path, key, style):
    values = {style(name): value for name, value in {key: SAMPLES[key], **BESIDE.get(key, {})}.items()}
    (tmp_path / "broker.config.json").write_text(json.dumps(values))
    assert value(load(str(tmp_path), {}), key) == expected(key)


@pytest.mark.parametrize("key", SAMPLES)
def test_a_key_can_be_set_in_the_environment_under_each_of_its_names(tmp_path, key):
    text = json.dumps(AGENTS) if key == "agents" else str(SAMPLES[key])
    beside = {environment_names(OWNERS[name], name)[0]: path for name, path in BESIDE.get(key, {}).items()}
    for name in environment_names(OWNERS[key], key):
        assert value(load(str(tmp_path), {name: text, **beside}), key) == expected(key)


def test_the_specs_own_variables_are_known():
    named = {name for kind in settings_of() for name in kind.spec_variables.values()}
    assert named == {"BRIDGE_DEFAULT_TIMEOUT_MS", "BRIDGE_AGENT_REGISTRY", "BRIDGE_PORT"}
    both = ("BASCULE_DEFAULT_TIMEOUT_MS", "BRIDGE_DEFAULT_TIMEOUT_MS")
    assert environment_names(BrokerSettings, "default_timeout_ms") == both


def test_without_anything_the_defaults_hold(tmp_path):
    assert load(str(tmp_path), {}) == load(str(tmp_path / "nonexistent"), {}) == from_values({})
    own = DaemonSettings()
    assert (own.port, own.auth, own.durability, own.policy) == (5050, "on", "fsync", "standard")


def test_the_file_beats_the_default_the_environment_the_file_and_the_command_line_all(tmp_path):
    (tmp_path / "config.toml").write_text("port = 1\nlease_ms = 1\nmax_waits = 1\n")
    environment = {"BASCULE_LEASE_MS": "2", "BASCULE_MAX_WAITS": "2"}
    config = load(str(tmp_path), environment, overrides={"max_waits": 3, "port": None})
    assert [value(config, key) for key in ("port", "lease_ms", "max_waits")] == [1, 2, 3]


def test_our_own_variable_beats_the_specs(tmp_path):
    environment = {"BRIDGE_PORT": "1", "BASCULE_PORT": "2"}
    assert value(load(str(tmp_path), environment), "port") == 2


def test_a_named_file_is_read_instead_of_those_in_the_folder(tmp_path):
    for name in CONFIG_FILES:
        (tmp_path / name).write_text("not read at all")
    other = tmp_path / "other.json"
    other.write_text('{"port": 7}')
    assert value(load(str(tmp_path), {}, file=str(other)), "port") == 7


def test_variables_that_are_no_settings_are_left_alone(tmp_path):
    environment = {"BASCULE_STATE_DIR": "/x", "BASCULE_CONFIG_DIR": "/y", "BRIDGE_AGENT_ID": "Tom", "PATH": "/bin"}
    assert load(str(tmp_path), environment) == from_values({})


def test_limits_come_from_the_settings():
    limits = BrokerSettings(max_waits=3, lease_ms=4, offline="reject").limits()
    assert (limits.max_waits, limits.lease_ms, limits.reject_offline) == (3, 4, True)


class Another(Settings, frozen=True, kw_only=True):
    port: int = 1


class AnotherPort(Settings, frozen=True, kw_only=True):
    spec_variables: ClassVar = {"another_port": "BRIDGE_PORT"}
    another_port: int = 1


class AnotherDeclared(Declared):
    name = "another"

    def __init__(self, kind):
        self._kind = kind

    def settings(self):
        return self._kind


@pytest.mark.parametrize(("kind", "name"), [(Another, "port"), (AnotherPort, "BRIDGE_PORT")])
def test_a_key_and_its_variables_belong_to_one_bridge(kind, name):
    sentence = f"the setting '{name}' is declared twice: DaemonSettings, {kind.__name__}"
    with pytest.raises(ValueError, match=sentence):
        from_values({}, bridges=[AnotherDeclared(kind)])


def test_settings_that_no_bridge_of_the_list_declares_are_named():
    with pytest.raises(LookupError, match="no bridge of the list declares BrokerSettings"):
        from_values({}, bridges=[]).of(BrokerSettings)


# -- what is wrong is named -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("config.toml", "prot = 5051", ["config.toml: unknown key 'prot'", "did you mean 'port'?"]),
        ("config.toml", "zebra = 1", ["unknown key 'zebra'", "docs/reference/config.md"]),
        ("config.toml", 'lease_ms = "long"', ["config.toml: `lease_ms`", "int"]),
        ("config.toml", "lease_ms = [1]", ["`lease_ms`", "int"]),
        ("config.toml", "max_agents = 0", ["`max_agents`", ">= 1"]),
        ("config.toml", "port = 70000", ["`port`", "65535"]),
        ("config.toml", "calls_per_second = nan", ["calls_per_second"]),
        ("config.toml", 'durability = "some"', ["`durability`"]),
        ("config.toml", 'policy = "lax"', ["'lax' is none of restrictive, standard, permissive"]),
        ("config.toml", 'mcp_toolsets = "agent"', ["mcp_toolsets: there is no toolset 'agent'"]),
        ("config.toml", 'mcp_toolsets = ""', ["mcp_toolsets: no toolset is named"]),
        ("config.toml", 'tls_key = "key.pem"', ["tls_cert and tls_key belong together"]),
        ("config.toml", "port = ", ["config.toml is not TOML"]),
        ("config.toml", "\xff", ["config.toml is not TOML"]),
        ("broker.config.json", '{"defaultTimeoutMs": "soon"}', ["broker.config.json", "`default_timeout_ms`"]),
        ("broker.config.json", '{"port": 1', ["broker.config.json is not JSON"]),
        ("broker.config.json", "[]", ["broker.config.json is not JSON", "object"]),
        ("broker.config.json", '{"agents":[{"agentId":"a b"}]}', ["agentId"]),
        ("broker.config.json", '{"agents":[{"agentId":"Tom","colour":1}]}', ["colour"]),
        ("broker.config.json", '{"agents":[{"type":"x"}]}', ["agentId"]),
        # Which of the two spellings would count is nobody's to guess.
        ("broker.config.json", '{"leaseMs":1,"lease_ms":2}', ["lease_ms"]),
    ],
)
def test_a_wrong_file_is_named_with_the_key_and_a_remedy(tmp_path, name, text, expected):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(BadConfig) as caught:
        load(str(tmp_path), {})
    message = f"{caught.value.message} {caught.value.hint}"
    assert [words for words in expected if words not in message] == []


def test_two_files_are_one_too_many(tmp_path):
    for name in CONFIG_FILES:
        (tmp_path / name).write_text("")
    with pytest.raises(BadConfig, match=r"both .*config.toml and .*broker.config.json exist") as caught:
        load(str(tmp_path), {})
    assert caught.value.hint == "keep one of them"


def test_a_file_too_large_for_settings_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadConfig, match="larger than"):
        load(str(tmp_path), {})


def test_a_folder_where_the_file_should_be_is_refused(tmp_path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(BadConfig, match="cannot be read: Is a directory"):
        load(str(tmp_path), {})


@pytest.mark.parametrize("text", ["Tom", "{}", "[1]"])
def test_agents_in_the_environment_that_are_no_list_are_named(tmp_path, text):
    with pytest.raises(BadConfig, match="BASCULE_AGENTS"):
        load(str(tmp_path), {"BASCULE_AGENTS": text})


# -- agents known from the start ------------------------------------------------------------------


def test_agents_of_the_settings_and_of_the_registry_file_are_put_together(tmp_path):
    registry = tmp_path / "agents.json"
    registry.write_text('[{"agentId":"Jerry"}]')
    settings = BrokerSettings(agents=DECLARED, agent_registry=str(registry))
    assert [agent.agent_id for agent in settings.declared_agents()] == ["Tom", "Jerry"]


@pytest.mark.parametrize("text", ["{}", '[{"agentId":"a/b"}]', "[", '[{"agentId":"Tom","extra":1}]'])
def test_a_registry_file_that_is_none_is_named(tmp_path, text):
    registry = tmp_path / "agents.json"
    registry.write_text(text)
    with pytest.raises(BadConfig, match=r"agents\.json") as caught:
        BrokerSettings(agent_registry=str(registry)).check(())
    assert "JSON list" in caught.value.hint


def test_agents_in_the_environment_that_are_not_utf_8_are_named():
    # Found by fuzzing: what a shell passes need not be text.
    with pytest.raises(BadConfig, match="BASCULE_AGENTS: JSON is not valid UTF-8"):
        load("/nonexistent", {"BASCULE_AGENTS": os.fsdecode(b'[{"agentId":"\xff"}]')})
