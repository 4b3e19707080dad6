"""What a client's tools write and read, as the client itself would: patches, links, globs, its own sandbox."""

import json
import time

import pytest

from bascule.kernel.policy.zones import Project, Zone
from bascule.native.hooks import Hook, Unreadable, read
from bascule.testing.house import House
from patience import PATIENCE

ENTRY = "/home/me/code/app"


def tool(**given):
    return json.dumps(given)


def call(client, name, given, **more):
    event = {"session_id": "s", "cwd": ENTRY, "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": given}
    return read(client, json.dumps(event | more).encode())


# -- Codex's patches ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        "*** Begin Patch\n  *** Add File: /etc/hosts\n+x\n*** End Patch",
        "  \n *** Begin Patch\n\t*** Add File: /etc/hosts\n+x\n*** End Patch\n",
        "*** Begin Patch\r\n*** Add File: /etc/hosts\r\n+x\r\n*** End Patch\r\n",
        "*** Begin Patch\n\u00a0*** Update File: /etc/hosts \u3000\n@@\n-a\n+b\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n   *** Move to: /etc/hosts\n@@\n-a\n+b\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n@@\n-a\n *** Delete File: /etc/hosts\n*** End Patch",
        "<<'EOF'\n*** Begin Patch\n *** Delete File: /etc/hosts\n*** End Patch\nEOF",
    ],
)
def test_codex_trims_a_line_before_it_looks_for_a_header(patch):
    assert "/etc/hosts" in call("codex", "apply_patch", {"command": patch}).paths


def test_a_line_that_is_added_is_no_header():
    patch = "*** Begin Patch\n*** Add File: a\n+*** Add File: /etc/hosts\n*** End Patch"
    assert call("codex", "apply_patch", {"command": patch}).paths == ("a",)


@pytest.mark.parametrize("patch", ["", "*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Rename: a\n"])
def test_a_patch_that_names_no_file_cannot_be_read(patch):
    assert isinstance(call("codex", "apply_patch", {"command": patch}), Unreadable)


IN_SHELL = "{0} <<'EOF'\n*** Begin Patch\n  *** Add File: {1}\n+x\n*** End Patch\nEOF"


@pytest.mark.parametrize(
    "command",
    [
        IN_SHELL.format("apply_patch", "/etc/hosts"),
        IN_SHELL.format("applypatch", "/etc/hosts"),
        IN_SHELL.format("cd /etc && apply_patch", "hosts"),
        "apply_patch '*** Begin Patch\n*** Delete File: /etc/hosts\n*** End Patch'",
        'bash -lc "' + IN_SHELL.format("apply_patch", "/etc/hosts") + '"',
    ],
)
@pytest.mark.parametrize("client", ["codex", "claude"])
def test_a_patch_in_the_shell_writes_its_files(enforcing, way, client, command):
    verdict = way.call("Bash", tool(command=command), client=client)
    assert verdict.decision == "deny", verdict
    assert "native-ground" in verdict.reason


@pytest.mark.parametrize("command", ["apply_patch < /tmp/x.patch", "cat x | apply_patch", "apply_patch $'a\\nb'"])
def test_a_patch_in_the_shell_that_cannot_be_seen_asks(enforcing, way, command):
    assert way.call("Bash", tool(command=command)).decision == "ask"


@pytest.mark.parametrize("command", [IN_SHELL.format("apply_patch", "src/new.py"), "grep -r apply_patch src"])
def test_a_patch_of_the_project_is_free(enforcing, way, command):
    assert way.call("Bash", tool(command=command)).decision is None


