from itertools import islice

import pytest

from bascule.transports.backoff import FIRST_S, JITTER, LONGEST_S, delays


def test_delays_double_up_to_the_longest_within_their_jitter():
    for _ in range(50):
        middle = FIRST_S
        for delay in islice(delays(), 12):
            assert middle * (1 - JITTER) <= delay <= middle * (1 + JITTER)
            middle = min(middle * 2, LONGEST_S)
        assert middle == LONGEST_S


def test_a_restarting_daemon_is_found_within_a_few_tenths_of_a_second():
    assert sum(islice(delays(), 4)) < 0.4


def test_clients_do_not_come_back_in_step():
    assert len({round(next(delays()), 6) for _ in range(20)}) > 10


def test_first_and_longest_can_be_chosen():
    waits = list(islice(delays(first=1.0, longest=2.0), 4))
    assert waits == pytest.approx([1.0, 2.0, 2.0, 2.0], rel=JITTER)
