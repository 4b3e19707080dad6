"""The bridge-* commands against a scripted daemon: what they send, print and return."""

import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper

import pytest
from fake_http import FakeHttp, answer, refusal

from bascule.foundation import paths
from bascule.foundation.agreement import is_ticket_id
from bascule.local_client import exits
from bascule.programs.helpers import program, recv, register, reply, send
from bascule.programs.helpers.seen import handle_of, remember
from patience import PATIENCE

COMMANDS = {
    "bridge-register": register.main,
    "bridge-reply": reply.main,
    "bridge-recv": recv.main,
    "bridge-send": send.main,
}
NO_CONTENT = answer(204)


@pytest.fixture
def serve(state):
    def start(*script):
        return FakeHttp(paths.http_socket(state), list(script))

    return start


@pytest.fixture
def run(state, capsys):
    def run_command(*words):
        code = program.run(words[0], COMMANDS[words[0]], [*words[1:], "--state-dir", state])
        out, err = capsys.readouterr()
        return code, out, err

    return run_command


def piped(monkeypatch, data: bytes):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))


REGISTERED = {"agentId": "Jerry", "status": "registered", "expiresAt": "2025-10-20T08:00:00.000Z"}


# -- bridge-register ------------------------------------------------------------------------------


def test_register_sends_the_metadata_of_the_spec(serve, run, monkeypatch):
    monkeypatch.setenv("TMUX_PANE", "%7")
    with serve(answer(200, {**REGISTERED, "agentToken": "secret"})) as daemon:
        code, out, _ = run(
            *("bridge-register", "--agent", "Jerry", "--type", "codex", "--session", "S", "--capability", "review"),
            *("--capability", "tests", "--metadata", '{"team":"blue","cwd":"/x"}', "--heartbeat-ms", "30000"),
        )
    assert code == 0
    assert daemon.got[0].path == "/agents/register"
    assert daemon.got[0].json == {
        "agentId": "Jerry",
        "type": "codex",
        "heartbeatIntervalMs": 30000,
        "metadata": {
            "paneId": "%7",
            "session": "S",
            "cwd": "/x",
            "capabilities": ["review", "tests"],
            "team": "blue",
        },
    }
    assert "bridge-recv --agent Jerry" in out


def test_register_takes_name_and_directory_from_where_it_runs(serve, run, monkeypatch):
    monkeypatch.setenv("BRIDGE_AGENT_ID", "Jerry")
    with serve(answer(200, REGISTERED)) as daemon:
        code, _, _ = run("bridge-register", "--pane", "%0")
    assert code == 0
    assert daemon.got[0].json == {"agentId": "Jerry", "metadata": {"cwd": os.getcwd(), "paneId": "%0"}}


def test_register_again_with_the_token_is_a_reconnect(serve, run, keep_token):
    keep_token("Jerry", "kept")
    with serve(answer(200, {**REGISTERED, "reconnected": True, "unread": 2})) as daemon:
        code, out, _ = run("bridge-register", "--agent", "Jerry")
    assert code == 0
    assert daemon.got[0].bearer == "kept"
    assert "reconnected Jerry, 2 unread" in out


def test_register_with_a_token_of_an_older_life_tries_without(serve, run, keep_token):
    keep_token("Jerry", "stale")
    with serve(refusal(401, "unauthenticated"), answer(200, REGISTERED)) as daemon:
        assert run("bridge-register", "--agent", "Jerry")[0] == 0
    assert [got.bearer for got in daemon.got] == ["stale", None]


def test_register_never_prints_the_token_that_the_daemon_keeps(serve, run, keep_token):
    def daemon_writes_token(_got):
        keep_token("Jerry", "secret")
        return answer(200, {**REGISTERED, "agentToken": "secret"})

    with serve(daemon_writes_token):
        code, out, err = run("bridge-register", "--agent", "Jerry", "--json")
    assert code == 0
    assert "secret" not in out + err
    assert json.loads(out)["tokenFile"].endswith("/tokens/+jerry.token")


def test_register_hands_over_a_token_that_is_kept_elsewhere(serve, run):
    with serve(answer(200, {**REGISTERED, "agentToken": "secret"})):
        assert "export BRIDGE_AGENT_TOKEN=secret" in run("bridge-register", "--agent", "Jerry")[2]


def test_register_on_a_handle_that_is_taken_is_a_conflict(serve, run):
    with serve(refusal(409, "conflict", "Jerry is in use", hint="Jerry-2 is free")):
        code, _, err = run("bridge-register", "--agent", "Jerry")
    assert code == exits.CONFLICT
    assert "Jerry is in use" in err
    assert "Jerry-2 is free" in err


