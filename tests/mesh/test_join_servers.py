"""A mesh on NATS servers that are there already."""

import pytest
from live_nodes import PASSPHRASE, Refused, live_nodes
from living import eventually

from nats_servers import Server
from ports import free_port
from terminal import on_a_terminal


@pytest.fixture
def server(tmp_path):
    """One that lets everybody in, as behind a firewall."""
    port = free_port()
    config = {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(tmp_path / "store")}}
    server = Server(tmp_path / "nats", config, port)
    server.start()
    yield server
    server.kill()


def test_machines_join_on_servers_that_are_there_and_a_person_says_whose_they_are(server):
    with live_nodes("desk", "vm") as (desk, vm):
        status = desk.call("mesh.init", mesh="team", node="desk", servers=[server.url])
        assert status["holder"]
        with pytest.raises(Refused, match="no join codes") as refused:
            desk.invite()
        assert f"bascule join {server.url}" in refused.value.data["hint"]

        def join(answer):
            typed = [("Passphrase: ", PASSPHRASE), ("Type yes: ", answer)]
            return on_a_terminal("join", server.url, "--node", "vm", "--state-dir", vm.state, typed=typed)

        assert "bascule mesh leave" in join("no").shown
        asking = desk.asking("vm")
        assert asking["words"] == vm.status()["joining"]["words"]
        desk.call("mesh.accept", node="vm", words=asking["words"], ownerName="Ann")
        # Whoever runs the server could have said so, of another mesh: a person here compares the words, too.
        assert vm.status()["joining"]["compare"]
        with pytest.raises(Refused, match="others by now"):
            vm.call("mesh.join", words="lion crown falcon trumpet bucket")
        # Longer than until it is told of the card.
        with pytest.raises(AssertionError):
            eventually(lambda: vm.status()["standing"] != "waiting", "it joins unasked", 4.0)
        # The same command goes on where it was.
        joined = join("yes")
        assert (joined.code, asking["words"] in joined.shown) == (0, True), joined.shown
        desk.await_reachable("vm")
        (listed,) = [each for each in desk.call("mesh.nodes")["nodes"] if each["node"] == "vm"]
        assert (listed["owner"], listed.get("own", False)) == ("Ann", False)
        # The server lets everybody in; a card that was taken away counts no more all the same.
        desk.call("mesh.revoke", node="vm")
        vm.await_standing("revoked")
        assert not desk.reaches("vm")


def test_servers_that_are_wrong_are_named(tmp_path):
    creds = tmp_path / "creds"
    creds.write_text("nothing of the kind")
    with live_nodes("desk") as (desk,):
        with pytest.raises(Refused, match="does not answer"):
            desk.call("mesh.init", mesh="team", node="desk", servers=[f"nats://127.0.0.1:{free_port()}"])
        with pytest.raises(Refused, match="not the address of a NATS server"):
            desk.call("mesh.init", mesh="team", node="desk", servers=["http://a"])
        creds.chmod(0o644)
        with pytest.raises(Refused, match="others can read it"):
            desk.call("mesh.join", node="desk", servers=["nats://a"], credsFile=str(creds))
        creds.chmod(0o600)
        with pytest.raises(Refused, match="cannot be used"):
            desk.call("mesh.join", node="desk", servers=["nats://a"], credsFile=str(creds))
        assert desk.status()["standing"] == "none"
