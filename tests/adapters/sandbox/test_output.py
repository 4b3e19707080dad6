"""What is kept of a stream, however it comes."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sandbox.cells import a_space
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.machine.sandbox.output import HeadAndTail, Spool
from bascule.workspace.machine.sandbox.sandboxes import SpoolShelf
from bascule.workspace.ports import SandboxFault


@given(st.lists(st.binary(max_size=40), max_size=40))
def test_the_same_is_shown_however_a_stream_is_cut(chunks):
    cut, whole = HeadAndTail(64), HeadAndTail(64)
    data = b"".join(chunks)
    for chunk in chunks:
        cut.feed(chunk)
    whole.feed(data)
    assert cut.shown() == whole.shown()
    shown = cut.shown()
    assert shown.size == len(data)
    if len(data) <= 64:
        assert (shown.text, shown.truncated) == (data.decode("utf-8", "replace"), False)
    else:
        assert shown.truncated
        assert len(shown.text) <= 64 + 80


@given(st.text(min_size=1, max_size=40).map(lambda text: text * (100 // len(text) + 1)))
def test_no_character_is_cut_in_two(text):
    kept = HeadAndTail(64)
    kept.feed(text.encode())
    shown = kept.shown()
    if shown.truncated:
        head, _, rest = shown.text.partition("\n[... ")
        tail = rest.partition(" ...]\n")[2]
        assert "\N{REPLACEMENT CHARACTER}" in text or "\N{REPLACEMENT CHARACTER}" not in head + tail
        assert text.startswith(head)
        assert text.endswith(tail)


def test_bytes_that_are_no_text_are_shown_replaced(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            outcome = await space.run(r"printf 'a\377b'")
            assert (outcome.stdout.text, outcome.stdout.size) == ("a\N{REPLACEMENT CHARACTER}b", 3)

    asyncio.run(story())


@given(chunks=st.lists(st.binary(max_size=30), max_size=30), offset=st.integers(0, 300), limit=st.integers(0, 300))
def test_a_spool_gives_back_what_was_fed_up_to_its_limit(tmp_path_factory, chunks, offset, limit):
    path = tmp_path_factory.mktemp("spool") / "x"
    spool = Spool(str(path), SandboxLimits(spool_bytes=200, spool_in_memory_bytes=50))
    data = b"".join(chunks)
    for chunk in chunks:
        spool.feed(chunk)
    for _ in range(2):
        page = spool.page(offset, limit)
        assert page.data == data[:200][offset : offset + limit]
        assert (page.size, page.dropped) == (min(len(data), 200), max(0, len(data) - 200))
        spool.end()
    spool.forget()
    assert not path.exists()


def test_a_full_disk_costs_output_not_the_command(tmp_path: Path):
    spool = Spool(str(tmp_path / "nowhere" / "x"), SandboxLimits(spool_in_memory_bytes=4))
    spool.feed(b"abc")
    spool.feed(b"defg")
    assert (spool.size, spool.dropped, spool.page(0, 10).data) == (3, 4, b"abc")


def test_the_oldest_ended_output_goes_first_and_running_output_stays(tmp_path: Path):
    shelf = SpoolShelf(str(tmp_path), SandboxLimits(kept_logs=2, spool_in_memory_bytes=4))
    for name in ("one", "two", "three", "four"):
        shelf.new(name)[0].feed(b"much of it: " + name.encode())
    for name in ("two", "one", "three"):
        shelf.ended(name)
    with pytest.raises(KeyError):
        shelf.page("two", "stdout", 0, 100)
    assert shelf.page("one", "stdout", 12, 100).data == b"one"
    assert shelf.page("four", "stdout", 0, 4).data == b"much"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four.stdout", "one.stdout", "three.stdout"]
    shelf.forget("one")
    shelf.forget("never was")
    with pytest.raises(KeyError):
        shelf.page("one", "stdout", 0, 1)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a\nb", "x" * 200])
def test_an_id_that_could_be_another_file_is_refused(tmp_path: Path, name: str):
    with pytest.raises(SandboxFault, match="is not a process id"):
        SpoolShelf(str(tmp_path), SandboxLimits()).new(name)


def test_output_can_be_read_while_the_command_runs(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            received = asyncio.Event()
            running = await space.start(
                "seq 3000; echo all >&2; sleep 60",
                on_output=lambda stream, _: stream == "stderr" and received.set(),
                timeout=None,
            )
            await received.wait()
            page = space.sandboxes.logs(running.process_id, "stdout", 2, 6)
            assert page.data == b"2\n3\n4\n"
            running.stop()
            outcome = await running.wait()
            everything = space.sandboxes.logs(running.process_id, "stdout", 0, 100_000)
            assert everything.data.decode() == outcome.stdout.text == "".join(f"{n}\n" for n in range(1, 3001))

    asyncio.run(story())


def test_output_comes_as_it_is_said(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            received: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
            running = await space.start(
                "echo one; while ! [ -e go ]; do sleep 0.01; done; echo two >&2",
                on_output=lambda stream, data: received.put_nowait((stream, data)),
            )
            assert await received.get() == ("stdout", b"one\n")
            (space.path / "go").touch()
            assert await received.get() == ("stderr", b"two\n")
            assert (await running.wait()).exit_code == 0

    asyncio.run(story())
