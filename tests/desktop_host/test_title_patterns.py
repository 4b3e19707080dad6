"""desktop_host.title_patterns: what a person writes is taken, what could run for long is refused."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.desktop.errors import DesktopError
from bascule.programs.desktop_host.title_patterns import MAX_TITLE_CHARS, compiled

# Pieces of patterns, so that random ones are often regular expressions.
PATTERN_PIECES = [
    "a",
    "b",
    ".",
    "a",
    "*",
    "+",
    "?",
    "{2}",
    "{1,7}",
    "{3,}",
    "{9}",
    "{999999}",
    "{\u0662}",
    r"\b",
    "(",
    "(?:",
    "(?=",
    ")",
    ")",
    "|",
    "[ab]",
    "$",
]


@settings(deadline=None, max_examples=500)
@given(
    st.text(alphabet="ab.*+?()[]|{}0123456789^$\\", max_size=30)
    | st.lists(st.sampled_from(PATTERN_PIECES), max_size=20).map("".join)
)
def test_any_title_pattern_is_compiled_or_refused_and_matches_in_no_time(pattern):
    try:
        found = compiled(pattern)
    except DesktopError as error:
        assert error.code.value == "DESKTOP_INVALID_REQUEST"  # noqa: PT017 - either outcome is right
        return
    began = time.thread_time()
    for title in ("a" * (MAX_TITLE_CHARS - 1) + "c", "ab" * (MAX_TITLE_CHARS // 2)):
        found.search(title)
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    "pattern",
    [
        "^Letter A",
        r"draft-\d+ \(unsaved\)$",
        "(?i)inbox|outbox",
        "(?P<name>[]a-z]+) - .*Firefox.*",
        r"v\d{1,3}(?:\.\d{1,3})?",
        "(?:Draft|Sent)? ?Mail",
        "{literal} [*+?{2}]",
        "(?:ab){20}",
        ".{150}$",
        ".*Inbox.*Private Browsing - Mozilla Firefox.*",
        r"\d{1,7}-\d{1,7}-\d{1,7} .*",
        "(?<!not )ready",
    ],
)
def test_a_title_pattern_that_a_person_would_write_is_taken(pattern):
    assert compiled(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a+)+$", "repeat a repeat"),
        ("(?:a+b?)*$", "repeat a repeat"),
        ("(a|a)*b", "repeat alternatives"),
        ("(a?a)*b", "repeat alternatives"),
        ("(?:a*){30}b", "at most 3 open repeats"),
        ("(a?){60}a{60}", "too many choices"),
        ("a?" * 25 + "a" * 25, "too many choices"),
        ("(?:(?:a{1,7}){7}){7}b", "too many choices"),
        ("(?:a|b){4294967290}", "too many choices"),
        ("(" * 8 + "a|b" + "){14}" * 8, "too many choices"),
        # Words that match nothing, again and again: the matcher goes round until the memory is full.
        ("(?:){4294967290}", "too long repeats"),
        (r"(?:\b\b){4294967290}", "too long repeats"),
        (r"(?:(?:\b\b){9999}){9999}", "too long repeats"),
        (r"(?:(?=a)){4294967290,}", "too long repeats"),
        # Not a repeat: Python knows only the digits of ASCII.
        ("(?:a*a*a*a*a*a*a*a*){\u0660}", "at most 3 open repeats"),
        (".{0,7}" * 4 + r"\b" * 100 + "Z", "too many choices"),
        (".*.*.*" + r"\b" * 100 + "Z", "too many choices"),
        ("a*a*a*a*b", "at most 3 open repeats"),
        ("[*]*" * 4, "at most 3 open repeats"),
        (r"\**" * 4, "at most 3 open repeats"),
        ("(?x)a #(\n*a*a*a*", "plain groups"),
        ("(a)?(?(1)a*|b*)", "plain groups"),
        ("(?#*)a", "plain groups"),
        ("[", "not a regular expression"),
        ("a" * 300, "at most 256 characters"),
    ],
)
def test_a_title_pattern_that_could_run_for_long_is_refused(pattern, why):
    with pytest.raises(DesktopError, match=why):
        compiled(pattern)
