"""A call that ends its own session is answered: signing in replaces a paired session, signing out ends one."""

from living import Living
from pages import Page
from wires import LinkWire

import inside

PASSPHRASE = "correct horse battery"


def test_a_paired_page_that_signs_in_gets_its_answer(state):
    with Living(state, console_port=0, constants=inside.CHEAP_PASSPHRASE) as house:
        with LinkWire(house.link_socket).hello() as link:
            link.call("person.set", {"passphrase": PASSPHRASE})
        page = Page(house).pair()
        challenge = page.post("/v1/person/challenge", {"purpose": "sign-in"}).json
        answer = page.post("/v1/person/prove", {"challengeId": challenge["challengeId"], "passphrase": PASSPHRASE})
        assert answer.status == 200, answer
        assert answer.json["grade"] == "signed_in"
        assert page.get("/v1/console/session").status == 401
        signed_in = Page(house, answer.json["token"])
        assert signed_in.get("/v1/console/session").json["grade"] == "signed_in"
        assert signed_in.post("/v1/console/signout").json["revoked"] == 1
        assert signed_in.get("/v1/console/session").status == 401
