"""Clients' own tools, seen by hooks: observed, decided about, undone; a test for each thing we rely on a client for."""

import json
import subprocess

import pytest
from client_program import BASCULE, DONE, PATIENCE, until
from scripted_model import call

from bascule.cli.setup.codex_trust import trust

pytestmark = pytest.mark.clients
# What Claude Code puts before the line one is in.
PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
PASSPHRASE = "correct horse battery staple"
DESTROY = "rm -rf src; echo gone > left; chmod 600 keep; ln -sf nowhere link"


def fill(project):
    (project / "src").mkdir()
    for number in range(30):
        (project / "src" / f"f{number}").write_text(f"{number}\n")
    (project / "keep").write_text("keep\n")
    (project / "keep").chmod(0o755)
    (project / "link").symlink_to("keep")


def state(project):
    return {
        str(path.relative_to(project)): (path.lstat().st_mode, path.is_symlink() or path.is_dir() or path.read_bytes())
        for path in sorted(project.rglob("*"))
        if ".claude" not in path.parts
    }


@pytest.fixture
def claude(make_client):
    client = make_client("claude")
    client.options = ["--allowedTools", "Bash,Edit,Write,Read"]
    fill(client.project)
    return client


def runs_shell(command, tool="Bash"):
    """A model that runs one command and is done."""
    return lambda prompt: call(tool, command=command, description="x") if "please" in prompt else DONE


def undoable(wire):
    return [run for run in wire.call("runs.list", {}) if run.get("native") and run.get("undoable")]


def test_what_claude_code_destroyed_with_its_own_shell_is_undone(claude, model, wire):
    claude.switch_on()
    was = state(claude.project)
    model.script = runs_shell(DESTROY)
    claude.run("please destroy")
    assert state(claude.project) != was
    daemon = wire(claude.daemon)
    found = until(lambda: undoable(daemon), "the call is a run")
    assert found[0]["native"]["title"] == DESTROY
    undo = subprocess.run(
        [BASCULE, "undo", "--state-dir", claude.daemon.state_dir],
        cwd=claude.project, capture_output=True, text=True, timeout=PATIENCE, check=False, env=claude.environment,
    )  # fmt: skip
    assert undo.returncode == 0, undo.stderr
    assert state(claude.project) == was


def test_without_our_hooks_nothing_is_kept(claude, model, wire):
    """The control: the same turn, and nothing to undo."""
    model.script = runs_shell(DESTROY)
    claude.run("please destroy")
    assert undoable(wire(claude.daemon)) == []


def test_claude_code_obeys_a_denial_and_the_model_is_told_why(claude, model, wire):
    claude.switch_on()
    daemon = wire(claude.daemon)
    daemon.call("native.mode", {"client": "claude", "mode": "enforce"})
    was = state(claude.project)
    model.script = runs_shell("rm -rf src; rm -rf /usr/share/nothing-here")
    claude.run("please destroy")
    assert state(claude.project) == was
    assert "native-ground" in model.prompts[-1]


def test_claude_code_without_a_terminal_denies_what_asks(claude, model, wire):
    claude.switch_on()
    wire(claude.daemon).call("native.mode", {"client": "claude", "mode": "enforce"})
    model.script = runs_shell("git push origin main; touch ran")
    claude.run("please push")
    assert not (claude.project / "ran").exists()


# -- the client's own dialog and our desk --


@pytest.fixture
def asking(make_client, model, wire, terminal):
    """Claude Code in a terminal with its dialog open, and the same question at the desk."""
    client = make_client("claude")
    client.switch_on()
    daemon = wire(client.daemon)
    daemon.call("person.set", {"passphrase": PASSPHRASE})
    daemon.call("person.unlock", {"passphrase": PASSPHRASE})
    daemon.call("native.mode", {"client": "claude", "mode": "enforce"})
    model.script = runs_shell("touch ran")
    screen = terminal(client, client.program, "--permission-mode", "default")
    screen.sees(PROMPT)
    screen.type("please run", "Enter")
    screen.sees("Do you want to proceed")
    (question,) = until(lambda: daemon.call("approvals.list", {}), "the desk has the question, too")
    assert "touch ran" in question["summary"]
    return client, screen, daemon, question["approvalId"]


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_an_answer_at_the_desk_closes_the_dialog_of_claude_code(asking, decision):
    client, screen, daemon, approval = asking
    daemon.call("approvals.decide", {"approvalId": approval, "decision": decision})
    screen.sees(DONE)
    assert (client.project / "ran").exists() is (decision == "approved")


