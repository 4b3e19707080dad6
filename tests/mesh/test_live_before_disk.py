"""Real daemons that die in the moment in which they show what is not on their own disk yet."""

import pytest
from live_nodes import LiveNode, live_nodes
from living import eventually
from wires import LinkWire

from patience import PATIENCE


class _Agent:
    """An agent of a node, whose daemon may die and come again."""

    def __init__(self, node: LiveNode, name: str) -> None:
        self._node = node
        self.name = name
        self._token = node.call("agents.register", agentId=name)["agentToken"]

    def wire(self) -> LinkWire:
        return LinkWire(self._node.daemon.link_socket).hello(token=self._token)

    def take(self) -> dict:
        """The next message, once there is one."""

        def look() -> dict | None:
            with self.wire() as wire:
                taken = wire.call("inbox.take", {"agentId": self.name, "waitMs": 1_000})
            return taken["messages"][0] if taken else None

        return eventually(look, f"{self.name} gets a message")

    def reply(self, message: dict, payload: str) -> None:
        with self.wire() as wire:
            wire.call("replies.post", {"ticketId": message["ticketId"], "payload": payload})


def _replies(desk: LiveNode, ticket: str) -> list[str]:
    shown = eventually(
        lambda: (shown := desk.call("tickets.show", ticketId=ticket))["status"] == "responded" and shown,
        f"{ticket} is answered",
    )
    return [each["payload"] for each in shown["replies"]]


@pytest.mark.req("MESH-RULE-7")
def test_a_daemon_that_dies_as_it_hands_over_or_shows_what_is_not_on_its_disk_gets_it_again():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")
        ada, jerry = _Agent(desk, "Ada"), _Agent(laptop, "Jerry")

        laptop.restart("mesh.hand-over:after")
        laptop.await_connected()
        with jerry.wire() as waiting, ada.wire() as wire:
            waiting.request("inbox.take", {"agentId": "Jerry", "waitMs": 50_000})
            wire.call("messages.send", {"agentId": "Jerry@laptop", "payload": "1", "ticketId": "one"})
            laptop.daemon.process.wait(PATIENCE)
        laptop.wire.close()
        laptop.start()
        message = jerry.take()
        assert message["payload"] == "1"
        jerry.reply(message, "first")
        assert _replies(desk, "one") == ["first"]
        offers = [each for each in laptop.call("ledger.tail") if each["method"] == "mesh.offer"]
        assert len(offers) == 1

        desk.restart("mesh.show-reply:after")
        desk.await_connected()
        with ada.wire() as wire:
            wire.request(
                "messages.send", {"agentId": "Jerry@laptop", "payload": "2", "ticketId": "two", "waitMs": 50_000}
            )
            jerry.reply(jerry.take(), "second")
            desk.daemon.process.wait(PATIENCE)
        desk.wire.close()
        desk.start()
        assert _replies(desk, "two") == ["second"]
        taken = [each for each in desk.call("ledger.tail") if each["method"] == "mesh.reply"]
        assert len(taken) == 2
