"""Spellings of a delete, of a hidden program and of a way home: each asks or is denied, and words alone never do."""

from pathlib import Path

import pytest

from bascule.kernel.call import agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.shell.reading import read
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard

JERRY = agent_principal("Jerry")
# An agent's own shell, outside of the sandbox.
PLACE = {"root": "/home/me/app", "home": "/home/me", "cwd": "/home/me/app"}
POLICY = standard()


def spellings():
    group = subgroup = ""
    for line in (Path(__file__).parent / "spellings.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            group = line
        elif line.startswith("## "):
            subgroup = line
        elif line:
            yield group, subgroup, line.replace("\u23ce", "\n").replace("\\ud800", "\ud800")


def of(group, *, home=False):
    return [line for each, part, line in spellings() if group in each and ("reach the home" in part) is home]


def in_a_sandbox(command):
    return POLICY.decide(JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": command})


def of_an_agent(command):
    return POLICY.decide(JERRY, "native.shell", Effect.EXEC, lambda: {"command": command, **PLACE})


def test_the_groups_are_there():
    assert len(of("must ask")) > 200
    assert len(of("must ask", home=True)) == 15
    assert len(of("harmless")) > 100


@pytest.mark.parametrize("command", of("must ask"), ids=ascii)
def test_a_command_that_destroys_or_hides_asks_or_is_denied(command):
    assert in_a_sandbox(command).decision is not Decision.ALLOW


@pytest.mark.parametrize("command", of("must ask", home=True), ids=ascii)
def test_an_agents_own_command_that_reaches_the_home_asks_or_is_denied(command):
    assert of_an_agent(command).decision is not Decision.ALLOW


@pytest.mark.parametrize("command", of("harmless"), ids=ascii)
def test_a_harmless_spelling_is_allowed(command):
    assert in_a_sandbox(command).decision is Decision.ALLOW
    assert of_an_agent(command).decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("rm -rf {~,x}", ["rm -rf '{~,x}'   [destructive]", "rm -rf ~ x   [destructive]"]),
        ("rm -{r,f} x", ["rm '-{r,f}' x", "rm -r -f x   [destructive]"]),
        ("cp x{,.bak}", ["cp 'x{,.bak}'", "cp x x.bak"]),
        ("echo {1..3} {a} {a,b", ["echo '{1..3}' '{a}' '{a,b'"]),
    ],
)
def test_braces_are_read_as_sh_has_them_and_as_bash_does(command, shown):
    assert read(command).describe().splitlines() == shown


def test_the_home_among_braces_is_the_home():
    verdict = of_an_agent("rm -rf {~,x}")
    assert (verdict.decision, verdict.rule) == (Decision.DENY, "native-ground")
    # The control: without the comma no shell makes a home of it.
    assert of_an_agent("rm -rf {~x}").decision is Decision.ALLOW


def test_a_loop_over_braces_holds_what_bash_puts_in_it():
    assert of_an_agent("for d in {~,x}; do tee $d/a; done").decision is Decision.ASK
    assert of_an_agent("for d in {y,x}; do tee $d/a; done").decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("gcc -o ~/.bashrc x.c", "~/.bashrc"),
        ("git log --output=/etc/x", "/etc/x"),
        ("git archive -o ../x HEAD", "../x"),
        ("openssl enc -in x -out /tmp/y", "/tmp/y"),
        ("7z x a.7z -o/opt/x", "/opt/x"),
        ("make -C ../other clean", "../other"),
        ("make install DESTDIR=/opt/x", "/opt/x"),
        ("gpg --output .envrc -d x", ".envrc"),
    ],
)
def test_the_usual_options_for_an_output_name_what_is_written(command, path):
    assert path in read(command).writes


@pytest.mark.parametrize(
    "command",
    ["grep -o /etc/x f", "ps -o /x", "ssh -o ProxyJump=/x h", "find . -o /x", "set -o pipefail", "gcc -o x x.c"],
)
def test_an_option_that_names_no_file_writes_none(command):
    assert read(command).writes == ()


def test_a_value_that_a_variable_may_have_is_looked_at_as_a_path():
    assert of_an_agent("X=~/.ssh; cat $X/id_rsa").rule == "native-secret"
    assert of_an_agent("X=src; cat $X/id").decision is Decision.ALLOW


def test_what_a_command_answers_is_not_known_to_lie_inside():
    assert of_an_agent('echo x > "$(echo ~/.bashrc)"').rule == "native-unplaced"
    assert of_an_agent('echo x > "$(pwd)/a"').decision is Decision.ALLOW
    assert of_an_agent("echo x > log-$(date +%s).txt").decision is Decision.ALLOW


@pytest.mark.parametrize("command", ["./tool rm -rf x", "./tool --exec 'rm -rf x'", "./tool <<< 'rm -rf x'"])
def test_a_program_that_is_not_known_is_taken_to_run_what_destroys(command):
    reading = read(command)
    assert {"destructive", "unplaced"} <= set(reading.traits)
    assert "tool is given what deletes or overwrites, and may run it" in reading.notes
    # The control: the same words behind a program that shows them.
    assert read(command.replace("./tool", "echo")).traits == ()


@pytest.mark.parametrize(
    ("verb", "harmless"),
    [
        ("reset --hard", "reset HEAD a"),
        ("checkout -- a", "checkout main"),
        ("stash drop", "stash list"),
        ("branch -D x", "branch -d x"),
        ("branch -f main HEAD~5", "branch -m main trunk"),
        ("push origin :main", "push origin main:main"),
        ("push -o ci.skip origin +main", "push -o +x origin main"),
        ("reset --merge HEAD~1", "reset --soft HEAD~1"),
        ("restore a", "restore --staged a"),
        ("rm -r x", "rm -r --cached x"),
        ("clean -f", "clean -nf"),
        ("push --force-with-lease", "push"),
        ("switch -f x", "switch x"),
        ("worktree remove --force x", "worktree remove x"),
        ("gc --prune=now", "gc"),
        ("reflog expire --all", "reflog show"),
    ],
)
def test_git_destroys_by_these_words_and_not_without(verb, harmless):
    assert "destructive" in read(f"git {verb}").traits
    assert "destructive" not in read(f"git -C x {harmless}").traits


@pytest.mark.parametrize(
    "command",
    ["env -S rm -rf x", "/usr/bin/env -vS rm -rf x", "env -S 'A=b rm' -rf x", "env -S '-i rm -rf' x", "env -Srm -rf x",
     "env --split-string=rm -rf x", "env -u A -S rm -rf x"],
)  # fmt: skip
def test_what_stands_behind_a_text_that_env_splits_belongs_to_its_command(command):
    assert read(command).traits == ("destructive",)
    # The control: the same of a program that deletes nothing.
    assert read(command.replace("rm", "ls")).traits == ()


def test_a_split_within_a_split_without_end_is_opaque():
    assert "opaque" in read("env -S '" + "-S " * 2_000 + "ls'").traits
    assert "opaque" in read("env -S " * 2_000 + "ls").traits
