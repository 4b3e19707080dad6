"""A bridge's and a mod's session, joined by nothing but bytes."""

import json
import uuid

from gabp import envelopes, messages
from gabp.bridge_session import BridgeSession, Welcomed
from gabp.content_length import frame
from gabp.envelopes import Mode
from gabp.mod_session import Greeted, ModSession

TOKEN = "t" * 64
LAUNCH = "550e8400-e29b-41d4-a716-446655440000"
WELCOME = messages.Welcome(
    agent_id="arena",
    app=messages.App(name="Arena", version="1"),
    capabilities=messages.Capabilities(extensions=messages.EXTENSIONS),
    schema_version="1.0",
)


def hello() -> messages.HelloParams:
    return messages.HelloParams(token=TOKEN, bridge_version="1", platform="linux", launch_id=LAUNCH)


def opened(
    mode: Mode = Mode.STRICT, welcome: messages.Welcome = WELCOME, **options
) -> tuple[BridgeSession, ModSession]:
    bridge, mod = BridgeSession(mode, **options), ModSession(mode)
    bridge.hello(hello())
    (greeted,) = mod.receive(bridge.take())
    assert isinstance(greeted, Greeted)
    mod.welcome(welcome)
    (welcomed,) = bridge.receive(mod.take())
    assert isinstance(welcomed, Welcomed)
    return bridge, mod


def message(**fields) -> bytes:
    return frame(
        json.dumps({"v": "gabp/1", "id": str(uuid.uuid4()), **fields}).encode(), content_type="application/json"
    )


def notes_of(mod: ModSession) -> list[tuple[str, int | None]]:
    """What the mod answers: (id, error code or None)."""
    answers = envelopes.Reader(Mode.STRICT).feed(mod.take())
    return [(each.id, each.error.code if isinstance(each.error, envelopes.ErrorBody) else None) for each in answers]
