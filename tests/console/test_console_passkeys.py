"""Passkeys over the real door: enrolled, used to sign in and to prove a call, kept, and found in the ledger."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import zlib

import pytest
from living import Living, run_command
from pages import Page
from wires import LinkWire

from inside import CHEAP_PASSPHRASE
from patience import PATIENCE
from soft_key import PRESENT, SoftKey
from terminal import on_a_terminal

PASSPHRASE = "correct horse battery staple"
INVITE = ("passkeys.invite", "/v1/passkeys/invite", {})


def living(state, **more):
    return Living(state, console_port=more.pop("console_port", 0), constants=CHEAP_PASSPHRASE, **more)


@pytest.fixture
def daemon(state):
    with living(state) as daemon:
        with LinkWire(daemon.link_socket).hello() as link:
            link.call("person.set", {"passphrase": PASSPHRASE})
        yield daemon


@pytest.fixture
def key(daemon):
    key = SoftKey()
    Page(daemon).pair().enrol(code_of(daemon), key)
    return key


def code_of(daemon):
    with LinkWire(daemon.link_socket).hello() as link:
        link.call("person.unlock", {"passphrase": PASSPHRASE})
        return link.call("passkeys.invite")["code"]


def ok(answer):
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json


def act(page, key, method, path, params):
    return page.post(path, params, more={"Bascule-Proof": page.prove(page.challenge(method, params), key)})


def test_a_person_signs_in_with_a_touch_and_proves_a_call_with_another(daemon, key):
    page = Page(daemon)
    assert page.sign_in(key).json["grade"] == "signed_in"
    refused = page.post(INVITE[1])
    assert (refused.status, refused.error["code"], refused.error["details"]["grade"]) == (
        403,
        "proof_required",
        "fresh",
    )
    assert re.fullmatch(r"[0-9A-Z]{4}-[0-9A-Z]{4}", ok(act(page, key, *INVITE))["code"])


def test_a_page_enrols_a_second_key_with_the_first(daemon, key):
    page = Page(daemon)
    page.sign_in(key)
    code = ok(act(page, key, *INVITE))["code"]
    second = SoftKey()
    page.enrol(code, second, "spare")
    assert Page(daemon).sign_in(second).status == 200
    assert [each["name"] for each in ok(page.get("/v1/passkeys"))] == ["ring", "spare"]


def test_a_stranger_of_a_key_and_one_that_does_not_verify_are_refused(daemon, key):
    stranger = SoftKey()
    stranger.origin = key.origin
    assert Page(daemon).sign_in(stranger).status == 403
    key.flags = PRESENT
    refused = Page(daemon).sign_in(key)
    assert (refused.status, "PIN" in refused.error["hint"]) == (403, True)


def test_without_a_session_a_page_may_sign_in_and_nothing_else(daemon):
    page = Page(daemon)
    for path in ("/v1/passkeys/begin", "/v1/passkeys/finish", "/v1/passkeys/confirm", INVITE[1]):
        assert page.post(path, {"code": "x", "name": "x"}).status in (401, 403)
    assert page.get("/v1/passkeys").status in (401, 403)
    asked = {"purpose": "calls", "calls": [{"method": "passkeys.invite", "params": {}}]}
    assert page.post("/v1/person/challenge", asked).status == 403


def test_keys_and_their_evidence_are_there_after_a_restart(state, daemon, key):
    page = Page(daemon)
    page.sign_in(key)
    ok(act(page, key, *INVITE))
    port = page.port
    assert daemon.stop() == 0
    done = run_command("ledger", "verify", "--json", "--state-dir", state)
    result = json.loads(done.stdout)
    assert (result["faults"], result["signatures"]) == ([], 3)
    with living(state, console_port=port) as again:
        # Sessions died with the daemon; the key did not.
        assert page.get("/v1/console/session").status == 401
        assert Page(again).sign_in(key).status == 200


def test_a_key_that_was_written_into_the_database_is_ignored(state, daemon, key):
    port = Page(daemon).port
    assert daemon.stop() == 0
    evil = SoftKey()
    evil.origin = key.origin
    with contextlib.closing(sqlite3.connect(f"{state}/bascule.db")) as database:
        ((name, body),) = database.execute("SELECT key, body FROM passkeys")
        row = json.loads(body) | {"credential_id": evil.id, "public_key": evil.create("")["publicKey"], "counter": 0}
        text = json.dumps(row).encode()
        crc = zlib.crc32(text, zlib.crc32(name.encode()))
        database.execute("UPDATE passkeys SET body = ?, crc = ?", (text, crc))
        database.commit()
    with living(state, console_port=port) as again:
        assert Page(again).sign_in(evil).status == 403
        assert Page(again).sign_in(key).status == 403


def test_a_reset_of_the_person_takes_their_keys_away(state, daemon, key):
    port = Page(daemon).port
    here = ["--state-dir", state]
    assert daemon.stop() == 0
    assert on_a_terminal("person", "reset", *here, typed=[("Type RESET: ", "RESET")]).code == 0
    with living(state, console_port=port) as again:
        refused = Page(again).sign_in(key)
        assert (refused.status, "not enrolled" in refused.error["message"]) == (403, True)
        with LinkWire(again.link_socket).hello() as link:
            assert link.call("passkeys.list") == []
            assert link.call("ledger.verify")["faults"] == []


def test_the_command_shows_a_code_and_waits_for_the_key(state, daemon):
    key, page = SoftKey(), Page(daemon).pair()
    key.origin = page.origin
    here = ["--state-dir", state]
    enrolled = []

    def type_code(shown):
        found = re.search(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b", shown)
        if found and not enrolled:
            enrolled.append(page.enrol(found[0], key, "blue key"))

    done = on_a_terminal("person", "passkey", "add", *here, typed=[("Passphrase: ", PASSPHRASE)], reader=type_code)
    assert (done.code, "added: blue key" in done.shown) == (0, True), done.shown
    listed = run_command("person", "passkey", "list", *here).stdout
    assert enrolled[0] in listed
    done = on_a_terminal("person", "passkey", "revoke", enrolled[0], *here, typed=[("Passphrase: ", PASSPHRASE)])
    assert done.code == 0, done.shown
    assert "no passkeys" in run_command("person", "passkey", "list", *here).stdout


def test_no_command_pays_for_passkeys_and_the_mesh():
    """Importing `cryptography` takes as long as a helper command as a whole. The daemon loads it, for the mesh."""
    program = (
        "import sys\n"
        "import bascule.cli.main, bascule.daemon.lifecycle, bascule.programs.helpers.commands\n"
        "sys.exit('cryptography' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
