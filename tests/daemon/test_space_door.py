"""`space.sock`: what leads out of a sandbox leads to messages, as the space's own agent, and nowhere else."""

import json
import os
import re
import shutil
import socket
from pathlib import Path

import pytest
from fenced import Fenced, curl, fenced
from living import Living, eventually, short_dir
from strangers import NOBODY, only_root
from wires import Caller, Wire, request

from bascule.bridge_list import methods_of
from bascule.broker.settings import BrokerSettings, DeclaredAgent
from bascule.client import SyncClient
from bascule.daemon.compose import routes_of
from bascule.daemon.space_doors import MAX_SPACE_CONNECTIONS, SPACE_METHODS
from bascule.foundation.errors import NotFound
from bascule.kernel.rows import Shape
from bascule.kernel.settings import BadConfig
from bascule.workspace.settings import WorkspaceSettings
from faults.lacking import missing_here

ROUTES = routes_of()
ROWS = methods_of()

PASSPHRASE = "correct horse battery staple"
INBOX = 80
NOT_SERVED = "is not served at this socket"


@pytest.fixture(scope="module")
def daemon():
    """With inboxes small enough to be filled."""
    with short_dir() as folder, Living(f"{folder}/s", max_inbox_messages=INBOX) as living:
        yield living


@pytest.fixture(scope="module")
def inside(daemon, tmp_path_factory):
    """One for all tests that leave it as it is."""
    with fenced(daemon, tmp_path_factory.mktemp("shared") / "work") as space:
        yield space


@pytest.fixture
def own(daemon, tmp_path):
    with fenced(daemon, tmp_path / "own") as space:
        yield space
        space.close()


def sockets(daemon: Living) -> list[str]:
    return sorted(os.listdir(os.path.join(daemon.state, "workspace", "doors")))


def ledger(client: SyncClient, subject: str) -> list[tuple[str, str]]:
    return [(record["method"], record["principal"]) for record in client.call("ledger.show", {"what": subject})]


# -- messages -------------------------------------------------------------------------------------


def test_a_command_asks_an_agent_and_gets_its_reply(daemon, inside):
    if shutil.which("curl", path="/usr/bin") is None:
        missing_here("no curl in /usr/bin")
    tom = Caller(daemon).register("Tom")
    run = inside.start(curl("/agents/Tom/send", {"payload": "2 + 2?", "waitMs": 30_000}))
    (message,) = tom.get("/agents/Tom/inbox?waitMs=30000").json["messages"]
    assert message["from"] == inside.handle
    assert tom.post("/replies", {"ticketId": message["ticketId"], "payload": "4"}).status == 204
    answer = json.loads(inside.end(run).stdout)
    assert (answer["ticketId"], answer["reply"]["payload"]) == (message["ticketId"], "4")
    assert ledger(inside.client, message["ticketId"])[0] == ("messages.send", f"agent:{inside.handle}")


def test_an_agent_asks_the_commands_of_a_space_and_gets_their_reply(daemon, inside):
    inside.asks(("GET", "/agents"))
    tom = Caller(daemon).register("Tina")
    ticket = tom.send(inside.handle, "how many?")
    (taken,) = inside.asks(("GET", f"/agents/{inside.handle}/inbox"))
    assert [(each["ticketId"], each["from"]) for each in taken.json["messages"]] == [(ticket, "Tina")]
    acked, posted = inside.asks(
        ("POST", f"/agents/{inside.handle}/inbox/ack", {"ticketIds": [ticket]}),
        ("POST", "/replies", {"ticketId": ticket, "payload": "seven"}),
    )
    assert (acked.status, posted.status) == (200, 204)
    assert tom.get(f"/replies/{ticket}").json["payload"] == "seven"


def test_inside_everybody_is_listed_without_what_they_say_about_the_machine(daemon, inside):
    Caller(daemon).register("Uma", metadata={"cwd": "/home/uma/secret"})
    (seen,) = inside.asks(("GET", "/agents"))
    by_name = {agent["agentId"]: agent for agent in seen.json}
    assert by_name[inside.handle]["type"] == "space"
    assert by_name["Uma"].get("metadata", {}) == {}
    # Outside it is all there.
    outside = {agent["agentId"]: agent for agent in Caller(daemon).get("/agents").json}
    assert outside["Uma"]["metadata"] == {"cwd": "/home/uma/secret"}
    assert outside[inside.handle]["metadata"] == {"space": "work"}


