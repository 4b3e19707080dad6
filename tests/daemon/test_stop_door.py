"""`bascule stop` while one call holds the event loop: a real daemon, a real command in its sandbox, a real hog.

The hog spins in the handler of a call until the test makes a file. Whatever happens before that happens beside a loop
that takes nothing, however busy the machine is.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket

import pytest
from living import Living, eventually, run_command, short_dir
from wires import LinkWire

from inside import CHEAP_PASSPHRASE

PASSPHRASE = {"passphrase": "correct horse battery staple"}

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI") != "true", reason="bubblewrap is not installed"
)

# A bridge whose one method keeps the loop until the file of its params exists.
HOG = """
from bascule.kernel.bridge import Bridge
from bascule.kernel.declared import Declared
from bascule.kernel.rows import Params, Reads

class HogParams(Params, frozen=True, kw_only=True):
    until: str

ROW = Reads[HogParams, bool]("hog.hold", "Hold the loop.")

def hold(call, params):
    open(params.until + ".held", "x").close()
    while not os.path.exists(params.until):
        pass
    return True

class Hog(Declared):
    name = "hog"
    rows = (ROW,)

    def make(self, kernel, ports):
        return Bridge(declared=self, service=None, methods=[ROW.bind(hold)])

more_bridges.append(Hog())
"""
# The thread ends nothing: what the test sees dead would live.
NO_EMERGENCY = """
from bascule.foundation import emergency
emergency.EmergencyStop.end_all = lambda self: 0
"""


class Scene:
    def __init__(self, folder, bug=HOG):
        self.folder = folder
        self.state = f"{folder}/s"
        self.release = f"{folder}/release"
        self.bug = bug
        self.marker = str(500_000 + os.getpid())
        self.daemon = self.live()
        self.person = LinkWire(self.daemon.link_socket).hello()
        self.person.call("person.set", PASSPHRASE)
        self.person.call("person.unlock", PASSPHRASE)
        self.hog = LinkWire(self.daemon.link_socket).hello()

    def live(self):
        return Living(self.state, bug=self.bug, constants=CHEAP_PASSPHRASE)

    def start_command(self):
        project = os.path.join(self.folder, "project")
        os.mkdir(project)
        space = self.person.call("spaces.open", {"path": project})["spaceId"]
        process = self.person.call("processes.start", {"spaceId": space, "command": f"sleep {self.marker}"})
        eventually(self.runs, "the command runs")
        return process["processId"]

    def runs(self):
        return any(argv[-2:] == ["sleep", self.marker] for argv in command_lines())

    def hold(self):
        """From here on the loop takes nothing until `release_loop`."""
        asked = self.hog.request("hog.hold", {"until": self.release})
        eventually(lambda: os.path.exists(self.release + ".held"), "the loop is held")
        return asked

    def stop(self, *more):
        done = run_command("stop", "--reason", "it hangs", "--state-dir", self.state, *more)
        # It was held all the time.
        assert not os.path.exists(self.release)
        assert not select.select([self.hog.sock], [], [], 0)[0]
        return done

    def release_loop(self):
        with open(self.release, "x", encoding="utf-8"):
            pass


def command_lines():
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            yield [word.decode(errors="replace") for word in file.read().split(b"\0")[:-1]]


@pytest.fixture
def scene(request):
    with short_dir() as folder:
        made = Scene(folder, getattr(request, "param", HOG))
        try:
            yield made
        finally:
            made.person.close()
            made.hog.close()
            made.daemon.kill()


@needs_bwrap
def test_a_stop_ends_commands_while_the_loop_is_held(scene):
    process = scene.start_command()
    asked = scene.hold()
    done = scene.stop("--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["stopped"], answer["by"]) == (True, "local")
    assert answer["ended"] >= 1
    eventually(lambda: not scene.runs(), "the command is ended")
    assert not os.path.exists(scene.release)
    scene.release_loop()
    assert scene.hog.answer(asked)["result"] is True
    # The call that the thread could not make is made now: decided and recorded as every stop.
    status = eventually(lambda: scene.person.call("daemon.status").get("stopped"), "the stop is known")
    assert (status["by"], status["reason"], status["at"]) == ("local", "it hangs", answer["at"])
    logs = {"processId": process, "stream": "stdout"}
    eventually(lambda: not scene.person.call("processes.logs", logs)["running"], "the daemon knows that it ended")
    [record] = eventually(lambda: scene.person.call("ledger.show", {"what": "admin.stop"}), "its record")
    assert (record["principal"], record["outcome"]) == ("local", "ok")
    assert record["details"]["process"].startswith("pid ")
    eventually(lambda: not os.path.exists(os.path.join(scene.state, "stopped.json")), "the store has it")


@needs_bwrap
@pytest.mark.parametrize("scene", [HOG + NO_EMERGENCY], indirect=True)
def test_the_command_lives_on_where_the_thread_ends_nothing(scene):
    """The control of the test above."""
    scene.start_command()
    scene.hold()
    assert scene.stop().returncode == 0
    assert scene.runs()
    scene.release_loop()
    eventually(lambda: not scene.runs(), "the loop ends it")


def test_a_call_that_waits_behind_the_held_loop_does_not_begin_after_the_stop(scene):
    scene.hold()
    with LinkWire(scene.daemon.link_socket) as late:
        hello = late.request("hello", {"protocol": 1, "version": "test"})
        sent = late.request("messages.send", {"agentId": "Nobody", "payload": "hello"})
        done = scene.stop()
        assert "the daemon is busy" in done.stdout
        scene.release_loop()
        assert "result" in late.answer(hello)
        assert late.answer(sent)["error"]["data"]["code"] == "stopped"


def test_a_stop_of_a_held_daemon_that_is_then_killed_holds_in_its_next_life(scene):
    scene.hold()
    assert scene.stop().returncode == 0
    scene.daemon.kill()
    scene.daemon = scene.live()
    with LinkWire(scene.daemon.link_socket).hello() as link:
        assert link.call("daemon.status")["stopped"]["reason"] == "it hangs"
        assert not os.path.exists(os.path.join(scene.state, "stopped.json"))
        assert link.refusal("messages.send", {"agentId": "Nobody", "payload": "hello"})["code"] == "stopped"
        # Resumed once, it is over for good.
        link.call("person.unlock", PASSPHRASE)
        link.call("admin.resume")
    scene.daemon.kill()
    scene.daemon = scene.live()
    with LinkWire(scene.daemon.link_socket).hello() as link:
        assert "stopped" not in link.call("daemon.status")


def test_a_stop_of_a_free_daemon_answers_what_was_ended(scene):
    done = run_command("stop", "--json", "--state-dir", scene.state)
    assert done.returncode == 0, done.stderr
    assert {each["bridge"] for each in json.loads(done.stdout)["results"]} >= {"broker", "workspace"}


def test_a_stop_says_what_to_do_where_the_process_does_not_run_at_all(scene):
    os.kill(scene.daemon.process.pid, signal.SIGSTOP)
    done = run_command("stop", "--state-dir", scene.state)
    assert done.returncode == 7
    assert f"kill -KILL {scene.daemon.process.pid}" in done.stderr


@pytest.mark.parametrize("line", [b"[]\n", b'{"reason":1}\n', b'{"why":"x"}\n', b"\xff\n", b"x" * 5000])
def test_a_line_that_is_no_stop_stops_nothing(scene, line):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.connect(os.path.join(scene.state, "stop.sock"))
        door.sendall(line)
        with door.makefile("rb") as answers:
            assert json.loads(answers.readline())["refused"]["code"] == "invalid_request"
    assert "stopped" not in scene.person.call("daemon.status")


def test_the_socket_of_stops_is_closed_to_others_and_goes_with_the_daemon(scene):
    path = os.path.join(scene.state, "stop.sock")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert scene.daemon.stop() == 0
    assert not os.path.exists(path)
    assert "not running" in run_command("stop", "--state-dir", scene.state).stderr
