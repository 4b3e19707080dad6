"""Every row is called with the params that cost most for their length: none keeps the loop from the others.

No game is known and rows for other machines are refused for the caller: such a call ends once its params are decoded
and judged.

The bars are those of `loop_bar`: 20 ms of the loop's thread for params up to 64 KiB, 50 ms for more.
"""

import asyncio
import contextlib
import os
from types import SimpleNamespace

import hostile_params
import pytest
from msgspec import inspect

from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import BasculeError, Forbidden
from bascule.game.games import Games
from bascule.game.service import GameBridge
from bascule.kernel.call import LOCAL, PERSON, Call, agent_principal
from bascule.kernel.mounted import ParamsReader
from bascule.kernel.policy import facts
from bascule.kernel.policy.shell import reading
from bascule.stores.memory import MemoryStore
from bascule.surfaces.http.endpoints import MAX_BODY_BYTES
from bascule.testing.fakes import FakeConnection
from bascule.testing.house import House
from gabp import codec
from loop_bar import BAR, LONG_BAR, fits
from scripted_host import FakeScreen

LONG = os.environ.get("BASCULE_LONG") == "1"
# Nearly as many as one broadcast may have.
AGENTS = 250
# A house remembers; after so many calls the next one begins.
CALLS_PER_HOUSE = 2_000
CALLERS = (LOCAL, agent_principal("a"), PERSON)


def make_house():
    """With a desktop, and with the rows of games."""
    settings = SimpleNamespace(games=dict, problem=None)
    games = GameBridge(games=Games(settings, None, check_start=lambda: None), store=MemoryStore(), clock=SystemClock())
    return House(screen=FakeScreen(), methods=tuple(games.bridge().methods))


class Scene:
    def __init__(self):
        self._calls = 0
        self._begin()

    def _begin(self):
        self.house = make_house()
        self.house.machine.directory("/p", {"a": b"a"})
        self.house.register("a")
        for number in range(AGENTS):
            self.house.register(f"agent-{number}")

    def next(self):
        self._calls += 1
        if self._calls % CALLS_PER_HOUSE == 0:
            self.close()
            self._begin()

    def close(self):
        self.house.close()

    def call(self, caller, method, params):
        """As the daemon's loop has it, up to the point where it waits for something."""
        connection = FakeConnection(self.house.clock) if caller == PERSON else None
        call = Call(caller, method, params, door="testing", connection=connection)
        for kept in (reading._read, facts._of_text, facts._of_native_command):
            kept.cache_clear()

        async def inside():
            with contextlib.suppress(BasculeError):
                answer = self.house.gate.call(call)
                for _ in range(8):
                    await asyncio.sleep(0)
                if hasattr(answer, "close"):
                    answer.close()

        self.house._within(inside())

    def caller_of(self, method):
        """One whom the row does not refuse for who they are."""
        fields = inspect.type_info(self.house.gate.methods[method].params).fields
        usual = {field.encode_name: hostile_params.usual(field.type) for field in fields if field.required}
        for caller in CALLERS:
            try:
                self.house.call(caller, method, usual)
            except Forbidden:
                continue
            except Exception:  # noqa: BLE001 - whatever else it says, the caller was let in
                return caller
            return caller
        return LOCAL


@pytest.fixture(scope="module")
def scene():
    made = Scene()
    yield made
    made.close()


def rows():
    with make_house() as house:
        return {name: each.params for name, each in house.gate.methods.items()}


ROWS = rows()
with make_house() as _house:
    DOORS = sorted(name for name, each in _house.gate.methods.items() if not each.is_operation)


def too_slow(scene, method, bodies, bar):
    caller = scene.caller_of(method)
    found = []
    for body in bodies:
        scene.next()
        if not fits(lambda body=body: scene.call(caller, method, body), bar):
            found.append((len(body), ascii(body[:160])))
    return found


def bodies_of(method, size):
    yield from hostile_params.of_row(ROWS[method], size)
    if method == "runs.start":
        yield from hostile_params.runs(size)


def test_the_rows_of_a_house_are_driven():
    assert {
        "messages.send",
        "native.before",
        "policy.explain",
        "runs.start",
        "mesh.offer",
        "a2a.publish",
        "games.call",
        "desktop.typeText",
    } <= set(DOORS)
    assert len(DOORS) > 90