@pytest.mark.parametrize("words", [["--agent", "../x"], ["--agent", "local"], [], ["--agent", "J", "--metadata", "[]"]])
def test_register_refuses_bad_words_before_anything_is_sent(run, words):
    assert run("bridge-register", *words)[0] == exits.USAGE


# -- bridge-reply ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "piped_in", "ticket_variable"),
    [
        (["t-1", "hello"], None, None),
        (["--ticket", "t-1", "--message", "hello"], None, None),
        (["--ticket", "t-1", "hello"], None, None),
        (["t-1", "--message", "hello"], None, "other"),
        (["--ticket", "t-1"], b"hello\n", "other"),
        (["t-1"], b"hello\n", None),
        (["t-1", "-"], b"hello\n", None),
        (["hello"], None, "t-1"),
        ([], b"hello\n", "t-1"),
    ],
)
def test_reply_takes_ticket_and_text_in_every_form(
    *, serve, run, keep_token, monkeypatch, words, piped_in, ticket_variable
):
    keep_token("Jerry", "of-jerry")
    if piped_in is not None:
        piped(monkeypatch, piped_in)
    if ticket_variable:
        monkeypatch.setenv("BRIDGE_TICKET", ticket_variable)
    with serve(NO_CONTENT) as daemon:
        code, out, _ = run("bridge-reply", *words, "--agent", "Jerry")
    assert (code, out) == (0, "replied to t-1\n")
    assert daemon.got[0].json == {"ticketId": "t-1", "payload": "hello"}
    assert daemon.got[0].bearer == "of-jerry"


@pytest.mark.parametrize(
    "words",
    [
        ["t-1", "one", "two"],
        ["../etc", "x"],
        ["t 1", "x"],
        ["a" * 129, "x"],
        ["t-1", "not json", "--json-payload"],
        ["t-1", "x", "--metadata", "[1]"],
        ["--ticket", "t-1", "x", "--message", "y"],
    ],
)
def test_reply_refuses_bad_words_before_anything_is_sent(run, words):
    assert run("bridge-reply", *words)[0] == exits.USAGE


def test_reply_sends_json_and_metadata(serve, run, keep_token, monkeypatch):
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_AGENT_ID", "Jerry")
    with serve(NO_CONTENT) as daemon:
        code, out, _ = run(
            *("bridge-reply", "t-1", '{"passed": 12}', "--json-payload"),
            *("--metadata", '{"status":"completed"}', "--json"),
        )
    assert code == 0
    assert daemon.got[0].json == {"ticketId": "t-1", "payload": {"passed": 12}, "metadata": {"status": "completed"}}
    assert json.loads(out) == {"ticketId": "t-1", "status": "sent"}


def test_reply_answers_as_the_agent_that_received_the_ticket(serve, run, state, keep_token):
    keep_token("Jerry", "of-jerry")
    keep_token("Spock", "of-spock")
    remember(state, "t-1", "Spock")
    with serve(NO_CONTENT) as daemon:
        assert run("bridge-reply", "t-1", "x")[0] == 0
    assert [got.bearer for got in daemon.got] == ["of-spock"]


def test_reply_answers_as_the_addressee_when_nobody_remembers(serve, run, keep_token):
    keep_token("Jerry", "of-jerry")
    with serve(answer(200, {"ticketId": "t-1", "targetAgent": "Jerry"}), NO_CONTENT) as daemon:
        assert run("bridge-reply", "t-1", "x")[0] == 0
    assert [(got.path, got.bearer) for got in daemon.got] == [("/tickets/t-1", None), ("/replies", "of-jerry")]


def test_reply_without_any_token_of_the_addressee_says_how_to_get_one(serve, run):
    with serve(answer(200, {"ticketId": "t-1", "targetAgent": "Jerry"})):
        code, _, err = run("bridge-reply", "t-1", "x")
    assert code == exits.REFUSED
    assert "bridge-register --agent Jerry" in err


def test_reply_is_repeated_with_the_same_ticket_until_the_daemon_answers(serve, run, keep_token):
    keep_token("Jerry", "of-jerry")
    script = [None, refusal(503, "unavailable", retry_after=0), refusal(429, "overloaded", retry_after=0), NO_CONTENT]
    with serve(*script) as daemon:
        assert run("bridge-reply", "t-1", "x", "--agent", "Jerry")[0] == 0
    assert [got.json for got in daemon.got] == [{"ticketId": "t-1", "payload": "x"}] * 4


