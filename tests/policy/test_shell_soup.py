"""Texts nobody would write, tried in real shells: whatever reading allows must not reach the program it would deny."""

import contextlib
import os
import random
import shutil
import subprocess

import pytest

from bascule.kernel.call import agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, rules_digest
from bascule.kernel.policy.rules import Rule
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard
from faults.lacking import missing_here

COUNT = 20_000 if os.environ.get("BASCULE_LONG") else 300
JERRY = agent_principal("Jerry")
CANARY = "qc"

# Pieces of shell that begin, end, quote and join, with the canary and a few programs that run others among them.
PIECES = [
    "(", ")", "((", "))", "{ ", " }", "[[ ", " ]]", "$(", "`", '"', "'", "$'", '"$(', ')"', "\\", "\\\n", ";",
    "\n", "&&", "||", "|", "&", "!", "! ", " ", "  ", "#", " #", "<<E", "\nE\n", "<<'E'", "<<-E", "<<<", "<",
    ">", ">x", "2>&1", "&>x", "</dev/null", "<(", ">(", "qc", "qc", "qc", "q", "c", "echo ", "cat ", "true",
    "false", "sh -c ", "eval ", "env ", "nice ", "xargs ", "timeout 5 ", "command ", "exec ", "sh", "bash",
    "tee ", "printf %s ", "x=", "x=qc", "$x", "${x}", "${x:-qc}", "${x:-", "}", "$((", "$((1", "1", "if ",
    "then ", "; then ", "else ", "; fi", "fi", " do ", "; do ", "done", "; done", "for x in ", "while ",
    "case x in ", "x) ", ";;", " esac", "esac", "f()", "f(){ ", "f", "function f ", "alias a=", "a", "=", "+=",
    "x+=", "*", "?", "[", "]", "{q,", "qc,", "IFS=", "set -- ", '"$@"', "$1", "read x", "export ", "trap ",
    " EXIT", "coproc ", "time ", "select x in ", "-c", "~", "@", "%", "$", "\t", "\r", "E",
]  # fmt: skip
ENDS = ["qc", "`qc`", "$(qc)", ";qc", "\nqc\n", "|qc", '"qc"', "q''c"]


def soup(chance):
    text = "".join(chance.choice(PIECES) for _ in range(chance.randint(2, 14)))
    place = chance.randint(0, len(text))
    return text[:place] + chance.choice(ENDS) + text[place:]


@pytest.fixture
def place(tmp_path):
    """A directory of programs that can do no harm, and the canary that leaves a mark."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "bash", "env", "cat", "printf", "tee", "xargs", "nice", "true", "false", "timeout"):
        if (found := shutil.which(name)) is not None:
            (programs / name).symlink_to(found)
    canary = programs / CANARY
    # Not a shell's script: `sh qc` reads it, and that is not the same as running it.
    canary.write_text(f'#!{shutil.which("awk")} -f\nBEGIN{{printf "" > "{tmp_path / "mark"}"}}\n')
    canary.chmod(0o755)
    return tmp_path


# What runs so long runs for ever, and is nothing that this test looks for.
ENDLESS_SECONDS = 5.0


def reached(place, shell, text):
    directory = place / "work"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (place / "mark").unlink(missing_ok=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [shutil.which(shell), "-c", text],
            cwd=directory,
            env={"PATH": str(place / "bin")},
            stdin=subprocess.DEVNULL,
            # A pipe: what runs in the background holds it open, and so is waited for.
            capture_output=True,
            timeout=ENDLESS_SECONDS,
            check=False,
        )
    return (place / "mark").exists()


def denying():
    rules = tuple(
        Rule(name=rule.name, decision=rule.decision, reason="x", commands=(CANARY,), effects=rule.effects)
        if rule.name == "no-superuser"
        else rule
        for rule in standard().rules
    )
    return Policy(rules, "with a canary", rules_digest(rules))


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_no_text_that_reading_allows_reaches_the_denied_program(place, shell):
    if shutil.which(shell) is None:
        missing_here(f"{shell} is not here")
    policy = denying()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(COUNT):
        text = soup(chance)
        verdict = policy.decide(JERRY, "workspace.shell", Effect.EXEC, lambda text=text: {"command": text})
        if verdict.decision is Decision.ALLOW:
            assert not reached(place, shell, text), (seed, text)


RUNNING = [
    '$"qc"', "$'qc'", "cat <(qc)", "echo >(qc)", "$(qc)", "`qc`", "((1)); qc", "$((1)); qc", "true && qc",
    "true || qc; qc",
    "x=$(qc)", "${x:-$(qc)}", "cat <<E\n$(qc)\nE", "f() { qc; }; f", "case x in x) qc;; esac", "true |& qc",
    "true & qc",
    "if true; then qc; fi", "! qc", "{ qc; }", "(qc)", "q''c", "qc>/dev/null", "2>&1 qc", "cat <<<$(qc)", "x+=1 qc",
]  # fmt: skip


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("text", RUNNING)
def test_a_line_continuation_anywhere_hides_no_program(place, shell, text):
    if shutil.which(shell) is None:
        missing_here(f"{shell} is not here")
    policy = denying()
    for at in range(len(text) + 1):
        broken = f"{text[:at]}\\\n{text[at:]}"
        verdict = policy.decide(JERRY, "workspace.shell", Effect.EXEC, lambda broken=broken: {"command": broken})
        if verdict.decision is Decision.ALLOW:
            assert not reached(place, shell, broken), broken


def test_a_reader_of_first_words_would_let_some_of_them_through(place):
    """The control: the same soups, allowed by a reader that only looks at the first word."""
    chance = random.Random(5)
    texts = [soup(chance) for _ in range(COUNT)]
    naive = [text for text in texts if text.split() and text.split()[0].strip("\"'") != CANARY]
    assert any(reached(place, "sh", text) for text in naive[:200])
