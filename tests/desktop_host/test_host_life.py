"""The host as a process: its socket, who may connect, how it starts and ends, and as a child of a client."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest
from desktop_rig import Desktop, until
from host_process import HostProcess, Refused, Wire, route
from lacking_desktop import missing_here

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.machine.client import HostClient, HostLost
from patience import PATIENCE

HOST = [sys.executable, "-P", "-m", "bascule.cli.start", "desktop-host"]


def run(*arguments, env=None):
    return subprocess.run(
        [*HOST, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.req("DSK-1-3")
def test_the_socket_is_for_its_user_alone(host):
    assert stat.S_IMODE(os.stat(host.socket_path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(host.socket_path)).st_mode) == 0o700


@pytest.mark.req("DSK-2.1-1")
def test_without_a_root_for_workspaces_the_host_does_not_start(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "WORKSPACE_ROOT"}
    done = subprocess.run(
        [*HOST, "--listen", str(tmp_path / "s")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert "WORKSPACE_ROOT" in done.stderr
    assert "--workspace-root" in done.stderr


@pytest.mark.req("DSK-2.1-1")
def test_the_root_comes_from_the_environment(start_host, desktop, tmp_path):
    host = start_host()
    assert str(tmp_path) in host.log.read_text()
    done = run("--listen", host.socket_path, env={"WORKSPACE_ROOT": str(tmp_path / "none")})
    assert done.returncode == 2
    assert "cannot be opened" in done.stderr


def test_a_second_host_does_not_take_the_socket_of_the_first(host):
    done = run("--listen", host.socket_path, "--workspace-root", str(host.root))
    assert done.returncode == 2
    assert "listens on" in done.stderr
    assert host.call("desktop.health")


def test_a_socket_that_a_killed_host_left_is_replaced(start_host):
    host = start_host()
    host.process.kill()
    host.process.wait()
    assert os.path.exists(host.socket_path)
    again = subprocess.Popen(
        [*HOST, "--listen", host.socket_path, "--workspace-root", str(host.root)],
        stderr=subprocess.DEVNULL,
        env=host.desktop.environment,
    )
    try:

        def answers():
            try:
                wire = Wire(host.socket_path)
            except OSError:
                return False
            result = host.call("desktop.health", wire=wire)
            wire.close()
            return result

        until(answers, "the new host answers")
    finally:
        again.terminate()
        again.wait(PATIENCE)
    assert not os.path.exists(host.socket_path), "a host that ends takes its socket with it"


def test_a_directory_open_to_others_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    done = run("--listen", str(shared / "s"), "--workspace-root", str(tmp_path))
    assert done.returncode == 2
    assert "open to other users" in done.stderr


def test_only_listed_programs_may_connect(start_host, tmp_path):
    host = start_host("--allow", os.path.realpath(f"/proc/{os.getpid()}/exe"))
    assert host.call("desktop.health")
    # Closed before we wrote, while we wrote, or before we read.
    with pytest.raises((AssertionError, ConnectionError)):
        start_host("--allow", "/usr/bin/true")


def test_another_user_is_refused(host):
    """The directory's mode keeps others out; whoever is inside anyway is asked for by the kernel."""
    if os.getuid() != 0:
        missing_here("only root can become somebody else")
    directory = os.path.dirname(host.socket_path)
    os.chmod(directory, 0o755)
    os.chmod(host.socket_path, 0o666)
    try:
        script = (
            "import os,socket,sys; os.setgid(65534); os.setuid(65534); s=socket.socket(socket.AF_UNIX)\n"
            "s.connect(sys.argv[1]); s.settimeout(60)\n"
            "try: print(len(s.recv(1)))\nexcept ConnectionResetError: print(0)"
        )
        command = ["/usr/bin/python3", "-c", script, host.socket_path]
        assert (
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.strip() == "0"
        )
    finally:
        os.chmod(host.socket_path, 0o600)
        os.chmod(directory, 0o700)
    assert '"event": "refused"' in host.log.read_text()


