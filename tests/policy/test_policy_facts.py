"""Rules on commands, traits and paths."""

import msgspec
import pytest

from bascule.kernel.call import LOCAL, PERSON, agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, load, matches, rules_digest
from bascule.kernel.policy.facts import NOTHING, facts_of
from bascule.kernel.policy.rules import BadPolicy, Rule, check_rules, parse_rules
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard
from bascule.workspace import rows as workspace_rows
from bascule.workspace.protocol import CreateFileOperation, ProcessStartParams, ShellOperation

JERRY = agent_principal("Jerry")
ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
EFFECTS = {row.name: row.effect for row in (*workspace_rows.METHODS, *workspace_rows.OPERATIONS)}


def rule(decision, **fields):
    return Rule(name=fields.pop("name", "r"), decision=decision, reason=fields.pop("reason", "because"), **fields)


def about(made, command, **more):
    return matches(made, JERRY, "workspace.shell", Effect.EXEC, {"command": command, **more})


def policy(*rules):
    return Policy(rules, "test", rules_digest(rules))


# -- facts ----------------------------------------------------------------------------------------


def test_a_struct_and_its_json_have_the_same_facts():
    operation = ShellOperation(command="cd x; rm -rf y > z", cwd="sub", env={"LD_PRELOAD": "x"})
    facts = facts_of("workspace.shell", operation)
    assert facts == facts_of("workspace.shell", msgspec.to_builtins(operation))
    assert facts.traits == ("destructive", "environment")
    assert facts.redirected
    assert set(facts.paths) == {"sub/y", "sub/z", "sub/x/y", "sub/x/z"}
    started = ProcessStartParams(space_id="s", command="rm -rf y")
    assert facts_of("processes.start", started).traits == ("destructive",)
    created = CreateFileOperation(path="./a//b", content="")
    assert facts_of("workspace.createFile", created).paths == ("a/b",)


def test_methods_without_command_or_path_have_no_facts():
    assert facts_of("messages.send", {"command": "sudo id", "path": ".git"}) is NOTHING
    assert facts_of("runs.start", {"operations": []}) is NOTHING


@pytest.mark.parametrize("params", [{}, {"command": 5}, {"command": None}, None, [], "x"])
def test_a_command_that_is_none_is_opaque_and_not_an_exception(params):
    assert facts_of("workspace.shell", params).traits == ("opaque",)


def test_variables_of_the_operation_are_known_to_the_reading():
    assert standard().decide(
        JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": "$TOOL id", "env": {"TOOL": "sudo"}}
    ).decision is DENY  # fmt: skip
    assert standard().decide(
        JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": "$TOOL x.py", "env": {"TOOL": "python3"}}
    ).decision is ALLOW  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
     "PERL5OPT", "PERL5LIB", "RUBYOPT", "BASH_ENV", "IFS", "PATH", "GIT_SSH_COMMAND", "GIT_DIR",
     "GIT_CONFIG_COUNT", "SHELLOPTS", "PS4", "EDITOR", "LESSOPEN", "JAVA_TOOL_OPTIONS",
     "npm_config_script_shell", "PYTHONPATH", "HOME", "RUSTC_WRAPPER"]
)  # fmt: skip
def test_variables_that_other_programs_obey_are_the_trait_environment(name):
    params = {"command": "make", "env": {name: "/elsewhere/x"}}
    assert facts_of("workspace.shell", params).traits == ("environment",)
    if name != "IFS":
        for command in (f"{name}=/elsewhere/x make", f"export {name}=/elsewhere/x", f"env {name}=/elsewhere/x make"):
            assert facts_of("workspace.shell", {"command": command}).traits == ("environment",), command


@pytest.mark.parametrize(
    ("name", "value"),
    [("DEBUG", "1"), ("CI", "true"), ("PYTHONPATH", "src:lib"), ("NODE_OPTIONS", "--max-old-space-size=4096"),
     ("ENV", "test"), ("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_AUTHOR_NAME", "a"), ("MAKEFLAGS", "-j8"),
     ("CC", "clang-15"), ("LANG", "C"), ("HTTP_PROXY", "http://x"), ("PYTHONDONTWRITEBYTECODE", "1"),
     ("path", "src"), ("GIT_TERMINAL_PROMPT", "0")]
)  # fmt: skip
def test_harmless_variables_and_harmless_values_are_not(name, value):
    assert facts_of("workspace.shell", {"command": "make", "env": {name: value}}).traits == ()
    assert facts_of("workspace.shell", {"command": f"{name}={value} make"}).traits == ()


