"""Attention as the bridge keeps it: one matter has one id, and what blocks comes first."""

import pytest
from playground import attached, on_loop, playground, until
from scripted_mod import TOOL, WELCOME, ScriptedMod

from gabp import envelopes
from gabp.content_length import frame
from gabp.errors import ErrorCode, GameError


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

    def publish(self, what, about, *, current=None, content_type=None):
        self.mod.answers["attention/current"] = {"attention": current}
        self.seq += 1
        event = {"v": "gabp/1", "id": f"00000000-0000-4000-8000-{self.seq:012}", "type": "event", "seq": self.seq}
        body = envelopes.to_json({**event, "channel": f"attention/{what}", "payload": about})
        self.mod.send(frame(body, content_type=content_type))


@pytest.mark.req("GABP-ATT-4")
@on_loop
async def test_an_update_is_of_the_same_matter_and_one_that_blocks_no_longer_lets_calls_through(tmp_path):
    async with ScriptedMod(tools_call=1) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        matters = Matters(mod)
        matters.publish("opened", item("a", summary="first"))
        await until(lambda: arena.attention is not None)
        with pytest.raises(GameError) as caught:
            arena.call_tool("me", TOOL["name"], {})
        assert (caught.value.code, caught.value.executed) == (ErrorCode.TOOL_UNAVAILABLE, "no")
        matters.publish("updated", item("a", summary="second"))
        await until(lambda: arena.attention.summary == "second")
        # Another one that does not block does not take its place.
        matters.publish("opened", item("b", blocking=False))
        matters.publish("updated", item("a", blocking=False, summary="third"), current=item("b", blocking=False))
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
        matters.publish("opened", item("a"))
        matters.publish("opened", item("b"))
        await until(lambda: arena.attention is not None and arena.attention.attention_id == "b")
        matters.publish("cleared", item("b", state="cleared"), current=item("a"))
        await until(lambda: arena.attention is not None and arena.attention.attention_id == "a")
        matters.publish("cleared", item("a", state="cleared"))
        await until(lambda: arena.attention is None)


@pytest.mark.req("GABP-ATT-6")
@on_loop
async def test_a_call_during_which_attention_opens_has_its_real_result(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        matters = Matters(mod)

        def call(params):
            matters.publish("opened", item("a"))
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


def without(field):
    return {name: value for name, value in item("a").items() if name != field}


@pytest.mark.req("GABP-ATT-1")
@pytest.mark.parametrize(
    "payload",
    [
        without("blocking"),
        {**item("a"), "blocking": "no"},
        {**item("a"), "blocking": None},
        without("state"),
        "x",
        None,
    ],
    ids=["no blocking", "a word", "null", "no state", "no object", "nothing"],
)
@on_loop
async def test_an_attention_that_cannot_be_read_blocks_in_compat(tmp_path, payload):
    async with ScriptedMod(tools_call=1) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        Matters(mod).publish("opened", payload)
        await until(lambda: arena.attention is not None)
        with pytest.raises(GameError, match="was not executed"):
            arena.call_tool("me", TOOL["name"], {})
        # Acknowledging goes on, by the id that is shown.
        mod.answers["attention/ack"] = {"acknowledged": True, "attentionId": "a", "currentAttention": None}
        await arena.acknowledge("me", arena.attention.attention_id)
        assert bytes(await arena.call_tool("me", TOOL["name"], {})) == b"1"
        assert arena.connects == 1


@on_loop
async def test_an_attention_that_says_it_does_not_block_does_not_whatever_else_is_wrong(tmp_path):
    async with ScriptedMod(tools_call=1) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        Matters(mod).publish("opened", {**item("a", blocking=False), "severity": "awful"})
        await until(lambda: arena.attention is not None)
        assert bytes(await arena.call_tool("me", TOOL["name"], {})) == b"1"


@pytest.mark.parametrize("mode", ["compat", "strict"])
@on_loop
async def test_a_current_attention_that_cannot_be_read_blocks_from_the_first_call_on(tmp_path, mode):
    mod = ScriptedMod(tools_call=1, attention_current={"attention": {**item("a"), "blocking": 0}})
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port, mode=mode)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        with pytest.raises(GameError, match="was not executed"):
            arena.call_tool("me", TOOL["name"], {})
        assert "tools/call" not in mod.methods()


@on_loop
async def test_a_current_attention_that_is_cleared_holds_nothing_back(tmp_path):
    mod = ScriptedMod(tools_call=1, attention_current={"attention": {"attentionId": "a", "state": "cleared"}})
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        assert bytes(await ground.games.find("arena").call_tool("me", TOOL["name"], {})) == b"1"


@on_loop
async def test_a_strict_session_with_an_attention_that_is_none_is_made_anew(tmp_path):
    async with ScriptedMod(tools_call=1) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port, mode="strict")
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        Matters(mod).publish("opened", without("blocking"), current=item("a"), content_type="application/json")
        await until(lambda: arena.connects == 2)
        with pytest.raises(GameError, match="was not executed"):
            arena.call_tool("me", TOOL["name"], {})


@on_loop
async def test_attention_is_subscribed_to_whatever_channels_are_announced(tmp_path):
    def subscribe(params):
        if "attention/opened" in params["channels"]:
            assert params["channels"] == ["attention/opened", "attention/updated", "attention/cleared"]
        return {"subscribed": params["channels"]}

    announced = {**WELCOME, "capabilities": {"events": ["noise/a"]}}
    mod = ScriptedMod(session_hello=announced, tools_call=1, events_subscribe=subscribe)
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        Matters(mod).publish("opened", item("a"))
        await until(lambda: arena.attention is not None)
        with pytest.raises(GameError, match="was not executed"):
            arena.call_tool("me", TOOL["name"], {})


@on_loop
async def test_a_mod_without_attention_that_refuses_its_channels_is_heard_all_the_same(tmp_path):
    def subscribe(params):
        refused = [each for each in params["channels"] if each != "noise/a"]
        return (
            [b'{"v":"gabp/1","id":"$ID","type":"response","error":{"code":-32500,"message":"no"}}']
            if refused
            else {"subscribed": params["channels"]}
        )

    mod = ScriptedMod(events_subscribe=subscribe, session_hello={**WELCOME, "capabilities": {"events": ["noise/a"]}})
    del mod.answers["attention/current"]
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        ground.games.find("arena").subscriptions.add("me", ["noise/a"])
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        mod.send(envelopes.event("550e8400-e29b-41d4-a716-446655440000", "noise/a", 1, b"1"))
        await until(lambda: arena.events.cursor == 1)
        assert not [note for note in arena.notes if "subscribed" in note]
