"""The mod SDK: functions as tools, where a mod listens, what GABS does, and nothing but msgspec."""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from bridges_by_hand import HandBridge, pumped
from msgspec import UNSET

import bascule_mod
import gabp
from bascule_mod import BadEndpoint, BadTool, Context, Endpoint, Mod, tool
from bascule_mod import endpoint as endpoints
from bascule_mod.schemas import read_signature
from gabp import messages
from gabp.envelopes import Mode
from gabp.errors import ErrorCode
from patience import PATIENCE

TOKEN = secrets.token_hex(32)


def tcp(token: str = TOKEN) -> Endpoint:
    return Endpoint(transport="tcp", address="0", token=token)


# -- functions as tools ---------------------------------------------------------------------------


class Item(msgspec.Struct):
    name: str
    count: int = 1


class Room(msgspec.Struct):
    doors: list["Room"] = []


@pytest.mark.req("GAME-SDK-2")
def test_a_schema_is_made_of_type_hints_defaults_and_the_docstring():
    def give(
        item: Item,
        to: Annotated[str, msgspec.Meta(min_length=1)],
        how: Literal["throw", "hand"] = "hand",
        extras: list[int] = [1],  # noqa: B006 - what people write, and what must not be shared
        note: str | None = None,
    ) -> dict[str, Item]:
        """Give somebody something.

        It must be in the inventory.

        Args:
            item: what is given
            to (str): whom it is given to,
                by name
            how: in which way

        Returns:
            what both have now
        """

    found = read_signature(give, "x/give")
    assert found.description == "Give somebody something. It must be in the inventory."
    schema = found.input_schema
    assert schema["required"] == ["item", "to"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["to"] == {
        "type": "string",
        "minLength": 1,
        "description": "whom it is given to, by name",
    }
    assert schema["properties"]["how"]["default"] == "hand"
    assert schema["properties"]["extras"]["items"] == {"type": "integer"}
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["$defs"]["Item"]["required"] == ["name"]
    assert found.output_schema["additionalProperties"] == {"$ref": "#/$defs/Item"}


def test_sphinx_docstrings_are_read_too():
    def go(where: str) -> None:
        """Go there.

        :param where: the place
        :returns: nothing
        """

    found = read_signature(go, "x/go")
    assert found.description == "Go there."
    assert found.input_schema["properties"]["where"]["description"] == "the place"
    assert found.output_schema == {"type": "null"}


def test_a_type_that_refers_to_itself_keeps_its_definition():
    def build(room: Room) -> Room: ...

    found = read_signature(build, "x/build")
    assert found.output_schema["$defs"].keys() == {"Room"}


def test_without_hints_anything_goes_and_a_context_is_no_argument():
    def free(value, context: Context) -> Generator[None, None, int]:
        yield

    found = read_signature(free, "x/free")
    assert found.input_schema["properties"] == {"value": {}}
    assert found.context == "context"
    assert found.steps
    assert found.output_schema == {"type": "integer"}


async def asynchronous() -> None: ...
def many(*values: int) -> None: ...
def keywords(**values: int) -> None: ...
def positional(value: int, /) -> None: ...
def custom(value: threading.Lock) -> None: ...
def unknown(value: "NoSuchType") -> None: ...  # noqa: F821 - the case under test


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (asynchronous, "no event loop"),
        (many, "cannot be called by name"),
        (keywords, "cannot be called by name"),
        (positional, "cannot be called by name"),
        (custom, "no JSON schema"),
        (threading.get_ident, "cannot be read; wrap it"),
        (unknown, "type hints cannot be read"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_the_game_starts(function, words):
    with pytest.raises(BadTool, match=words):
        Mod("x").tool(function)


@pytest.mark.req("GABP-TOOL-2")
@pytest.mark.parametrize("name", ["move", "Player/Move", "a//b", "a/b/", "1/b", "a b/c"])
def test_a_name_that_is_none_is_refused_with_what_one_looks_like(name):
    with pytest.raises(BadTool, match="like player/move"):
        Mod("x").tool(lambda: None, name=name)


def test_tools_get_names_titles_and_tags():
    mod = Mod("Space Snake!")

    @mod.tool(destructive=True, tags=("save",))
    def erase_all() -> None: ...

    (listed,) = mod._registry.listed_tools(msgspec.UNSET)
    assert (listed.name, listed.title, listed.description) == ("space-snake/erase_all", "Erase all", "Erase all")
    assert listed.tags == ["save", "destructive"]
    with pytest.raises(BadTool, match="already"):
        mod.tool(erase_all)


def test_marked_methods_are_added_by_their_instance():
    class Game:
        def __init__(self) -> None:
            self.score = 5

        @tool(read_only=True)
        def points(self) -> int:
            return self.score

    mod = Mod("x", endpoint=tcp())
    mod.add(Game())
    with pumped(mod), HandBridge(mod) as bridge:
        assert bridge.call("x/points") == 5
    with pytest.raises(BadTool, match="nothing in"):
        mod.add(object())


@pytest.mark.req("GABP-MET-2")
def test_tools_can_be_filtered_by_tag_and_pattern():
    mod = Mod("x", endpoint=tcp())
    for name, options in (("a/one", {"read_only": True}), ("a/two", {}), ("b/one", {})):
        mod.tool(lambda: None, name=name, **options)
    with pumped(mod), HandBridge(mod) as bridge:

        def names(**wanted: Any) -> list[str]:
            result = bridge.ask(messages.TOOLS_LIST, {"filter": wanted})
            return [json.loads(bytes(each))["name"] for each in result.tools]

        assert names(tags=["read-only"]) == ["a/one"]
        assert names(namePattern="*/one") == ["a/one", "b/one"]


# -- the endpoint -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"GABP_TOKEN": "t"}, None),
        ({"GABP_SERVER_PORT": "5"}, None),
        ({"GABP_TOKEN": "t", "GABP_SERVER_PORT": "5"}, ("tcp", "5")),
        ({"GABP_TOKEN": "t", "GABP_TRANSPORT": "pipe", "GABP_ADDRESS": "/x"}, ("pipe", "/x")),
        ({"GABP_TOKEN": "t", "GABP_TRANSPORT": "stdio"}, ("stdio", "")),
    ],
)
def test_the_environment_says_where_to_listen(environment, expected):
    found = endpoints.from_environment(environment)
    assert expected == (None if found is None else (found.transport, found.address))


