"""Broker specification 12: who gets in, and what is written where."""

import os
import stat
from pathlib import Path

import pytest
from real_house import until
from spec_peers import LinkRefused, Unix

from patience import PATIENCE

SECRET = "correct horse battery staple"


def files_with(house, text: str) -> list[str]:
    """Every file below the state directory that holds the text."""
    found = []
    for folder, _, names in os.walk(house.state):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(str(path.relative_to(house.state)))
    return found


@pytest.mark.req("BRK-12-1")
def test_the_listening_socket_is_bound_to_127_0_0_1(house):
    # /proc/net/tcp writes addresses in hexadecimal, the bytes of the address in the machine's order.
    port = f"{house.port:04X}"
    listening = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text("ascii").splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    ]
    assert listening == [f"0100007F:{port}"]


@pytest.mark.req("BRK-12-2")
def test_over_tcp_every_route_needs_a_token_unless_auth_is_off(house):
    for path in ("/agents", "/status", "/healthz", "/metrics", "/openapi.json", "/nowhere"):
        answer = house.get(path, token=None)
        assert (answer.status, answer.error["code"]) == (401, "unauthenticated")
        assert "local.token" in answer.error["hint"]


@pytest.mark.req("BRK-12-2")
def test_the_unix_socket_knows_its_user_without_a_token(house):
    assert house.get("/status", door="unix").json["principal"] == "local"


@pytest.mark.req("BRK-12-2")
def test_with_auth_off_a_plain_client_registers_sends_and_waits_without_any_header(new_house):
    house = new_house({"auth": "off"})
    registered = house.post("/agents/register", {"agentId": "Jerry"}, token=None)
    assert registered.status == 200
    sent = house.post("/agents/Jerry/send", {"payload": "x"}, token=None)
    assert sent.status == 200
    reply = {"ticketId": sent.json["ticketId"], "payload": "y"}
    assert house.post("/replies", reply, token=None).status == 204
    assert house.get(f"/replies/{sent.json['ticketId']}", token=None).json["payload"] == "y"
    assert [view["agentId"] for view in house.get("/agents", token=None).json] == ["Jerry"]
    assert pages_answered(house, token=None) == list(PAGES.values())


@pytest.mark.req("BRK-12-2", "DEC-BRK-44")
def test_with_auth_off_a_plain_client_registers_again_beats_and_replies_for_an_agent(house_with):
    house = house_with({"auth": "off"})
    jerry = house.register(type="codex")
    again = house.post("/agents/register", {"agentId": jerry.handle, "type": "claude"}, token=None)
    assert (again.status, again.json["status"]) == (200, "registered")
    assert house.agent_view(jerry.handle)["type"] == "claude"
    assert house.post(f"/agents/{jerry.handle}/heartbeat", token=None).status == 200
    ticket = house.send(jerry.handle, token=None)
    assert house.post("/replies", {"ticketId": ticket, "payload": "y"}, token=None).status == 204
    view = house.get(f"/replies/{ticket}", token=None).json
    # The answer counts, but nobody is told that it came from the agent: that is not verified.
    assert (view["payload"], view["from"]) == ("y", "local")


@pytest.mark.req("BRK-12-3", "DEC-BRK-44")
def test_with_auth_off_an_inbox_still_opens_to_its_agents_token_alone(house_with):
    house = house_with({"auth": "off"})
    jerry = house.register()
    ticket = house.send(jerry.handle, SECRET, token=None)
    inbox = f"/agents/{jerry.handle}/inbox"
    for path in (f"{inbox}?waitMs=0", f"{inbox}/stream"):
        assert house.get(path, token=None).status == 403
    assert house.post(f"{inbox}/ack", {"ticketIds": [ticket]}, token=None).status == 403
    # Nor does registering in the agent's name open it.
    again = house.post("/agents/register", {"agentId": jerry.handle}, token=None)
    assert "agentToken" not in again.json
    assert house.take(jerry).json["messages"][0]["payload"] == SECRET


@pytest.mark.req("DEC-BRK-44")
def test_with_auth_off_the_unix_sockets_and_wrong_tokens_are_judged_as_ever(house_with):
    house = house_with({"auth": "off"})
    jerry = house.register()
    ticket = house.send(jerry.handle)
    assert house.post("/agents/register", {"agentId": jerry.handle}, door="unix").status == 409
    for path, body in ((f"/agents/{jerry.handle}/heartbeat", {}), ("/replies", {"ticketId": ticket, "payload": "y"})):
        assert house.post(path, body, door="unix").status == 403
        assert house.post(path, body, token="not-a-token").status == 401
    assert house.ticket(ticket)["status"] == "pending"


