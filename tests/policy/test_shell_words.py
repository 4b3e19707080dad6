"""Quoting and expansion, compared with the shells themselves."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.policy.shell.grammar import parse
from bascule.kernel.policy.shell.reading import read
from faults.lacking import missing_here


def words(text):
    """The arguments of the first command, as far as they are certain."""
    return [field.text for field in read(text).commands[0].words]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("su''do", "sudo"),
        ('"su"do', "sudo"),
        ("s\\udo", "sudo"),
        ("su\\\ndo", "sudo"),
        ("'a b'c", "a bc"),
        ('"a\\"b\\$c\\d"', 'a"b$c\\d'),
        ("a#b", "a#b"),
        ("$'\\x73\\165\\u0064o'", "sudo"),
        ("$'a\\tb'", "a\tb"),
        ('"a\\\nb"', "ab"),
        ("'a\\\nb'", "a\\\nb"),
        ("a\\ b", "a b"),
        ("{}", "{}"),
        ("a=b", "a=b"),
        ("$", "$"),
        ('"$"', "$"),
        ("~/x", "~/x"),
    ],
)
def test_quotes_are_removed_as_the_shell_removes_them(text, value):
    assert words(f"x {text}") == ["x", value]


_pieces = st.one_of(
    st.text("abs/.-_=:,%@+", min_size=1, max_size=3),
    st.text('ab $"`\\\n;&|<>#*?[]{}()!~', max_size=4).map(lambda inside: f"'{inside}'"),
    st.text("ab ;&|<>#*?[]{}()!~'", max_size=4).map(lambda inside: f'"{inside}"'),
    st.sampled_from([*"ab;&|<>#*? $`'\"\\()"]).map(lambda letter: f"\\{letter}"),
    st.sampled_from(['"\\$"', '"\\\\"', '"\\""', '"\\`"', '"\\a"', "\\\n", '"\\\n"', "''", '""']),
)
_word = st.lists(_pieces, min_size=1, max_size=5).map("".join)


@pytest.mark.parametrize("shell", ["dash", "bash"])
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(_word, min_size=40, max_size=40))
def test_any_quoted_word_has_the_value_that_the_shell_gives_it(shell, texts):
    if shutil.which(shell) is None:
        missing_here(f"{shell} is not here")
    # A word in the middle, so that what begins with # is one, and each in a line of its own.
    script = "\n".join(f"printf '%s\\0' x{text}" for text in texts)
    printed = subprocess.run([shell, "-fc", script], capture_output=True, check=True, cwd="/").stdout
    values = printed.decode().split("\0")[:-1]
    read_values = [words(f"printf '%s\\0' x{text}")[2] for text in texts]
    assert read_values == values


def test_a_control_that_reads_words_naively_differs_from_the_shell():
    """What the comparison above would find: quotes stripped at the ends only."""
    printed = subprocess.run(["sh", "-c", "printf %s a''b'c d'"], capture_output=True, check=True).stdout.decode()
    assert words("printf %s a''b'c d'")[2] == printed
    assert "a''b'c d'".strip("'") != printed


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("a; b && c || d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("for x in 1 2; do a; done", ["a"]),
        ("case $x in (a|b) c;; d) e;; *) f; esac", ["c", "e", "f"]),
        ("f() { a; }; function g { b; }; f", ["a", "b", "f"]),
        ("(a; (b)) > x; { c; } 2>&1", ["a", "b", "c"]),
        ('x "$(a "$(b)")" `c \\`d\\`` <(e)', ["a", "b", "d", "c", "e", "x"]),
        ("a <<E | b\n$(c)\nE\nd", ["a", "b", "c", "d"]),
        ("! a; time b", ["a", "time", "b"]),
        ("a # b\nc", ["a", "c"]),
        ("case x in esac", []),
        ("", []),
        ("a &> f b", ["a", "b"]),
        ("((a b))", ["a"]),
        ("((a); b)", ["a", "b"]),
        ("[[ x || a ]]; [[ x && b ]]", ["a"]),
    ],
)
def test_every_command_of_a_text_is_found(text, programs):
    found = [command.program for command in read(text).commands if not command.via or command.via == ("time",)]
    assert sorted(found) == sorted(programs)
    assert "opaque" not in read(text).traits


@pytest.mark.parametrize(
    "text",
    ["a (", "a )", "a 'b", 'a "b', "a `b", "a $(b", "a ${b", "if a; then b", "for", "case x in a) b", "a <<E\nb", "a;;",
     "{ a", "a | | b", "a <", "a <<E", "[[ a", "$[1]", "{x}>f a", "a b()", "a=(b", "fi", "f() ", "a ${b'c}"]
)  # fmt: skip
def test_a_text_that_is_not_understood_is_opaque_and_says_why(text):
    reading = read(text)
    assert "opaque" in reading.traits
    assert reading.notes


@pytest.mark.parametrize(
    "text",
    ["ls\r\n", "ls\u00a0sudo", "l\u200bs", "a\vb", "ls\x00", "\ufeffls", "a\u3000b", "x\u2028y", "ls \x0c"],
)
def test_an_invisible_character_outside_of_quotes_is_opaque(text):
    assert "opaque" in read(text).traits


@pytest.mark.parametrize("text", ["echo 'a\u00a0b'", 'echo "a\tb\x1b[0m"', "echo 'a\r\nb'", "echo größe 日本 🎉"])
def test_the_same_inside_of_quotes_and_ordinary_letters_are_not(text):
    assert read(text).traits == ()


def test_what_two_shells_end_at_different_places_is_opaque():
    # bash: one word. dash: `$a\`, then a command of its own.
    assert "opaque" in read("echo $'a\\'; sudo id #'").traits
    assert read("echo $'a\\tb'").traits == ()


def test_the_second_parser_must_not_see_more():
    text = "ls; cat x"
    parsed = parse(text)
    from bascule.kernel.policy.shell.second import disagreement

    assert disagreement(text, parsed) is None
    # A parser of ours that overlooked the second command.
    parsed.commands.pop()
    assert disagreement(text, parsed) == "cat, a command to one parser and not to another"


def test_both_parsers_agree_on_texts_beyond_ascii():
    assert read("echo 'größe'; echo 日本; ls").traits == ()