@pytest.mark.parametrize(
    "command",
    ["rm -rf x", "rm -fr x", "rm -r x", "rm -R x", "rm -f x", "rm x -rf", "rm -v -r x", "rm --recursive x",
     "rm --forc x", "rm --r x", "\\rm -rf x", "/bin/rm -rf x", "busybox rm -rf x", "xargs rm -f",
     "find . -delete", "find . -exec rm -r {} +", "git clean -fdx", "git -C x clean --force", "shred x",
     "truncate -s 0 x", "dd if=/dev/zero of=x", "mkfs.ext4 x", "wipefs x", "rsync -a --delete a/ b/",
     "sh -c 'rm -rf x'", "R=rm; $R -rf x", "F=-rf; rm $F x", "fd -X rm -rf"]
)  # fmt: skip
def test_recursive_or_forced_deletes_are_destructive(command):
    assert "destructive" in facts_of("workspace.shell", {"command": command}).traits


@pytest.mark.parametrize(
    "command",
    ["rm x", "rm -v x", "rm -i x", "rm -- -rf", "rm ./-rf", "rmdir x", "git rm x", "git clean -n",
     "git clean -fn", "cp -rf a b", "mv -f a b", "grep -rf x y", "echo rm -rf x", "docker run --rm -f x",
     "dd if=x of=/dev/null", "ln -sf a b", "tar -rf x y", "truncate --help", "find . -name delete",
     "git commit -m 'git clean -f'", "rsync -a a/ b/"]
)  # fmt: skip
def test_what_only_looks_like_it_is_not(command):
    assert set(facts_of("workspace.shell", {"command": command}).traits) <= {"network"}


# -- restricting rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "command", "expected"),
    [
        ("git push", "git push", True),
        ("git push", "cd x && git push origin main", True),
        ("git push", "git -C dir push", True),
        ("git push", "git -c a.b=c --no-pager push", True),
        ("git push", "/usr/bin/git push", True),
        ("git push", "git commit -m push", False),
        ("git push", "git stash push", False),
        ("git push", 'git "$x"', True),
        ("git push", "xargs git", True),
        ("git push", "echo git push", False),
        ("git push --force", "git push origin --force", True),
        ("git push --force", "git push origin", False),
        ("rm -rf", "rm -fr x", True),
        ("rm -rf", "rm -r -f x", True),
        ("rm -rf", "rm x -rf", True),
        ("rm -rf", "rm -r x", False),
        ("npm publish", "npx npm publish", True),
        ("curl *internal*", "curl http://internal/x", True),
        ("curl *internal*", "curl http://example.org", False),
        ("mkfs.*", "mkfs.ext4 /dev/x", True),
        ("SUDO", "sudo id", True),
    ],
)
def test_a_prefix_that_restricts_means_every_spelling_of_the_command(prefix, command, expected):
    for decision in (ASK, DENY):
        assert about(rule(decision, commands=(prefix,)), command) is expected


def test_a_restricting_rule_matches_when_any_of_its_conditions_does():
    made = rule(ASK, commands=("git push",), traits=("destructive",), paths=(".env",))
    assert about(made, "git push")
    assert about(made, "rm -rf x")
    assert about(made, "echo x > .env")
    assert matches(made, JERRY, "workspace.createFile", Effect.WRITE, {"path": "a/.env"})
    assert not about(made, "git status; rm x > y")
    assert not matches(made, JERRY, "workspace.createFile", Effect.WRITE, {"path": "a/env"})


def test_params_principals_and_methods_still_count():
    made = rule(DENY, commands=("ls",), principals=("agent:*",), params={"cwd": "src"}, methods=("workspace.*",))
    assert about(made, "ls", cwd="src")
    assert not about(made, "ls", cwd="lib")
    assert not about(made, "pwd", cwd="src")
    assert not matches(made, LOCAL, "workspace.shell", Effect.EXEC, {"command": "ls", "cwd": "src"})
    assert not matches(made, JERRY, "processes.start", Effect.EXEC, {"command": "ls", "cwd": "src"})


@pytest.mark.parametrize(
    "command",
    ["echo x > .git/hooks/a", "cd .git && echo x > hooks/a", "tee .git/hooks/a", "cp a .git/hooks/",
     "mv a .git/hooks/a", "ln -s ../a .git/hooks/b", "install -m 755 a .git/hooks/a", "chmod +x .git/hooks/a",
     "touch .git/hooks/a", "sed -i s/a/b/ .git/config", "cp -t .git/hooks a", "cat a >> ./.git/config",
     "cp hooks .git", "curl -o .git/hooks/a x", "dd if=a of=.git/config", "rm -r .git/config", "ln -s .git x",
     "tee -a .git/config", "rm .git/config"]
)  # fmt: skip
def test_files_that_everyday_commands_write_are_seen(command):
    assert about(rule(ASK, paths=(".git/**",)), command)
    assert not about(rule(ASK, paths=(".hg/**",)), command)