# -- nothing else ---------------------------------------------------------------------------------


# Refused by its own params: everything would be stopped for the other routes and tests.
BODIES = {"admin.stop": {"reason": 5}}


def everything() -> list[tuple[str, str, object]]:
    """A request of every route there is, with names that look right."""
    asks = []
    for route in ROUTES:
        path = re.sub(r"\{[^}]*\}", "x", route.path)
        asks.append((route.verb, path, BODIES.get(route.method, {}) if route.verb in ("POST", "PUT") else None))
    return asks


def served(space: Fenced) -> set[str]:
    """Methods of which a command hears something other than that they are not there."""
    answers = space.asks(*everything())
    assert all(answer.status in (403, 404) for answer in answers if answer.status >= 400 and NOT_SERVED in answer.text)
    return {route.method for route, answer in zip(ROUTES, answers, strict=True) if NOT_SERVED not in answer.text}


def test_of_all_methods_only_those_of_messages_answer(inside):
    assert served(inside) == SPACE_METHODS
    # What only the link speaks has no path here.
    reachable = {route.method for route in ROUTES}
    refused = {row.name for row in ROWS} - SPACE_METHODS
    pathless = sorted(refused - reachable)
    answers = inside.asks(*(("POST", f"/{name}", {}) for name in pathless))
    assert {answer.status for answer in answers} == {404}
    assert all("served here: POST /agents/{agentId}/send" in answer.json["error"]["hint"] for answer in answers)
    assert {name.partition(".")[0] for name in refused} >= {"spaces", "runs", "files", "approvals", "policy", "ledger"}
    assert "agents.register" in refused


def test_the_same_walk_at_another_door_finds_that_everything_is_there(daemon):
    streams = {row.name for row in ROWS if row.shape is Shape.STREAM}
    for route, (verb, path, body) in zip(ROUTES, everything(), strict=True):
        if route.method.startswith("mcp."):
            continue
        data = None if body is None else json.dumps(body).encode()
        headers = [("Host", "x"), ("Content-Type", "application/json")]
        with Wire(daemon.http_socket) as wire:
            wire.send(request(verb, path, headers, data))
            status, headers = wire.head()
            if route.method in streams and status == 200:
                # Most have no end; that it begins is enough.
                assert headers["content-type"].startswith("text/event-stream"), route
            elif status != 204:
                assert NOT_SERVED.encode() not in wire.body(headers), route
    assert Caller(daemon).get("/status").json.get("stopped") is None


def test_the_other_protocols_are_not_spoken(inside):
    answers = inside.run("""
import os, socket
for data in (b'Content-Length: 2\\r\\n\\r\\n{}', b'{"jsonrpc":"2.0","id":1,"method":"ledger.tail","params":{}}\\n',
             b'GET / HTTP/1.1\\r\\nHost: x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n'):
    door = socket.socket(socket.AF_UNIX)
    door.settimeout(30)
    door.connect(os.environ["BASCULE_SPACE_SOCK"])
    door.sendall(data)
    door.shutdown(socket.SHUT_WR)
    print(door.makefile("rb").readline().split()[1].decode())
""")
    assert answers.split() == ["400", "400", "404"]


def test_no_token_is_taken_be_it_right_or_wrong(daemon, inside):
    jerry = Caller(daemon).register("Jerry")
    shown = [f"Bearer {token}" for token in (jerry.token, daemon.token, "x", "")] + ["Basic eDp5", ""]
    answers = inside.asks(*(("GET", "/agents", None, {"Authorization": text}) for text in shown))
    assert {(answer.status, answer.text) for answer in answers} == {(403, answers[0].text)}
    assert answers[0].message == f"this socket takes no token: every connection here is agent {inside.handle}"
    # At the other doors the first two are somebody.
    headers = [("Host", "x"), ("Authorization", f"Bearer {jerry.token}")]
    with Wire(daemon.http_socket) as wire:
        assert wire.ask("POST", "/agents/Jerry/heartbeat", headers, b"").status == 200