@pytest.mark.req("DSK-6-1")
def test_before_the_desktop_is_connected_the_host_says_to_try_again(desktop, tmp_path):
    """A session bus that takes connections and never answers: the host is up, the desktop is not."""
    directory = tempfile.mkdtemp(prefix="mute")
    mute = socket.socket(socket.AF_UNIX)
    mute.bind(f"{directory}/bus")
    mute.listen()
    path = f"{directory}/desktop.sock"
    environment = {**desktop.environment, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={directory}/bus"}
    process = subprocess.Popen(
        [*HOST, "--listen", path, "--workspace-root", str(tmp_path)], stderr=subprocess.DEVNULL, env=environment
    )
    try:
        until(lambda: os.path.exists(path), "it listens")
        wire = Wire(path)
        meta = {"schemaVersion": 1, "requestId": "r", "workspacePath": str(tmp_path)}
        wire.send("desktop.observe", {"meta": meta})
        error = wire.read()["error"]
        assert error["code"] == "DESKTOP_HOST_NOT_READY"
        assert error["retryable"] is True
        wire.send("desktop.health", {"meta": meta})
        assert wire.read()["result"]["permissions"]["accessibility"] == "unknown"
        wire.close()
    finally:
        process.terminate()
        process.wait(PATIENCE)
        mute.close()
        shutil.rmtree(directory)


def test_a_host_of_ones_own_on_a_socketpair(desktop, tmp_path, start):
    """As the daemon has it: nobody else can reach it, tokens only, and it ends with its parent's connection."""
    program = start("gtk3")

    async def story():
        client = await HostClient.spawn(str(tmp_path), str(tmp_path), environment=desktop.environment)
        pid = client.pid
        for _ in range(3_000):
            if (await client.call("desktop.health")).permissions.accessibility == "granted":
                break
            await asyncio.sleep(0.02)
        params = {"route": route(program), "target": {"selector": {"titleContains": "Press me"}}}
        with pytest.raises(DesktopError) as refused:
            await client.call("desktop.click", {**params, "confirm": {"phrase": "CONFIRM"}})
        assert refused.value.code is Code.CONFIRM_REQUIRED
        result = await client.confirmed("desktop.click", params)
        assert result.clicked
        waiting = asyncio.ensure_future(
            client.call(
                "desktop.waitUntil",
                {"condition": {"selectorExists": {"titleContains": "Never"}}, "timeoutMs": 60_000},
                request_id="mine",
            )
        )
        for _ in range(3_000):
            try:
                await client.call("desktop.abort", {"executionId": "mine"})
                break
            except DesktopError:
                await asyncio.sleep(0.01)
        with pytest.raises(DesktopError, match="aborted"):
            await waiting
        await client.close()
        with pytest.raises(HostLost):
            await client.call("desktop.health")
        return pid

    pid = asyncio.run(story())
    program.until(pressed=1)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_client_says_that_there_is_no_host(tmp_path):
    with pytest.raises(HostLost, match="no desktop host listens"):
        asyncio.run(HostClient.connect(str(tmp_path / "none"), "/"))


def test_a_host_that_dies_is_not_waited_for(desktop, tmp_path):
    async def story():
        client = await HostClient.spawn(str(tmp_path), str(tmp_path), environment=desktop.environment)
        await client.call("desktop.health")
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(HostLost):
            await client.call("desktop.waitUntil", {"condition": {"stable": {}}, "timeoutMs": 60_000})
        await client.close()

    asyncio.run(story())


def test_a_process_that_ends_takes_its_refs_and_tokens_with_it(start_host, start):
    program = start("gtk3")
    host = start_host()
    script = (
        "import json,os,sys; sys.path[:0] = sys.argv[1], os.path.dirname(sys.argv[1]); from host_process import Wire\n"
        "wire = Wire(sys.argv[2])\n"
        "for params in sys.argv[3:]:\n"
        "    wire.send('desktop.confirm.issue', json.loads(params)); print(json.dumps(wire.read()))"
    )
    intent = {"method": "desktop.hotkey", "params": {"keys": ["a"]}}
    params = json.dumps({"meta": host.meta(), "intent": intent})
    command = [sys.executable, "-c", script, os.path.dirname(__file__), host.socket_path, params]
    token = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout)["result"][
        "token"
    ]
    with pytest.raises(Refused, match="DESKTOP_CONFIRM_REQUIRED"):
        host.call("desktop.hotkey", keys=["a"], confirm={"token": token})
    assert program.state["ready"]


def test_the_accessibility_bus_is_found_again_when_it_was_lost(tmp_path):
    """Killed under the host, on a desktop of its own: programs that start afterwards are seen."""
    desktop = Desktop()
    try:
        host = HostProcess(desktop, tmp_path)
        before = desktop.start("gtk3")
        host.call("desktop.find", route=route(before), selector={"titleContains": "Press me"})
        killed = desktop.kill_accessibility()
        assert killed
        before.kill()

        def found_again():
            try:
                return host.call("desktop.health")["permissions"]["accessibility"] == "granted"
            except Refused:
                return False

        until(found_again, "the bus is back")
        after = desktop.start("gtk3")
        waiting = {"selectorExists": {"titleContains": "Press me"}}
        assert host.call("desktop.waitUntil", route=route(after), condition=waiting, timeoutMs=60_000)["ok"]
        host.close()
    finally:
        desktop.close()


def test_a_screen_that_was_lost_is_found_again_and_the_chord_with_it(tmp_path):
    desktop = Desktop()
    try:
        host = HostProcess(desktop, tmp_path, stop_keys=True)
        host.call("desktop.windows")
        desktop.restart_x()

        def found_again():
            try:
                return host.call("desktop.windows") is not None
            except Refused as refused:
                assert refused.code == "DESKTOP_PERMISSION_MISSING"  # noqa: PT017 - it may be refused, and only so
                return False

        until(found_again, "the screen is back")
        assert host.call("desktop.doctor")["issues"] == []
        keys = ["xdotool", "key", "ctrl+alt+shift+Escape"]
        subprocess.run(keys, env=desktop.environment, check=True, timeout=PATIENCE)
        until(lambda: host.call("desktop.health")["stopped"], "the chord is heard")
        host.close()
    finally:
        desktop.close()


def held(pid):
    """Open files and threads of a process."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def test_a_host_that_worked_for_long_holds_no_more_than_one_that_just_began(start_host, start):
    """Connections, refusals, aborts and acts leave nothing open behind."""
    program = start("gtk3")
    host = start_host()
    rounds = 200 if os.environ.get("BASCULE_LONG") else 8

    def work():
        wire = host.connect()
        host.call("desktop.observe", wire=wire, route=route(program))
        with pytest.raises(Refused):
            host.act("desktop.click", wire=wire, route=route(program), target={"selector": {"titleContains": "None"}})
        target = {"selector": {"byRole": "AXTextField", "titleContains": "Name"}}
        host.act("desktop.typeText", wire=wire, route=route(program), target=target, text="x")
        waiting = host.later(
            "desktop.waitUntil", condition={"windowExists": {"titlePattern": "^no$"}}, timeoutMs=60_000
        )
        waiting.wire.socket.shutdown(2)
        waiting.answer()
        wire.close()

    for _ in range(3):
        work()
    before = held(host.process.pid)
    for _ in range(rounds):
        work()
    until(lambda: held(host.process.pid)[0] <= before[0] + 2, "what was opened is closed")
    # A pool of threads may still grow to its size, which does not depend on how much was done.
    assert held(host.process.pid)[1] <= before[1] + 8