# -- allowing rules -------------------------------------------------------------------------------

PYTEST = rule(ALLOW, commands=("pytest", "git status"))


@pytest.mark.parametrize("command", ["pytest", "pytest -q tests", "pytest; git status --short", "/usr/bin/pytest -x"])
def test_a_rule_that_allows_commands_matches_when_all_of_them_are_named(command):
    assert about(PYTEST, command)


@pytest.mark.parametrize(
    "command",
    ["pytest; ls", "pytest && git push", "pytest $(ls)", "env pytest", "./pytest", "sub/pytest",
     "sh -c pytest", "$X", "pytest | sh", "pytest > out.txt", "LD_PRELOAD=x pytest", "PATH=.:$PATH pytest",
     "pytest 'x", "git", "git -C x status", "git $X", "", "X=1", "pytest() { ls; }; pytest",
     "alias pytest=ls; pytest", "pytest <(ls)", "p*t"]
)  # fmt: skip
def test_a_rule_that_allows_commands_does_not_match_when_another_one_is_there_or_hidden(command):
    assert not about(PYTEST, command)


def test_a_rule_that_allows_a_destructive_command_by_its_name_is_what_a_person_can_grant_for_a_while():
    made = rule(ALLOW, commands=("rm -rf build",))
    assert about(made, "rm -rf build")
    assert not about(made, "rm -rf src")
    assert not about(made, "rm -r -f build")
    assert not about(made, 'rm -rf "$x"')
    assert not about(made, "rm -rf build*")


def test_output_to_a_file_is_allowed_only_where_the_rule_names_the_file():
    made = rule(ALLOW, commands=("pytest",), paths=("*.log",))
    assert about(made, "pytest > out.log")
    assert about(made, "pytest")
    assert not about(made, "pytest > .git/hooks/pre-commit")
    assert about(PYTEST, "pytest > /dev/null 2>&1")


def test_a_rule_that_allows_paths_or_traits_needs_all_of_them():
    docs = rule(ALLOW, paths=("docs/**",))
    assert matches(docs, JERRY, "workspace.createFile", Effect.WRITE, {"path": "docs/a.md"})
    assert not matches(docs, JERRY, "workspace.createFile", Effect.WRITE, {"path": "DOCS/a.md"})
    assert not about(docs, "ls")
    assert not about(docs, "touch docs/a src/b")
    destructive = rule(ALLOW, traits=("destructive",))
    assert about(destructive, "rm -rf x")
    assert not about(destructive, "rm -rf x; $Y")
    assert not about(destructive, "ls")


# -- verdicts -------------------------------------------------------------------------------------


