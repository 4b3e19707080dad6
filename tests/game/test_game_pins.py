"""What a tool is pinned by; and a tool that changes under a call that was judged already."""

import msgspec
import pytest
from playground import on_loop, playground

from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import Conflict
from bascule.game.pins import Pins
from bascule.game.protocol import CallToolParams, ResourceParams, ToolsParams
from bascule.game.reading import piece_of
from bascule.game.service import GameBridge
from bascule.kernel.call import Call, agent_principal
from bascule.kernel.effects import BegunRow, RecordedEffect
from bascule.kernel.journal import Transaction
from bascule.stores.memory import MemoryStore
from gabp.messages import ResourcesReadResult
from patience import PATIENCE

ANNA = agent_principal("Anna")


@pytest.fixture
def pins():
    return Pins(MemoryStore(), SystemClock(), max_per_game=3)


def pin(pins, tool, hash_="1", game="g"):
    pins.pin(Transaction(), game, tool, hash_, ANNA)


def test_a_tool_is_new_then_the_same_then_changed(pins):
    assert pins.compare("g", "a/b", "1") == "new"
    pin(pins, "a/b")
    assert pins.compare("g", "a/b", "1") == "same"
    assert pins.compare("g", "a/b", "2") == "changed"
    assert pins.compare("other", "a/b", "1") == "new"
    assert pins.find("g", "a/b").by == ANNA


def test_a_tool_that_is_the_same_is_not_written_again(pins):
    pin(pins, "a/b")
    tx = Transaction()
    pins.pin(tx, "g", "a/b", "1", ANNA)
    assert tx.changes == []


def test_a_mod_that_invents_tools_without_end_fills_nothing_but_its_own_pins(pins):
    pin(pins, "a/b", game="other")
    for number in range(10):
        pin(pins, f"made/up{number}")
    assert len([key for key in pins.table.rows if key.startswith("g ")]) == 3
    assert pins.find("other", "a/b") is not None
    assert pins.find("g", "made/up9") is not None


def execute(bridge, call):
    """As the gate does: resolved, begun, then handled."""
    bound = next(each for each in bridge.bridge().methods if each.row.name == call.method)
    row = BegunRow(principal=call.principal, method=call.method, at=0)
    effect = RecordedEffect("b", row, Transaction(), bound.resolve(call, call.params), None)
    return effect, lambda: bound.handler(call, call.params, effect)


@pytest.mark.req("GAME-TRUST-4")
@on_loop
async def test_a_tool_that_changes_between_its_judgement_and_its_call_is_not_called(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        await ground.games.start("arena", PATIENCE)
        bridge = GameBridge(games=ground.games, store=MemoryStore(), clock=SystemClock())
        found = ground.games.find("arena")
        params = CallToolParams(game_id="arena", tool="arena/count", arguments={"key": "x"})
        # The control: nothing changes, and it is called.
        effect, act = execute(bridge, Call(ANNA, "games.call", params, door="link"))
        assert (await act()).executed == "yes"
        assert effect.details["executed"] == "yes"
        assert ground.runs() == ["x"]
        effect, act = execute(bridge, Call(ANNA, "games.call", params, door="link"))
        tools = found.catalog.tools
        tools["arena/count"] = msgspec.structs.replace(tools["arena/count"], schema_hash="another")
        with pytest.raises(Conflict, match="changed since this call was judged"):
            act()
        assert effect.details["executed"] == "no"
        assert ground.runs() == ["x"]


@on_loop
async def test_the_list_of_tools_says_which_were_allowed_before_as_they_are_now(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write()
        await ground.games.start("arena", PATIENCE)
        bridge = GameBridge(games=ground.games, store=MemoryStore(), clock=SystemClock())

        def pin_of(tool):
            params = ToolsParams(game_id="arena", prefix=tool)
            return bridge.list_tools(Call(ANNA, "games.tools", params, door="link"), params).tools[0].pin

        assert pin_of("arena/count") == "new"
        found = ground.games.find("arena")
        tools = found.catalog.tools
        bridge.pins.pin(Transaction(), found.pinned_as, "arena/count", tools["arena/count"].schema_hash, ANNA)
        assert pin_of("arena/count") == "same"
        tools["arena/count"] = msgspec.structs.replace(tools["arena/count"], schema_hash="another")
        assert pin_of("arena/count") == "changed"


def content(content, **more):
    params = ResourceParams(game_id="g", uri="gabp://game/x", **more)
    return piece_of(ResourcesReadResult(content=content), params, kept=None)


def test_a_resource_is_read_in_pieces_whatever_it_is():
    assert (content("abc").content, content("abc").next_offset) == ("abc", None)
    first = content("abcdef", limit=4)
    assert (first.content, first.next_offset) == ("abcd", 4)
    assert (content("abcdef", limit=4, offset=4).content, content("abcdef", offset=9).content) == ("ef", "")
    # What is no text comes as it is while it fits, and as its JSON text when it does not.
    assert content({"a": 1}).content == {"a": 1}
    cut = content({"a": [1, 2, 3]}, limit=5)
    assert (cut.content, cut.next_offset) == ('{"a":', 5)
    assert content({"a": [1, 2, 3]}, limit=5, offset=5).content == " [1, "