def test_an_answer_in_the_terminal_closes_the_question_at_the_desk(asking):
    client, screen, daemon, _ = asking
    # A dialog that has just come hears no keys for a moment.
    until(lambda: "Do you want to proceed" not in screen.shown() or screen.type("Enter"), "the dialog hears Enter")
    screen.sees(DONE)
    assert (client.project / "ran").exists()
    until(lambda: daemon.call("approvals.list", {}) == [], "nobody is asked any more")


def test_claude_code_goes_on_while_the_daemon_is_down_and_stops_where_its_user_chose_so(claude, model):
    # Killed, the daemon would be started again by the session's own MCP server.
    nowhere = str(claude.root / "nowhere")
    claude.switch_on(state_dir=nowhere)
    model.script = runs_shell("touch ran")
    claude.run("please run")
    assert (claude.project / "ran").exists()
    (claude.project / "ran").unlink()
    claude.switch_on("--closed", state_dir=nowhere)
    claude.run("please run")
    assert not (claude.project / "ran").exists()
    assert "cannot be asked" in model.prompts[-1]


def test_claude_code_calls_a_tool_of_ours_that_its_model_does_not_see(claude, model, wire):
    claude.switch_on()
    model.script = runs_shell("touch ran")
    claude.run("please run")
    assert "mcp_tool" in (claude.home / ".claude" / "settings.json").read_text()
    assert not [name for name in model.tools if "native_hook" in name]
    records = wire(claude.daemon).call("ledger.tail", {"limit": 200})
    assert {each["principal"].partition(":")[0] for each in records if each["method"] == "native.before"} == {"agent"}


def test_claude_code_reports_its_session(claude, model, wire):
    claude.switch_on()
    daemon = wire(claude.daemon)
    model.script = runs_shell("true")
    claude.run("please run")
    session = until(lambda: [each for each in daemon.call("sessions.list", {}) if each["state"] == "ended"], "it ended")
    assert session[0]["calls"] == 1
    report = daemon.call("native.report", {})
    assert (report["calls"], report.get("gaps", 0), report.get("open", 0)) == (1, 0, 0)


def test_on_and_off_leave_the_settings_as_they_were(claude):
    settings = claude.home / ".claude" / "settings.json"
    was = settings.read_bytes()
    claude.switch_on()
    assert settings.read_bytes() != was
    claude.bascule("off")
    assert settings.read_bytes() == was


# -- Codex ----------------------------------------------------------------------------------------


@pytest.fixture
def codex(make_client):
    client = make_client("codex")
    # Its own sandbox and questions are not what is looked at here.
    client.options = ["--dangerously-bypass-approvals-and-sandbox"]
    fill(client.project)
    return client


def codex_runs(model, command):
    """Its shell has another name in every other version."""

    def script(prompt):
        if "please" not in prompt:
            return DONE
        if "exec_command" in model.tools:
            return call("exec_command", cmd=command)
        return call("shell_command", command=command)

    return script


def test_what_codex_destroyed_with_its_own_shell_is_undone(codex, model, wire):
    codex.switch_on()
    was = state(codex.project)
    model.script = codex_runs(model, "find src -delete; mv keep kept")
    codex.run("please destroy")
    assert state(codex.project) != was
    daemon = wire(codex.daemon)
    found = until(lambda: undoable(daemon), f"the call is a run; Codex offers {model.tools}")
    daemon.call("runs.undo", {"runId": found[0]["runId"]})
    assert state(codex.project) == was


