from itertools import islice

import pytest

from bascule.foundation.backoff import FIRST_SECONDS, JITTER, LONGEST_SECONDS, Backoff


def test_delays_double_up_to_the_longest_within_their_jitter():
    for _ in range(50):
        middle = FIRST_SECONDS
        for delay in islice(Backoff(), 12):
            assert middle * (1 - JITTER) <= delay <= middle * (1 + JITTER)
            middle = min(middle * 2, LONGEST_SECONDS)
        assert middle == LONGEST_SECONDS


def test_a_restarting_daemon_is_found_within_a_few_tenths_of_a_second():
    assert sum(islice(Backoff(), 4)) < 0.4


def test_clients_do_not_come_back_in_step():
    assert len({round(next(Backoff()), 6) for _ in range(20)}) > 10


def test_first_and_longest_can_be_chosen():
    waits = list(islice(Backoff(first=1.0, longest=2.0), 4))
    assert waits == pytest.approx([1.0, 2.0, 2.0, 2.0], rel=JITTER)


def test_after_a_reset_the_first_delay_comes_again():
    backoff = Backoff(first=1.0, longest=8.0)
    assert list(islice(backoff, 3))[-1] > 2
    backoff.reset()
    assert next(backoff) == pytest.approx(1.0, rel=JITTER)
