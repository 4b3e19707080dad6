"""Games that start, fail to start, are killed, come back, are attached to and let go."""

import asyncio
import json
import os
import re
import signal

import pytest
from playground import attached, is_alive, on_loop, playground, until
from scripted_mod import ScriptedMod

from bascule.foundation.errors import Conflict, NotFound, Unavailable
from bascule.game import life
from bascule.game.states import NEXT, GameState, Turn, after
from bascule_mod.mod import Mod
from descriptors import Descriptors
from gabp import envelopes
from gabp.errors import ErrorCode, GameError
from patience import PATIENCE

LONG = bool(os.environ.get("BASCULE_LONG"))
KILLS = 100 if LONG else 20

SILENT = "import time\nprint('loading...', flush=True)\ntime.sleep(600)\n"
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(os.environ["RUNS_FILE"], "w").write(str(child.pid))
from bascule_mod import Mod
Mod("stubborn").serve()
"""


@pytest.mark.parametrize("state", GameState)
@pytest.mark.parametrize("turn", Turn)
def test_every_cell_of_a_games_table_leads_somewhere_or_nowhere(state, turn):
    assert after(state, turn) == NEXT[state].get(turn)
    # From everywhere it can be ended, and what has ended can be started.
    assert state is GameState.STOPPED or Turn.ENDED in NEXT[state]


# -- starting -------------------------------------------------------------------------------------


@on_loop
async def test_a_game_that_is_not_in_the_file_is_answered_with_those_that_are(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("arena", "maze")
        with pytest.raises(NotFound) as caught:
            await ground.games.start("arenna")
        assert caught.value.hint == "games.toml names: arena, maze"


@on_loop
async def test_each_state_of_a_game_is_a_fact_with_its_starter_and_without_its_mods_words(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("arena")
        await ground.games.start("arena", started_by="agent:Jerry")
        await ground.games.stop("arena")
    assert [(fact.kind, fact.event, fact.status) for fact in ground.facts if "attention" not in fact.event] == [
        ("game", state, state) for state in ("starting", "live", "stopping", "stopped")
    ]
    assert {(fact.id, fact.principal, fact.text) for fact in ground.facts} == {("arena", "agent:Jerry", None)}


@on_loop
async def test_a_command_that_is_not_there_is_named(tmp_path):
    async with playground(tmp_path) as ground:
        ground.toml.write_text("[games.x]\ncommand = '/no/such/program'\n")
        status = await ground.games.start("x")
        assert status.state == "stopped"
        assert status.problem == "x cannot be started: there is no /no/such/program; see games.toml"


@pytest.mark.req("GAME-LIFE-8")
@on_loop
async def test_a_game_that_ends_at_once_is_shown_with_what_it_printed(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source="print('\\x1b[31m\\ufe0f\\u200b\\U00016fe4no graphics card')\nraise SystemExit(3)\n")
        status = await ground.games.start("arena")
        assert status.state == "stopped"
        assert "exit code 3" in status.problem
        assert "no graphics card" in status.problem
        assert "⟨ESC⟩[31m⟨U+FE0F⟩⟨U+200B⟩⟨U+16FE4⟩no graphics card" in status.problem
        assert "\x1b" not in status.problem


@pytest.mark.req("GAME-LIFE-8")
@on_loop
async def test_a_game_that_never_listens_fails_after_its_startup_timeout_and_can_be_stopped(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=SILENT, startup_timeout=2)
        status = await ground.games.start("arena")
        assert status.state == "failed"
        assert "not connected within 2 s: the game never listened on GABP_SERVER_PORT" in status.problem
        with pytest.raises(Conflict, match="arena is failed"):
            await ground.call("echo")
        assert (await ground.games.connect("arena")).state == "failed"
        pid = status.pid
        assert (await ground.games.stop("arena")).state == "stopped"
        assert not is_alive(pid)


@on_loop
async def test_a_game_is_started_once(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        first, *others = await asyncio.gather(*(ground.games.start("arena") for _ in range(5)), return_exceptions=True)
        assert first.state == "live"
        assert all(isinstance(each, Conflict) for each in others)
        assert first.launches == 1


@on_loop
async def test_no_more_games_run_at_once_than_may(tmp_path):
    async with playground(tmp_path) as ground:
        ground.games._max_running = 1
        ground.write("one", "two")
        await ground.games.start("one")
        with pytest.raises(Conflict, match="1 games run already"):
            await ground.games.start("two")


@pytest.mark.req("GABP-5.4-4", "DEC-GABP-4", "GAME-TRUST-8")
@on_loop
async def test_a_game_sees_the_launch_and_none_of_the_daemons_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "secret")
    monkeypatch.setenv("BASCULE_STATE_DIR", "/secret")
    monkeypatch.setenv("GABP_TOKEN", "stale")
    source = (
        "import json, os\nfrom bascule_mod import Mod\nmod = Mod('arena')\n"
        # Backwards, for the token is masked in what a game answers.
        "@mod.tool\ndef environment() -> dict[str, str]:\n"
        "    return {name: value[::-1] for name, value in os.environ.items()}\nmod.serve()\n"
    )
    async with playground(tmp_path) as ground:
        ground.write(source=source)
        await ground.games.start("arena")
        seen = await ground.call("environment")
        assert {"GABP_SERVER_PORT", "GABP_TOKEN", "GABS_GAME_ID", "GABP_TRANSPORT", "GABP_ADDRESS"} <= seen.keys()
        assert seen["GABS_GAME_ID"][::-1] == "arena"
        assert re.fullmatch("[0-9a-f]{64}", seen["GABP_TOKEN"])
        assert not {"BRIDGE_AGENT_TOKEN", "BASCULE_STATE_DIR"} & seen.keys()
        await ground.games.stop("arena")
        await ground.games.start("arena")
        # transport.md 5.4: "Token SHOULD rotate per session".
        assert (await ground.call("environment"))["GABP_TOKEN"] != seen["GABP_TOKEN"]
        assert all(seen["GABP_TOKEN"][::-1] not in str(line) for line in ground.logged)


# -- ending ---------------------------------------------------------------------------------------


@pytest.mark.req("GAME-LIFE-6")
@on_loop
async def test_a_game_that_ignores_being_asked_is_killed_with_its_children(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=STUBBORN, stop_timeout=0.3)
        status = await ground.games.start("arena")
        child = int(ground.runs()[0])
        assert is_alive(child)
        status = await ground.games.stop("arena")
        assert status.state == "stopped"
        assert "it did not end when asked, and was killed" in status.notes
        await until(lambda: not is_alive(child))


@pytest.mark.req("GAME-LIFE-6")
@on_loop
async def test_kill_does_not_ask(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=STUBBORN, stop_timeout=60)
        await ground.games.start("arena")
        async with asyncio.timeout(PATIENCE / 2):
            assert (await ground.games.stop("arena", kill=True)).state == "stopped"


@pytest.mark.req("GABP-4.3-3")
@on_loop
async def test_leaving_the_bridge_ends_every_game(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("one", "two")
        pids = [(await ground.games.start(name)).pid for name in ("one", "two")]
        assert all(map(is_alive, pids))
    await until(lambda: not any(map(is_alive, pids)))
    assert not ground.bridge_json.exists()


@pytest.mark.req("GAME-CALL-3")
@on_loop
async def test_a_call_whose_game_dies_may_have_run_and_one_behind_it_did_not(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        arena._link.session.max_concurrent = 1
        sent = arena.call_tool("me", "arena/leave", {"code": 7})
        waiting = arena.call_tool("me", "arena/count", {"key": "never"})
        with pytest.raises(GameError) as caught:
            await sent
        assert caught.value.executed == "unknown"
        assert caught.value.message.startswith("unknown: may have run")
        with pytest.raises(GameError) as caught:
            await waiting
        assert caught.value.executed == "no"
        await arena.reached(GameState.STOPPED)
        assert "exit code 7" in arena.problem
        assert ground.runs() == []


@pytest.mark.req("GABP-4.3-4", "DEC-GABP-6", "GAME-LIFE-10")
@on_loop
async def test_a_game_killed_and_restarted_again_and_again_under_load(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        await arena.subscribe("me", ["noise/a"])
        outcomes: dict[str, str] = {}
        going = True
        # With one game that runs, as at the end.
        descriptors = Descriptors()

        async def player(name: str) -> None:
            number = 0
            while going:
                key = f"{name}-{number}"
                number += 1
                try:
                    await arena.call_tool(name, "arena/count", {"key": key})
                    outcomes[key] = "yes"
                except GameError as error:
                    outcomes[key] = error.executed
                except (Unavailable, Conflict):
                    outcomes[key] = "no"
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(player(name))
            for round_ in range(KILLS):
                before = len(outcomes)
                await until(lambda before=before: len(outcomes) > before + 5)
                if round_ % 2:
                    await ground.games.stop("arena", kill=True)
                else:
                    # Not by us: it crashes.
                    os.kill(arena.process.pid, signal.SIGKILL)
                    await arena.reached(GameState.STOPPED)
                assert (await ground.games.start("arena", PATIENCE)).state == "live"
                cursor = arena.events.cursor
                await arena.call_tool("me", "arena/shout", {"channel": "noise/a"})
                page = await arena.events.wait(cursor, ("noise/a",), 1)
                assert json.loads(bytes(page.events[0].payload))["n"] == 0
            going = False
        ran = ground.runs()
        assert len(ran) == len(set(ran)), "a call ran twice"
        assert {key for key, outcome in outcomes.items() if outcome == "yes"} <= set(ran)
        assert not {key for key, outcome in outcomes.items() if outcome == "no"} & set(ran)
        assert arena.launches == KILLS + 1
        assert arena.counts == (0, 0)
        # What a launch leaves behind would be here many times.
        assert len(asyncio.all_tasks()) < 10
        assert len(descriptors.left()) < KILLS


# -- reconnecting ---------------------------------------------------------------------------------


@pytest.mark.req("GABP-3.1-1", "GABP-4.3-1", "GABP-4.3-2")
@on_loop
async def test_a_lost_connection_is_made_again_and_everything_is_as_before(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        assert (await ground.games.start("arena")).state == "live"
        arena = ground.games.find("arena")
        await arena.subscribe("me", ["noise/a"])
        mod.send(envelopes.event(envelopes.NIL_ID, "noise/a", 3, b"1"))
        await until(lambda: arena.events.cursor == 1)
        call = arena.call_tool("me", "a/b", {})
        mod.answers["tools/call"] = None
        await until(lambda: "tools/call" in mod.methods())
        mod.asked.clear()
        mod.drop()
        with pytest.raises(GameError, match="may have run"):
            await call
        await arena.reached(GameState.LIVE)
        assert mod.methods()[:2] == ["session/hello", "tools/list"]
        assert [params["channels"] for method, params in mod.asked if method == "events/subscribe"] == [
            ["attention/opened", "attention/updated", "attention/cleared"],
            ["noise/a"],
        ]
        # The call is not made again by itself.
        assert "tools/call" not in mod.methods()
        mod.send(envelopes.event(envelopes.NIL_ID, "noise/a", 6, b"1"))
        await until(lambda: arena.events.page(0, ("noise/a",), 9).cursor >= 4)
        last = arena.events.page(0, ("noise/a",), 9).events[-1]
        # Same mod, so its numbers tell what went by meanwhile.
        assert (last.seq, last.missed, last.code) == (6, 2, ErrorCode.OVERFLOW)
        marks = [event.message for event in arena.events.page(0, ("bridge/connection",), 9).events]
        assert "connected again" in marks[-1]


@on_loop
async def test_calls_of_a_game_that_is_away_are_refused_and_none_waits_for_ever(tmp_path):
    async with playground(tmp_path) as ground:
        async with ScriptedMod() as mod:
            attached(ground, mod.port)
            await ground.games.start("arena")
            arena = ground.games.find("arena")
            mod._server.close()
            mod.drop()
            await arena.reached(GameState.RECONNECTING)
            with pytest.raises(Unavailable, match="arena is reconnecting") as caught:
                arena.call_tool("me", "a/b", {})
            assert caught.value.retry_after
        # Let go of while it tries to come back.
        assert (await ground.games.stop("arena")).state == "stopped"


@pytest.mark.req("GABP-6.2-1", "DEC-GABP-6")
def test_tries_come_after_a_tenth_of_a_second_doubling_to_one_with_a_quarter_of_chance(tmp_path):
    from playground import Playground

    delays = Playground(tmp_path).machine().delays()
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert 0.75 * expected <= next(delays) <= 1.25 * expected


@on_loop
async def test_a_token_that_is_refused_is_not_tried_again(tmp_path):
    refusal = [b'{"v":"gabp/1","id":"$ID","type":"response","error":{"code":-31000,"message":"auth failed"}}']
    async with ScriptedMod(session_hello=refusal) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        status = await ground.games.start("arena")
        assert status.state == "failed"
        assert "auth failed (GABP -32101)" in status.problem
        assert mod.methods() == ["session/hello"]


@on_loop
async def test_a_mod_that_accepts_and_says_nothing_does_not_hold_up_anybody(tmp_path, monkeypatch):
    monkeypatch.setattr(life, "HELLO_SECONDS", 0.1)
    async with ScriptedMod(session_hello=None) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port, startup_timeout=5.0)
        status = await ground.games.start("arena")
        assert status.state == "failed"
        assert "no answer to hello" in status.problem
        assert len(mod.asked) > 1


# -- what real mods do ----------------------------------------------------------------------------


@pytest.mark.req("DEC-GABP-2", "GABP-MET-11")
@on_loop
async def test_a_mod_like_lib_gab_is_understood(tmp_path):
    listed = {
        "tools": [
            {
                "name": "inventory/get",
                "description": None,
                "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "nullable": True}}},
                "outputSchema": {},
                "parameters": [],
                "requiresAuth": False,
            },
            {"name": 5},
            "no tool at all",
            {"name": "inventory/get"},
        ]
    }

    def call(_: object) -> list[bytes]:
        # An event may overtake the answer; both carry what the envelope schema does not know.
        event = json.dumps(
            {
                "v": "gabp/1",
                "id": "x",
                "type": "event",
                "channel": "noise/a",
                "seq": 1,
                "payload": 1,
                "timestamp": "2025-01-02T10:30:00.1234567Z",
            }
        ).encode()
        return [event, b'{"v":"gabp/1","id":"$ID","type":"response","result":null,"error":null}']

    mod = ScriptedMod(tools_list=listed, tools_call=call, session_hello={})
    del mod.answers["attention/current"]
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        assert (await ground.games.start("arena")).state == "live"
        arena = ground.games.find("arena")
        assert list(arena.catalog.tools) == ["inventory/get"]
        assert len([note for note in arena.notes if "is none" in note or "twice" in note]) == 3
        await arena.subscribe("me", ["noise/a"])
        assert bytes(await arena.call_tool("me", "inventory/get", {"id": None})) == b"null"
        assert arena.events.page(0, ("noise/a",), 9).events[0].seq == 1
        # What goes out is strict whatever comes in: the scripted mod reads nothing else.
        assert ("tools/call", {"name": "inventory/get", "arguments": {"id": None}}) in mod.asked


@pytest.mark.req("DEC-GABP-9")
@on_loop
async def test_a_tool_whose_schema_or_description_changes_has_another_hash(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        before = arena.catalog.tools["a/b"].schema_hash
        await ground.games.stop("arena")
        await ground.games.start("arena")
        assert arena.catalog.tools["a/b"].schema_hash == before
        tool = mod.answers["tools/list"]["tools"][0]
        for changed in ({**tool, "description": "also deletes saves"}, {**tool, "inputSchema": {}}):
            mod.answers["tools/list"] = {"tools": [changed]}
            await ground.games.stop("arena")
            await ground.games.start("arena")
            assert arena.catalog.tools["a/b"].schema_hash != before


# -- attaching ------------------------------------------------------------------------------------


@on_loop
async def test_a_game_that_runs_alone_takes_up_the_file_of_a_bridge_that_comes_later(tmp_path):
    async with playground(tmp_path) as ground:
        with Mod("arena", bridge_file=str(ground.bridge_json)).running() as mod:
            assert mod.port is None
            assert mod.poll() == 0
            ground.toml.write_text("[games.arena]\ntransport = 'tcp'\n")
            status = await ground.games.start("arena")
            assert status.state == "live"
            assert status.pid is None
            assert mod.bridges == 1
            assert (await ground.games.stop("arena")).state == "stopped"
            assert not ground.bridge_json.exists()
            await until(lambda: mod.bridges == 0)


@pytest.mark.req("GAME-TRUST-9")
@on_loop
async def test_the_token_file_of_an_attached_game_must_be_private(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        (tmp_path / "token").chmod(0o664)
        status = await ground.games.start("arena")
        assert status.state == "stopped"
        assert "open to other users" in status.problem
        assert mod.asked == []


# A program for terminals, as curses and termios have it; then it plays.
TERMINAL = """
import os, sys, termios
termios.tcgetattr(0)
print("screen", *os.get_terminal_size(), os.environ["TERM"], os.isatty(2), os.ttyname(0) == os.ttyname(1), flush=True)
raise SystemExit(4)
"""


@pytest.mark.parametrize("terminal", [True, False])
@on_loop
async def test_a_game_for_terminals_gets_one_where_its_settings_say_so(tmp_path, terminal):
    """And without: it ends at its start, as a program for terminals does."""
    async with playground(tmp_path) as ground:
        ground.write(source=TERMINAL, terminal=terminal)
        status = await ground.games.start("arena")
        assert status.state == "stopped"
        if terminal:
            assert "exit code 4" in status.problem
            assert "screen 80 24 xterm" in status.problem
            assert "True True" in status.problem
        else:
            assert "Inappropriate ioctl" in status.problem


# It listens, and refuses every hello with an error that is not an error.
REFUSES = """
import json, os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["GABP_SERVER_PORT"])))
while True:
    connection, _ = listener.accept()
    data = b""
    while b"\\r\\n\\r\\n" not in data or not data.endswith(b"}"):
        data += connection.recv(65536)
    id_ = json.loads(data.partition(b"\\r\\n\\r\\n")[2])["id"]
    error = {"code": -32603, "message": "not today"}
    body = json.dumps({"v": "gabp/1", "id": id_, "type": "response", "error": error}).encode()
    connection.sendall(b"Content-Length: %d\\r\\nContent-Type: application/json\\r\\n\\r\\n%b" % (len(body), body))
    connection.close()
"""


@on_loop
async def test_a_game_that_listens_and_refuses_the_hello_is_not_said_to_have_never_listened(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write(source=REFUSES, startup_timeout=3)
        status = await ground.games.start("arena")
        assert status.state == "failed"
        assert "never listened" not in status.problem
        assert "did not welcome us" in status.problem
        assert "not today" in status.problem