@pytest.mark.parametrize(
    ("expected", "code"),
    [
        (refusal(403, "forbidden"), exits.REFUSED),
        (refusal(404, "not_found", "ticket expired"), exits.NOT_FOUND),
        (refusal(409, "conflict", "ticket cancelled"), exits.CONFLICT),
        (refusal(426, "version_mismatch"), exits.VERSION_MISMATCH),
        (refusal(507, "storage_full"), exits.OVERLOADED),
    ],
)
def test_reply_fails_with_the_exit_code_of_the_refusal(serve, run, keep_token, expected, code):
    keep_token("Jerry", "of-jerry")
    with serve(expected) as daemon:
        assert run("bridge-reply", "t-1", "x", "--agent", "Jerry")[0] == code
    assert len(daemon.got) == 1


# -- bridge-recv ----------------------------------------------------------------------------------

MESSAGE = {
    "ticketId": "t-1",
    "from": "Spock",
    "payload": "look:\x1b[2J",
    "metadata": {},
    "expectReply": True,
    "createdAt": "2025-10-20T08:00:00.000Z",
    "replyBy": "2025-10-20T08:30:00.000Z",
    "attempts": 1,
    "leaseMs": 60000,
}


def test_recv_prints_who_what_and_how_to_answer_and_then_acknowledges(serve, run, state, keep_token):
    keep_token("Jerry", "of-jerry")
    with serve(answer(200, {"messages": [MESSAGE], "remaining": 2}), answer(200, {"acked": ["t-1"]})) as daemon:
        code, out, _ = run("bridge-recv", "--agent", "Jerry")
    assert code == 0
    header, _, text = out.partition("-" * 40 + "\n")
    assert "from agent Spock (sender verified): not from your user" in header
    assert 'bridge-reply t-1 "your answer"' in header
    assert "2 more waiting" in header
    assert text == "look:⟨ESC⟩[2J\n"
    taken, acked = daemon.got
    assert taken.path == "/agents/Jerry/inbox?waitMs=25000&max=1"
    assert (acked.path, acked.json) == ("/agents/Jerry/inbox/ack", {"ticketIds": ["t-1"]})
    assert {taken.bearer, acked.bearer} == {"of-jerry"}
    assert handle_of(state, "t-1") == "Jerry"


def test_recv_in_json_is_the_message(serve, run, keep_token):
    keep_token("Jerry", "of-jerry")
    with serve(answer(200, {"messages": [MESSAGE]}), answer(200, {"acked": ["t-1"]})):
        code, out, _ = run("bridge-recv", "--agent", "Jerry", "--json")
    assert code == 0
    assert json.loads(out) == {**MESSAGE, "remaining": 0}


def test_recv_without_a_message_in_time_is_exit_code_3(serve, run, keep_token):
    keep_token("Jerry", "of-jerry")
    with serve(NO_CONTENT):
        assert run("bridge-recv", "--agent", "Jerry", "--wait", "0")[0] == exits.NOTHING_CAME


def test_recv_does_not_acknowledge_what_nobody_could_read(serve, state, keep_token):
    keep_token("Jerry", "of-jerry")
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from bascule.programs.helpers.commands import bridge_recv; sys.exit(bridge_recv())"
    with serve(answer(200, {"messages": [MESSAGE]})) as daemon:
        command = [sys.executable, "-c", code, "--agent", "Jerry", "--state-dir", state]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        os.close(writing)
    assert (done.returncode, done.stderr) == (exits.UNEXPECTED, b"")
    assert [got.path for got in daemon.got] == ["/agents/Jerry/inbox?waitMs=25000&max=1"]


def test_recv_asks_whose_token_the_environment_holds(serve, run, monkeypatch):
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of-jerry")
    with serve(answer(200, {"principal": "agent:Jerry"}), NO_CONTENT) as daemon:
        assert run("bridge-recv", "--wait", "0")[0] == exits.NOTHING_CAME
    assert daemon.got[1].path.startswith("/agents/Jerry/inbox")


def test_recv_hears_at_once_that_nothing_runs(run, keep_token):
    keep_token("Jerry", "of-jerry")
    code, _, err = run("bridge-recv", "--agent", "Jerry")
    assert code == exits.UNREACHABLE
    assert "bascule up -d" in err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"from": "local"}, "an unnamed program of this user (sender verified): not from your user"),
        ({"from": "local@laptop"}, "an unnamed program at laptop (sender verified): not from your user"),
        ({"from": "person@laptop"}, "the person at laptop (sender verified): not from your user"),
        ({"from": "Ada@laptop"}, "agent Ada@laptop (sender verified): not from your user"),
        ({"from": "person"}, "the person at this machine"),
        ({"attempts": 3}, "handed out 3 times"),
        ({"timedOut": True}, "stopped waiting"),
        ({"expectReply": False}, "no reply is expected"),
        ({"conversationId": "review-7"}, "conversation: review-7"),
        ({"payload": {"a": [1]}}, '"a": ['),
        ({"from": "Sp\nock"}, "agent Sp⟨LF⟩ock"),
    ],
)
def test_recv_says_what_is_special_about_a_message(change, expected):
    assert expected in recv.describe({**MESSAGE, **change}, "Jerry", 0)


