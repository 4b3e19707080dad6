"""Broker specification 10: settings from files and environment, and what they change."""

import datetime as dt
import http.client
import json
import ssl

import pytest
from real_house import free_port

from certificates import certificate_in
from inside import BadConfig, load_settings
from patience import PATIENCE

DEFAULTS = load_settings("/nonexistent", {})
SETTINGS = {"default_timeout_ms": 77_000}


def reply_seconds(house, ticket: str) -> float:
    view = house.ticket(ticket)
    start, end = (dt.datetime.fromisoformat(view[name]) for name in ("createdAt", "replyBy"))
    return (end - start).total_seconds()


def test_nobody_needs_a_settings_file(tmp_path):
    assert load_settings(str(tmp_path), {}) == DEFAULTS


@pytest.mark.req("BRK-10-2")
def test_the_port_is_5050_unless_set(tmp_path):
    assert load_settings(str(tmp_path), {}).port == 5050


@pytest.mark.req("BRK-10-3", "DEC-BRK-9")
def test_the_default_timeout_of_the_daemon_counts_for_senders_that_name_none(house, agent):
    assert reply_seconds(house, house.send(agent.handle)) == 77
    assert reply_seconds(house, house.send(agent.handle, timeoutMs=5_000)) == 5


@pytest.mark.req("BRK-10-3")
def test_the_variable_of_the_specification_sets_it_for_the_daemon(tmp_path):
    environment = {"BRIDGE_DEFAULT_TIMEOUT_MS": "1234"}
    assert load_settings(str(tmp_path), environment).default_timeout_ms == 1234
    # Our own name is the more deliberate one.
    assert load_settings(str(tmp_path), {**environment, "BASCULE_DEFAULT_TIMEOUT_MS": "9"}).default_timeout_ms == 9


@pytest.mark.req("BRK-10-3")
def test_the_variable_of_the_specification_sets_it_for_commands_and_tools(house, agent):
    house.run("bridge-send", agent.handle, "x", "--no-wait", "--ticket", "t-command", BRIDGE_DEFAULT_TIMEOUT_MS="4000")
    with house.mcp(BRIDGE_DEFAULT_TIMEOUT_MS="6000") as client:
        sent = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured
    assert reply_seconds(house, "t-command") == 4
    assert reply_seconds(house, sent["ticketId"]) == 6


@pytest.mark.req("BRK-10-4")
def test_the_registry_file_has_the_name_of_the_specification_in_the_environment(tmp_path):
    assert load_settings(str(tmp_path), {"BRIDGE_AGENT_REGISTRY": "/r.json"}).agent_registry == "/r.json"


@pytest.mark.req("BRK-10-4", "BRK-10-5", "BRK-10-6", "DEC-BRK-35")
def test_agents_of_a_config_toml_and_of_a_registry_file_are_known_before_they_come(new_house, tmp_path):
    registry = tmp_path / "agents.json"
    registry.write_text(json.dumps([{"agentId": "Jerry", "type": "codex", "metadata": {"cwd": "/a"}, "pane": "%3"}]))
    text = f'port = 1\nagent_registry = "{registry}"\n[[agents]]\nagentId = "Spock"\npane = "%0"\n'
    # The port of the environment comes before the one in the file.
    house = new_house(config_files={"config.toml": text})
    view = house.agent_view("Jerry")
    assert (view["type"], view["status"], view["metadata"]) == ("codex", "offline", {"cwd": "/a", "paneId": "%3"})
    assert house.agent_view("Spock")["metadata"] == {"paneId": "%0"}
    ticket = house.send("Jerry", "welcome")
    jerry = house.register("Jerry")
    assert house.take(jerry).json["messages"][0]["ticketId"] == ticket


@pytest.mark.req("BRK-10-5", "BRK-10-7", "BRK-10-8", "DEC-BRK-35")
def test_a_broker_config_json_sets_the_port_and_turns_on_tls(new_house, tmp_path):
    certificate, key = certificate_in(tmp_path)
    port = free_port()
    text = json.dumps({"port": port, "tlsCert": str(certificate), "tlsKey": str(key), "defaultTimeoutMs": 3000})
    house = new_house({"port": None}, port=port, config_files={"broker.config.json": text})
    context = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE)
    connection.request("GET", "/status", headers={"Authorization": f"Bearer {house.local_token}"})
    with connection.getresponse() as response:
        status = json.loads(response.read())
    connection.close()
    assert status["doors"]["tcp"] == f"https://127.0.0.1:{port}"


# A value other than the default for each key, as it would stand in the environment.
SAMPLES = {
    "console_origins": "http://localhost:6051",
    "durability": "memory",
    "auth": "off",
    "policy": "restrictive",
    "offline": "reject",
    "sandbox": "none",
    "workspace_network": "on",
    "native_keep_prompts": "true",
    "desktop_root": "/home/me/projects",
    "desktop_keep_out": "org.example.Bank",
    "desktop_trust": "held",
    "announce": "off",
    "mcp": "off",
    "mcp_toolsets": "agents",
    "mcp_trust_label": "untrusted",
    "log": "json",
    "log_level": "debug",
    "agents": '[{"agentId":"Jerry"}]',
    "agent_registry": "/r.json",
    "tls_cert": "/c.pem",
    "tls_key": "/k.pem",
}


@pytest.mark.req("BRK-10-5", "DEC-BRK-35")
@pytest.mark.parametrize("key", vars(DEFAULTS))
def test_every_key_can_be_set_in_the_environment(key, tmp_path):
    environment = {f"BASCULE_{key.upper()}": SAMPLES.get(key, "17")}
    if key.startswith("tls_"):
        environment = {f"BASCULE_{name.upper()}": SAMPLES[name] for name in ("tls_cert", "tls_key")}
    loaded = load_settings(str(tmp_path), environment)
    changed = {name for name, value in vars(loaded).items() if value != getattr(DEFAULTS, name)}
    assert changed == ({"tls_cert", "tls_key"} if key.startswith("tls_") else {key})


@pytest.mark.req("BRK-10-5")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prot": 1}', "prot"),
        ('{"port": "many"}', "port"),
        ('{"port": 99999}', "port"),
        ('{"durability": "maybe"}', "durability"),
        ("port = 1", "not JSON"),
    ],
)
def test_a_wrong_setting_is_named(text, words, tmp_path):
    (tmp_path / "broker.config.json").write_text(text)
    with pytest.raises(BadConfig) as refused:
        load_settings(str(tmp_path), {})
    assert words in refused.value.message
    assert "broker.config.json" in refused.value.message