def test_a_command_reads_acknowledges_and_answers_for_nobody_else(daemon, inside):
    spock = Caller(daemon).register("Spock")
    ticket = Caller(daemon).send("Spock", "for Spock alone")
    answers = inside.asks(
        ("GET", "/agents/Spock/inbox"),
        ("POST", "/agents/Spock/inbox/ack", {"ticketIds": [ticket]}),
        ("POST", "/agents/Spock/heartbeat", {}),
        ("POST", "/replies", {"ticketId": ticket, "payload": "forged"}),
        ("GET", f"/replies/{ticket}"),
    )
    assert [answer.status for answer in answers] == [403] * 5
    assert all("for Spock alone" not in answer.text for answer in answers)
    (message,) = spock.get("/agents/Spock/inbox").json["messages"]
    assert message["payload"] == "for Spock alone"


def test_the_sender_is_the_space_whatever_the_message_says(daemon, inside):
    tom = Caller(daemon).register("Theo")
    body = {"payload": {"from": "person"}, "metadata": {"from": "person", "sender": "local"}, "expectReply": False}
    sent, forged = inside.asks(
        ("POST", "/agents/Theo/send", body, {"X-Forwarded-User": "person"}),
        ("POST", "/agents/Theo/send", {**body, "from": "person"}),
    )
    assert (sent.status, forged.status) == (200, 400)
    (message,) = tom.get("/agents/Theo/inbox").json["messages"]
    assert message["from"] == inside.handle


def test_two_spaces_are_two_agents(daemon, inside, tmp_path):
    with fenced(daemon, tmp_path / "other") as other:
        assert other.handle != inside.handle
        other.asks(("GET", "/agents"))
        assert inside.asks(("POST", f"/agents/{other.handle}/send", {"payload": "hello"}))[0].status == 200
        stolen, own = (space.asks(("GET", f"/agents/{other.handle}/inbox"))[0] for space in (inside, other))
        assert stolen.status == 403
        assert own.json["messages"][0]["from"] == inside.handle
        other.close()


def test_the_daemons_other_sockets_are_out_of_reach(daemon, inside):
    places = [daemon.link_socket, daemon.http_socket, daemon.state, f"{daemon.state}/workspace/doors/1.sock"]
    answers = inside.run(f"""
import os, socket
print(os.listdir("/run/bascule"))
for path in {places!r}:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("reached")
    except OSError as error:
        print(type(error).__name__)
try:
    os.unlink(os.environ["BASCULE_SPACE_SOCK"])
except OSError as error:
    print(error.strerror)
try:
    os.chmod(os.environ["BASCULE_SPACE_SOCK"], 0o777)
except OSError as error:
    print(error.strerror)
""")
    gone = ["FileNotFoundError"] * len(places)
    assert answers.splitlines() == ["['space.sock']", *gone, "Read-only file system", "Read-only file system"]
    # From outside they are there.
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(daemon.link_socket)


def test_a_run_on_a_copy_has_no_door_for_a_message_would_last(inside):
    look = {"type": "shell", "command": 'echo "[$BASCULE_SPACE_SOCK]"; ls /run/bascule'}
    event = inside.space.run([look], on_copy=True).events[-1]
    assert event.stdout == "[]\n"
    assert inside.space.run([look]).events[-1].stdout == "[/run/bascule/space.sock]\nspace.sock\n"


# -- the handle -----------------------------------------------------------------------------------


def test_nobody_can_register_a_spaces_handle_or_one_that_looks_like_it(daemon, inside):
    for handle in (inside.handle, inside.handle.upper(), "spc_5f0c5f0c5f0c5f0c5f0c", "Spc_x"):
        answer = Caller(daemon).post("/agents/register", {"agentId": handle})
        assert answer.status == 400
        assert "handles like this are those of spaces" in answer.error["message"]
    inside.asks(("GET", "/agents"))
    assert Caller(daemon).post("/agents/register", {"agentId": inside.handle}).status == 400
    assert Caller(daemon).register("spc").token