@pytest.mark.req("BRK-12-2")
def test_a_web_page_is_refused_before_its_token_is_looked_at(house):
    for token in ("local", None):
        assert pages_answered(house, token=token) == list(PAGES.values())


# What a browser cannot help saying on behalf of a page, and the answer.
PAGES = {
    ("Host", "evil.example:{port}"): 421,
    ("Host", "0.0.0.0:{port}"): 421,
    ("Origin", "http://evil.example"): 403,
    ("Origin", "http://127.0.0.1:{port}"): 403,
    ("Sec-Fetch-Site", "cross-site"): 403,
}


def pages_answered(house, token: str | None) -> list[int]:
    return [
        house.get("/agents", headers={name: value.format(port=house.port)}, token=token).status for name, value in PAGES
    ]


@pytest.mark.req("BRK-12-3")
def test_a_wrong_token_is_refused_at_every_door_and_never_a_downgrade(house):
    for door in ("tcp", "unix"):
        answer = house.get("/agents", token="not-a-token", door=door)
        assert (answer.status, answer.error["message"]) == (401, "wrong token")
    with pytest.raises(LinkRefused, match="wrong token"):
        house.link("not-a-token")


@pytest.mark.req("BRK-12-3")
def test_an_agents_inbox_is_closed_to_everybody_else(house, agent):
    other = house.register()
    ticket = house.send(agent.handle, SECRET)
    for token in ("local", other.token):
        for path in (f"/agents/{agent.handle}/inbox?waitMs=0", f"/agents/{agent.handle}/inbox/stream"):
            assert house.get(path, token=token).status == 403
        ack = house.post(f"/agents/{agent.handle}/inbox/ack", {"ticketIds": [ticket]}, token=token)
        assert ack.status == 403
    assert SECRET not in house.get("/tickets").body.decode()


@pytest.mark.req("BRK-12-3")
def test_sockets_tokens_and_store_are_for_their_owner_alone(house, agent):
    modes = {
        name: stat.S_IMODE(os.stat(os.path.join(house.state, name)).st_mode)
        for name in (".", "link.sock", "http.sock", "local.token", "tokens", "log", "log/daemon.log", "bascule.db")
    }
    folders = {".": 0o700, "tokens": 0o700, "log": 0o700}
    assert modes == {name: folders.get(name, 0o600) for name in modes}
    assert stat.S_IMODE(house.token_path(agent.handle).stat().st_mode) == 0o600


@pytest.mark.req("BRK-12-4")
@pytest.mark.parametrize("ticket", ["..%2f..%2fetc", "a%00b", "a%0a", "%ff", "x" * 129])
def test_a_ticket_id_in_a_path_is_checked_before_it_is_looked_up(house, ticket):
    answer = house.get(f"/tickets/{ticket}")
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.req("BRK-12-4")
def test_a_path_that_climbs_is_no_path(house):
    connection = Unix(house.http_sock)
    connection.timeout = PATIENCE
    connection.putrequest("GET", "/tickets/../agents", skip_host=True)
    connection.putheader("Host", "localhost")
    connection.endheaders()
    with connection.getresponse() as response:
        assert response.status == 404
    connection.close()


@pytest.mark.req("BRK-12-5")
def test_a_payload_is_in_the_store_only_and_never_in_log_or_ledger(house, agent):
    ticket = house.send(agent.handle, SECRET, metadata={"note": SECRET})
    house.reply(agent, ticket, f"{SECRET}!")
    house.logged("ticket.responded", ticket=ticket)
    assert all(name.startswith("bascule.db") for name in files_with(house, SECRET))
    with house.link() as link:
        records = link.call("ledger.show", {"what": ticket})
    assert len(records) == 2
    assert SECRET not in str(records)


@pytest.mark.req("BRK-12-5")
def test_with_durability_memory_no_payload_reaches_the_disk(house_with):
    house = house_with({"port": 0, "durability": "memory"})
    with house.link() as link:
        token = link.call("agents.register", {"agentId": "Keeper"})["agentToken"]
        ticket = link.call("messages.send", {"agentId": "Keeper", "payload": SECRET})["ticketId"]
    with house.link(token) as link:
        link.call("replies.post", {"ticketId": ticket, "payload": SECRET})
    house.logged("ticket.responded", ticket=ticket)
    assert files_with(house, SECRET) == []


@pytest.mark.req("BRK-12-5")
def test_after_the_ticket_expired_no_file_holds_its_payload(new_house):
    house = new_house({"ticket_ttl_ms": 100})
    agent = house.register()
    ticket = house.send(agent.handle, SECRET)
    house.reply(agent, ticket, SECRET)
    until(lambda: house.get(f"/tickets/{ticket}").status == 404, "the ticket to expire")
    house.stop()
    assert files_with(house, SECRET) == []
