"""`bridge.json`, sockets and tokens: what a launch leaves on disk for the mod to find, and for nobody else."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time

import msgspec
import pytest
from arcade import arcade
from living import run_command
from playground import Playground, on_loop, playground, until

from bascule.foundation.clock import SystemClock
from bascule.game import life
from bascule.game.machine.bridge_file import BridgeJson
from bascule.game.ports import Address
from bascule.game.settings import parse
from bascule_mod import Endpoint, Mod
from gabp.bridge_file import bridge_file
from patience import PATIENCE


@pytest.mark.req("GABP-5.2-1", "GABP-5.3-3", "GABP-5.4-1", "GABP-5.4-3")
@on_loop
async def test_the_bridge_file_has_the_form_of_the_specification_for_the_user_alone(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        status = await ground.games.start("arena")
        mode = stat.S_IMODE(ground.bridge_json.stat().st_mode)
        assert mode == 0o600
        found = json.loads(ground.bridge_json.read_text())
        assert re.fullmatch("[0-9a-f]{64}", found["token"])
        assert found["transport"]["type"] == "tcp"
        assert found["transport"]["address"].isdecimal()
        assert found["metadata"]["pid"] == status.pid
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", found["metadata"]["startTime"])
        assert found["metadata"]["launchId"] == ground.games.find("arena").life.launch_id


@pytest.mark.req("DEC-GABP-3")
@on_loop
async def test_the_bridge_file_holds_the_newest_live_launch_and_goes_with_the_last(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("one", "two")

        def named() -> str:
            return json.loads(ground.bridge_json.read_text())["metadata"]["gameId"]

        await ground.games.start("one")
        await ground.games.start("two")
        assert named() == "two"
        await ground.games.stop("two")
        assert named() == "one"
        await ground.games.stop("one")
        assert sorted(os.listdir(ground.bridge_json.parent)) == ["bridge.json.lock"]


@pytest.mark.req("GABP-3.3-2", "DEC-GABP-3")
@on_loop
async def test_a_game_that_reads_only_the_file_has_it_to_itself_until_it_is_welcomed(tmp_path):
    source = (
        "import os\nfor name in list(os.environ):\n    if name.startswith('GABP'):\n        del os.environ[name]\n"
        "from bascule_mod import Mod\n"
        f"Mod('arena', bridge_file={str(tmp_path / 'config/gabp/bridge.json')!r}).serve()\n"
    )
    async with playground(tmp_path) as ground:
        ground.write("one", "two", "three", source=source, discovery="file")
        states = await asyncio.gather(*(ground.games.start(name) for name in ("one", "two", "three")))
        assert [each.state for each in states] == ["live"] * 3


@pytest.mark.req("GABP-5.1-1")
@pytest.mark.parametrize(
    ("platform", "beneath"), [("linux", ".config"), ("darwin", "Library/Application Support"), ("win32", "Roaming")]
)
def test_the_bridge_file_is_where_the_platform_keeps_such_files(monkeypatch, tmp_path, platform, beneath):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path / "Roaming"))
    monkeypatch.setattr("sys.platform", platform)
    assert bridge_file() == f"{tmp_path}/{beneath}/gabp/bridge.json"


@pytest.mark.req("GABP-5.1-1")
def test_a_mod_that_knows_only_home_finds_the_file_of_the_daemon_with_that_home():
    source = (
        "import os\nfor name in list(os.environ):\n    if name.startswith('GABP'):\n        del os.environ[name]\n"
        "from bascule_mod import Mod\nMod('arena').serve()\n"
    )
    with arcade() as place:
        place.list_mod(source, transport="tcp", discovery="file")
        with place.live() as daemon:
            started = run_command("games", "start", "arena", "--state-dir", place.state)
            assert (started.stdout, started.stderr) == ("arena is live\n", "")
            assert json.loads(place.bridge_json.read_text())["metadata"]["gameId"] == "arena"
            assert daemon.stop() == 0


@pytest.mark.req("GABP-5.3-1", "GABP-5.3-2")
@on_loop
async def test_the_bridge_file_names_each_transport_and_stdio_needs_none(tmp_path):
    async with playground(tmp_path) as ground:
        for transport in ("tcp", "pipe", "stdio"):
            ground.write(transport=transport)
            await ground.games.start("arena")
            if transport == "stdio":
                assert not ground.bridge_json.exists()
            else:
                found = json.loads(ground.bridge_json.read_text())["transport"]
                assert found["type"] == transport
                assert found["address"].isdecimal() if transport == "tcp" else found["address"].endswith(".sock")
            await ground.games.stop("arena")


@pytest.mark.req("GABP-5.4-2")
@on_loop
async def test_a_reader_of_the_bridge_file_never_sees_half_of_it(tmp_path):
    path = tmp_path / "gabp" / "bridge.json"
    file = BridgeJson(str(path), SystemClock(), lambda *_, **__: None)
    address = Address(transport="tcp", where="38917")
    await file.publish("first", "arena", "t" * 64, address, alone=False, seconds=1)
    going = True
    seen: list[str] = []

    def read() -> None:
        while going:
            seen.append(json.loads(path.read_bytes())["metadata"]["launchId"])

    reader = threading.Thread(target=read)
    reader.start()
    end = time.monotonic() + PATIENCE
    for number in itertools.count():
        # The reader gets its turns from a busy machine, not from us.
        if number >= 300 and (len(set(seen)) > 5 or time.monotonic() > end):
            break
        await file.publish(f"launch-{number}", "arena", "t" * 64, address, alone=False, seconds=1)
    going = False
    reader.join(PATIENCE)
    # Whole every time, or json would have said so; and it did change meanwhile.
    assert len(set(seen)) > 5


@on_loop
async def test_a_socket_whose_path_is_too_long_is_reported_before_the_game_starts(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(transport="pipe")
        ground.games._machine = msgspec.structs.replace(ground.games._machine, socket_dir="/tmp/" + "x" * 100)
        status = await ground.games.start("arena")
        assert status.problem.endswith("is too long for a socket; choose a shorter socket_dir")


@on_loop
async def test_another_bridges_file_is_not_removed(tmp_path):
    path = tmp_path / "gabp" / "bridge.json"
    file = BridgeJson(str(path), SystemClock(), lambda *_, **__: None)
    await file.publish("mine", "arena", "t" * 64, Address(transport="tcp", where="1"), alone=False, seconds=1)
    path.write_text(json.dumps({"token": "x", "metadata": {"launchId": "theirs"}}))
    file.withdraw("mine")
    assert path.exists()


@pytest.mark.req("GABP-8.2-1")
def test_a_socket_has_the_name_of_the_specification(tmp_path):
    usual = next(field.default for field in msgspec.structs.fields(life.Machine) if field.name == "socket_dir")
    machine = msgspec.structs.replace(Playground(tmp_path).machine(), socket_dir=usual)
    (settings,) = parse(b"[games.x]\ncommand='x'\ntransport='pipe'\n").values()
    launch = life.Life("x", settings, machine, None)
    assert launch._new_address().where == f"/tmp/gabp-{launch.launch_id}.sock"


@pytest.mark.req("GABP-1.1-2")
@on_loop
async def test_a_token_is_checked_over_stdio_too(tmp_path):
    source = "import os\nos.environ['GABP_TOKEN'] = 'x' * 64\nfrom bascule_mod import Mod\nMod('arena').serve()\n"
    async with playground(tmp_path) as ground:
        ground.write(source=source, transport="stdio")
        status = await ground.games.start("arena")
        assert "the token is not this launch's" in status.problem


@pytest.mark.req("GABP-1.2-1")
def test_a_mod_listens_on_loopback_only():
    with Mod("x", endpoint=Endpoint(transport="tcp", address="0", token="t" * 64)).running() as mod:
        assert mod._server._listener.getsockname()[0] == "127.0.0.1"


# -- another program holds the lock --


@contextlib.contextmanager
def locked(path):
    """By another program, which never lets it go by itself: as a bridge that was suspended while it wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    lock = str(path) + ".lock"
    with subprocess.Popen([sys.executable, "-c", script, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout.read(1) == b"\n"
        yield
        held.stdin.close()


@on_loop
async def test_a_lock_that_is_held_holds_neither_the_loop_nor_a_game_with_an_environment(tmp_path, monkeypatch):
    monkeypatch.setattr("bascule.game.machine.bridge_file.LOCK_SECONDS", 0.2)
    async with playground(tmp_path) as ground:
        ground.write()
        with locked(ground.bridge_json):
            status = await ground.games.start("arena", PATIENCE)
            assert status.state == "live"
            assert not ground.bridge_json.exists()
            assert any("another program holds its lock" in str(each.get("error")) for each in ground.logged)
            await ground.games.stop("arena")


@on_loop
async def test_a_game_that_reads_only_the_file_says_who_holds_it(tmp_path, monkeypatch):
    monkeypatch.setattr("bascule.game.machine.bridge_file.LOCK_SECONDS", 0.2)
    async with playground(tmp_path) as ground:
        ground.write(discovery="file")
        with locked(ground.bridge_json):
            status = await ground.games.start("arena", PATIENCE)
            assert "another program holds" in status.problem
            assert str(ground.bridge_json) in status.problem
        # The next one finds it free.
        assert (await ground.games.start("arena", PATIENCE)).problem != status.problem
        await ground.games.stop("arena")


@on_loop
async def test_what_could_not_be_written_at_once_is_written_when_the_lock_is_free(tmp_path):
    path = tmp_path / "gabp" / "bridge.json"
    file = BridgeJson(str(path), SystemClock(), lambda *_, **__: None)
    await file.publish("mine", "arena", "t" * 64, Address(transport="tcp", where="1"), alone=False, seconds=1)
    with locked(path):
        file.withdraw("mine")
        assert path.exists()
    await until(lambda: not path.exists())
