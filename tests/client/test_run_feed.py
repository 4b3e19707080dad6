"""What a client keeps of a run that it follows."""

from bascule.client.feeds import OVERFLOW_EVENT, RunFeed
from bascule.workspace.protocol import MessageEvent, StreamedOutput


def output(seq, text="x"):
    return StreamedOutput(seq=seq, kind="stdout", text=text)


def taken(feed):
    items = []
    while (item := feed.take()) is not None:
        items.append(item)
    return items


def test_items_come_in_order_and_once_however_often_the_stream_is_opened():
    feed = RunFeed()
    for seq in (1, 2, 2, 1, 3):
        feed.offer(output(seq))
    assert [item.seq for item in taken(feed)] == [1, 2, 3]
    assert feed.last == 3


def test_a_slow_reader_loses_output_and_is_told_but_never_an_event():
    feed = RunFeed(limit=2)
    event = MessageEvent(timestamp="t", success=True)
    for seq in (1, 2, 3):
        feed.offer(output(seq))
    feed.offer(StreamedOutput(seq=4, kind="event", event=event))
    items = taken(feed)
    assert [(item.kind, item.seq) for item in items[1:]] == [("stdout", 1), ("stdout", 2), ("event", 4)]
    assert items[0].kind == OVERFLOW_EVENT
    assert "1 pieces" in items[0].text


def test_what_the_daemon_left_out_is_reported_too():
    feed = RunFeed()
    feed.left_out(7)
    assert "7 pieces" in taken(feed)[0].text


def test_a_run_feed_is_finished_when_the_run_ends_and_not_when_it_asks():
    feed = RunFeed()
    feed.offer(StreamedOutput(seq=1, kind="status", status="awaiting_approval"))
    assert not feed.finished
    feed.offer(StreamedOutput(seq=2, kind="status", status="completed"))
    assert feed.finished
