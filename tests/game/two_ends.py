"""A bridge's and a mod's session, joined by nothing but bytes."""

import json
import uuid

from bascule.protocols import game
from bascule.protocols.game_bridge_session import BridgeSession, Welcomed
from bascule.protocols.game_mod_session import Greeted, ModSession
from bascule.wire import gabp
from bascule.wire.content_length import frame
from bascule.wire.gabp import Mode

TOKEN = "t" * 64
LAUNCH = "550e8400-e29b-41d4-a716-446655440000"
WELCOME = game.Welcome(
    agent_id="arena",
    app=game.App(name="Arena", version="1"),
    capabilities=game.Capabilities(extensions=game.EXTENSIONS),
    schema_version="1.0",
)


def hello() -> game.HelloParams:
    return game.HelloParams(token=TOKEN, bridge_version="1", platform="linux", launch_id=LAUNCH)


def opened(mode: Mode = Mode.STRICT, welcome: game.Welcome = WELCOME, **options) -> tuple[BridgeSession, ModSession]:
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


def said(mod: ModSession) -> list[tuple[str, int | None]]:
    """What the mod answers: (id, error code or None)."""
    answers = gabp.Reader(Mode.STRICT).feed(mod.take())
    return [(each.id, each.error.code if isinstance(each.error, gabp.ErrorBody) else None) for each in answers]
