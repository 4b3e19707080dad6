"""What we launched ends with us, whoever forked it and however we went; what a launcher left running is the game."""

import asyncio
import json
import os
import signal
import sys

import pytest
from arcade import arcade
from living import eventually
from playground import MOD, is_alive, on_loop, playground, until
from wires import LinkWire

from patience import PATIENCE

# Forks twice and leaves, as launchers do: what runs on is in a session of its own and has no parent of ours.
LAUNCHER = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, {game!r}])
    {before_the_middle_ends}
    os._exit(0)
sys.exit({code})
"""
# A game with a helper of its own session; the helper's pid is written down.
WITH_HELPER = """
import os, subprocess, sys
helper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(os.environ["RUNS_FILE"], "a") as file:
    file.write(f"{helper.pid}\\n")
"""

IGNORING = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
SAVING = """
import os, signal

def save(*_):
    with open(os.environ["RUNS_FILE"], "a") as file:
        file.write("saved")
    os._exit(0)

signal.signal(signal.SIGTERM, save)
"""


def launched(ground, *, code=0, before_the_middle_ends="pass", **more):
    game = ground.directory / "game.py"
    game.write_text(MOD)
    source = LAUNCHER.format(game=str(game), code=code, before_the_middle_ends=before_the_middle_ends)
    ground.write(source=source, **more)


def in_proc(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


def is_the_game(pid):
    try:
        return "game.py" in in_proc(pid, "cmdline")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def place():
    with arcade() as made:
        yield made


@pytest.mark.req("GAME-LIFE-3")
def test_when_the_daemon_is_killed_its_games_and_what_they_started_end_whatever_the_transport(place):
    text = []
    ignoring = place.folder / "deaf.py"
    ignoring.write_text(IGNORING + WITH_HELPER + MOD)
    for transport in ("tcp", "pipe", "stdio"):
        place.list_mod(WITH_HELPER + MOD, transport, transport=transport)
        # One of them does not end when it is asked to.
        text.append(place.toml.read_text().replace("mod.py", "deaf.py" if transport == "pipe" else "mod.py"))
    place.toml.write_text("\n".join(text))
    with place.live() as daemon, LinkWire(daemon.link_socket).hello() as wire:
        pids = [wire.call("games.start", {"gameId": name})["pid"] for name in ("tcp", "pipe", "stdio")]
        pids += map(int, place.runs())
        # The control: six processes run, three of them in sessions that we did not make.
        assert len(pids) == 6
        assert all(map(is_alive, pids))
        assert len({os.getsid(pid) for pid in pids}) == 6
        daemon.kill()
    eventually(lambda: not any(map(is_alive, pids)), "every game ends with its daemon", PATIENCE)
    # A game alone would take up the address of a bridge that is no more.
    assert (place.bridge_json).exists()
    with place.live() as daemon:
        assert not (place.bridge_json).exists()
        assert daemon.stop() == 0


def test_a_game_that_is_asked_to_end_by_the_death_of_the_daemon_can_still_save(place):
    place.list_mod(SAVING + MOD, transport="tcp")
    with place.live() as daemon, LinkWire(daemon.link_socket).hello() as wire:
        wire.call("games.start", {"gameId": "arena"})
        daemon.kill()
    eventually(lambda: place.runs() == ["saved"], "it saves", PATIENCE)


@on_loop
async def test_a_game_whose_keeper_is_killed_ends(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        status = await ground.games.start("arena")
        keeper = int(in_proc(status.pid, "stat").rpartition(")")[2].split()[1])
        assert "keeper.py" in in_proc(keeper, "cmdline")
        os.kill(keeper, signal.SIGKILL)
        arena = ground.games.find("arena")
        async with asyncio.timeout(PATIENCE):
            await arena.reached("stopped")
        await until(lambda: not is_alive(status.pid))
        assert (await ground.games.start("arena")).state == "live"


# -- launchers --


@pytest.mark.req("GAME-LIFE-4")
@pytest.mark.parametrize("transport", ["tcp", "pipe"])
@pytest.mark.parametrize("kill", [False, True])
@on_loop
async def test_a_launcher_that_forks_twice_and_leaves_is_not_the_game(tmp_path, transport, kill):
    async with playground(tmp_path) as ground:
        launched(ground, transport=transport)
        assert (await ground.games.start("arena", PATIENCE)).state == "live"
        await until(lambda: is_the_game(ground.games.status("arena").pid))
        status = ground.games.status("arena")
        assert await ground.call("echo", value=1) == 1
        # The control: it still is what it was a while after its launcher has gone.
        assert ground.games.status("arena").state == "live"
        sockets = [name for name in os.listdir(ground.socket_dir) if name.endswith(".sock")]
        assert len(sockets) == (transport == "pipe")
        assert (await ground.games.stop("arena", kill=kill)).state == "stopped"
        assert not is_alive(status.pid)
        assert os.listdir(ground.socket_dir) == []


@on_loop
async def test_the_pid_of_a_game_is_not_that_of_a_process_between_it_and_its_launcher(tmp_path):
    async with playground(tmp_path) as ground:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        launched(ground, before_the_middle_ends=f"open({str(fifo)!r}).read()")
        assert (await ground.games.start("arena", PATIENCE)).state == "live"
        arena = ground.games.find("arena")
        await until(lambda: arena.process.handed_on)
        assert not is_the_game(arena.process.pid)
        fifo.write_text("end")
        await until(lambda: is_the_game(arena.process.pid))


@on_loop
async def test_a_game_that_ends_after_its_launcher_has_ended(tmp_path):
    async with playground(tmp_path) as ground:
        launched(ground)
        await ground.games.start("arena", PATIENCE)
        arena = ground.games.find("arena")
        await until(lambda: is_the_game(arena.process.pid))
        os.kill(arena.process.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await arena.reached("stopped")
        assert (await ground.games.start("arena", PATIENCE)).state == "live"


@on_loop
async def test_what_a_game_that_crashed_left_behind_does_not_keep_it_from_being_started_again(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=WITH_HELPER + MOD)
        status = await ground.games.start("arena", PATIENCE)
        helper = int(ground.runs()[0])
        assert is_alive(helper)
        os.kill(status.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await ground.games.find("arena").reached("stopped")
        assert not is_alive(helper)
        assert "signal 9" in ground.games.status("arena").problem


@on_loop
async def test_a_launcher_that_fails_ends_what_it_started(tmp_path):
    async with playground(tmp_path) as ground:
        launched(ground, code=3)
        status = await ground.games.start("arena", PATIENCE)
        assert status.state == "stopped"
        assert "exit code 3" in status.problem


@on_loop
async def test_a_helper_that_a_game_left_is_not_taken_for_it_for_ever(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=WITH_HELPER + MOD, startup_timeout=3)
        await ground.games.start("arena", PATIENCE)
        arena = ground.games.find("arena")
        leaving = arena.call_tool("me", "arena/leave", {"code": 0})
        async with asyncio.timeout(PATIENCE):
            await arena.reached("failed")
        assert leaving.exception().executed == "unknown"
        assert "not connected within 3 s" in ground.games.status("arena").problem
        helper = int(ground.runs()[0])
        assert is_alive(helper)
        assert (await ground.games.stop("arena")).state == "stopped"
        assert not is_alive(helper)


# A program that runs before anybody launches anything, as Steam does; it finds the launch by the file.
ALREADY_THERE = """
import sys
from bascule_mod import Mod
mod = Mod("arena", bridge_file=sys.argv[1])
mod.tool(lambda value: value, name="arena/echo")
mod.serve()
"""


@pytest.mark.req("GAME-LIFE-5")
@pytest.mark.parametrize("transport", ["tcp", "pipe"])
@on_loop
async def test_a_game_that_its_launcher_handed_to_another_program_is_found_by_its_connection(tmp_path, transport):
    async with playground(tmp_path) as ground:
        program = tmp_path / "already.py"
        program.write_text(ALREADY_THERE)
        ground.toml.write_text(
            f"[games.arena]\ncommand = 'true'\ntransport = '{transport}'\ndiscovery = 'file'\nmode = 'strict'\n"
            f"startup_timeout = {PATIENCE}\n"
        )
        other = await asyncio.create_subprocess_exec(sys.executable, str(program), str(ground.bridge_json))
        try:
            status = await ground.games.start("arena", PATIENCE)
            assert status.state == "live"
            arena = ground.games.find("arena")
            await until(lambda: arena.process.pid == other.pid)
            assert await ground.call("echo", value=7) == 7
            assert (await ground.games.stop("arena")).state == "stopped"
            assert await other.wait() == -signal.SIGTERM
        finally:
            if other.returncode is None:
                other.kill()


@on_loop
async def test_a_launcher_that_nobody_follows_is_reported_after_its_time_and_can_be_stopped_before(tmp_path):
    async with playground(tmp_path) as ground:
        ground.toml.write_text("[games.arena]\ncommand = 'true'\ndiscovery = 'file'\nstartup_timeout = 60\n")
        status = await ground.games.start("arena", 0.2)
        assert status.state == "starting"
        async with asyncio.timeout(PATIENCE / 2):
            assert (await ground.games.stop("arena")).state == "stopped"
        ground.toml.write_text("[games.arena]\ncommand = 'true'\ndiscovery = 'file'\nstartup_timeout = 0.3\n")
        status = await ground.games.start("arena", PATIENCE)
        assert status.state == "stopped"
        assert "not connected within 0.3 s" in status.problem
        # The control: a game that is to find us by its environment has nobody to hand it to.
        ground.toml.write_text("[games.arena]\ncommand = 'true'\nstartup_timeout = 60\n")
        status = await ground.games.start("arena", PATIENCE)
        assert (status.state, "exit code 0" in status.problem) == ("stopped", True)


# -- what a keeper passes on --


@on_loop
async def test_a_game_gets_its_environment_directory_and_pipes_as_they_were_meant(tmp_path, monkeypatch):
    source = """
    import json, os, signal, sys
    from bascule_mod import Mod
    mod = Mod("arena")
    found = {
        "odd": os.environb[b"ODD"].hex(),
        "locale": os.environ.get("LC_CTYPE"),
        "cwd": os.getcwd(),
        "open": sorted(int(each) for each in os.listdir("/proc/self/fd")),
        "leads": os.getsid(0) == os.getpid(),
    }
    mod.tool(lambda: found, name="arena/see")
    mod.serve()
    """
    monkeypatch.setitem(os.environ, "ODD", b"\xff\xfe".decode(errors="surrogateescape"))
    monkeypatch.delitem(os.environ, "LC_CTYPE", raising=False)
    monkeypatch.setitem(os.environ, "LC_ALL", "C.UTF-8")
    async with playground(tmp_path) as ground:
        ground.write(source=source, transport="stdio", cwd=str(tmp_path))
        await ground.games.start("arena")
        found = await ground.call("see")
    assert (found["odd"], found["locale"], found["cwd"], found["leads"]) == ("fffe", None, str(tmp_path), True)
    # The standard three, and the directory that is being listed.
    assert found["open"] == [0, 1, 2, 3]


@on_loop
async def test_what_a_game_prints_last_is_there_when_it_has_ended(tmp_path):
    async with playground(tmp_path) as ground:
        for _ in range(5):
            ground.write(source="import sys; print('x' * 50_000); sys.exit('the last word')")
            status = await ground.games.start("arena", PATIENCE)
            assert status.problem.endswith("the last word"), json.dumps(status.problem[-80:])
