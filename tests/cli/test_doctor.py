"""`bascule doctor` against real sockets, files and limits that are in the state it must recognise."""

import argparse
import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import ports
from bascule import __version__
from bascule.cli import doctor
from bascule.cli.checks import daemon as daemon_checks
from bascule.cli.checks import machine
from bascule.cli.checks.patient import Mark, Patient
from bascule.foundation import paths
from patience import PATIENCE

PROTOCOL = 1


class Link(socketserver.ThreadingUnixStreamServer):
    """What answers at link.sock: as much of link as the doctor speaks."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, path: Path, answers: dict) -> None:
        self.answers = answers
        self.asked: list[dict] = []
        super().__init__(str(path), Conversation)


class Conversation(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            length = int(line.partition(b":")[2])
            self.rfile.readline()
            request = json.loads(self.rfile.read(length))
            self.server.asked.append(request)
            if request["method"] not in self.server.answers:
                # As stuck as it can be: until the other side goes away.
                self.rfile.read()
                return
            answer = {"jsonrpc": "2.0", "id": request["id"], **self.server.answers[request["method"]]}
            # Other traffic may come first.
            for message in ({"jsonrpc": "2.0", "method": "events.item", "params": {}}, answer):
                body = json.dumps(message).encode()
                self.wfile.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class Web(socketserver.ThreadingTCPServer):
    """What answers at the TCP port; ours says so in a header."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, head: bytes) -> None:
        self.head = head
        super().__init__(("127.0.0.1", 0), WebConversation)

    @property
    def port(self) -> int:
        return self.server_address[1]


