"""`bascule approvals` and `bascule policy` as people use them: on a terminal, with a passphrase."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from patience import PATIENCE

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "approval"))

from exit_codes import CONFLICT, NOT_FOUND, USAGE
from living import eventually, run_command, short_dir
from living_grove import PASSPHRASE, POLICY, Grove, person
from wires import Caller

from terminal import on_a_terminal

QUICK = {"approval_hold_ms": 50}
TYPED = PASSPHRASE["passphrase"]
TRICK = "oak\x1b[2K\u202egnp.exe"


@pytest.fixture(scope="module")
def forest():
    with short_dir() as folder:
        grove = Grove(folder)
        with grove.live(**QUICK) as daemon:
            person(daemon, new=True).close()
            grove.daemon = daemon
            grove.jerry = Caller(daemon).register("Jerry")
            yield grove


@pytest.fixture
def ask(forest):
    def asked(path="oak"):
        answer = forest.jerry.post("/trees", {"path": path})
        assert answer.status == 202, answer
        return answer.error["details"]["approvalId"]

    return asked


def run(forest, *arguments):
    return run_command(*arguments, "--state-dir", forest.state)


def on_tty(forest, *arguments, typed):
    return on_a_terminal(*arguments, "--state-dir", forest.state, typed=typed)


def cut(forest, path):
    return forest.jerry.post("/trees", {"path": path}).json == "felled"


# -- looking --


def test_without_a_verb_what_waits_is_listed(forest, ask):
    approval_id = ask("listed")
    done = run(forest, "approvals")
    assert done.returncode == 0
    assert approval_id in done.stdout
    assert 'tree.cut {"path":"listed"}' in done.stdout
    assert json.loads(run(forest, "approvals", "list", "--json").stdout)[0]["state"] == "pending"
    before = run_command("approvals", "--state-dir", forest.state, "list")
    assert approval_id in before.stdout, "an option before the verb counts too"


def test_show_draws_everything_and_nothing_in_it_acts_on_the_terminal(forest, ask):
    approval_id = ask(TRICK)
    done = run(forest, "approvals", "show", approval_id)
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "│   path: oak⟨ESC⟩[2K⟨U+202E⟩gnp.exe" in done.stdout.splitlines()
    view = json.loads(run(forest, "approvals", "show", approval_id, "--json").stdout)
    assert f"digest    {view['digest'][:4]} {view['digest'][4:8]}" in done.stdout
    assert "a tree is felled once (rule trees-ask)" in done.stdout
    assert "rule 1: exactly this again, for a while" in done.stdout
    assert "allow agent:Jerry to call tree.cut, with exactly these params" in done.stdout


def test_an_id_may_be_cut_short_and_an_unknown_one_is_said(forest, ask):
    approval_id = ask("short")
    assert approval_id in run(forest, "approvals", "show", approval_id[:16]).stdout
    assert run(forest, "approvals", "show", "apr_ffffffffffffffffffffff").returncode == NOT_FOUND


# -- answering --


def test_approving_needs_a_terminal_and_the_passphrase(forest, ask):
    approval_id = ask("needs")
    done = run(forest, "approvals", "approve", approval_id, "--once")
    assert done.returncode == USAGE
    assert "no terminal" in done.stderr
    wrong = on_tty(forest, "approvals", "approve", approval_id, "--once", typed=[("Passphrase: ", "guessed wrong")])
    assert "wrong passphrase" in wrong.shown
    assert not cut(forest, "needs")
    right = on_tty(forest, "approvals", "approve", approval_id, "--once", typed=[("Passphrase: ", TYPED)])
    assert right.code == 0
    assert f"{approval_id} is approved" in right.shown
    assert TYPED not in right.shown
    assert cut(forest, "needs")
    assert not cut(forest, "needs")


def test_approve_shows_the_question_and_asks_how(forest, ask):
    approval_id = ask("how")
    session = on_tty(
        forest, "approvals", "approve", approval_id, typed=[("Enter = not now: ", "y"), ("Passphrase: ", TYPED)]
    )
    assert "│   path: how" in session.shown
    assert session.code == 0
    assert cut(forest, "how")
    again = ask("how")
    session = on_tty(forest, "approvals", "approve", again, typed=[("Enter = not now: ", "")])
    assert session.code == USAGE
    assert "nothing was answered" in session.shown


def test_a_timed_rule_is_printed_before_and_after_it_is_chosen(forest, ask):
    approval_id = ask("timed")
    session = on_tty(
        forest,
        "approvals",
        "approve",
        approval_id,
        typed=[("Enter = not now: ", "1"), ("Enter for 10)? ", "30"), ("Passphrase: ", TYPED)],
    )
    assert session.code == 0
    assert session.shown.count("allow agent:Jerry to call tree.cut, with exactly these params (digest ") == 3
    assert cut(forest, "timed")
    assert cut(forest, "timed")
    assert "tree.cut, with exactly these params" in run(forest, "policy", "show").stderr


def test_a_rule_and_its_minutes_are_chosen_in_one_line_as_the_prompt_says(forest, ask):
    approval_id = ask("in one line")
    session = on_tty(
        forest,
        *("approvals", "approve", approval_id),
        typed=[("(1 30 = for 30 minutes), n = no, Enter = not now: ", "1 30"), ("Passphrase: ", TYPED)],
    )
    assert session.code == 0
    # As it was offered, and as it holds now.
    assert session.shown.count("allow agent:Jerry to call tree.cut, with exactly these params (digest ") == 2
    assert "For how many minutes" not in session.shown
    assert cut(forest, "in one line")
    assert cut(forest, "in one line")


@pytest.mark.parametrize("typed", ["1 0", "1 481", "1 x", "1 -5", "1 30 30"])
def test_minutes_that_are_none_answer_nothing(forest, ask, typed):
    session = on_tty(forest, "approvals", "approve", ask(f"minutes {typed}"), typed=[("Enter = not now: ", typed)])
    assert session.code == USAGE
    assert "is not 1 to 480 minutes" in session.shown


def test_denying_tells_why(forest, ask):
    approval_id = ask("denied")
    typed = [("Passphrase: ", TYPED)]
    session = on_tty(forest, "approvals", "deny", approval_id, "--reason", "too old", typed=typed)
    assert session.code == 0
    shown = run(forest, "approvals", "show", approval_id).stdout
    assert "denied" in shown.splitlines()[0]
    assert "too old" in shown
    assert on_tty(forest, "approvals", "deny", approval_id, typed=typed).code == CONFLICT


def test_watch_rings_shows_and_takes_answers_from_the_terminal(forest):
    with person(forest.daemon) as owner:
        for view in owner.call("approvals.list"):
            owner.call("approvals.decide", {"approvalId": view["approvalId"], "decision": "denied"})
    approved = []

    def asks():
        # Held for a moment each time; the person is quicker than that here.
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not approved:
            if cut(forest, "watched"):
                approved.append(True)

    asking = threading.Thread(target=asks)
    asking.start()
    session = None
    try:
        session = on_a_terminal(
            "approvals",
            "watch",
            "--state-dir",
            forest.state,
            typed=[("Enter = later: ", "y"), ("Passphrase: ", TYPED)],
            until=lambda: bool(approved),
        )
    finally:
        asking.join(PATIENCE)
    assert approved == [True]
    assert "\a" in session.shown
    assert session.code in (130, -signal.SIGINT)


# -- policy --


def test_policy_show_prints_a_text_that_can_be_kept(forest, tmp_path):
    done = run(forest, "policy", "show")
    assert done.stdout.rstrip("\n") == POLICY.rstrip("\n")
    assert "in force: custom" in done.stderr


def test_policy_explain_says_what_would_happen(forest):
    done = run(forest, "policy", "explain", "tree.cut", '{"path": "x"}', "--as", "agent:Jerry")
    assert done.stdout.startswith("ask: agent:Jerry calling tree.cut (effect write)")
    assert "rule: trees-ask" in done.stdout
    wrong = run(forest, "policy", "explain", "tree.cut", "not json")
    assert wrong.returncode == USAGE
    assert run(forest, "policy", "explain", "tree.cat").returncode == NOT_FOUND


def test_policy_explain_reads_a_command(forest):
    done = run(forest, "policy", "explain", "workspace.shell", '{"command": "rm -rf x"}')
    assert done.stdout.startswith("ask: local calling workspace.shell")


def test_policy_test_needs_no_daemon_and_says_what_does_not_hold(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text('version = 1\nextends = "standard"\n')
    done = run_command("policy", "test", str(file))
    assert done.returncode == 0
    assert "all hold" in done.stdout
    file.write_text(
        'version = 1\n[[rule]]\nname = "x"\ndecision = "deny"\nreason = "r"\nmethods = ["messages.send"]\n'
        'match = [{ principal = "local", method = "messages.broadcast" }]\n'
    )
    done = run_command("policy", "test", str(file))
    assert done.returncode == 1
    assert "does not match its own example" in done.stderr
    assert run_command("policy", "test", str(tmp_path / "none")).returncode == USAGE


def test_an_edited_policy_is_shown_as_a_diff_accepted_by_its_digest_and_only_then_in_force():
    with short_dir() as folder:
        grove = Grove(folder)
        with grove.live(**QUICK) as daemon:
            person(daemon, new=True).close()
            new = POLICY + '\n[[rule]]\nname = "quiet"\ndecision = "deny"\nreason = "hush"\nmethods = ["messages.*"]\n'
            with open(f"{grove.config}/policy.toml", "w") as file:
                file.write(new)
            assert "is not in force" in run(grove, "policy", "show").stderr
            Caller(daemon).register("Jerry")
            assert Caller(daemon).post("/agents/Jerry/send", {"payload": "x"}).status == 200
            no = on_tty(grove, "policy", "accept", typed=[("Type yes: ", "y")])
            assert "nothing was changed" in no.shown
            assert '+name = "quiet"' in no.shown
            assert '-name = "read"' not in no.shown, "what a preset brings is written out on both sides"
            yes = on_tty(grove, "policy", "accept", typed=[("Type yes: ", "yes"), ("Passphrase: ", TYPED)])
            assert yes.code == 0, yes.shown
            assert Caller(daemon).post("/agents/Jerry/send", {"payload": "x"}).status == 403
            assert "nothing to accept" in run(grove, "policy", "accept").stderr
            eventually(lambda: "policy_edited" in daemon.log(), "the log says that the file was edited")
