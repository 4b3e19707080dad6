"""What a person is asked, param by param."""

from bascule.kernel.consent.blocks import made_visible, text_of
from bascule.kernel.consent.questions import default_preview, digest_line
from bascule.kernel.rows import Params


def test_a_digest_is_shown_so_that_people_can_compare_it():
    assert digest_line("0123456789abcdef" * 4) == "0123 4567 89ab cdef"


class Some(Params, frozen=True, kw_only=True):
    command: str
    env: dict[str, str] = {}


def test_a_call_without_a_picture_of_its_own_is_shown_param_by_param():
    preview = text_of(made_visible(default_preview("tree.cut", Some(command="one\ntwo\x1b", env={"A": "\u202e"}))))
    assert preview.split("\n") == [
        "tree.cut",
        "  command: one",
        "         | two⟨ESC⟩",
        '  env: {"A":"⟨U+202E⟩"}',
    ]