def test_a_space_whose_agent_a_person_revoked_hears_and_says_nothing_more(daemon, own):
    own.asks(("GET", "/agents"))
    run = own.start(curl(f"/agents/{own.handle}/inbox?waitMs=50000"))
    eventually(lambda: Caller(daemon).gauge("bascule_waits") == 1, "a wait")
    own.client.call("person.set", {"passphrase": PASSPHRASE})
    own.client.call("person.unlock", {"passphrase": PASSPHRASE})
    own.client.call("agents.revoke", {"agentId": own.handle})
    # What it waited for is over, long before its time.
    assert own.end(run).stdout == ""
    (answers,) = own.asks(("GET", "/agents"))
    assert (answers.status, answers.message) == (403, f"agent {own.handle} was revoked by a person")


def test_a_closed_space_leaves_neither_socket_nor_agent(daemon, own):
    before = sockets(daemon)
    own.asks(("GET", "/agents"))
    assert len(sockets(daemon)) == len(before) + 1
    own.close()
    assert sockets(daemon) == before
    with pytest.raises(NotFound, match="agent not registered"):
        own.client.send(own.handle, "anybody?")
    again = own.client.space(str(own.folder))
    assert again.space_id != own.handle
    own.handle = again.space_id


def test_the_socket_is_closed_to_everybody_else_by_its_own_mode_too(daemon, inside):
    inside.asks(("GET", "/agents"))
    directory = os.path.join(daemon.state, "workspace", "doors")
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert {os.stat(os.path.join(directory, name)).st_mode & 0o777 for name in os.listdir(directory)} == {0o600}


# -- lives ----------------------------------------------------------------------------------------


def test_a_killed_daemon_leaves_sockets_that_the_next_one_removes_and_the_agent_keeps_its_inbox(tmp_path):
    with short_dir() as folder:
        with Living(f"{folder}/s") as daemon:
            with fenced(daemon, tmp_path / "work") as space:
                space.asks(("GET", "/agents"))
                ticket = space.client.send(space.handle, "for later").ticket_id
                handle = space.handle
                daemon.kill()
            assert len(sockets(daemon)) == 1
        with Living(f"{folder}/s") as daemon:
            assert sockets(daemon) == []
            with fenced(daemon, tmp_path / "work") as space:
                assert space.handle == handle
                (taken,) = space.asks(("GET", f"/agents/{handle}/inbox"))
                assert [each["ticketId"] for each in taken.json["messages"]] == [ticket]
            assert len(sockets(daemon)) == 1
            assert daemon.stop() == 0
            assert sockets(daemon) == []


@only_root
def test_the_commands_of_another_users_workspace_come_as_that_user_and_nobody_else_does(daemon):
    with short_dir() as given:
        os.chmod(given, 0o755)
        work = Path(given) / "work"
        work.mkdir()
        os.chown(work, NOBODY, NOBODY)
        before = set(sockets(daemon))
        with fenced(daemon, work) as space:
            (answers,) = space.asks(("GET", "/agents"))
            assert space.handle in [agent["agentId"] for agent in answers.json]
            (name,) = set(sockets(daemon)) - before
            place = os.readlink(os.path.join(daemon.state, "workspace", "doors", name))
            path = os.path.join(place, "space.sock")
            assert (os.stat(path).st_uid, os.stat(path).st_mode & 0o777) == (NOBODY, 0o600)
            # Root passes every mode; the door knows it by its uid.
            with Wire(path) as wire:
                assert wire.closed()
            space.close()
            assert set(sockets(daemon)) == before
            assert not os.path.exists(place)


# -- floods ---------------------------------------------------------------------------------------


