"""Health, metrics and the API description, as monitors and programs read them."""

import json
import os
import re

import pytest
from living import Living, short_dir
from prometheus import parse
from wires import Caller, Wire

from bascule import __version__
from bascule.bridge_list import methods_of
from bascule.daemon.compose import routes_of
from bascule.surfaces.openapi import document

ROUTES = routes_of()
ROWS = methods_of()


@pytest.fixture(scope="module")
def local(daemon) -> Caller:
    caller = Caller(daemon)
    agent = caller.register("Jerry")
    ticket = caller.send("Jerry")
    agent.post("/replies", {"ticketId": ticket, "payload": "done"})
    caller.get("/tickets/unknown")
    return caller


def test_healthz_says_ok(local):
    answer = local.get("/healthz")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"ok\n", "text/plain")


def test_readyz_says_ready(local):
    answer = local.get("/readyz")
    assert (answer.status, answer.body) == (200, b"ready\n")


def test_metrics_are_in_the_text_format_and_count_what_happened(local):
    answer = local.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds, values = parse(answer.body.decode())
    assert set(kinds.values()) == {"counter", "gauge", "histogram"}
    assert values['bascule_calls_total{method="messages.send",outcome="ok"}'] == 1
    assert values['bascule_calls_total{method="tickets.show",outcome="not_found"}'] == 1
    assert values['bascule_http_responses_total{status="404"}'] >= 1
    assert values["bascule_tickets"] == 1
    assert values["bascule_tickets_open"] == 0
    assert values["bascule_agents"] == values["bascule_agents_online"] == 1
    assert values["bascule_waits"] == values["bascule_link_connections"] == 0
    assert values["bascule_store_bytes"] > 0
    assert values["bascule_store_fault"] == 0
    assert values["bascule_ledger_records"] == local.get("/status").json["ledgerRecords"]


def test_the_loops_lateness_is_a_gauge(local):
    _, values = parse(local.get("/metrics").body.decode())
    assert 0 <= values["bascule_loop_lag_seconds"] <= values["bascule_loop_lag_max_seconds"]


def test_histograms_grow_to_their_count(local):
    _, values = parse(local.get("/metrics").body.decode())
    name = 'bascule_call_seconds_bucket{method="messages.send",le="'
    buckets = [value for key, value in values.items() if key.startswith(name)]
    assert buckets == sorted(buckets)
    assert buckets[-1] == values[name + '+Inf"}'] == values['bascule_call_seconds_count{method="messages.send"}'] == 1


def test_the_served_api_description_is_the_generated_one(local):
    answer = local.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == json.loads(document(ROWS, ROUTES))


def test_the_api_description_names_every_route_and_only_what_it_defines(local):
    described = local.get("/openapi.json").json
    assert described["info"]["version"] == __version__
    assert {(verb.upper(), path) for path, verbs in described["paths"].items() for verb in verbs} == {
        (route.verb, route.path.replace("...}", "}")) for route in ROUTES
    }
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(described)))
    assert named <= set(described["components"]["schemas"])


def test_every_parameter_in_a_path_is_described(local):
    paths = local.get("/openapi.json").json["paths"]
    for route in ROUTES:
        operation = paths[route.path.replace("...}", "}")][route.verb.lower()]
        described = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert described == set(route.names), route


def test_pages_need_the_token_like_every_other_route(daemon):
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert Caller(daemon, "wrong").get(path).status in (401, 429)


def test_the_pages_are_on_the_unix_socket_without_a_token(daemon):
    with Wire(daemon.http_socket) as wire:
        assert [wire.ask("GET", path, []).status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


def test_pages_are_served_from_memory_with_nothing_on_disk():
    with short_dir() as folder, Living(f"{folder}/s", durability="memory") as living:
        caller = Caller(living)
        agent = caller.register("Jerry")
        caller.send("Jerry", "a secret payload")
        assert caller.get("/readyz").status == 200
        assert caller.gauge("bascule_store_bytes") == 0
        assert agent.get("/agents/Jerry/inbox?waitMs=0").json["messages"][0]["payload"] == "a secret payload"
        assert living.stop() == 0
        assert written_under(living.state, b"a secret payload") == []
        assert written_under(living.state, b"SQLite format 3") == []


def written_under(folder: str, needle: bytes) -> list[str]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                if needle in file.read():
                    found.append(name)
    return found