# -- every tool that writes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "name", "given"),
    [
        ("claude", "Write", {"file_path": "/etc/hosts", "content": "x"}),
        ("claude", "Edit", {"file_path": "/etc/hosts", "old_string": "a", "new_string": "b"}),
        ("claude", "MultiEdit", {"file_path": "/etc/hosts", "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("claude", "NotebookEdit", {"notebook_path": "/etc/hosts", "new_source": "x", "edit_mode": "insert"}),
        ("claude", "Bash", {"command": "echo x > /etc/hosts"}),
        ("claude", "Monitor", {"command": "echo x > /etc/hosts"}),
        ("codex", "Bash", {"command": ["bash", "-lc", "echo x > /etc/hosts"]}),
        ("codex", "apply_patch", {"input": "*** Add File: /etc/hosts\n+x"}),
        ("gemini", "write_file", {"file_path": "/etc/hosts", "content": "x"}),
        ("gemini", "replace", {"file_path": "/etc/hosts", "old_string": "a", "new_string": "b"}),
        ("gemini", "run_shell_command", {"command": "echo x > hosts", "dir_path": "/etc"}),
    ],
)
def test_each_tool_that_writes_is_known(enforcing, way, client, name, given):
    verdict = way.call(name, json.dumps(given), client=client)
    assert verdict.decision == "deny", verdict
    assert "native-ground" in verdict.reason


def test_the_memory_of_gemini_lies_outside_of_the_project():
    assert call("gemini", "save_memory", {"fact": "x"}).paths == ("~/.gemini/GEMINI.md",)


def test_blanks_around_a_path_that_claude_code_leaves_out_hide_nothing(enforcing, way):
    assert "native-ground" in way.call("Write", tool(file_path=" /etc/hosts ", content="x")).reason


# -- links ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def links(hooked):
    """In the project, to what lies outside of it. A home in /tmp is not outside: nothing is made where they lead."""
    home = hooked.root.parent
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("secret")
    (hooked.root / "out").symlink_to("/mnt")
    (hooked.root / "rc").symlink_to(home / ".bashrc")
    (hooked.root / "notes").symlink_to(home / ".ssh" / "id_rsa")
    (hooked.root / "etc").symlink_to("/etc")
    (hooked.root / "within").symlink_to("src")


@pytest.mark.parametrize(
    ("name", "given", "decision", "rule"),
    [
        ("Write", tool(file_path="rc", content="x"), "ask", "native-steering"),
        ("Write", tool(file_path="out/new", content="x"), "ask", "native-outside"),
        ("Edit", tool(file_path="out/new", old_string="a", new_string="b"), "ask", "native-outside"),
        ("Write", tool(file_path="etc/hosts", content="x"), "deny", "native-ground"),
        ("Read", tool(file_path="notes"), "ask", "native-secret"),
        ("Bash", tool(command="echo x > rc"), "ask", "native-steering"),
        ("Bash", tool(command="echo x > out/new"), "ask", "native-outside"),
        ("Bash", tool(command="rm -rf etc/apt"), "deny", "native-ground"),
        ("Bash", tool(command="cp a out/b"), "ask", "native-outside"),
    ],
)
def test_a_link_out_of_the_project_is_judged_by_where_it_leads(enforcing, links, way, name, given, decision, rule):  # noqa: PLR0917 - a row of the table
    verdict = way.call(name, given)
    assert verdict.decision == decision, verdict
    assert rule in verdict.reason


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Write", tool(file_path="within/new.py", content="x")),
        ("Bash", tool(command="rm rc")),
        ("Bash", tool(command="mv out away")),
        ("Bash", tool(command="echo x > within/new.py")),
        ("Read", tool(file_path="out/x")),
    ],
)
def test_a_link_inside_the_project_and_the_link_itself_are_free(enforcing, links, way, name, given):
    assert way.call(name, given).decision is None


# -- searches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "glob",
    [
        ".env",
        "**/.env",
        "{.env,x}",
        "*.{pem,key}",
        ".e*",
        ".env*",
        "src/.env *.py",
        "*.py,.env",
        "id_?sa",
        ".*",
        "{a,{.env,b}}",
    ],
)
def test_a_search_whose_glob_names_secrets_asks(enforcing, way, glob):
    verdict = way.call("Grep", tool(pattern="KEY", glob=glob))
    assert verdict.decision == "ask", verdict
    assert "native-secret" in verdict.reason
    assert call("gemini", "grep_search", {"pattern": "KEY", "include": glob}).paths


@pytest.mark.parametrize("glob", ["*.py", "*", "**/*", "*.*", "!.env", "src/**/*.{ts,tsx}", "*.env.example"])
def test_an_ordinary_search_is_free(enforcing, way, glob):
    assert way.call("Grep", tool(pattern="KEY", glob=glob)).decision is None


