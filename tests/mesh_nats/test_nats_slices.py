"""Letters that come together are passed on in slices, so that the loop turns between them."""

import asyncio
from typing import Any

from bascule.mesh.machine import connection
from bascule.mesh.machine.connection import NatsConnection
from bascule.mesh.machine.nats_wire import Message


class _Wire(asyncio.Transport):
    """A transport that notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def pause_reading(self) -> None:
        self.noted.append("pause")

    def resume_reading(self) -> None:
        self.noted.append("resume")

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.noted.append(bytes(data).decode())

    def abort(self) -> None:
        self.noted.append("abort")

    def get_write_buffer_size(self) -> int:
        return 0


def _connection() -> tuple[NatsConnection, _Wire, list[str]]:
    happened: list[str] = []
    made = NatsConnection(lambda _text: None, lambda _why: None, lambda _what, error: happened.append(str(error)))
    wire = _Wire()
    made.connection_made(wire)
    made.subscribe("a", lambda message: _take(message, happened))
    wire.noted.clear()
    return made, wire, happened


def _take(message: Message, happened: list[str]) -> None:
    text = message.data.decode()
    happened.append(text)
    asyncio.get_running_loop().call_soon(happened.append, f"after {text}")


def _letters(*texts: str) -> bytes:
    return b"".join(b"MSG a 1 %d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_follows_from_a_letter_happens_before_a_later_one_when_that_takes_long(monkeypatch) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def story() -> None:
        made, wire, happened = _connection()
        made.data_received(_letters("1", "2", "3"))
        # What was on its way before reading stopped comes behind the rest.
        made.data_received(_letters("4"))
        assert wire.noted == ["pause"]
        await _turns()
        assert [each for each in happened if each.isdigit()] == ["1", "2", "3", "4"]
        assert happened.index("after 1") < happened.index("3")
        assert wire.noted[-1] == "resume"

    asyncio.run(story())


def test_short_letters_that_come_together_are_passed_on_at_once(monkeypatch) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 60.0)

    async def story() -> None:
        made, wire, happened = _connection()
        made.data_received(_letters("1", "2", "3"))
        assert happened == ["1", "2", "3"]
        assert wire.noted == []

    asyncio.run(story())


def test_what_was_read_and_not_passed_on_is_dropped_with_the_connection(monkeypatch) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def story() -> None:
        made, wire, happened = _connection()
        made.data_received(_letters("1", "2", "3"))
        made.abort()
        await _turns()
        assert "2" not in happened
        assert wire.noted[:2] == ["pause", "abort"]

    asyncio.run(story())


def test_a_connection_on_which_letters_come_is_not_lost_because_an_answer_is_behind_them() -> None:
    async def story() -> None:
        made, wire, _ = _connection()
        for _ in range(connection.MAX_PINGS + 3):
            made.data_received(_letters("1"))
            made._watch()
        assert "abort" not in wire.noted
        assert wire.noted.count("PING\r\n") == connection.MAX_PINGS
        # The control: nothing comes any more.
        made._watch()
        assert "abort" in wire.noted

    asyncio.run(story())


def test_a_connection_whose_letters_still_wait_to_be_passed_on_is_not_lost(monkeypatch) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def story() -> None:
        made, wire, _ = _connection()
        made.data_received(_letters(*"123456"))
        for _ in range(connection.MAX_PINGS + 3):
            made._watch()
        assert "abort" not in wire.noted

    asyncio.run(story())
