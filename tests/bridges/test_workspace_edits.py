"""The ladder of edits: what is found, what is refused, and the words that go with it."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bascule.workspace.edits import (
    EXACT,
    INDENT,
    LINE_ENDINGS,
    TRAILING_SPACE,
    EditFault,
    apply_edits,
    edit_bytes,
)
from bascule.workspace.protocol import Edit


def edits(*pairs: tuple[str, str]) -> list[Edit]:
    return [Edit(old_content=old, new_content=new) for old, new in pairs]


def fault(text: str, *pairs: tuple[str, str]) -> str:
    with pytest.raises(EditFault) as raised:
        apply_edits(text, edits(*pairs))
    return str(raised.value)


def one(text: str, old: str, new: str) -> tuple[str, str]:
    applied = apply_edits(text, edits((old, new)))
    return applied.text, applied.rungs[0]


def test_the_specs_example_applies():
    assert one("const x = 1;\nlog(x);\n", "const x = 1;", "const x = 42;") == ("const x = 42;\nlog(x);\n", EXACT)


def test_edits_apply_in_order_each_to_what_the_others_left():
    applied = apply_edits("a\n", edits(("a", "b c"), ("b", "d"), ("d c", "e")))
    assert applied.text == "e\n"
    assert applied.rungs == (EXACT, EXACT, EXACT)


def test_if_one_edit_fails_the_message_names_it_and_says_that_none_applied():
    message = fault("a\nb\n", ("a", "c"), ("nothing like it", "d"))
    assert message.startswith("edit 2 of 2: oldContent is not in the file (tried: exact, trailing-space, indent)")
    assert message.endswith("(no edit was applied)")


@pytest.mark.parametrize("new", ["[$&$`$'$1$$]", "\\1\\g<0>", "{0} %s", ""])
def test_new_content_means_what_it_says(new):
    assert one("price = X;\n", "X", new)[0] == f"price = {new};\n"


def test_old_content_is_no_pattern():
    assert one("a.b axb\n", "a.b", "c")[0] == "c axb\n"


def test_an_empty_old_content_is_refused():
    assert fault("x", ("", "y")) == (
        "edit 1 of 1: oldContent is empty; quote the lines next to where newContent belongs"
    )


def test_several_matches_are_refused_with_their_lines():
    text = "one\nx = 1\ntwo\nx = 1\n"
    assert fault(text, ("x = 1", "x = 2")) == (
        "edit 1 of 1: oldContent matches 2 places (lines 2, 4); "
        "add more lines of context so that it matches exactly one"
    )
    assert "more than 10 places (lines 1, 2" in fault("x\n" * 100, ("x", "y"))


def test_overlapping_matches_are_several():
    assert "matches 2 places" in fault("aaa", ("aa", "b"))


def test_white_space_alone_is_found_to_the_letter_or_not_at_all():
    assert one("a\t\nb\n", "\t\n", "\n") == ("a\nb\n", EXACT)
    message = fault("a\n\nb\n", ("  \n", ""))
    assert "(tried: exact)" in message


# -- rungs ----------------------------------------------------------------------------------------


def test_line_endings_stay_as_the_file_has_them():
    assert one("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n") == ("x\r\ny\r\nz\r\nc\r\n", LINE_ENDINGS)
    assert one("a\nb\nc\n", "a\r\nb", "x\r\ny") == ("x\ny\nc\n", LINE_ENDINGS)


def test_lines_added_to_a_file_of_crlf_end_like_the_others():
    assert one("a\r\nb\r\n", "b", "b\nc") == ("a\r\nb\r\nc\r\n", LINE_ENDINGS)


def test_half_a_line_ending_is_no_match():
    assert one("x\r\na", "\na", "\nb") == ("x\r\nb", LINE_ENDINGS)
    assert "is not in the file" in fault("x\r\na", ("x\r", "y"))


def test_where_endings_are_mixed_the_replaced_lines_decide():
    assert one("a\r\nb\r\nc\nd\n", "a\nb\n", "x\ny\n") == ("x\r\ny\r\nc\nd\n", LINE_ENDINGS)
    assert one("a\r\nb\nc\nd\n", "c\nd", "x\ny") == ("a\r\nb\nx\ny\n", EXACT)


def test_endings_that_only_differ_in_two_places_are_ambiguous():
    assert "when line-endings is forgiven (lines 1, 3)" in fault("a\r\nb\r\na\r\nb\r\n", ("a\nb\n", "x\n"))


def test_space_at_the_ends_of_lines_is_forgiven_on_both_sides():
    assert one("if x:   \n    y\n", "if x:\n    y\n", "if z:\n    y\n") == ("if z:\n    y\n", TRAILING_SPACE)
    assert one("if x:\n    y\n", "if x:  \n    y\t", "pass") == ("pass\n", TRAILING_SPACE)


def test_a_block_indented_otherwise_is_found_and_the_new_one_moved_along():
    text = "class A:\n    def f(self):\n        return 1\n"
    old = "def f(self):\n    return 1\n"
    new = "def f(self):\n    if self:\n\n        return 2\n"
    moved = "class A:\n    def f(self):\n        if self:\n\n            return 2\n"
    assert one(text, old, new) == (moved, INDENT)


def test_a_block_that_was_sent_too_deep_is_moved_back():
    assert one("a:\n\tb\n", "\t\ta:\n\t\t\tb", "\t\tc:\n\t\t\td") == ("c:\n\td\n", INDENT)


def test_a_block_is_not_moved_when_new_content_cannot_follow():
    assert "is not in the file" in fault("a:\n\tb\n", ("\t\ta:\n\t\t\tb", "c:\n"))


def test_tabs_are_not_taken_for_spaces():
    message = fault("f:\n\tlet x = 1\n\tlet y = 2\n", ("    let x = 1\n    let y = 2\n", "    let z = 3\n"))
    assert "+\\tlet x = 1" in message
    assert "only white space differs" in message


def test_an_indent_that_is_not_uniform_is_another_text():
    assert "is not in the file" in fault("  a\n      b\n", ("a\nb\n", "c\n"))


def test_the_same_block_at_two_depths_is_ambiguous_unless_one_is_exact():
    text = "  f(1)\n  g(2)\nif x:\n    f(1)\n    g(2)\n"
    assert "when indent is forgiven (lines 1, 4)" in fault(text, ("f(1)\ng(2)\n", "h()\n"))
    assert one(text, "\n    f(1)\n    g(2)\n", "\n    h()\n")[0] == "  f(1)\n  g(2)\nif x:\n    h()\n"


def test_a_last_line_without_its_ending_is_left_without():
    assert one("a\n  b", "a\nb\n".replace("b", "  b  "), "c\n") == ("c", TRAILING_SPACE)


# -- what is said ---------------------------------------------------------------------------------


def test_the_closest_lines_are_shown_as_a_diff_with_their_numbers():
    text = "".join(f"line {number}\n" for number in range(50)) + "def total(items):\n    return sum(items)\n"
    message = fault(text, ("def total(item):\n    return sum(items)\n", "x"))
    assert message.endswith(
        "the closest lines are\n"
        "@@ - oldContent, + lines 51 to 52 of the file @@\n"
        "-def total(item):\n"
        "+def total(items):\n"
        "     return sum(items)"
    )


def test_what_is_already_applied_is_said_to_be():
    assert fault("const x = 42;\n", ("const x = 1;", "const x = 42;")) == (
        "edit 1 of 1: oldContent is not in the file, but newContent is, at line 1: "
        "this edit is already applied; leave it out"
    )
    assert "already applied" not in fault("fn() {\n}\n", ("gn() {\n", "}"))


def test_nothing_alike_is_said_too():
    assert "nothing in it is like it" in fault("a\nb\nc\n", ("an altogether different line of text", "x"))
    assert "nothing in it is like it" in fault("", ("text", "x"))


def test_only_the_rungs_that_were_tried_are_named():
    assert "(tried: exact, line-endings, trailing-space, indent)" in fault("a\r\nb\r\n", ("qqqq", "x"))
    assert "(tried: exact, trailing-space, indent)" in fault("a\nb\n", ("qqqq", "x"))


# -- bytes ----------------------------------------------------------------------------------------


def test_a_byte_order_mark_stays():
    bom = b"\xef\xbb\xbf"
    assert edit_bytes(bom + b"a\nb\n", edits(("a\nb", "c")))[0] == bom + b"c\n"
    assert edit_bytes(bom + b"a\n", edits(("\ufeffa", "\ufeffc")))[0] == bom + b"c\n"
    assert edit_bytes(bom + b"  a\n  b\n", edits(("a\nb\n", "c\n")))[0] == bom + b"  c\n"


def test_other_bytes_than_utf8_are_refused_with_the_way_out():
    with pytest.raises(EditFault, match=r"not UTF-8 text \(byte 1\); read it as base64"):
        edit_bytes(b"a\xff", edits(("a", "b")))
    with pytest.raises(EditFault, match="not valid Unicode"):
        edit_bytes(b"a", edits(("a", "\ud800")))


# -- properties -----------------------------------------------------------------------------------

texts = st.text(alphabet="ab \t\n\r\u2028x", max_size=40)


@settings(deadline=None)
@given(text=texts, old=texts, new=texts)
@example(text="a\r", old="a\n", new="b")
@example(text="\r\r\n", old="\r", new="")
def test_an_edit_replaces_one_place_or_nothing(text, old, new):
    try:
        applied = apply_edits(text, edits((old, new)))
    except EditFault:
        return
    if applied.rungs == (EXACT,):
        # Half of a line ending is not a place.
        ends = {at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n"}
        (at,) = (at for at in ends if text.startswith(old, at) and at + len(old) in ends)
        assert applied.text == text[:at] + new + text[at + len(old) :]
    # Whatever the rung forgave, only white space was forgiven, and one place changed.
    there, gone, come = (squeezed(part) for part in (text, old, new))
    places = [at for at in range(len(there) + 1) if there.startswith(gone, at)]
    assert squeezed(applied.text) in {there[:at] + come + there[at + len(gone) :] for at in places}


def squeezed(text: str) -> str:
    return text.translate({ord(blank): None for blank in " \t\r\n"})


plain = st.text(alphabet="ab \t\nx", max_size=40)


@settings(deadline=None)
@given(before=plain, old=plain.filter(str.strip), after=plain, new=plain)
def test_what_stands_once_to_the_letter_is_always_found(before, old, after, new):
    text = before + old + after
    places = [at for at in range(len(text)) if text.startswith(old, at)]
    if len(places) != 1:
        assert "matches" in fault(text, (old, new))
        return
    result, rung = one(text, old, new)
    assert (result, rung) == (before + new + after, EXACT)


lines = st.lists(st.text(alphabet="abc(){}=", min_size=1, max_size=8), min_size=1, max_size=6)


@settings(deadline=None)
@given(head=lines, block=lines, tail=lines, indent=st.sampled_from(["  ", "\t", "        "]))
def test_a_block_found_by_its_indent_changes_its_own_lines_only(head, block, tail, indent):
    text = "".join(f"{line}\n" for line in [*head, *(indent + line for line in block), *tail])
    old = "".join(f"{line}\n" for line in block)
    try:
        applied = apply_edits(text, edits((old, "new(1)\nnew(2)\n")))
    except EditFault as error:
        assert "places" in str(error)  # noqa: PT017 - the other outcome is as good
        return
    if applied.rungs == (INDENT,):
        wanted = [*head, indent + "new(1)", indent + "new(2)", *tail]
        assert applied.text == "".join(f"{line}\n" for line in wanted)


@settings(deadline=None)
@given(text=texts, old=texts.filter(str.strip), new=texts, ending=st.sampled_from(["\n", "\r\n"]))
def test_a_file_of_one_kind_of_line_ending_keeps_it(text, old, new, ending):
    text, old, new = (part.replace("\r", "") for part in (text, old, new))
    try:
        applied = apply_edits(text.replace("\n", ending), edits((old, new)))
    except EditFault:
        return
    if "\n" in text and ending == "\r\n":
        assert applied.text.count("\n") == applied.text.count("\r\n")
    elif "\n" in text:
        assert "\r" not in applied.text


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("a" * 2_000_000, "a" * 1_000 + "b"),
        ("a\n" * 1_000_000, "a\n" * 10_000 + "b"),
        ("\n" * 2_000_000, "x\n" * 1_000),
        ("  a\n" * 200_000, "a\n" * 100),
        ("ab" * 100 + "\n" + ("x" * 199 + "\n") * 20_000, "ba" * 100),
        (" \t" * 1_000_000, "\t \n" * 1_000 + "x"),
        ("x\r\n" * 300_000, "x\n" * 150_000 + "y"),
    ],
    ids=["one line", "many lines", "no text", "alike places", "long lines", "white space", "endings"],
)
def test_hostile_text_costs_bounded_time(text, old):
    begun = time.thread_time()
    fault(text, (old, "something else"))
    assert time.thread_time() - begun < 20


def test_a_thousand_edits_of_a_large_file_are_bounded():
    begun = time.thread_time()
    text = "0123456789abcdef\n" * 250_000
    message = fault(text, *[("0", "0")] * 1_000)
    assert "matches more than 10 places" in message
    message = fault("x" + text, *[("x0123456", "x0123456")] * 1_000)
    assert "too many edits for a file of this size" in message
    assert time.thread_time() - begun < 60
