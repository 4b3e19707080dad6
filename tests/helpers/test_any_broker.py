"""The helpers at a broker that is not ours: section 5 is all it has, and with https its certificate must be right."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from living import Living, short_dir
from small_broker import small_broker

from bascule.local_client import choice, exits, http
from bascule.local_client.tls import CA_VARIABLE
from certificates import certificate_in
from patience import PATIENCE

BIN = Path(sys.executable).parent
# Far above what any of them takes on a busy machine.


@pytest.fixture
def broker():
    with small_broker() as running:
        yield running


@pytest.fixture
def tls(tmp_path):
    """A broker with a self-signed certificate, and the file of that certificate."""
    certificate, key = certificate_in(tmp_path)
    with small_broker((certificate, key)) as running:
        running.certificate = str(certificate)
        yield running


def run(state, url, *words, **variables):
    return subprocess.run(
        [BIN / words[0], *words[1:], "--state-dir", state],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "BRIDGE_BROKER_URL": url, **variables},
    )


def ok(*arguments, **variables):
    done = run(*arguments, **variables)
    assert done.returncode == 0, done
    return done.stdout


def test_register_send_and_reply_need_section_5_and_no_more(broker, state):
    assert ok(state, broker.url, "bridge-register", "--agent", "Jerry") == f"registered Jerry at {broker.url}\n"
    asked = []
    words = ("bridge-send", "Jerry", "6 x 7?", "--ticket", "t-1", "--timeout", "60000")
    asking = threading.Thread(target=lambda: asked.append(run(state, broker.url, *words)))
    asking.start()
    with broker.changed:
        assert broker.changed.wait_for(lambda: broker.sent, PATIENCE)
    assert ok(state, broker.url, "bridge-reply", "t-1", "42") == "replied to t-1\n"
    asking.join()
    assert (asked[0].returncode, asked[0].stdout) == (0, "42\n")
    assert "reply from agent Jerry (as the broker says), not from your user" in asked[0].stderr
    assert "Jerry" in ok(state, broker.url, "bridgectl", "list", "agents")
    assert set(broker.asked) == {
        "POST /agents/register",
        "POST /agents/Jerry/send",
        "GET /replies/t-1",
        "POST /replies",
        "GET /agents",
    }
    assert set(broker.tokens) == {None}


def test_such_a_brokers_refusals_are_reported_in_its_words(broker, state):
    done = run(state, broker.url, "bridge-send", "Nobody", "x")
    assert (done.returncode, "agent not registered" in done.stderr) == (exits.NOT_FOUND, True)
    # A page instead of JSON.
    done = run(state, broker.url, "bridgectl", "show", "t-1")
    assert (done.returncode, "the daemon answered 404" in done.stderr) == (exits.NOT_FOUND, True)


@pytest.mark.parametrize("waits", [True, False])
def test_a_broker_that_never_ends_a_wait_does_not_keep_bridge_send(broker, state, waits):
    """One that heeds `waitMs` and one that does not; neither knows `timeoutMs`."""
    broker.waits = waits
    ok(state, broker.url, "bridge-register", "--agent", "Jerry")
    done = run(state, broker.url, "bridge-send", "Jerry", "x", "--timeout", "2000", "--ticket", "t-2", "--json")
    assert done.returncode == exits.NOTHING_CAME, done
    assert json.loads(done.stdout) == {"ticketId": "t-2", "status": "timeout"}
    assert "no reply from Jerry in time (ticket t-2)" in done.stderr
    # Asked again with growing pauses, not in a tight loop.
    assert broker.asked.count("GET /replies/t-2") < 20


def test_a_broker_that_never_answers_a_wait_does_not_keep_bridge_send(broker, state):
    broker.answers = False
    ok(state, broker.url, "bridge-register", "--agent", "Jerry")
    done = run(state, broker.url, "bridge-send", "Jerry", "x", "--timeout", "1000")
    assert done.returncode == exits.UNREACHABLE, done
    assert broker.asked.count("POST /agents/Jerry/send") == 1


# -- https ----------------------------------------------------------------------------------------


def test_https_works_with_the_certificate_that_we_were_given(tls, state):
    variables = {CA_VARIABLE: tls.certificate, "BRIDGE_AGENT_TOKEN": "of-jerry"}
    ok(state, tls.url, "bridge-register", "--agent", "Jerry", **variables)
    assert "Jerry" in ok(state, tls.url, "bridgectl", "list", "agents", **variables)
    assert tls.tokens[0] == "Bearer of-jerry"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_certificate_that_we_do_not_trust_is_sent_nothing(tls, state, tmp_path, name):
    """Not trusted at all; trusted, but for another name."""
    url = tls.url.replace("127.0.0.1", name)
    variables = {CA_VARIABLE: tls.certificate} if name == "localhost" else {}
    done = run(state, url, "bridge-register", "--agent", "Jerry", BRIDGE_AGENT_TOKEN="of-jerry", **variables)
    assert done.returncode == exits.REFUSED, done
    assert f"the certificate of {url} is not trusted" in done.stderr
    assert CA_VARIABLE in done.stderr
    assert tls.asked == []


def test_an_https_address_never_falls_back_to_plain_text(broker, state, monkeypatch):
    monkeypatch.setenv("BRIDGE_BROKER_URL", broker.url.replace("http:", "https:"))
    with pytest.raises(exits.BadAnswer, match="does not speak TLS"):
        http.call(choice.find_door(state), "GET", "/agents", token="of-jerry")
    assert broker.asked == []


def test_an_http_address_of_a_tls_port_is_an_error_and_no_answer(tls, state):
    done = run(state, tls.url.replace("https", "http"), "bridge-register", "--agent", "Jerry")
    assert done.returncode != 0
    assert tls.asked == []


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_of_authorities_that_cannot_be_used_is_named(state, monkeypatch, tmp_path, text):
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(CA_VARIABLE, str(path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(exits.WrongUsage, match=r"ca\.pem"):
            http.call(choice.find_door(state), "GET", "/agents")


def test_our_own_daemon_with_tls_is_reached_by_its_socket_and_from_elsewhere_by_https(state, tmp_path):
    certificate, key = certificate_in(tmp_path)
    with short_dir() as folder, Living(f"{folder}/s", tls_cert=str(certificate), tls_key=str(key)) as daemon:
        url = f"https://127.0.0.1:{daemon.port}"
        ok(daemon.state, url, "bridge-register", "--agent", "Jerry")
        with open(f"{daemon.state}/tokens/+jerry.token", encoding="ascii") as file:
            variables = {CA_VARIABLE: str(certificate), "BRIDGE_AGENT_TOKEN": file.read().strip()}
        assert '"door":"tcp"' not in daemon.log().replace(" ", "")
        assert "Jerry" in ok(state, url, "bridgectl", "list", "agents", **variables)
        assert "reconnected Jerry" in ok(state, url, "bridge-register", "--agent", "Jerry", **variables)
        ok(state, url, "bridge-send", "Jerry", "hello", "--no-wait", **variables)
        assert "hello" in ok(state, url, "bridge-recv", "--agent", "Jerry", **variables)