def test_a_transport_that_is_none_is_named():
    with pytest.raises(BadEndpoint, match="GABP_TRANSPORT"):
        endpoints.from_environment({"GABP_TOKEN": "t", "GABP_TRANSPORT": "udp"})
    with pytest.raises(BadEndpoint, match="port"):
        Mod("x", endpoint=Endpoint(transport="tcp", address="99999", token=TOKEN)).start()


def bridge_file(path: Path, mode: int = 0o600, **changes: Any) -> str:
    found = {"token": TOKEN, "transport": {"type": "tcp", "address": "0"}, "metadata": {}, **changes}
    path.write_text(json.dumps(found))
    path.chmod(mode)
    return str(path)


def test_a_bridge_file_is_believed_only_when_nobody_else_could_have_written_it(tmp_path):
    path = tmp_path / "bridge.json"
    assert endpoints.from_bridge_file(str(path), ()) is None
    assert endpoints.from_bridge_file(bridge_file(path), ()).port == 0
    with pytest.raises(BadEndpoint, match="chmod"):
        endpoints.from_bridge_file(bridge_file(path, 0o644), ())
    with pytest.raises(BadEndpoint, match="shorter"):
        endpoints.from_bridge_file(bridge_file(path, token="abc"), ())
    with pytest.raises(BadEndpoint, match="not a bridge configuration"):
        endpoints.from_bridge_file(bridge_file(path, transport=5), ())
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        endpoints.from_bridge_file(str(link), ())


@pytest.mark.parametrize(
    ("metadata", "is_ours"),
    [
        ({}, True),
        ({"gameId": "chess"}, False),
        ({"gameId": "chess", "pid": 1}, False),
        ({"gameId": "burrow"}, True),
        ({"gameId": "chess", "pid": os.getpid()}, True),
        ({"gameId": "chess", "pid": os.getppid()}, True),
    ],
)
def test_a_game_that_runs_alone_does_not_take_up_the_launch_of_another(tmp_path, metadata, is_ours):
    """It would listen on that game's port and be called in its place."""
    with Mod("Burrow!", bridge_file=bridge_file(tmp_path / "bridge.json", metadata=metadata)).running() as mod:
        assert mod.launched is is_ours


def test_a_broken_bridge_file_is_reported_once_and_the_game_goes_on(tmp_path, caplog):
    path = bridge_file(tmp_path / "bridge.json", 0o644)
    with Mod("x", bridge_file=path).running() as mod:
        for _ in range(3):
            mod._looked = 0
            mod._look_for_bridge()
        assert mod.poll() == 0
        assert mod.port is None
    assert len([line for line in caplog.messages if "chmod" in line]) == 1


@pytest.mark.req("GABP-8.2-2")
def test_a_socket_is_private_from_the_start_and_an_existing_name_is_refused(tmp_path):
    path = tmp_path / "gabp.sock"
    endpoint = Endpoint(transport="pipe", address=str(path), token=TOKEN)
    old = os.umask(0)
    try:
        with Mod("x", endpoint=endpoint).running():
            assert path.stat().st_mode & 0o777 == 0o600
            with pytest.raises(BadEndpoint, match="in use"):
                Mod("y", endpoint=endpoint).start()
    finally:
        os.umask(old)
    assert not path.exists()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadEndpoint, match="in use"):
        Mod("z", endpoint=endpoint).start()


