"""Games that somebody else starts: their files, their restarts, and one answer for all their tools."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from arcade import Player, arcade, decide, person
from playground import on_loop, playground, until
from scripted_mod import WELCOME, ScriptedMod

from bascule.foundation.paths import UnsafePlace, read_private_file, read_unreachable_file
from bascule.game.settings import GameSettings
from patience import PATIENCE

# -- whose file it is --


@pytest.fixture
def open_directory():
    """One that everybody can walk through: nothing above it is closed, as pytest's own directories are."""
    with tempfile.TemporaryDirectory(prefix="gabp-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def written(path: Path, mode: int) -> str:
    path.write_text("text")
    path.chmod(mode)
    return str(path)


@pytest.mark.req("GAME-LIFE-9")
def test_a_file_that_others_may_read_is_fine_where_they_cannot_reach_it(open_directory):
    closed = open_directory / "home"
    below = closed / ".gabs" / "game"
    below.mkdir(parents=True)
    closed.chmod(0o700)
    path = written(below / "bridge.json", 0o644)
    assert read_unreachable_file(path) == "text"
    # By a link from outside it is the same file in the same place.
    (open_directory / "link").symlink_to(below)
    assert read_unreachable_file(str(open_directory / "link" / "bridge.json")) == "text"
    # The control: the file's own mode alone refuses it.
    with pytest.raises(UnsafePlace, match="open to other users"):
        read_private_file(path)
    for mode in (0o710, 0o701, 0o755):
        closed.chmod(mode)
        with pytest.raises(UnsafePlace, match=r"mode 0644.*chmod go="):
            read_unreachable_file(path)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused_wherever_it_lies(tmp_path, mode):
    with pytest.raises(UnsafePlace):
        read_unreachable_file(written(tmp_path / "bridge.json", mode))


def test_a_link_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(written(tmp_path / "file", 0o600))
    with pytest.raises(OSError, match="symbolic"):
        read_unreachable_file(str(tmp_path / "link"))


# -- restarts --

OLD, NEW = "a" * 64, "b" * 64
REFUSAL = [b'{"v":"gabp/1","id":"$ID","type":"response","error":{"code":-32101,"message":"wrong token"}}']


def takes(token):
    return ScriptedMod(
        session_hello=lambda params: WELCOME if params["token"] == token else REFUSAL, tools_call=token[:8]
    )


def gabs_file(path: Path, mod: ScriptedMod, token: str) -> None:
    """As GABS writes it."""
    path.write_text(json.dumps({"port": mod.port, "token": token, "gameId": "arena"}))
    path.chmod(0o644)


@on_loop
async def test_the_bridge_file_is_read_again_when_the_game_was_started_anew(tmp_path):
    file = tmp_path / "bridge.json"
    async with takes(OLD) as old, takes(NEW) as new, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        ground.toml.write_text(f"[games.arena]\nbridge_file = {str(file)!r}\n")
        gabs_file(file, old, OLD)
        assert (await ground.games.start("arena", PATIENCE)).state == "live"
        arena = ground.games.find("arena")
        assert json.loads(bytes(await arena.call_tool("me", "a/b", {}))) == OLD[:8]
        gabs_file(file, new, NEW)
        old._server.close()
        old.drop()
        await until(lambda: arena.connects == 2)
        assert json.loads(bytes(await arena.call_tool("me", "a/b", {}))) == NEW[:8]


@on_loop
async def test_a_token_that_is_refused_is_read_once_more_before_it_is_given_up(tmp_path):
    file = tmp_path / "bridge.json"
    asked = []

    def hello(params):
        asked.append(params["token"])
        if len(asked) == 1:
            # The file is a moment older than the game.
            gabs_file(file, mod, NEW)
        return WELCOME if params["token"] == NEW else REFUSAL

    async with ScriptedMod(session_hello=hello) as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        ground.toml.write_text(f"[games.arena]\nbridge_file = {str(file)!r}\n")
        gabs_file(file, mod, OLD)
        assert (await ground.games.start("arena", PATIENCE)).state == "live"
        assert asked == [OLD, NEW]


@on_loop
async def test_a_game_that_could_not_be_attached_to_is_attached_to_again_by_the_same_name(tmp_path):
    file = tmp_path / "bridge.json"
    settings = GameSettings(bridge_file=str(file))
    async with takes(NEW) as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        gabs_file(file, mod, OLD)
        failed = await ground.games.attach("visitor", settings, PATIENCE, by="local")
        assert (failed.state, "wrong token" in failed.problem) == ("failed", True)
        gabs_file(file, mod, NEW)
        assert (await ground.games.attach("visitor", settings, PATIENCE, by="local")).state == "live"
        # And by `connect`, which is what an agent can do.
        await ground.games.stop("visitor")
        gabs_file(file, mod, OLD)
        assert (await ground.games.attach("visitor", settings, PATIENCE, by="local")).state == "failed"
        gabs_file(file, mod, NEW)
        assert (await ground.games.connect("visitor", PATIENCE)).state == "live"


# -- one answer --

TOOLS = """
import os
from bascule_mod import Mod

mod = Mod("arena")

def tool(name, **options):
    def called(word: str = "") -> str:
        with open(os.environ["RUNS_FILE"], "a") as file:
            file.write(name + "\\n")
        return name
    called.__doc__ = os.environ.get("ABOUT", "What it does.")
    mod.tool(called, name=f"arena/{name}", **options)

for name in ("one", "two", "three"):
    tool(name)
tool("wipe", destructive=True)
if os.environ.get("MORE"):
    tool("more")
mod.serve()
"""


class Attached:
    """The game in a process of its own, to be attached to by a socket."""

    def __init__(self, place):
        self.place = place
        self.socket = str(place.folder / "game.sock")
        self.token = place.folder / "token"
        self.token.write_text("0123456789abcdef" * 4)
        self.token.chmod(0o600)
        place.mod.write_text(TOOLS)
        place.toml.write_text(
            f"[games.arena]\ntransport = 'pipe'\naddress = {self.socket!r}\ntoken_file = {str(self.token)!r}\n"
        )

    @contextmanager
    def played(self, agent, **more):
        """A launch of the game, a life of the daemon; the agent is connected to it, and the person is there."""
        Path(self.socket).unlink(missing_ok=True)
        own = {
            "GABP_TRANSPORT": "pipe",
            "GABP_ADDRESS": self.socket,
            "GABP_TOKEN": self.token.read_text(),
            "RUNS_FILE": str(self.place.runs_file),
        }
        with subprocess.Popen([sys.executable, str(self.place.mod)], env=os.environ | own | more) as game:
            try:
                with (
                    self.place.live(quick=True) as daemon,
                    person(daemon) as owner,
                    Player(self.place, agent) as player,
                ):
                    assert player.use("games_connect", gameId="arena")["state"] == "live"
                    yield owner, player
                    assert daemon.stop() == 0
            finally:
                game.kill()


def use(player, tool):
    return player.use("games_call_tool", gameId="arena", tool=f"arena/{tool}")


def trust(owner, approval_id):
    shown = owner.call("approvals.show", {"approvalId": approval_id})
    (offer,) = [each for each in shown["offers"] if each["title"].startswith("trust this game")]
    answer = {"approvalId": approval_id, "decision": "approved", "scope": "rule", "offer": offer["number"]}
    owner.call("approvals.decide", answer)
    return shown


def results(player):
    return [use(player, name).get("result") for name in ("one", "two", "three")]


@pytest.mark.req("GAME-TRUST-2", "GAME-TRUST-3")
def test_one_answer_trusts_all_present_tools_of_an_attached_game_and_none_that_is_destructive_or_new():
    with arcade() as place:
        attached = Attached(place)
        with attached.played("Anna") as (owner, anna):
            shown = trust(owner, use(anna, "one")["approvalId"])
            named = [f"arena/{name}" in shown["preview"] for name in ("one", "two", "three", "wipe")]
            assert named == [True, True, True, False]
            assert results(anna) == ["one", "two", "three"]
            assert use(anna, "wipe")["status"] == "awaiting_approval"
        # Pinned by what they were: in another life, for another agent, beside a tool that nobody has seen.
        with attached.played("Tom", MORE="1") as (_, tom):
            assert results(tom) == ["one", "two", "three"]
            assert use(tom, "more")["status"] == "awaiting_approval"
        with attached.played("Tom", ABOUT="Something else.") as (_, tom):
            held = use(tom, "two")
            assert held["status"] == "awaiting_approval"
            assert "not what was allowed before" in held["reason"]
        assert "wipe" not in place.runs()


def test_without_that_offer_a_yes_is_for_one_tool():
    with arcade() as place, Attached(place).played("Anna") as (owner, anna):
        decide(owner, use(anna, "one")["approvalId"])
        assert use(anna, "one")["result"] == "one"
        assert use(anna, "two")["status"] == "awaiting_approval"
