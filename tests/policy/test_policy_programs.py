"""Deny rules where programs are really executed."""

import pytest

from bascule.kernel.call import LOCAL, agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, rules_digest
from bascule.kernel.policy.programs import ProgramRule, ProgramRules, judge
from bascule.kernel.policy.rules import Rule
from bascule.testing.policies import preset, standard

JERRY = agent_principal("Jerry")
RULES = ProgramRules((ProgramRule("r", "sudo"), ProgramRule("r", "su"), ProgramRule("p", "git", ("push",))))


def nothing(path):
    return ()


def judged(path, *args, same_file=nothing, argv0=None):
    rule = judge(RULES, path, [argv0 or path, *args], same_file)
    return rule.name if rule else None


@pytest.mark.parametrize(
    ("path", "args", "name"),
    [
        ("/usr/bin/sudo", ["id"], "sudo"),
        ("/opt/x/sudo", [], "sudo"),
        ("/usr/bin/ls", ["sudo"], None),
        ("/usr/bin/visudo", [], None),
        ("/usr/bin/grep", ["-rn", "sudo", "."], None),
        ("/usr/bin/git", ["push"], "git"),
        ("/usr/bin/git", ["-C", "x", "push", "--force"], "git"),
        ("/usr/bin/git", ["commit", "-m", "push"], None),
        ("/bin/busybox", ["sudo", "id"], "sudo"),
        ("/bin/busybox", ["sh", "-c", "su -c id"], "su"),
        ("/bin/busybox", ["ls", "su"], None),
        ("/lib64/ld-linux-x86-64.so.2", ["/usr/bin/sudo", "id"], "sudo"),
        ("/lib/x86_64-linux-gnu/ld-2.36.so", ["--argv0", "x", "/usr/bin/sudo"], "sudo"),
        ("/lib/ld-musl-x86_64.so.1", ["--library-path", "x", "/usr/bin/sudo"], "sudo"),
        ("/lib64/ld-linux-x86-64.so.2", ["/usr/bin/ls", "sudo"], None),
        ("/usr/bin/env", ["-i", "A=b", "sudo"], "sudo"),
        ("/usr/bin/nice", ["-n", "5", "/usr/bin/sudo"], "sudo"),
        # What a shell does not come to need not be stopped; what it comes to is an exec of its own.
        ("/bin/dash", ["-c", "command -v sudo && sudo id || true"], None),
        ("/usr/bin/env", ["sh", "-c", "sudo id"], None),
        ("/bin/dash", ["-c", "echo sudo"], None),
        ("/bin/dash", ["script.sh", "sudo"], None),
        ("/usr/bin/python3.11", ["-c", "sudo"], None),
    ],
)
def test_a_program_is_judged_by_its_file_and_by_what_its_arguments_show(path, args, name):
    assert judged(path, *args) == name


def test_the_name_it_was_called_by_does_not_count_except_for_a_file_that_is_many_programs():
    assert judged("/usr/bin/ls", argv0="sudo") is None
    assert judged("/usr/bin/sudo", argv0="ls") == "sudo"
    assert judged("/bin/busybox", argv0="su") == "su"
    assert judged("/bin/busybox", "id", argv0="/bin/sudo") == "sudo"


def test_a_hard_link_under_another_name_is_still_the_program():
    assert judged("/projects/harmless", same_file=lambda path: {"sudo"}) == "sudo"
    assert judged("/projects/harmless", same_file=nothing) is None


def test_where_su_is_a_link_to_busybox_so_is_everything_else():
    """By identity alone, every program of such a machine would be denied."""
    assert judged("/bin/busybox", argv0="ls", same_file=lambda path: {"su"}) is None
    assert judged("/bin/busybox", argv0="su", same_file=lambda path: {"su"}) == "su"


def test_odd_arguments_are_judged_too():
    assert judge(RULES, "/usr/bin/sudo", [], nothing).name == "sudo"
    assert judge(RULES, "", [""], nothing) is None
    assert judge(RULES, "/usr/bin/env", ["env", *["x=y"] * 10_000, "sudo"], nothing) is None
    assert judge(RULES, "/bin/sh", ["sh", "-c", "(" * 100_000], nothing) is None
    assert judge(ProgramRules(), "/usr/bin/sudo", ["sudo"], nothing) is None


def test_the_rules_of_a_policy_are_its_denials_of_commands():
    rules = standard().program_rules(JERRY)
    assert {rule.name for rule in rules.denied} >= {"sudo", "su", "doas", "pkexec", "run0"}
    first = rules.denied[0]
    assert (first.rule, first.reason) == ("no-superuser", "Command 'sudo' is blocked")
    assert standard().program_rules(LOCAL) == rules
    assert preset("permissive").program_rules(JERRY) == rules


def test_only_denials_that_concern_the_principal_and_need_no_params_are_enforced_at_exec():
    def rule(name, decision, **fields):
        return Rule(name=name, decision=decision, reason="no {command}", **fields)

    rules = (
        rule("all", Decision.DENY, commands=("git push", "nc")),
        rule("jerry", Decision.DENY, commands=("ssh",), principals=("agent:Jerry",)),
        rule("ask", Decision.ASK, commands=("curl",)),
        rule("other", Decision.DENY, commands=("wget",), methods=("processes.start",)),
        rule("with-params", Decision.DENY, commands=("vim",), params={"cwd": "src"}),
        rule("traits", Decision.DENY, traits=("destructive",)),
    )
    policy = Policy(rules, "test", rules_digest(rules))
    assert [(each.name, each.words) for each in policy.program_rules(JERRY).denied] == [
        ("git", ("push",)),
        ("nc", ()),
        ("ssh", ()),
    ]
    assert [each.name for each in policy.program_rules(LOCAL).denied] == ["git", "nc"]
    assert policy.program_rules(JERRY).denied[0].reason == "no git push"
    assert policy.program_rules(JERRY) is policy.program_rules(JERRY)
