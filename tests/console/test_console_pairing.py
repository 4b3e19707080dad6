"""How a browser becomes a session: six digits, compared by a person; no secret in an address, argument or file."""

import hashlib
import os
import pty
import re
import select
import subprocess

import pytest
from living import Living, eventually, run_command
from pages import VISIT, Page
from wires import LinkWire

import inside
from patience import PATIENCE

# What a test need not wait for.
ALONE = "bascule.admin.pairing.ALONE_SECONDS"
PAIRING = "bascule.admin.pairing.PAIRING_SECONDS"


@pytest.fixture
def house(state):
    with Living(state, console_port=0) as living:
        yield living


@pytest.fixture
def link(house):
    with LinkWire(house.link_socket).hello() as wire:
        yield wire


def confirm(link: LinkWire, pairing: dict[str, str], *, accept: bool = True) -> None:
    link.call("console.confirm", {"pairingId": pairing["pairingId"], "accept": accept})


def test_a_page_that_was_confirmed_is_local_and_nothing_more(house, link):
    page = Page(house).pair()
    shown = page.get("/v1/console/session").json
    assert shown["grade"] == "paired"
    assert shown["origin"] == page.origin
    assert shown["personSet"] is False
    assert page.get("/status").json["principal"] == "local"
    record = link.call("ledger.tail")[-1]
    assert (record["method"], record["outcome"], record["details"]["accepted"]) == ("console.confirm", "ok", True)
    assert record["details"]["process"].startswith(f"pid {os.getpid()} ")


def test_a_page_waits_until_the_digits_are_compared(house, link):
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    assert page.claim(pairing, secret).status == 204
    assert re.fullmatch(r"[0-9]{6}", pairing["digits"])
    waiting = link.request("console.pairings", {"waitMs": 25_000})
    assert [each["digits"] for each in link.answer(waiting)["result"]] == [pairing["digits"]]
    confirm(link, pairing)
    assert page.claim(pairing, secret, 25_000).json["grade"] == "paired"


def test_the_terminal_waits_until_a_page_asks(house, link):
    waiting = link.request("console.pairings", {"waitMs": 25_000})
    pairing, _ = Page(house).ask_to_pair()
    assert [each["pairingId"] for each in link.answer(waiting)["result"]] == [pairing["pairingId"]]


def test_two_pages_within_a_minute_are_both_refused(house, link):
    page = Page(house)
    first, first_secret = page.ask_to_pair()
    second = page.post("/v1/console/pair", {"secretHash": "0" * 64})
    assert second.status == 409
    assert "within a minute" in second.error["message"]
    assert link.call("console.pairings") == []
    assert link.refusal("console.confirm", {"pairingId": first["pairingId"], "accept": True})["code"] == "conflict"
    assert page.claim(first, first_secret).status == 403
    # A third is not alone either.
    assert page.post("/v1/console/pair", {"secretHash": "1" * 64}).status == 409


def test_where_nobody_looks_for_a_second_page_the_second_is_paired(state):
    """The control: a person who compares digits of the wrong page could confirm it."""
    with Living(state, console_port=0, constants={ALONE: 0.0}) as house:
        page = Page(house)
        page.ask_to_pair()
        assert page.pair().get("/status").json["principal"] == "local"


def test_the_same_page_loaded_again_keeps_its_digits(house):
    page = Page(house)
    body = {"secretHash": hashlib.sha256(b"the same").hexdigest()}
    first, again = (page.post("/v1/console/pair", body).json for _ in range(2))
    assert first == again


def test_a_wrong_secret_ends_the_pairing(house, link):
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    confirm(link, pairing)
    assert page.claim(pairing, "x" * 40).status == 403
    # Not even the right one works any more: of two that know the id neither is to be believed.
    assert page.claim(pairing, secret).status == 403


def test_a_session_is_claimed_once(house, link):
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    confirm(link, pairing)
    assert page.claim(pairing, secret).status == 200
    assert page.claim(pairing, secret).status == 404
    assert len(link.call("console.sessions")) == 1


def test_digits_that_differ_are_refused(house, link):
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    confirm(link, pairing, accept=False)
    answer = page.claim(pairing, secret)
    assert answer.status == 403
    assert "not the same" in answer.error["message"]
    assert link.call("console.sessions") == []


