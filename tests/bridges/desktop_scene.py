"""A house with a desktop, and the few sentences that tests about it are made of."""

import time

import pytest

from bascule.foundation.errors import ApprovalRequired
from bascule.testing.house import House
from patience import PATIENCE
from scripted_host import EDITOR, NAME, FakeScreen

JERRY = "agent:Jerry"
SPOCK = "agent:Spock"


class Desktop:
    """`JERRY` and `SPOCK` want to use the screen; the desktop is enabled unless the test says otherwise."""

    def __init__(self, *, enabled=True, pictures=None, **settings):
        self.screen = FakeScreen(pictures)
        self.house = House(screen=self.screen, **settings)
        self.house.register("Jerry")
        self.house.register("Spock")
        if enabled:
            self.enable()

    def enable(self, **environment):
        return self.house.call("person", "desktop.enable", {"environment": environment or {"DISPLAY": ":7"}})

    def call(self, method, who=JERRY, /, **params):
        return self.house.call(who, f"desktop.{method}", params)

    def begin(self, method, who=JERRY, /, **params):
        return self.house.begin(who, f"desktop.{method}", params)

    def asks(self, method, who=JERRY, /, **params):
        """The question that this call becomes."""
        with pytest.raises(ApprovalRequired) as asked:
            self.call(method, who, **params)
        return self.house.call("local", "approvals.show", {"approvalId": asked.value.details["approvalId"]})

    def decide(self, question, decision="approved", **more):
        params = {"approvalId": question["approvalId"], "decision": decision, **more}
        return self.house.call("person", "approvals.decide", params)

    def approved(self, method, who=JERRY, /, **params):
        """Asked, approved, called again."""
        self.decide(self.asks(method, who, **params))
        return self.call(method, who, **params)

    def until(self, look, what):
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.0005)
            self.house.run(lambda: None)
        return found

    def records(self, method):
        return [row for row in self.house.ledger() if row["method"] == f"desktop.{method}"]

    @property
    def host(self):
        return self.screen.host

    def asked(self, method):
        """What the hosts were asked of this method, with whose call it was."""
        return [(client, params) for host in self.screen.hosts for name, client, params in host.asked if name == method]


CLICK = {"route": EDITOR, "target": {"selector": {"titleContains": "OK"}}}
TYPE = {"route": EDITOR, "target": NAME}


def answer_of(desktop, held):
    desktop.until(lambda: held.done, "an answer")
    return held.result()
