"""What we ship for other people's tests does what its words say."""

import gc

import pytest

from bascule.foundation.errors import NotFound
from bascule.testing.clock import DEFAULT_MONOTONIC, DEFAULT_WALL_MS, FakeClock
from bascule.testing.house import House, StillWaiting, agent


def test_both_clocks_move_together_and_no_millisecond_is_lost():
    clock = FakeClock()
    for _ in range(1_000):
        clock.advance(0.001)
    assert clock.monotonic() == pytest.approx(DEFAULT_MONOTONIC + 1)
    assert clock.wall_ms() == DEFAULT_WALL_MS + 1_000


@pytest.mark.parametrize("seconds", [-3_600, 0.5])
def test_only_the_wall_clock_jumps(seconds):
    clock = FakeClock()
    clock.jump_wall(seconds)
    assert clock.monotonic() == DEFAULT_MONOTONIC
    assert clock.wall_ms() == DEFAULT_WALL_MS + seconds * 1_000


def test_the_monotonic_clock_never_goes_back():
    with pytest.raises(ValueError, match="never goes back"):
        FakeClock().advance(-1)


def test_the_example_of_the_docstring_works():
    with House() as house:
        house.register("Jerry")
        house.call("local", "messages.send", {"agentId": "Jerry", "payload": "hello"})
        taken = house.call("agent:Jerry", "inbox.take", {"agentId": "Jerry"})
        assert taken["messages"][0]["payload"] == "hello"
        house.advance(60)
        assert house.call(agent("Jerry"), "inbox.take", {"agentId": "Jerry"})["messages"][0]["attempts"] == 2


def test_a_call_without_an_answer_says_so_instead_of_hanging():
    with House() as house:
        house.register("Jerry")
        with pytest.raises(StillWaiting, match=r"inbox\.take has no answer yet"):
            house.call("agent:Jerry", "inbox.take", {"agentId": "Jerry"})


def test_refusals_are_raised_as_the_errors_of_the_house():
    with House() as house, pytest.raises(NotFound, match="agent not registered"):
        house.call("local", "messages.send", {"agentId": "Nobody", "payload": 1})


def test_what_is_due_on_the_way_happens_at_its_own_moment():
    with House() as house:
        house.register("Jerry")
        for seconds in (1, 2):
            house.call("local", "messages.send", {"agentId": "Jerry", "payload": 1, "timeoutMs": seconds * 1_000})
        house.advance(10)
        at = [event["at"][-7:] for event in house.events() if event["event"] == "ticket.timeout"]
        assert at == ["01.000Z", "02.000Z"]
        house.call("local", "messages.send", {"agentId": "Jerry", "payload": 1, "timeoutMs": 1_000})
        house.stall(10)
        assert house.events()[-1]["at"].endswith("20.000Z")


def test_closing_twice_is_safe():
    house = House()
    house.close()
    house.close()


@pytest.mark.parametrize("clean", [True, False])
def test_no_task_of_a_life_is_left_when_the_house_is_closed(clean, caplog):
    with House() as house:
        house.run(house.life.bridges["mesh"].service.members.connection.notice)
        house.restart(clean=clean)
    del house
    gc.collect()
    assert "Task was destroyed" not in caplog.text