# -- bridge-send ----------------------------------------------------------------------------------

SENT = {"ticketId": "x", "status": "pending", "waitEndpoint": "/replies/x/stream", "agentStatus": "online"}
REPLIED = {"ticketId": "x", "status": "responded", "payload": "fine\x07", "latencyMs": 5, "from": "Jerry"}


def test_send_makes_its_own_ticket_and_prints_the_reply(serve, run):
    with serve(answer(200, SENT), NO_CONTENT, answer(200, REPLIED)) as daemon:
        code, out, err = run("bridge-send", "Jerry", "how are you?", "--timeout", "60000", "--conversation", "c-1")
    assert (code, out) == (0, "fine⟨U+0007⟩\n")
    assert "from agent Jerry" in err
    sent = daemon.got[0].json
    assert daemon.got[0].path == "/agents/Jerry/send"
    assert is_ticket_id(sent["ticketId"])
    assert (sent["payload"], sent["timeoutMs"], sent["conversationId"]) == ("how are you?", 60000, "c-1")
    assert [got.path for got in daemon.got[1:]] == [f"/replies/{sent['ticketId']}?waitMs=60000"] * 2


def test_send_repeats_with_the_same_ticket_and_waits_through_a_restart(serve, run):
    with serve(None, answer(200, SENT), None, refusal(503, "unavailable"), answer(200, REPLIED)) as daemon:
        assert run("bridge-send", "Jerry", "x")[0] == 0
    first, second = daemon.got[:2]
    assert first.json == second.json


def test_send_without_waiting_prints_the_ticket(serve, run):
    with serve(answer(200, {**SENT, "agentStatus": "offline"})) as daemon:
        code, out, err = run("bridge-send", "Jerry", "x", "--no-wait", "--ticket", "my-own")
    assert (code, out) == (0, "my-own\n")
    assert "offline" in err
    assert daemon.got[0].json["ticketId"] == "my-own"


def test_send_without_a_reply_in_time_is_exit_code_3_and_names_the_next_step(serve, run):
    with serve(answer(200, SENT), answer(200, {"ticketId": "x", "status": "timeout"})) as daemon:
        code, out, err = run("bridge-send", "Jerry", "x")
    assert (code, out) == (exits.NOTHING_CAME, "")
    assert f"bridgectl show {daemon.got[0].json['ticketId']}" in err


def test_send_of_a_cancelled_ticket_is_a_conflict(serve, run):
    with serve(answer(200, SENT), answer(200, {"ticketId": "x", "status": "cancelled"})):
        assert run("bridge-send", "Jerry", "x", "--json")[0] == exits.CONFLICT


def test_send_goes_out_as_the_named_agent(serve, run, keep_token):
    keep_token("Spock", "of-spock")
    with serve(answer(200, SENT), answer(200, REPLIED)) as daemon:
        code, out, _ = run("bridge-send", "Jerry", "x", "--as", "Spock", "--json")
    assert code == 0
    assert json.loads(out)["payload"] == "fine\x07"
    assert {got.bearer for got in daemon.got} == {"of-spock"}


def test_send_reads_the_default_deadline_from_the_environment(serve, run, monkeypatch):
    monkeypatch.setenv("BRIDGE_DEFAULT_TIMEOUT_MS", "1234")
    with serve(answer(200, SENT)) as daemon:
        assert run("bridge-send", "Jerry", "x", "--no-wait")[0] == 0
    assert daemon.got[0].json["timeoutMs"] == 1234


@pytest.mark.parametrize(
    "words",
    [["../x", "y"], ["Jerry", "x", "--ticket", "a b"], ["Jerry", "x", "--as", "person"], ["Jerry", ""]],
)
def test_send_refuses_bad_words_before_anything_is_sent(run, words):
    assert run("bridge-send", *words)[0] == exits.USAGE


# -- all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(run, capsys, name):
    with pytest.raises(SystemExit) as caught:
        run(name, "--help")
    assert caught.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_ctrl_c_is_exit_code_130():
    def interrupted(_arguments):
        raise KeyboardInterrupt

    assert program.run("x", interrupted, []) == exits.INTERRUPTED
