"""Attention as the bridge keeps it: one matter has one id, and what blocks comes first."""

import pytest
from playground import attached, on_loop, playground, until
from scripted_mod import TOOL, ScriptedMod

from bascule.protocols.game_errors import ErrorCode, GameError
from bascule.wire import gabp
from bascule.wire.content_length import frame


def item(id_, *, blocking=True, state="open", summary="look"):
    return {
        "attentionId": id_,
        "state": state,
        "severity": "error",
        "blocking": blocking,
        "stateInvalidated": False,
        "summary": summary,
        "openedAtSequence": 1,
        "latestSequence": 1,
        "totalUrgentEntries": 1,
    }


class Matters:
    """A mod that has matters; what is current is what it says last."""

    def __init__(self, mod):
        self.mod = mod
        self.seq = 0

    def tell(self, what, about, *, current=None):
        self.mod.answers["attention/current"] = {"attention": current}
        self.seq += 1
        event = {"v": "gabp/1", "id": f"00000000-0000-4000-8000-{self.seq:012}", "type": "event", "seq": self.seq}
        self.mod.send(frame(gabp.to_json({**event, "channel": f"attention/{what}", "payload": about})))


@pytest.mark.req("GABP-ATT-4")
@on_loop
async def test_an_update_is_of_the_same_matter_and_one_that_blocks_no_longer_lets_calls_through(tmp_path):
    async with ScriptedMod(tools_call=1) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        matters = Matters(mod)
        matters.tell("opened", item("a", summary="first"))
        await until(lambda: arena.attention is not None)
        with pytest.raises(GameError) as caught:
            arena.call_tool("me", TOOL["name"], {})
        assert (caught.value.code, caught.value.executed) == (ErrorCode.TOOL_UNAVAILABLE, "no")
        matters.tell("updated", item("a", summary="second"))
        await until(lambda: arena.attention.summary == "second")
        # Another one that does not block does not take its place.
        matters.tell("opened", item("b", blocking=False))
        matters.tell("updated", item("a", blocking=False, summary="third"), current=item("b", blocking=False))
        await until(lambda: arena.attention is not None and not arena.attention.blocking)
        assert bytes(await arena.call_tool("me", TOOL["name"], {})) == b"1"


@pytest.mark.req("GABP-ATT-5")
@on_loop
async def test_behind_a_matter_that_is_cleared_there_may_be_another(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        matters = Matters(mod)
        matters.tell("opened", item("a"))
        matters.tell("opened", item("b"))
        await until(lambda: arena.attention is not None and arena.attention.attention_id == "b")
        matters.tell("cleared", item("b", state="cleared"), current=item("a"))
        await until(lambda: arena.attention is not None and arena.attention.attention_id == "a")
        matters.tell("cleared", item("a", state="cleared"))
        await until(lambda: arena.attention is None)


@pytest.mark.req("GABP-ATT-6")
@on_loop
async def test_a_call_during_which_attention_opens_has_its_real_result(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        matters = Matters(mod)

        def call(params):
            matters.tell("opened", item("a"))
            return {"done": True}

        mod.answers["tools/call"] = call
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        assert bytes(await arena.call_tool("me", TOOL["name"], {})) == b'{"done":true}'
        # The control: the next one is held back, and the mod does not even hear of it.
        with pytest.raises(GameError):
            arena.call_tool("me", TOOL["name"], {})
        assert mod.methods().count("tools/call") == 1