def test_codex_calls_a_tool_of_ours_that_its_model_does_not_see(codex, model, wire):
    """No program per call: only the beginning and the end of a session and of a turn start one."""
    codex.switch_on()
    groups = json.loads((codex.home / ".codex" / "hooks.json").read_text())["hooks"]
    kinds = {event: {each["type"] for group in listed for each in group["hooks"]} for event, listed in groups.items()}
    assert kinds["PreToolUse"] == kinds["PostToolUse"] == kinds["UserPromptSubmit"] == {"mcp_tool"}
    model.script = codex_runs(model, "touch ran")
    codex.run("please run")
    assert not [each for each in model.everything if "native_hook" in each]
    records = wire(codex.daemon).call("ledger.tail", {"limit": 200})
    seen = [(each["method"], each["principal"].partition(":")[0]) for each in records]
    assert {who for method, who in seen if method in ("native.before", "native.after")} == {"agent"}
    assert {method for method, _ in seen} >= {"native.before", "native.after"}


def test_a_session_of_codex_says_that_it_has_ended(codex, model, wire):
    codex.switch_on()
    daemon = wire(codex.daemon)
    model.script = codex_runs(model, "true")
    codex.run("please run")
    (session,) = until(
        lambda: [each for each in daemon.call("sessions.list", {}) if each["state"] == "ended"],
        lambda: f"it ended: {daemon.call('sessions.list', {})}",
    )
    assert session["evidence"] == "SessionEnd"


def test_to_codex_a_hook_that_names_what_its_event_does_not_have_is_one_that_failed(codex, model, wire):
    """Why our hooks there name less than Claude Code's do; and the control: the call goes on, and nobody sees it."""
    codex.switch_on()
    file = codex.home / ".codex" / "hooks.json"
    document = json.loads(file.read_text())
    for group in document["hooks"]["PreToolUse"]:
        for each in group["hooks"]:
            each["input"]["agent"] = "${agent_id}"
    file.write_text(json.dumps(document))
    trust(codex.environment, str(codex.project))
    model.script = codex_runs(model, "touch ran")
    codex.run("please run")
    assert (codex.project / "ran").exists()
    methods = [each["method"] for each in wire(codex.daemon).call("ledger.tail", {"limit": 200})]
    assert "native.before" not in methods


def test_codex_obeys_a_denial(codex, model, wire):
    codex.switch_on()
    wire(codex.daemon).call("native.mode", {"client": "codex", "mode": "enforce"})
    model.script = codex_runs(model, "git push origin main; touch ran")
    codex.run("please push")
    assert not (codex.project / "ran").exists()
    assert "native-sends" in model.prompts[-1]


def test_on_and_off_leave_the_settings_of_codex_as_they_were(codex):
    folder = codex.home / ".codex"
    was = {name: (folder / name).read_bytes() for name in ("hooks.json", "config.toml")}
    codex.switch_on()
    assert b"trusted_hash" in (folder / "config.toml").read_bytes()
    codex.bascule("off")
    assert {name: (folder / name).read_bytes() for name in was} == was


# -- Gemini CLI -----------------------------------------------------------------------------------


@pytest.fixture
def gemini(make_client):
    client = make_client("gemini")
    client.options = ["--yolo"]
    fill(client.project)
    return client


def test_what_gemini_cli_destroyed_with_its_own_shell_is_undone(gemini, model, wire):
    gemini.switch_on()
    was = state(gemini.project)
    model.script = runs_shell(DESTROY, "run_shell_command")
    gemini.run("please destroy")
    assert state(gemini.project) != was
    daemon = wire(gemini.daemon)
    found = until(lambda: undoable(daemon), "the call is a run")
    daemon.call("runs.undo", {"runId": found[0]["runId"]})
    assert state(gemini.project) == was


def test_gemini_cli_obeys_a_denial(gemini, model, wire):
    gemini.switch_on()
    wire(gemini.daemon).call("native.mode", {"client": "gemini", "mode": "enforce"})
    model.script = runs_shell("git push origin main; touch ran", "run_shell_command")
    gemini.run("please push")
    assert not (gemini.project / "ran").exists()
    assert "native-sends" in model.prompts[-1]