def test_a_search_of_a_secret_file_asks_and_a_glob_without_end_cannot_be_read(enforcing, way):
    assert way.call("Grep", tool(pattern="x", path="~/.ssh")).decision == "ask"
    assert "unreadable" in way.call("Grep", tool(pattern="x", glob="{a,b}" * 20)).reason
    assert way.call("Grep", tool(pattern="x")).decision is None


def until(house, ready):
    end = time.monotonic() + PATIENCE
    while not ready() and time.monotonic() < end:
        house.advance(0.001)


# -- the client's own sandbox ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "flag"),
    [
        ("claude", {"dangerouslyDisableSandbox": True}),
        ("claude", {"dangerouslyDisableSandbox": "true"}),
        ("codex", {"with_escalated_permissions": True}),
        ("codex", {"sandbox_permissions": "require_escalated"}),
    ],
)
def test_a_call_without_the_clients_sandbox_is_known(client, flag):
    assert call(client, "Bash", {"command": "ls", **flag}).unsandboxed
    assert not call(client, "Bash", {"command": "ls", **dict.fromkeys(flag)}).unsandboxed
    assert not call(client, "Bash", {"command": "ls", "sandbox_permissions": "use_default"}).unsandboxed


def test_a_question_shows_that_the_sandbox_is_off_and_a_yes_without_it_is_none_with_it():
    with House() as house:
        house.machine.directory("/projects/project", {"a.txt": b"a"})
        house.call("local", "native.mode", {"client": "claude", "mode": "enforce"})
        house.call("local", "person.set", {"passphrase": "correct horse battery staple"})

        def asked(**flag):
            event = {"hook_event_name": "PermissionRequest", "session_id": "s", "cwd": "/projects/project"}
            event |= {"tool_name": "Bash", "tool_input": {"command": "npm test", **flag}}
            return house.call("local", "sessions.note", {"client": "claude", "event": event})["question"]

        plain, without = asked(), asked(dangerouslyDisableSandbox=True)
        assert plain != without
        pending = [house.begin("local", "native.question", question) for question in (plain, without)]
        until(house, lambda: len(house.call("local", "approvals.list", {})) == 2)
        shown = {
            each["approvalId"]: house.call("person", "approvals.show", {"approvalId": each["approvalId"]})["preview"]
            for each in house.call("local", "approvals.list", {})
        }
        ((safe, _),) = [each for each in shown.items() if "own sandbox" not in each[1]]
        assert sum("outside of the client's own sandbox" in preview for preview in shown.values()) == 1
        house.call("person", "approvals.decide", {"approvalId": safe, "decision": "approved"})
        until(house, lambda: pending[0].done)
        assert pending[0].result()["record"] == "answered"
        assert not pending[1].done


# -- where there is no project --------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/", "/home", "/home/me", "/etc", "/etc/apt", "/usr/bin", "/home/me/.ssh"])
def test_a_session_in_the_home_or_the_system_has_no_project_that_is_free(place):
    project = Project(place, "/home/me")
    for path in ("/home/me", "/home", "/etc/hosts", "/etc/apt/sources.list", "/usr/bin/env"):
        assert project.zone(path) is Zone.GROUND, path
    for path in ("/home/me/Documents", "/home/me/.ssh/authorized_keys"):
        assert project.zone(path) is Zone.OUTSIDE, path


@pytest.mark.parametrize(
    "place", ["/home/me/code", "/home/me/.cache/worktree", "/opt/site", "/var/www", "/srv/app", "/tmp/x"]
)
def test_a_project_is_free_wherever_people_keep_theirs(place):
    assert Project(place, "/home/me").zone(f"{place}/a") is Zone.INSIDE


def test_an_agent_that_went_to_the_systems_directory_may_not_write_there(enforcing, way):
    for client, name, given in (
        ("gemini", "run_shell_command", {"command": "echo x > hosts", "dir_path": "/etc"}),
        ("claude", "Bash", {"command": "cd /etc && echo x > hosts"}),
    ):
        assert way.call(name, json.dumps(given), client=client).decision == "deny"


def test_a_hook_that_is_read_has_a_command_for_a_shell_and_a_path_for_a_write():
    assert isinstance(call("claude", "Bash", {"command": "ls"}), Hook)