def test_a_door_takes_so_many_connections_and_no_more(daemon, inside):
    answers = inside.run(f"""
import contextlib, os, socket
def come():
    door = socket.socket(socket.AF_UNIX)
    door.settimeout(30)
    door.connect(os.environ["BASCULE_SPACE_SOCK"])
    # One that is not taken may be closed by now, with the reason on its way.
    with contextlib.suppress(BrokenPipeError):
        door.sendall(b"GET /agents HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    return door, door.recv(12)
kept = [come() for _ in range({MAX_SPACE_CONNECTIONS + 1})]
print(sorted({{answered for _, answered in kept[:-1]}}), kept[-1][1])
kept[0][0].close()
while come()[1] != b"HTTP/1.1 200":
    pass
print("room again")
""")
    assert answers.splitlines() == ["[b'HTTP/1.1 200'] b'HTTP/1.1 503'", "room again"]
    assert Caller(daemon).get("/status").status == 200


def test_a_refused_head_ends_its_connection_so_that_thousands_cannot_be_sent_ahead(daemon, inside):
    flood = 'b"GET /status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" * 2000'
    answers = inside.run(f"""
import os, socket
door = socket.socket(socket.AF_UNIX)
door.settimeout(30)
door.connect(os.environ["BASCULE_SPACE_SOCK"])
try:
    door.sendall({flood})
except OSError:
    pass
answered = b""
try:
    while data := door.recv(1 << 16):
        answered += data
except OSError:
    pass
print(answered.count(b"HTTP/1.1 403"))
""")
    assert answers == "1\n"
    # Where only the user's own programs come, a refusal leaves the connection open.
    with Wire(daemon.http_socket) as wire:
        statuses = [wire.ask("GET", "/nowhere", [("Host", "x")]).status for _ in range(3)]
    assert statuses == [404] * 3


FLOOD = """
import itertools, os, socket, threading
body = b'{"payload": "x", "expectReply": false, "timeoutMs": 1}'
head = b"POST /agents/Victor/send HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
call = head + b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body)
refused = b"GET /ledger HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
def flood(data):
    while True:
        try:
            door = socket.socket(socket.AF_UNIX)
            door.settimeout(30)
            door.connect(os.environ["BASCULE_SPACE_SOCK"])
            door.sendall(data)
            door.recv(1 << 16)
        except OSError:
            pass
        finally:
            door.close()
for data in (call * 16, refused * 1000, b"") * 2:
    threading.Thread(target=flood, args=(data,), daemon=True).start()
print("floods", flush=True)
threading.Event().wait()
"""


def test_a_flood_from_inside_stops_nobody_outside(daemon, own):
    victor = Caller(daemon).register("Victor")
    (own.folder / "flood.py").write_text(FLOOD)
    process = own.space.spawn("python3 flood.py")
    # It floods until the inbox gives it no more room.
    inbox = "/agents/Victor/inbox/watch"
    eventually(lambda: victor.get(inbox).json["unread"] >= INBOX // 2, "half an inbox")
    for number in range(20):
        ticket = Caller(daemon).send("Victor", number)
        assert ticket
    with Wire(daemon.http_socket) as wire:
        assert all(wire.ask("GET", "/status", [("Host", "x")]).status == 200 for _ in range(20))
    assert own.space.stop(process.process_id)
    assert victor.get(inbox).json["unread"] == INBOX // 2 + 20


# -- refused before anything starts -----------------------------------------------------------------


def test_a_spaces_handle_cannot_be_declared_in_the_settings():
    with pytest.raises(BadConfig, match="cannot be declared: handles like this are those of spaces"):
        BrokerSettings(agents=[DeclaredAgent(agent_id="spc_5f0c5f0c5f0c5f0c5f0c")]).check(())


@pytest.mark.parametrize("named", ["", "state", "state/workspace", "link"])
def test_no_directory_with_the_daemons_own_sockets_can_be_made_readable_in_sandboxes(tmp_path, named):
    (tmp_path / "state" / "workspace").mkdir(parents=True)
    (tmp_path / "toolchain").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    ours = (str(tmp_path / "state"),)
    with pytest.raises(BadConfig, match="which is Bascule's own, lie within each other"):
        WorkspaceSettings(workspace_readable=str(tmp_path / named)).check(ours)
    WorkspaceSettings(workspace_readable=f"{tmp_path}/toolchain,{tmp_path}/state-of-others").check(ours)