class WebConversation(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        self.wfile.write(self.server.head)


OURS = b"HTTP/1.1 200 OK\r\nBascule-Version: 0.1.0\r\nContent-Length: 0\r\n\r\n"
THEIRS = b"HTTP/1.1 404 Not Found\r\nServer: another\r\nContent-Length: 0\r\n\r\n"


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


@pytest.fixture
def state():
    # A unix socket's path must be short; pytest's own folders are not.
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def free_port():
    return ports.free_port()


def answers(*, version=__version__, protocol=PROTOCOL, person=True, tcp=None, policy=None):
    doors = {"link": "/x/link.sock", "http": "/x/http.sock"} | ({"tcp": tcp} if tcp else {})
    return {
        "hello": {"result": {"protocol": protocol, "version": version, "principal": "local"}},
        "daemon.status": {"result": {"pid": 4711, "doors": doors}},
        "person.status": {"result": {"set": person}},
        "policy.show": {"result": {"name": "standard", "digest": "0" * 64, "text": ""} | (policy or {})},
        "desktop.status": {"result": {"enabled": False, "stopped": False, "host": "off", "stopKeys": "X"}},
    }


@contextlib.contextmanager
def running(state: Path, **answers_given):
    with serving(Link(state / "link.sock", answers(**answers_given))) as link:
        (state / "link.sock").chmod(0o600)
        yield link


def findings(patient: Patient) -> dict:
    return {finding.name: finding.verdict for finding in doctor.examine(patient)}


# -- the whole report -----------------------------------------------------------------------------


def command(state: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import argparse, sys\n"
        "from bascule.cli import doctor\n"
        "parser = argparse.ArgumentParser()\n"
        "doctor.add_parser(parser.add_subparsers())\n"
        "args = parser.parse_args(sys.argv[1:])\n"
        "sys.exit(args.run(args))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "doctor", *words],
        env={
            "PATH": os.environ["PATH"],
            "BASCULE_STATE_DIR": str(state),
            "BASCULE_CONFIG_DIR": str(state),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_healthy_machine_without_a_daemon_passes(state, free_port):
    done = command(state, "--port", str(free_port))
    assert done.returncode == 0, done.stdout
    assert "nothing failed" in done.stdout
    assert "bascule up -d" in done.stdout
    assert "\x1b" not in done.stdout
    # It looked and left nothing behind.
    assert list(state.iterdir()) == []


def test_one_failure_makes_the_exit_code_1_and_says_how_to_fix_it(state, free_port):
    state.chmod(0o755)
    done = command(state, "--port", str(free_port))
    assert done.returncode == 1
    assert f"-> run: chmod go= '{state}'" in done.stdout
    assert "\n1 failed" in done.stdout


def test_json_carries_the_same_findings(state, free_port):
    done = command(state, "--port", str(free_port), "--json")
    report = json.loads(done.stdout)
    assert (report["ok"], report["version"]) == (True, __version__)
    by_name = {check["name"]: check for check in report["checks"]}
    assert list(by_name) == [name for name, _ in (*doctor.CHECKS, *doctor.bridge_checks(), *doctor.PROGRAMS)]
    assert by_name["daemon"] == {
        "name": "daemon",
        "result": "info",
        "message": "not running",
        "fix": "start it with `bascule up -d`",
    }


def test_where_a_package_is_missing_it_says_which_and_looks_at_the_rest(state):
    program = (
        "import sys\n"
        "sys.modules['msgspec'] = None\n"
        "from bascule.cli import doctor\n"
        "from bascule.cli.checks.patient import Patient\n"
        "sys.exit(doctor.run(Patient(sys.argv[1], port=0, config_dir=sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(state)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "not installed: msgspec" in done.stdout
    assert "\n1 failed" in done.stdout


def test_every_warning_and_failure_says_what_to_do(state):
    state.chmod(0o755)
    for verdict in findings(Patient(str(state), port=70000)).values():
        assert verdict.fix or verdict.mark in (Mark.OK, Mark.INFO), verdict


def test_colours_are_only_added_around_the_mark(state):
    found = list(doctor.examine(Patient(str(state), port=0)))
    plain = list(doctor.lines(found, colour=False))
    painted = list(doctor.lines(found, colour=True))
    assert len(plain) == len(painted)
    assert painted[0] == plain[0].replace("ok  ", "\x1b[32mok  \x1b[0m", 1)


def test_the_state_directory_given_before_the_command_is_not_overwritten(state):
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir")
    doctor.add_parser(parser.add_subparsers())
    assert parser.parse_args(["--state-dir", str(state), "doctor"]).state_dir == str(state)


def test_a_check_that_meets_an_unexpected_fault_is_a_failure_not_a_traceback(state):
    # The token's place is a directory: reading it is an error no check foresees.
    (state / "local.token").mkdir(mode=0o700)
    verdict = findings(Patient(str(state), port=0))["token"]
    assert verdict.mark is Mark.FAIL


def test_optional_programs_are_information_wherever_they_are(tmp_path):
    patient = Patient("/nowhere", port=0, path=str(tmp_path))
    (tmp_path / "tmux").write_text("#!/bin/sh\n")
    (tmp_path / "tmux").chmod(0o755)
    found = findings(patient)
    assert {found[name].mark for name, _ in doctor.PROGRAMS} == {Mark.INFO}
    assert found["tmux"].what.startswith(str(tmp_path / "tmux"))
    assert found["codex"].what.startswith("not found")


# -- the daemon's own things ----------------------------------------------------------------------


def test_a_running_daemon_of_the_same_version_is_fine(state):
    with running(state) as link:
        found = findings(Patient(str(state)))
        assert found["daemon"] == (Mark.OK, f"Bascule {__version__} answers, process 4711", "")
        assert found["person"].mark is Mark.OK
        # Nothing is claimed at the door: no token, the daemon sees `local`.
        assert link.asked[0]["params"] == {"protocol": PROTOCOL, "version": __version__}


def test_another_daemon_of_ours_in_the_passwd_entrys_place_is_a_warning(state, monkeypatch):
    monkeypatch.setenv("HOME", str(state / "here"))
    monkeypatch.setattr(paths, "passwd_home", lambda: str(state / "p"))
    theirs = state / "p/.local/state/bascule"
    theirs.mkdir(parents=True)
    (state / "here").mkdir()
    patient = Patient(paths.default_state_dir())
    assert findings(patient)["home"].mark is Mark.OK
    with running(theirs):
        mark, what, fix = findings(patient)["home"]
        # Who names a state directory does not look for the one of home.
        assert findings(Patient(str(state)))["home"].mark is Mark.OK
    assert mark is Mark.WARN
    assert f"another daemon of yours (process 4711) runs in {theirs}" in what
    assert f"bascule down --state-dir '{theirs}'" in fix


def test_another_version_of_the_same_protocol_is_a_warning_and_another_protocol_a_failure(state):
    with running(state, version="0.0.9"):
        assert daemon_checks.check_daemon(Patient(str(state))).mark is Mark.WARN
    (state / "link.sock").unlink()
    with running(state, protocol=2):
        verdict = daemon_checks.check_daemon(Patient(str(state)))
    assert verdict.mark is Mark.FAIL
    assert "bascule down && bascule up -d" in verdict.fix


def test_the_daemons_own_sentence_about_a_mismatch_is_shown(state):
    refusal = {
        "error": {
            "code": -32000,
            "message": "x",
            "data": {"code": "version_mismatch", "message": "restart me"},
        }
    }
    with serving(Link(state / "link.sock", {"hello": refusal})):
        verdict = daemon_checks.check_daemon(Patient(str(state)))
    assert (verdict.mark, verdict.what) == (Mark.FAIL, "restart me")


def test_a_daemon_that_takes_the_connection_and_says_nothing_is_stuck(state):
    with serving(Link(state / "link.sock", {})):
        verdict = daemon_checks.check_daemon(Patient(str(state), answer_seconds=0.2))
    assert verdict.mark is Mark.FAIL
    assert "did not answer `hello`" in verdict.what


def test_a_socket_left_by_a_dead_daemon_means_not_running(state):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(state / "link.sock"))
    verdict = daemon_checks.check_daemon(Patient(str(state)))
    assert (verdict.mark, verdict.what) == (Mark.INFO, "not running")


def test_a_person_without_a_passphrase_is_told_how_to_set_one(state):
    with running(state, person=False):
        verdict = daemon_checks.check_person(Patient(str(state)))
    assert verdict.mark is Mark.INFO
    assert "bascule person set" in verdict.fix


def test_the_policy_in_force_is_named_and_an_edited_file_is_a_warning(state):
    with running(state):
        assert daemon_checks.check_policy(Patient(str(state))).what == "standard is in force, digest 0000000000000000"
    (state / "link.sock").unlink()
    with running(state, policy={"pending": True, "file": "/c/policy.toml"}):
        verdict = daemon_checks.check_policy(Patient(str(state)))
    assert verdict.mark is Mark.WARN
    assert "bascule policy accept" in verdict.fix
    (state / "link.sock").unlink()
    with running(state, policy={"pending": True, "file": "/c/policy.toml", "problem": "not TOML"}):
        assert daemon_checks.check_policy(Patient(str(state))).mark is Mark.FAIL


def test_a_daemon_that_knows_no_policy_question_is_fine_otherwise(state):
    answers_given = answers() | {
        "policy.show": {"error": {"code": -32000, "message": "x", "data": {"code": "not_found"}}}
    }
    with serving(Link(state / "link.sock", answers_given)):
        patient = Patient(str(state))
        assert daemon_checks.check_daemon(patient).mark is Mark.OK
        assert daemon_checks.check_policy(patient).mark is Mark.INFO


def test_a_state_directory_that_is_a_link_is_refused(state):
    (state / "real").mkdir(mode=0o700)
    (state / "link").symlink_to("real")
    verdict = daemon_checks.check_state_dir(Patient(str(state / "link")))
    assert verdict.mark is Mark.FAIL
    assert "symbolic link" in verdict.what


def test_a_state_directory_that_cannot_be_made_is_a_failure(state):
    (state / "file").touch(mode=0o600)
    verdict = daemon_checks.check_state_dir(Patient(str(state / "file" / "state")))
    assert verdict.mark is Mark.FAIL
    assert "--state-dir" in verdict.fix


def test_a_state_directory_too_long_for_a_socket_is_a_failure(state):
    verdict = daemon_checks.check_sockets(Patient(str(state / ("x" * 100))))
    assert verdict.mark is Mark.FAIL
    assert "shorter --state-dir" in verdict.fix


@pytest.mark.parametrize("name", ["link.sock", "http.sock"])
def test_a_socket_others_may_open_is_a_failure(state, name):
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(state / name))
        (state / name).chmod(0o666)
        verdict = daemon_checks.check_sockets(Patient(str(state)))
    assert (verdict.mark, verdict.fix) == (Mark.FAIL, f"run: chmod 600 '{state / name}'")


def test_a_file_in_the_sockets_place_is_a_failure(state):
    (state / "link.sock").touch()
    assert "is not a socket" in daemon_checks.check_sockets(Patient(str(state))).what


def test_a_token_others_may_read_is_a_failure(state):
    token = state / "local.token"
    token.write_text("secret")
    token.chmod(0o644)
    verdict = daemon_checks.check_token(Patient(str(state)))
    assert (verdict.mark, verdict.fix) == (Mark.FAIL, f"run: chmod go= '{token}'")
    token.chmod(0o600)
    verdict = daemon_checks.check_token(Patient(str(state)))
    assert verdict.mark is Mark.OK
    assert "secret" not in verdict.what


def test_an_empty_token_and_a_token_behind_a_link_are_failures(state):
    token = state / "local.token"
    token.touch(mode=0o600)
    assert daemon_checks.check_token(Patient(str(state))).mark is Mark.FAIL
    token.rename(state / "elsewhere")
    token.symlink_to("elsewhere")
    assert "symbolic link" in daemon_checks.check_token(Patient(str(state))).what


# -- the port -------------------------------------------------------------------------------------


def test_a_free_port_is_fine(state, free_port):
    assert daemon_checks.check_port(Patient(str(state), port=free_port)).mark is Mark.OK


def test_a_port_of_another_program_is_a_failure(state):
    with serving(Web(THEIRS)) as web:
        verdict = daemon_checks.check_port(Patient(str(state), port=web.port))
    assert verdict.mark is Mark.FAIL
    assert "another program" in verdict.what


def test_a_port_that_takes_connections_and_never_answers_is_another_program(state):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        verdict = daemon_checks.check_port(Patient(str(state), port=port, answer_seconds=0.2))
    assert verdict.mark is Mark.FAIL


def test_the_running_daemons_own_port_is_found_by_asking_it(state):
    with serving(Web(OURS)) as web, running(state, tcp=f"http://127.0.0.1:{web.port}"):
        verdict = daemon_checks.check_port(Patient(str(state)))
        assert verdict == (Mark.OK, f"the daemon answers at 127.0.0.1:{web.port}", "")


def test_a_port_with_tls_is_not_asked_in_plain_text(state):
    with socket.create_server(("127.0.0.1", 0)) as held:
        door = f"https://127.0.0.1:{held.getsockname()[1]}"
        with running(state, tcp=door):
            verdict = daemon_checks.check_port(Patient(str(state)))
    assert verdict == (Mark.OK, f"the daemon listens at {door}", "")


def test_a_bascule_on_the_port_that_is_not_this_one_is_a_failure(state):
    with serving(Web(OURS)) as web:
        verdict = daemon_checks.check_port(Patient(str(state), port=web.port))
    assert verdict.mark is Mark.FAIL
    assert "another user or state directory" in verdict.what


def test_a_daemon_that_lost_its_port_is_a_warning(state, free_port):
    with running(state, tcp=f"http://127.0.0.1:{free_port}"):
        assert daemon_checks.check_port(Patient(str(state))).mark is Mark.WARN


def test_no_port_is_a_choice_and_an_impossible_port_a_failure(state):
    assert daemon_checks.check_port(Patient(str(state), port=0)).mark is Mark.INFO
    assert daemon_checks.check_port(Patient(str(state), port=70000)).mark is Mark.FAIL
    with running(state):
        assert daemon_checks.check_port(Patient(str(state))).what.startswith("TCP is off")


# -- the settings ---------------------------------------------------------------------------------


def test_the_port_comes_from_the_settings_while_nothing_runs(state, free_port):
    patient = Patient(str(state), config_dir=str(state), environment={"BASCULE_PORT": str(free_port)})
    assert daemon_checks.check_settings(patient).mark is Mark.OK
    assert daemon_checks.check_port(patient).what == f"127.0.0.1:{free_port} is free"


def test_a_wrong_setting_is_a_failure_with_its_own_hint(state):
    (state / "config.toml").write_text("durabilty = 'fsync'\n")
    verdict = daemon_checks.check_settings(Patient(str(state), config_dir=str(state)))
    assert verdict.mark is Mark.FAIL
    assert "config.toml" in verdict.what
    assert "durability" in verdict.fix


def test_an_sdk_that_cannot_be_loaded_is_a_failure_with_its_remedy(monkeypatch):
    assert machine.check_mcp(None).mark is Mark.OK
    # Half installed: the package is there, a module of it is not.
    monkeypatch.setitem(sys.modules, "bascule.surfaces.mcp.surface", None)
    verdict = machine.check_mcp(None)
    assert verdict.mark is Mark.FAIL
    assert "/mcp cannot be served" in verdict.what
    assert verdict.fix
