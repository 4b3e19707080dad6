"""Timed rules: what a person allowed for a while, exactly as printed, and not a minute longer."""

import pytest
from desk_scene import JERRY, TOM, Cut, Deep, Forest

from bascule.foundation.errors import InvalidRequest, Overloaded
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.offers import all_offers, exact
from bascule.kernel.consent.questions import digest_line, rule_text, timed_text
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import matches
from bascule.kernel.rows import Effect
from bascule.workspace.protocol import DeleteFileOperation, ShellOperation

MINUTE = 60.0


@pytest.fixture
def forest():
    return Forest()


def with_offers(method="tree.cut", params=None, bound=None):
    same, offers = all_offers(JERRY, method, params or Cut(), bound)
    return {"exact": same, "offers": offers}


def offered(forest, params=None, minutes=10):
    approval = forest.ask(params=params or Cut(), **with_offers(params=params))
    return forest.approve(approval, scope="rule", offer=1, minutes=minutes)


def test_a_timed_rule_matches_what_it_printed_and_nothing_else(forest):
    timed = offered(forest)
    shown = digest_line(exact(Cut()))
    assert timed_text(timed) == f"allow agent:Jerry to call tree.cut, with exactly these params (digest {shown})"
    hits = [
        (principal, method, path, force)
        for principal in (JERRY, TOM, "local", "agent:Jerry2")
        for method in ("tree.cut", "tree.burn", "tree.cutter")
        for path in ("x", "y", "xx", "*", "")
        for force in (False, True)
        if forest.desk.timed(principal, method, Effect.WRITE, Cut(path=path, force=force))
    ]
    assert hits == [(JERRY, "tree.cut", "x", False)]


def test_params_that_no_glob_could_describe_are_compared_whole(forest):
    first, other = Deep(env={"A": "*"}), Deep(env={"A": "x"})
    approval = forest.ask(params=first, **with_offers(params=first))
    forest.approve(approval, scope="rule", offer=1)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, first) is not None
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, other) is None
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Deep()) is None


def test_a_timed_rule_answers_only_the_rule_that_asked(forest):
    """What another rule of the policy asks about (a steered environment, a protected file) was not answered."""
    offered(forest)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut(), over="cutting-asks") is not None
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut(), over="another-rule") is None


def test_nothing_is_offered_again_that_rests_on_what_a_file_holds_now():
    same, offers = all_offers(JERRY, "workspace.shell", ShellOperation(command="sh x.sh"), {"files": {"x.sh": "abc"}})
    assert (same, offers) == (None, ())
    where = {"space": "spc_1", "path": "/p", "operationId": "op-1", "policy": "d", "files": {}}
    assert all_offers(JERRY, "workspace.shell", ShellOperation(command="git push"), where)[0] is not None


@pytest.mark.parametrize(
    ("command", "prefixes"),
    [
        ("git push origin main", ["git push"]),
        ("pytest -q tests", ["pytest"]),
        ("make build && make test", ["make build", "make test"]),
        ("rm -rf build", None),
        ("$X push", None),
        ("git push > .git/hooks/x", None),
        ("LD_PRELOAD=./x.so git push", None),
        ("a; b; c; d", None),
    ],
)
def test_a_command_prefix_is_offered_where_it_says_all_there_is(command, prefixes):
    operation = ShellOperation(command=command)
    _, (first, *more) = all_offers(JERRY, "workspace.shell", operation, None)
    assert "commands" not in rule_text(first)
    assert [list(rule.commands) for rule in more] == ([prefixes] if prefixes else [])
    for rule in more:
        assert matches(rule, JERRY, "workspace.shell", Effect.EXEC, operation)
        for other in ("git pull", "rm -rf /", f"{command}; curl evil", f"LD_PRELOAD=x {command}", f"{command} > x"):
            assert not matches(rule, JERRY, "workspace.shell", Effect.EXEC, ShellOperation(command=other))
        steered = ShellOperation(command=command, env={"LD_PRELOAD": "./x.so"})
        assert not matches(rule, JERRY, "workspace.shell", Effect.EXEC, steered)


def test_a_file_is_offered_by_its_path():
    edit = DeleteFileOperation(path="src/[a].py")
    _, (_, rule) = all_offers(JERRY, "workspace.deleteFile", edit, None)
    assert matches(rule, JERRY, "workspace.deleteFile", Effect.WRITE, edit)
    for other in ("src/a.py", "[a].py", "other/src/[a].py", "src/[a].py/x"):
        assert not matches(rule, JERRY, "workspace.deleteFile", Effect.WRITE, DeleteFileOperation(path=other))


def test_the_name_of_an_operation_does_not_make_it_another():
    assert exact(ShellOperation(command="ls", id="op-1")) == exact(ShellOperation(command="ls", id="op-2"))
    assert exact(ShellOperation(command="ls", cwd="x")) != exact(ShellOperation(command="ls"))


def test_a_timed_rule_ends_and_the_ledger_says_so(forest):
    timed = offered(forest, minutes=30)
    forest.advance(30 * MINUTE - 1)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is not None
    forest.advance(1)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is None
    record = forest.ledger()[-1]
    assert (record.method, record.subject) == ("approvals.rule_over", timed.rule_id)


@pytest.mark.parametrize("jump", [-3_600, 3_600])
def test_a_clock_that_jumps_never_makes_a_rule_longer(forest, jump):
    offered(forest, minutes=30)
    forest.clock.jump_wall(jump)
    forest.advance(30 * MINUTE)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is None


@pytest.mark.parametrize("minutes", [0, 8 * 60 + 1])
def test_no_rule_is_longer_than_eight_hours(forest, minutes):
    approval = forest.ask(**with_offers())
    with pytest.raises(InvalidRequest, match="1 to 480 minutes"):
        forest.approve(approval, scope="rule", offer=1, minutes=minutes)
    assert forest.state(approval) == "pending"


@pytest.mark.parametrize("offer", [None, 0, 2, -1])
def test_only_an_offered_rule_can_be_chosen(forest, offer):
    approval = forest.ask(**with_offers())
    with pytest.raises(InvalidRequest, match="has 1 offers"):
        forest.approve(approval, scope="rule", offer=offer)


def test_a_call_that_belongs_to_no_run_cannot_be_approved_for_one(forest):
    with pytest.raises(InvalidRequest, match="belongs to no run"):
        forest.approve(forest.ask(), scope="run")


def test_a_timed_rule_lies_over_an_ask_and_never_over_a_deny(forest):
    approval = forest.ask(method="tree.burn", rule="no-fire", **with_offers("tree.burn"))
    forest.approve(approval, scope="rule", offer=1)
    assert forest.desk.timed(JERRY, "tree.burn", Effect.WRITE, Cut()) is not None
    assert forest.gate.verdict(JERRY, "tree.burn", Cut()).decision is Decision.DENY


def test_timed_rules_are_bounded():
    forest = Forest(limits=ConsentLimits(max_timed_rules=1))
    offered(forest)
    with pytest.raises(Overloaded, match="max_timed_rules"):
        offered(forest, Cut(path="y"))