def test_digits_are_good_for_some_minutes_only(state):
    with Living(state, console_port=0, constants={PAIRING: 0.0}) as house:
        page = Page(house)
        pairing, secret = page.ask_to_pair()
        assert page.claim(pairing, secret).status == 404
        with LinkWire(house.link_socket).hello() as link:
            assert link.call("console.pairings") == []


def test_no_other_door_pairs_and_no_agent_confirms(house, link):
    assert link.refusal("console.pair", {"secretHash": "0" * 64})["code"] == "forbidden"
    token = link.call("agents.register", {"agentId": "Jerry"})["agentToken"]
    pairing, _ = Page(house).ask_to_pair()
    with LinkWire(house.link_socket).hello(token) as jerry:
        assert jerry.refusal("console.pairings")["code"] == "forbidden"
        assert (
            jerry.refusal("console.confirm", {"pairingId": pairing["pairingId"], "accept": True})["code"] == "forbidden"
        )
        assert jerry.refusal("console.sessions")["code"] == "forbidden"
        assert jerry.refusal("console.revoke")["code"] == "forbidden"


# -- the command -----------------------------------------------------------------------------------


class Terminal:
    """`bascule console ...` with a terminal of its own, as a person has it."""

    def __init__(self, state: str, *arguments: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "DISPLAY"))}
        pid, self._fd = pty.fork()
        if not pid:
            command = [*inside.BASCULE, "console", *arguments, "--state-dir", state]
            os.execve(command[0], command, clean)
        self._pid = pid
        self.text = ""

    def wait_for(self, words: str) -> None:
        while words not in self.text and self._read():
            continue
        assert words in self.text, self.text

    def _read(self) -> bool:
        """Whether there was more; a terminal whose program has ended answers with an error."""
        assert select.select([self._fd], [], [], PATIENCE)[0], self.text
        try:
            self.text += (piece := os.read(self._fd, 1 << 16)).decode()
        except OSError:
            return False
        return bool(piece)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def end(self) -> int:
        while self._read():
            continue
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def test_the_command_shows_the_digits_and_enter_pairs(house, state):
    terminal = Terminal(state, "--no-open")
    terminal.wait_for("Waiting for its six digits")
    page = Page(house)
    assert page.origin in terminal.text
    pairing, secret = page.ask_to_pair()
    terminal.wait_for(f"Your browser shows {pairing['digits'][:3]} {pairing['digits'][3:]}. Same?")
    terminal.type("\n")
    terminal.wait_for("Paired.")
    assert page.claim(pairing, secret).status == 200
    assert terminal.end() == 0


def test_the_command_refuses_when_the_person_says_no(house, state):
    terminal = Terminal(state, "--no-open")
    terminal.wait_for("Waiting for its six digits")
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    terminal.wait_for("Same?")
    terminal.type("n\n")
    terminal.wait_for("refused")
    assert page.claim(pairing, secret).status == 403
    assert terminal.end() != 0


def test_the_command_sees_that_a_paired_browser_has_come_back(house, state):
    page = Page(house).pair()
    terminal = Terminal(state, "--no-open")
    terminal.wait_for("Waiting for its six digits")
    eventually(lambda: page.get("/v1/console/session").status == 200, "the page is there")
    terminal.wait_for("paired already")
    assert terminal.end() == 0


def test_without_a_terminal_the_command_refuses_before_a_browser_opens(house, state):
    # A session of its own has no controlling terminal.
    ended = subprocess.run(
        [*inside.BASCULE, "console", "--state-dir", state],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode != 0
    assert "there is no terminal" in ended.stderr
    assert "opens in your browser" not in ended.stdout


def test_a_daemon_without_a_console_says_how_to_get_one(state):
    with Living(state):
        ended = run_command("console", "--state-dir", state)
    assert ended.returncode != 0
    assert "console_port" in ended.stderr


def test_sessions_are_listed_and_ended_from_a_pipe_too(house, state):
    page = Page(house).pair()
    own = page.get("/v1/console/session").json["sessionId"]
    assert own in run_command("console", "--list", "--state-dir", state).stdout
    assert "1 ended" in run_command("console", "--revoke", own, "--state-dir", state).stdout
    assert page.get("/v1/console/session").status == 401
    assert "no browser is paired" in run_command("console", "--list", "--state-dir", state).stdout
    assert run_command("console", "--revoke", own, "--state-dir", state).returncode != 0
    assert page.get("/", fetch=VISIT).status == 200
