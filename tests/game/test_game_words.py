"""What of a mod's words reaches an agent: without the launch's token, within limits, and counted as UTF-8."""

import asyncio
import json
import sys

import pytest
from playground import attached, on_loop, playground, until
from scripted_mod import TOOL, WELCOME, ScriptedMod

from bascule.game.machine.masking import Mask
from bascule_mod.endpoint import observed
from gabp import envelopes, messages
from gabp.errors import GameError
from gabp.kept import PIECE_BYTES, Kept, KeptResult
from gabp.words import (
    MAX_DESCRIPTION_CHARS,
    MAX_ERROR_CHARS,
    MAX_RESOURCES,
    MAX_SCHEMA_BYTES,
    MAX_SUMMARY_CHARS,
    MAX_TAGS,
    bounded_resources,
)
from patience import PATIENCE

TOKEN = "0123456789abcdef" * 4
ID = "550e8400-e29b-41d4-a716-446655440000"


# -- the token --

TALKATIVE = """
import os, sys, time
from bascule_mod import Mod
token = os.environ["GABP_TOKEN"]
print("my token is", token, flush=True)
os.write(2, b"half: " + token[:30].encode())
mod = Mod("arena")

@mod.tool
def print_rest() -> str:
    os.write(1, b"something between\\n")
    os.write(2, token[30:].encode() + b"\\n")
    return token

@mod.tool
def fail() -> None:
    raise RuntimeError("no entry with " + token)

mod.channel("noise")

@mod.tool
def shout() -> None:
    mod.emit("noise", {"token": token})

mod.serve()
"""


@pytest.mark.req("GAME-TRUST-12")
@on_loop
async def test_the_token_is_in_nothing_that_a_game_prints_answers_or_tells(tmp_path):
    async with playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        ground.write(source=TALKATIVE, mode="compat")
        assert (await ground.games.start("arena", PATIENCE)).state == "live"
        arena = ground.games.find("arena")
        token = arena.life._token
        process = arena.process
        await until(lambda: "half: " in process.output())
        assert "my token is " + "*" * 64 in process.output()
        assert token[:30] not in process.output()
        assert await ground.call("print_rest") == "*" * 64
        await until(lambda: "something between" in process.output() and process.output().endswith("\n"))
        assert "half: " in process.output()
        assert token[30:] not in process.output()
        with pytest.raises(GameError, match=r"no entry with \*{64}"):
            await ground.call("fail")
        await arena.subscribe("me", ["noise"])
        await ground.call("shout")
        await until(lambda: arena.events.cursor > 0)
        (event,) = arena.events.page(0, (), 10).events
        assert json.loads(bytes(event.payload)) == {"token": "*" * 64}
        await ground.games.stop("arena")
        assert token not in json.dumps([ground.logged, arena.notes, arena.problem], default=str)


@pytest.mark.parametrize("size", [1, 2, 7, 63, 64, 65])
def test_a_secret_is_masked_however_its_bytes_are_split(size):
    text = f"{TOKEN[:20]} a {TOKEN}{TOKEN} b {TOKEN[:-1]}x {TOKEN}".encode()
    mask = Mask(TOKEN)
    shown = b"".join(mask.feed(text[at : at + size]) for at in range(0, len(text), size)) + mask.held()
    assert shown == text.replace(TOKEN.encode(), b"*" * 64)
    assert mask.feed(b"!" + TOKEN[:40].encode()) == b"!"
    assert mask.held() == b"*" * 40


def test_without_a_secret_nothing_is_held():
    assert Mask("").feed(b"abc") == b"abc"


# -- limits --


def words(size):
    return "w" * size


@pytest.mark.req("GAME-TRUST-13")
@on_loop
async def test_descriptions_summaries_and_errors_of_a_mod_are_bounded(tmp_path):
    long = words(100_000)
    tools = [
        {**TOOL, "description": long, "title": long, "tags": [f"t{n}" for n in range(500)] + ["destructive"]},
        {**TOOL, "name": "a/huge", "inputSchema": {"type": "object", "description": words(MAX_SCHEMA_BYTES)}},
    ]
    error = {"code": -32402, "message": long, "data": {"what": words(200_000)}}
    failing = [envelopes.to_json({"v": "gabp/1", "id": "$ID", "type": "response", "error": error})]
    attention = {"attentionId": "a", "state": "open", "blocking": False, "summary": long}
    mod = ScriptedMod(
        session_hello={**WELCOME, "app": {"name": long, "version": long}},
        tools_list={"tools": tools},
        tools_call=failing,
        attention_current={"attention": attention},
    )
    async with mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        (known,) = arena.catalog.tools.values()
        assert len(known.tool.description) < MAX_DESCRIPTION_CHARS + 50
        assert known.tool.description.endswith("(100000 characters, cut)")
        assert len(known.tool.tags) == MAX_TAGS
        # What makes it ask is not cut away.
        assert "destructive" in known.tool.tags
        assert any("a/huge is left out" in note for note in arena.notes)
        assert len(arena.attention.summary) < MAX_SUMMARY_CHARS + 50
        with pytest.raises(GameError) as caught:
            await arena.call_tool("me", "a/b", {})
        assert len(caught.value.message) < MAX_ERROR_CHARS + 50
        assert caught.value.data == {"dropped": "200011 bytes, over 65536"}
        assert len(ground.games.status("arena").app) < 300