@pytest.mark.parametrize("method", DOORS)
def test_no_params_of_64_kib_take_longer_than_the_bar(scene, method):
    assert too_slow(scene, method, bodies_of(method, hostile_params.SHORT), BAR) == []


def test_no_params_that_are_explained_take_longer_than_the_bar(scene):
    bodies = hostile_params.explained(ROWS.items(), hostile_params.SHORT)
    assert too_slow(scene, "policy.explain", bodies, BAR) == []


# What a body of megabytes costs is decided by what is in it, not by the field's own rules: those were tried above.
@pytest.mark.parametrize("method", [name for name in DOORS if inspect.type_info(ROWS[name]).fields])
def test_no_params_of_a_whole_body_take_longer_than_the_bar(scene, method):
    fields = inspect.type_info(ROWS[method]).fields
    base = {field.encode_name: hostile_params.usual(field.type) for field in fields if field.required}
    names = [field.encode_name for field in fields]
    values = list(hostile_params.of_json(MAX_BODY_BYTES - 1_000))
    if not LONG:
        values, names = values[:: 3 + len(method) % 3], names[:4]
    bodies = (hostile_params.with_fields(base, {name: value}) for name in names for value in values)
    assert too_slow(scene, method, bodies, LONG_BAR) == []


@pytest.mark.parametrize("size", [hostile_params.SHORT, 1_000_000])
def test_the_control_without_the_limit_on_values_the_same_call_is_over_the_bar(scene, monkeypatch, size):
    body = hostile_params.with_fields({"agentId": "a"}, {"payload": hostile_params.many(b"[", b"1e300,", b"0]", size)})
    bar = BAR if size < 64 * 1024 else LONG_BAR
    assert fits(lambda: scene.call(LOCAL, "messages.send", body), bar)
    monkeypatch.setattr(codec, "has_too_many_values", lambda *_: False)
    assert not fits(lambda: scene.call(LOCAL, "messages.send", body), bar)


# -- a payload that stays as it is ----------------------------------------------------------------

VALUES = b"[" + b'0,"a,b",{"x":[]},' * 9_000 + b"0]"


def test_a_payload_with_very_many_values_arrives_as_it_was_sent():
    params = b'{"payload":%b,"metadata":{"k":"v"},"agentId":"a"}' % VALUES
    with make_house() as house:
        house.register("a")
        house.run(lambda: house.gate.call(Call(LOCAL, "messages.send", params, door="testing")))
        (message,) = house.call("agent:a", "inbox.take", {"agentId": "a"})["messages"]
    assert codec.encode(message["payload"]) == VALUES
    assert message["metadata"] == {"k": "v"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"agentId":"a","payload":1,"metadata":{"k":%b}}' % VALUES, "20000 values"),
        (b'{"agentId":"a","payload":%b,"payload":%b}' % (VALUES, VALUES), "20000 values"),
        (b'{"agentId":"a","payload":%b,"payload":1}' % VALUES, "20000 values"),
        (b'{"agentId":"a","metadata":%b,"payload":%b}' % (b'{"k":' + VALUES + b"}", VALUES), "20000 values"),
        (b'{"agentId":"a","payload":%b} x' % VALUES, "malformed"),
        (b'{"agentId":"a","payload":%b}' % VALUES.replace(b"0]", b"1e999]"), "too large for most readers"),
        (b'{"agentId":"a","payload":%b}' % VALUES.replace(b"0]", b"9" * 400 + b"]"), "too large for most readers"),
        (b'{"agentId":"a","payload":%b}' % VALUES.replace(b"0]", b'"\\ud800"]'), "half of a surrogate pair"),
        (b'{"agentId":"a","payload":%b}' % VALUES.replace(b"0]", b"[" * 70 + b"]" * 71), "nested deeper"),
        (b'{"agentId":"a","payload":%b,"x":1}' % VALUES, "unknown field"),
    ],
)
def test_what_stands_beside_a_payload_is_read_as_ever(body, why):
    with pytest.raises(codec.BadJson, match=why):
        ParamsReader(ROWS["messages.send"]).decode(body)


def test_a_payload_below_the_limit_is_decoded():
    """The control: nothing changes for what people send."""
    body = b'{"agentId":"a","payload":%b}' % (b"[" + b"0," * 9_999 + b"0]")
    assert ParamsReader(ROWS["messages.send"]).decode(body).payload == [0] * 10_000
