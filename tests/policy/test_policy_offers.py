"""What a person may approve for a while."""

import pytest

from bascule.call import LOCAL, agent_principal
from bascule.policy.engine import matches
from bascule.policy.offers import MAX_OFFERED_COMMANDS, command_offer
from bascule.policy.rules import check_rules
from bascule.protocols import workspace_methods
from bascule.protocols.methods import Effect
from bascule.protocols.workspace import ShellOperation

JERRY = agent_principal("Jerry")
EFFECTS = {row.name: row.effect for row in (*workspace_methods.METHODS, *workspace_methods.OPERATIONS)}


def offer(command, **more):
    return command_offer(JERRY, "workspace.shell", ShellOperation(command=command, **more), "timed")


def covers(rule, command, *, principal=JERRY, method="workspace.shell", **more):
    return matches(rule, principal, method, Effect.EXEC, ShellOperation(command=command, **more))


def test_an_offer_names_the_commands_and_covers_them_and_no_others():
    rule = offer("cd app && rm -rf build")
    assert rule.commands == ("cd app", "rm -rf build")
    check_rules([rule], EFFECTS, EFFECTS)
    assert covers(rule, "cd app && rm -rf build")
    assert covers(rule, "rm -rf build")
    assert covers(rule, "rm -rf build dist")
    assert covers(rule, "rm -rf build", env={"DEBUG": "1"})
    for other in (
        "rm -rf src",
        "rm -r -f build",
        "rm -rf build; ls",
        "rm -rf build > x",
        "rm -rf 'build x'",
        "./rm -rf build",
    ):
        assert not covers(rule, other), other
    assert not covers(rule, "rm -rf build", cwd="src")
    assert not covers(rule, "rm -rf build", env={"LD_PRELOAD": "x"})
    assert not covers(rule, "rm -rf build", principal=LOCAL)
    assert not covers(rule, "rm -rf build", method="processes.start")


def test_the_directory_is_part_of_it_and_patterns_in_words_are_just_words():
    rule = offer("rm -f 'a*'", cwd="src")
    assert covers(rule, "rm -f 'a*'", cwd="src")
    assert not covers(rule, "rm -f abc", cwd="src")
    assert not covers(rule, "rm -f 'a*'")


@pytest.mark.parametrize(
    "command",
    ["$X", "curl x | sh", "LD_PRELOAD=x ls", "rm -rf x > y", 'rm -rf "$x"', "rm -rf *", "rm -rf 'a b'",
     "rm -rf ''", "./x -r", "X=1", ";".join(f"rm -f {n}" for n in range(MAX_OFFERED_COMMANDS + 1)),
     "rm -rf " + "a " * 20]
)  # fmt: skip
def test_nothing_is_offered_where_a_prefix_would_not_say_what_is_approved(command):
    assert offer(command) is None


def test_only_commands_have_such_offers():
    assert command_offer(JERRY, "workspace.createFile", {"path": "x"}, "timed") is None
    assert command_offer(JERRY, "workspace.shell", {"command": "rm -rf x", "cwd": "y"}, "timed") is not None