@pytest.mark.req("GABP-3.1-3", "GABP-SEC-3")
def test_a_wrong_token_is_refused_and_the_connection_closed():
    with Mod("x", endpoint=tcp()).running() as mod:
        for token in ("", "x" * 64, TOKEN[:-1], TOKEN + "0"):
            with HandBridge(mod, token=token, welcome=False) as bridge:
                assert bridge.refused().code == ErrorCode.AUTHENTICATION_FAILED
                assert bridge.closed()
        with HandBridge(mod) as bridge:
            assert bridge.session.welcome.app.name == "x"


# -- under GABS ---------------------------------------------------------------------------------------


@pytest.mark.req("GAME-SDK-5")
def test_a_bridge_that_behaves_like_gabs_is_served(monkeypatch):
    monkeypatch.setenv("GABS_FORWARD_ENV", "HOME,NO_SUCH_VARIABLE")
    monkeypatch.setenv("GABS_ABSENT_ENV", "SECRET")
    mod = Mod("x", endpoint=Endpoint(transport="tcp", address="0", token="a" * 64))
    mod.tool(lambda n: n, name="x/echo")
    with pumped(mod), socket.create_connection(("127.0.0.1", mod.port), 30) as sock:
        file = sock.makefile("rb")

        def ask(method: str, params: dict) -> dict:
            body = json.dumps({"v": "gabp/1", "id": "1-x", "type": "request", "method": method, "params": params})
            # Only this header, as GABS writes it.
            sock.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body.encode()))
            # And only this one is looked for, in exactly this spelling.
            length = 0
            while (line := file.readline().strip()) != b"":
                if line.startswith(b"Content-Length:"):
                    length = int(line.split(b":")[1])
            return json.loads(file.read(length))

        hello = {"token": "a" * 64, "bridgeVersion": "1.1.0", "platform": "darwin", "launchId": "x"}
        welcome = ask("session/hello", hello)["result"]
        assert welcome["observed"]["envValues"] == {"HOME": os.environ["HOME"]}
        assert welcome["observed"]["envAbsent"] == ["NO_SUCH_VARIABLE", "SECRET"]
        assert welcome["observed"]["cwd"] == os.getcwd()
        assert [each["name"] for each in ask("tools/list", {})["result"]["tools"]] == ["x/echo"]
        assert ask("attention/current", {})["result"] == {"attention": None}
        assert ask("events/subscribe", {"channels": ["attention/*"]})["result"] == {"subscribed": ["attention/*"]}
        assert ask("tools/call", {"name": "x/echo", "parameters": {"n": 2**60 + 1}})["result"] == 2**60 + 1


@pytest.mark.req("GAME-SDK-5")
def test_what_gabs_asks_for_is_sent_to_nobody_else():
    with Mod("x", endpoint=tcp(), mode=Mode.STRICT).running() as mod, HandBridge(mod, mode=Mode.STRICT) as bridge:
        assert bridge.session.welcome.observed is msgspec.UNSET


# -- nothing but msgspec ------------------------------------------------------------------------------


ALONE = """
import sys
from bascule_mod import Mod
mod = Mod("tiny", endpoint=None)

@mod.tool
def add(a: int, b: int = 1) -> int:
    "Add."
    return a + b

mod.start()
mod.poll()
mod.stop()
others = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
# sitecustomize: Debian's Python has one.
others -= {"__main__", "sitecustomize"}
print(sorted(others))
print("asyncio" in sys.modules)
"""


@pytest.mark.req("GAME-SDK-1")
def test_the_sdk_works_where_only_gabp_and_msgspec_are_installed(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=PATIENCE)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for package in (msgspec, gabp, bascule_mod):
        (packages / package.__name__).symlink_to(Path(package.__file__).parent)
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-I", "-c", ALONE],
        # Not the user's own bridge.
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    others, asynchronous = done.stdout.splitlines()
    assert others == "['bascule_mod', 'gabp', 'msgspec']"
    assert asynchronous == "False"


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("t2048", "t2048/look"),
        ("2048", "game/look"),
        ("2048!", "game/look"),
        ("Space Snake 2", "space-snake-2/look"),
    ],
)
def test_tools_begin_with_the_mod_s_name_and_the_digits_at_its_end(name, tool):
    mod = Mod(name)

    @mod.tool
    def look() -> str:
        """Look."""
        return ""

    assert [each.name for each in mod._registry.listed_tools(UNSET)] == [tool]
