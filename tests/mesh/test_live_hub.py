"""The machine that runs the server dies: agents of the others are served as ever, and what is for others waits."""

import pytest
from live_nodes import LiveNode, live_nodes
from living import eventually
from wires import LinkWire


def ask(node: LiveNode, sender: LinkWire, receiver: LinkWire) -> str:
    """One whole ask between two agents of this node."""
    ticket = sender.call("messages.send", {"agentId": "Near", "payload": "local"})["ticketId"]
    (message,) = receiver.call("inbox.take", {"agentId": "Near", "waitMs": 60_000})["messages"]
    receiver.call("replies.post", {"ticketId": message["ticketId"], "payload": "yes"})
    status: str = node.call("tickets.show", ticketId=ticket)["status"]
    return status


@pytest.mark.req("MESH-TICKET-1")
def test_with_the_hub_gone_local_asks_go_on_and_what_is_for_others_arrives_when_it_is_back():
    with live_nodes("desk", "laptop", "vm") as (desk, laptop, vm):
        for node in (laptop, vm):
            node.join(desk.begin() if node is laptop else desk.invite())
            desk.accept(node.name)
            node.await_standing("member")
        vm.call("agents.register", agentId="Jerry")
        laptop.await_reachable("vm")
        near = [laptop.call("agents.register", agentId=name)["agentToken"] for name in ("Ada", "Near")]
        with (
            LinkWire(laptop.daemon.link_socket).hello(token=near[0]) as ada,
            LinkWire(laptop.daemon.link_socket).hello(token=near[1]) as receiver,
        ):
            desk.kill()
            eventually(lambda: not laptop.status().get("connected"), "the laptop notices")
            assert ask(laptop, ada, receiver) == "responded"
            ticket = ada.call("messages.send", {"agentId": "Jerry@vm", "payload": "later"})["ticketId"]
            assert laptop.call("tickets.show", ticketId=ticket)["delivery"]["state"] == "outbox"
            assert ask(laptop, ada, receiver) == "responded"
            desk.start()
            eventually(
                lambda: laptop.call("tickets.show", ticketId=ticket)["delivery"]["state"] == "arrived", "it arrives"
            )
