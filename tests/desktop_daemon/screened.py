"""A real daemon with a real desktop host: agents over HTTP, the person over the link."""

import itertools
import json
import os
from pathlib import Path

from living import Living
from wires import Caller, LinkWire, Wire

from bascule.desktop.rows import SESSION_VARIABLES
from patience import PATIENCE

PASSPHRASE = {"passphrase": "correct horse battery staple"}
# What a hash costs is tested elsewhere.
CONSTANTS = {"bascule.kernel.identity.passphrase.SCRYPT_LOG_N": 4}
_PLACES = """
import os
os.environ["BASCULE_CONFIG_DIR"] = {config!r}
for name in {unset!r}:
    os.environ.pop(name, None)
"""


class Patient(Caller):
    """Looks at a screen take longer than anything else on loopback."""

    def ask(self, verb, path, body=None):
        headers = [*self.headers, ("Content-Type", "application/json")]
        data = None if verb == "GET" else json.dumps(body or {}).encode()
        with Wire(self.daemon.tcp, PATIENCE) as wire:
            return wire.ask(verb, path, headers, data)


class Screened:
    """One daemon at a time in one directory; `restart` begins the next life."""

    _numbers = itertools.count(1)

    def __init__(self, desktop, folder, **config):
        self.desktop = desktop
        self.folder = Path(folder)
        self.state = f"{folder}/s"
        self.session = {name: desktop.environment[name] for name in SESSION_VARIABLES if name in desktop.environment}
        self.work = self.folder / "work"
        self.work.mkdir()
        # Nobody here waits as long as a real client does.
        self._config = {"desktop_root": str(folder), "approval_hold_ms": 100, **config}
        self.live()
        self.person.call("desktop.enable", {"environment": self.session})

    def live(self):
        places = _PLACES.format(config=str(self.folder / "config"), unset=SESSION_VARIABLES)
        self.daemon = Living(self.state, bug=places, constants=CONSTANTS, calls_per_second=0, **self._config)
        self.person = LinkWire(self.daemon.link_socket, PATIENCE).hello()
        if not self.person.call("person.status")["set"]:
            self.person.call("person.set", PASSPHRASE)
        self.person.call("person.unlock", PASSPHRASE)
        self.local = Patient(self.daemon)

    def restart(self, *, clean=True):
        self.person.close()
        if clean:
            assert self.daemon.stop() == 0
        else:
            self.daemon.kill()
        self.live()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.person.close()
        self.daemon.stop()

    # -- agents --

    def new_agent(self):
        self.name = f"Jerry-{next(self._numbers)}"
        self.agent = self.register(self.name)

    def register(self, name):
        return Patient(self.daemon, self.local.register(name).token)

    def call(self, method, /, *, agent=None, **params):
        return (agent or self.agent).post(f"/v1/desktop/{method}", params)

    def done(self, method, /, **params):
        answer = self.call(method, **params)
        assert answer.status == 200, answer.json
        return answer.json

    def asks(self, method, /, **params):
        """The question that this call becomes, as the person sees it."""
        answer = self.call(method, **params)
        assert answer.status == 202, answer.json
        return self.person.call("approvals.show", {"approvalId": answer.error["details"]["approvalId"]})

    def decide(self, question, decision="approved", **more):
        params = {"approvalId": question["approvalId"], "decision": decision, **more}
        return self.person.call("approvals.decide", params)

    def approved(self, method, /, **params):
        self.decide(self.asks(method, **params))
        return self.done(method, **params)

    # -- what there is --

    def records(self, method):
        found = self.person.call("ledger.show", {"what": f"desktop.{method}", "limit": 1_000})
        return [each for each in found if each["principal"] == f"agent:{self.name}"]

    def files(self):
        """Every file that the house and its evidence consist of, with its bytes."""
        for directory, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        yield path, file.read()
