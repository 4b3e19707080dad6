"""What tests of descriptors stand on: a leak is seen, and what others close meanwhile is no difference."""

import os

from descriptors import Descriptors


def test_what_was_opened_and_left_is_named_until_it_is_closed(tmp_path):
    before = Descriptors()
    leaked = os.open(tmp_path, os.O_RDONLY)
    assert before.left() == [str(tmp_path)]
    os.close(leaked)
    assert before.left() == []


def test_what_somebody_else_closes_meanwhile_hides_no_leak_and_is_none(tmp_path):
    file = tmp_path / "of an earlier test"
    earlier = os.open(file, os.O_CREAT | os.O_RDONLY)
    before = Descriptors()
    file.unlink()
    assert before.left() == []
    os.close(earlier)
    assert before.left() == []
    # The kernel gives the number that was free.
    leaked = os.open(tmp_path, os.O_RDONLY)
    try:
        assert leaked == earlier
        assert before.left() == [str(tmp_path)]
    finally:
        os.close(leaked)
