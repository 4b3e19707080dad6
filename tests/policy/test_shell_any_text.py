"""Any text is read, in bounded time, and no quoting hides a denied program."""

import os
import sys
from time import thread_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bascule.kernel.call import agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.shell import reading
from bascule.kernel.policy.shell.reading import MAX_TEXTS_DEEP, MAX_WRAPPERS, read
from bascule.kernel.policy.shell.text import MAX_COMMANDS, MAX_DEPTH, MAX_HEREDOCS, MAX_PIPELINE
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard
from bascule.workspace.protocol import MAX_COMMAND_CHARS

TIMES = 40 if os.environ.get("BASCULE_LONG") else 1
JERRY = agent_principal("Jerry")
POLICY = standard()
# Ten times what the worst text below takes on a busy machine: it catches what never ends.
SECONDS = 5.0


def decide(command):
    return POLICY.decide(JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": command}).decision


# -- anything -------------------------------------------------------------------------------------

_tokens = st.sampled_from(
    ["(", ")", "((", "))", "[[", "]]", "{", "}", "$", "$(", "$((", "${", "`", '"', "'", "$'", "\\", "<", ">",
     "<<A", "<<-'A'",
     "\nA\n", "<<<", "&", "&&", "|", "||", ";", ";;", "#", "!", "*", "=", "+=", " ", "\n", "\t", "a", "x=1",
     "$x", "${x:-",
     "sudo", "if ", "then ", "else ", "fi", "do ", "done", "for x in ", "while ", "case x in ", "esac",
     "function ", "()",
     "sh -c ", "eval ", "env ", "xargs ", "alias a=", "trap ", "awk '", "sed 's/", "find . -exec ", "git -c ",
     "\\\n", "é", "\u00a0", "\0"]
)  # fmt: skip
_texts = st.lists(_tokens, max_size=60).map("".join)


@settings(max_examples=100 * TIMES, deadline=None)
@given(st.one_of(_texts, st.text(max_size=200)))
@example("\ud800; ls")
def test_any_text_is_read_without_an_exception(text):
    found = read(text)
    assert found.describe() is not None
    assert ("opaque" in found.traits) <= bool(found.notes)


@pytest.mark.parametrize(
    "piece",
    ["(", "((", "$(", '"$(', "`", "{ ", "${", "${a:-", '"${a:-', "$((1+", "[[ ", "a=(", "if a; then ",
     "case x in ", "<(",
     "a|", "a;", "a&&", "a<<A\n", "f()", "f(){ ", "!", "! ", "\\", "'", '"', "\n", "$", "x=$x$x;", "env ",
     "eval ", "sh -c '",
     'sh -c "', "alias a=a\n", "for i in 1 2 3 4 5 6 7 8 9;do $i$i$i;done;", "find . -exec ", "xargs ",
     "sudo ", "$x", "a\\ ",
     "2>", "{a,", "[", "*", "git -c alias.a=!git ", "sh<<A\n:\nA\n", "awk '|\"", "sed 's/", "((a)", "<<<",
     "&>a ", "999999999>"]
)  # fmt: skip
def test_the_longest_commands_are_read_in_bounded_time(piece):
    text = (piece * MAX_COMMAND_CHARS)[:MAX_COMMAND_CHARS]
    start = thread_time()
    read(text)
    assert thread_time() - start < SECONDS


# -- limits ---------------------------------------------------------------------------------------


def notes(text):
    return " ".join(read(text).notes)


def test_what_is_over_a_limit_is_opaque_and_the_limit_is_named():
    assert f"nested more than {MAX_DEPTH} deep" in notes("(" * 100 + "ls" + ")" * 100)
    assert f"more than {MAX_PIPELINE} commands in one pipeline" in notes("|".join(["ls"] * (MAX_PIPELINE + 2)))
    assert f"more than {MAX_HEREDOCS} here-documents" in notes("cat <<A\nA\n" * (MAX_HEREDOCS + 1))
    assert f"more than {MAX_WRAPPERS} wrappers" in notes("env " * (MAX_WRAPPERS + 2) + "ls")
    assert f"more than {MAX_COMMANDS} commands" in notes(";".join(f"c{n}" for n in range(MAX_COMMANDS + 1)))
    text = "ls"
    for _ in range(MAX_TEXTS_DEEP + 1):
        text = f"eval {text}"
    assert f"more than {MAX_TEXTS_DEEP} deep" in notes(text)
    assert "characters to read in all" in notes("ls " + "x" * 40_000)


@pytest.mark.parametrize(
    "text",
    [
        "( " * 30 + "ls" + " )" * 30,
        "|".join(["ls"] * MAX_PIPELINE),
        "env " * MAX_WRAPPERS + "ls",
        "sh -c 'sh -c \"ls\"'",
    ],
)
def test_what_is_just_below_a_limit_is_read(text):
    assert read(text).traits == ()


def test_a_caller_deep_down_gets_an_answer_and_not_an_exception():
    text = "( " * 30 + "ls # deep" + " \n)" * 30

    def deep(levels):
        return deep(levels - 1) if levels else read(text)

    frames = 0
    frame = sys._getframe()
    while frame is not None:
        frames += 1
        frame = frame.f_back
    for room in (30, 60):
        assert "opaque" in deep(sys.getrecursionlimit() - frames - room).traits
        reading._read.cache_clear()
    assert read(text).traits == ()


def test_padding_does_not_turn_a_denial_into_a_question():
    """As many commands as a text can hold: what stands last is found like what stands first."""
    padding = ":;" * ((MAX_COMMAND_CHARS - 8) // 2)
    assert decide(f"{padding}sudo id") is Decision.DENY
    assert decide(f"sudo id;{padding}") is Decision.DENY


def test_what_was_found_before_the_text_became_unreadable_stays_found():
    assert decide("sudo id; )") is Decision.DENY


# -- quoting --------------------------------------------------------------------------------------


@st.composite
def _quoted(draw, name):
    """The same name, written in one of the endless ways a shell allows."""
    written = ""
    for letter in name:
        way = draw(st.integers(0, 9))
        written += {
            0: f"'{letter}'",
            1: f'"{letter}"',
            2: f"\\{letter}",
            3: f"''{letter}",
            4: f'{letter}""',
            5: f"\\\n{letter}",
            6: f"$'\\x{ord(letter):02x}'",
            7: f"$'\\{ord(letter):03o}'",
            8: f"\"{letter}\"''",
            9: letter,
        }[way]
    return draw(st.sampled_from(["", "/usr/bin/", "/bin/../bin/", "'/usr/bin'/", '"/usr"/bin/'])) + written


_before = st.sampled_from(
    ["", "ls; ", "true && ", "(", "X=1 ", "env ", "nice -n 5 ", "timeout 5 ", "! ", "echo $(", "if ",
     "command ", ">x ", "\n",
     "ls | ", "f() { ", "xargs ", "env -i A=b ", "stdbuf -oL nohup "]
)  # fmt: skip
_after = {"(": ")", "echo $(": ")", "if ": "; then :; fi", "f() { ": "; }"}


@settings(max_examples=100 * TIMES, deadline=None)
@given(_before, st.sampled_from(["sudo", "su", "doas", "pkexec"]).flatmap(_quoted))
def test_no_quoting_of_a_denied_program_is_allowed(before, name):
    assert decide(f"{before}{name} id{_after.get(before, '')}") is Decision.DENY


@settings(max_examples=50 * TIMES, deadline=None)
@given(_quoted("sudo"), st.integers(1, 3))
def test_no_quoting_inside_of_texts_inside_of_texts_is_allowed(name, depth):
    command = f"{name} id"
    for _ in range(depth):
        command = "sh -c '" + command.replace("'", "'\\''") + "'"
    assert decide(command) is Decision.DENY


@settings(max_examples=50 * TIMES, deadline=None)
@given(st.lists(st.sampled_from(["s", "u", "d", "o", "su", "do", "ud"]), min_size=1, max_size=4), st.booleans())
def test_a_name_put_together_from_variables_is_never_allowed_to_be_a_denied_one(pieces, quoted):
    assignments = "".join(f"v{number}={piece};" for number, piece in enumerate(pieces))
    name = "".join(f"${{v{number}}}" for number in range(len(pieces)))
    allowed = decide(assignments + (f'"{name}"' if quoted else name) + " id") is Decision.ALLOW
    assert not (allowed and "".join(pieces) in ("sudo", "su", "doas"))


@settings(max_examples=50 * TIMES, deadline=None)
@given(_quoted("sudo"))
def test_the_same_name_as_an_argument_is_harmless(name):
    assert decide(f"grep -rn {name} .") is Decision.ALLOW