def test_a_list_of_resources_is_bounded():
    found = [messages.Resource(uri=f"gabp://game/{n}", name=words(10_000)) for n in range(2 * MAX_RESOURCES)]
    shown = bounded_resources(found)
    assert len(shown) == MAX_RESOURCES
    assert len(shown[0].name) < 300


# -- sizes --


@on_loop
async def test_a_result_counts_by_its_utf8_and_is_kept_without_escapes(tmp_path):
    text = "\u00e9" * 10_000
    async with ScriptedMod(tools_call=text) as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        # 60,002 bytes as the mod escapes it, 20,002 as UTF-8.
        assert json.loads(bytes(await arena.call_tool("me", "a/b", {}, inline_bytes=20_002))) == text
        kept = await arena.call_tool("me", "a/b", {}, inline_bytes=20_001)
        assert isinstance(kept, KeptResult)
        assert kept.size == 20_002
        assert arena.large.read(kept.uri).content == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("length", [1, 2, 5, 1_000])
def test_a_kept_text_is_cut_between_characters_and_comes_back_whole(length):
    text = json.dumps("a\u00e9\u20ac\U0001f600" * 20, ensure_ascii=False)
    kept = Kept("gabp://x/")
    standin = kept.keep(text.encode())
    offset, pieces = 0, []
    while offset < standin.size:
        pieces.append(kept.read(f"{standin.uri}?offset={offset}&length={length}").content)
        offset += len(pieces[-1].encode())
    assert "".join(pieces) == text


def test_the_largest_piece_fits_into_one_message():
    for letter in ("\u00e9", "\u20ac", "\U0001f600", '"', "\\"):
        kept = Kept("gabp://x/")
        uri = kept.keep(json.dumps(letter * PIECE_BYTES, ensure_ascii=False).encode()).uri
        assert len(envelopes.response(ID, envelopes.to_json(kept.read(uri)))) <= messages.MAX_MESSAGE_BYTES


# -- channels --


def plain_channels(*known, refuses=False):
    """A mod that knows names and no patterns: it leaves others out, as Lib.GAB does, or refuses the whole list."""

    def subscribe(params):
        taken = [each for each in params["channels"] if each in known]
        if refuses and len(taken) < len(params["channels"]):
            return [b'{"v":"gabp/1","id":"$ID","type":"response","error":{"code":-32500,"message":"no"}}']
        return {"subscribed": taken}

    return ScriptedMod(
        session_hello={**WELCOME, "capabilities": {"events": list(known)}},
        events_subscribe=subscribe,
        events_unsubscribe=lambda params: {"unsubscribed": params["channels"]},
    )


@pytest.mark.parametrize("refuses", [False, True])
@on_loop
async def test_a_pattern_that_a_mod_does_not_take_is_asked_for_name_by_name(tmp_path, refuses):
    mod = plain_channels("noise/a", "noise/b", "other/c", refuses=refuses)
    async with mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        assert await arena.subscribe("me", ["noise/*", "other/c", "nothing/*"]) == ["nothing/*"]
        for number, channel in enumerate(("noise/a", "noise/b", "other/c")):
            mod.send(envelopes.event(ID, channel, number, b"1"))
        await until(lambda: arena.events.cursor == 3)
        # After a reconnect too.
        mod.drop()
        await until(lambda: arena.connects == 2)
        mod.send(envelopes.event(ID, "noise/b", 9, b"1"))
        await until(lambda: any(each.seq == 9 for each in arena.events.page(0, (), 100).events))
        await arena.unsubscribe("me", ["noise/*"])
        assert mod.asked[-1] == ("events/unsubscribe", {"channels": ["noise/a", "noise/b"]})


# -- what GABS hears of a launch --


def test_gabs_is_told_the_whole_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["game.py", "--fast"])
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python3", "game.py", "--fast"])
    # It compares what follows the program with the arguments that it gave.
    assert observed({"GABS_FORWARD_ENV": ""}).argv[1:] == ["game.py", "--fast"]