def decide(of, command, **more):
    return of.decide(JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": command, **more})


def test_reason_and_suggestion_are_filled_in():
    strict = policy(
        rule(
            DENY,
            name="push",
            commands=("git push",),
            reason="'{command}' is not done here",
            suggestion="Leave out {command}",
        ),
        rule(DENY, name="rm", traits=("destructive",), reason="{command} deletes"),
        rule(DENY, name="files", paths=(".env",), reason="{path} is secret", suggestion="Use {path}.example"),
        rule(ALLOW, name="rest"),
    )
    verdict = decide(strict, "cd x; git -C y push")
    assert (verdict.reason, verdict.suggestion) == ("'git push' is not done here", "Leave out git push")
    assert decide(strict, "env rm -rf x").reason == "rm deletes"
    verdict = strict.decide(JERRY, "workspace.readFile", Effect.READ, lambda: {"path": "a/./.env"})
    assert (verdict.reason, verdict.suggestion) == ("a/.env is secret", "Use a/.env.example")
    assert (verdict.policy, decide(strict, "git push").policy) == ("filesystem.blockedPaths", "shell.blockedPatterns")
    # Without params nothing can be named, and nothing is permitted.
    unread = strict.decide(JERRY, "workspace.shell", Effect.EXEC, None)
    assert (unread.decision, unread.reason) == (DENY, "'this command' is not done here")


def test_braces_that_are_no_placeholder_stay_and_names_in_commands_are_not_placeholders():
    strict = policy(rule(DENY, commands=("x*",), reason="{command} {other} {}"))
    assert decide(strict, "'x{path}'").reason == "x{path} {other} {}"


def test_what_is_filled_in_stays_on_one_line():
    strict = policy(rule(DENY, paths=(".git/**",), reason="{path} is not yours"))
    verdict = strict.decide(JERRY, "workspace.createFile", Effect.WRITE, lambda: {"path": ".git/a\nallowed: all"})
    assert verdict.reason == ".git/a\\nallowed: all is not yours"


def test_the_part_of_the_policy_is_named_for_events():
    assert decide(policy(), "ls").policy == "shell.denied"
    assert decide(policy(rule(DENY)), "ls").policy == "shell.denied"
    assert decide(policy(rule(ASK, commands=("ls",))), "ls").policy == "shell.approvalRequired"
    assert decide(policy(rule(ALLOW)), "ls").policy is None
    assert policy().decide(JERRY, "messages.send", Effect.MESSAGE, None).policy is None


def test_a_command_is_read_once_however_many_rules_ask_and_not_at_all_when_none_does():
    asked = []

    def params():
        asked.append(1)
        return {"command": "ls"}

    decide_by = policy(rule(ALLOW, name="a"), *(rule(ASK, name=f"r{n}", commands=(f"x{n}",)) for n in range(5)))
    verdict = decide_by.decide(JERRY, "workspace.shell", Effect.EXEC, params)
    assert (verdict.decision, verdict.cacheable, len(asked)) == (ALLOW, False, 1)
    assert decide_by.decide(JERRY, "runs.start", Effect.EXEC, params).cacheable
    assert len(asked) == 1


def test_explain_says_what_could_not_be_read():
    text = standard().explain(JERRY, "workspace.shell", Effect.EXEC, {"command": "$X; LD_PRELOAD=x ls"})
    assert "note: the program $X is not known before it runs" in text
    assert "note: sets LD_PRELOAD, which other programs obey" in text
    assert "ask: agent:Jerry" in text
    person = standard().explain(PERSON, "workspace.shell", Effect.EXEC, {"command": "$X"})
    assert "allow: person" in person


# -- reading rules --------------------------------------------------------------------------------

TEXT = """
version = 1
[[rule]]
name = "no-pushing"
decision = "deny"
reason = "'{command}' changes what others see"
commands = ["git push", "npm publish"]
match = [
  { principal = "local", method = "workspace.shell", params = { command = "cd x && git push" } },
  { principal = "local", method = "processes.start", params = { command = "npm publish" } },
]
not_match = [{ principal = "local", method = "workspace.shell", params = { command = "git pull" } }]
"""


def test_rules_on_commands_are_read_with_examples_that_carry_commands():
    loaded = load(TEXT, EFFECTS, EFFECTS)
    assert decide(loaded, "git push").reason == "'git push' changes what others see"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"git push", "npm publish"', '"", "x"', "is not a command prefix"),
        ('"git push", "npm publish"', '"/usr/bin/git push", "npm publish"', "programs are compared by their names"),
        (
            "reason",
            'traits = ["loud"]\nreason',
            "there is no trait 'loud'; there are: opaque, destructive, environment",
        ),
        ("reason", 'paths = ["../x"]\nreason', "is not a path"),
        ("reason", 'paths = ["/"]\nreason', "is not a path"),
        ("reason", 'methods = ["files.*"]\nreason', "can never apply: none of its methods has commands"),
        (
            "cd x && git push",
            "cd x && git pull",
            "the rule is about commands git push, npm publish, and the example has",
        ),
        ("git pull", "git push", "matches an example that it must not match"),
        ('command = "npm publish"', 'cmd = "npm publish"', "does not match its own example"),
    ],
)
def test_a_rule_that_does_not_say_what_its_author_means_is_refused(old, new, message):
    with pytest.raises(BadPolicy, match=message):
        parse_rules(TEXT.replace(old, new, 1), EFFECTS, EFFECTS)


def test_paths_need_methods_that_have_them():
    with pytest.raises(BadPolicy, match="none of its methods has paths"):
        check_rules([rule(DENY, paths=(".env",), methods=("runs.*",))], EFFECTS, EFFECTS)
    check_rules([rule(DENY, paths=(".env",))], EFFECTS, EFFECTS)


def test_the_digest_covers_the_new_conditions():
    made = [rule(DENY), rule(DENY, commands=("a",)), rule(DENY, traits=("opaque",)), rule(DENY, paths=("a",))]
    assert len({rules_digest([each]) for each in made}) == len(made)
