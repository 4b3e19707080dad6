"""The workspace's tools: what they ask the daemon, and how little of its answer a model has to read."""

import json

import pytest
from driving import BY_NAME, Me, Script, refusal
from pricing import tokens_in

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.tool import Retry
from bascule.programs.mcp_stdio import tools
from bascule.workspace.tools import DEFAULT_LOG_BYTES, SHOWN_DIFF_CHARS, SHOWN_FILE_CHARS, SHOWN_OUTPUT_CHARS

ME = Me(directory="/projects/otter")
ELSEWHERE = Me()
SPACE = {"spaceId": "spc_1", "name": "otter"}
WHEN = {"timestamp": "2026-01-01T00:00:00.000Z", "operationId": "op-1"}


def run(status="completed", *events):
    return {
        "protocolVersion": "1.0",
        "runId": "run_1",
        "status": status,
        "events": [{**WHEN, **each} for each in events],
    }


def shell(**more):
    return {"type": "shell", "command": "make", "success": True, "exitCode": 0, "stdout": "", "stderr": "", **more}


def use(name, arguments, *answers, me=ME):
    return Script(name, arguments, *answers, me=me)


def test_a_command_is_a_run_of_one_operation_in_the_directory_the_client_was_started_in():
    script = use(
        "exec",
        {"command": "make", "timeoutMs": 5, "cwd": "src", "env": {"A": "1"}},
        SPACE,
        run("completed", shell(stdout="hi\n", durationMs=3)),
    )
    opened, started = script.asked
    assert (opened.method, opened.params) == ("spaces.open", {"path": "/projects/otter"})
    operation = {"type": "shell", "command": "make", "cwd": "src", "env": {"A": "1"}, "timeout": 5}
    assert started.params == {"spaceId": "spc_1", "protocolVersion": "1.0", "operations": [operation]}
    # A lost connection must not run it twice.
    assert BY_NAME["exec"].retry is Retry.NEVER
    assert (started.method, started.wait_ms) == ("runs.start", 45_000)
    assert script.result == {"runId": "run_1", "status": "completed", "exitCode": 0, "stdout": "hi\n", "durationMs": 3}


def test_what_a_run_left_that_others_obey_is_in_the_answer():
    left = {"steering": [".envrc: other programs of the user execute or obey it"]}
    used = use("exec", {"command": "make"}, SPACE, {**run("completed", shell()), **left})
    assert used.result == {"runId": "run_1", "status": "completed", "exitCode": 0, **left}
    used = use("workspace_run", {"operations": [{"type": "shell", "command": "make"}]}, SPACE, {**run(), **left})
    assert used.result == {"runId": "run_1", "status": "completed", "events": [], **left}
    used = use("run_diff", {"runId": "run_1"}, SPACE, {"runId": "run_1", "changes": [], "diff": "", **left})
    assert used.result == {"changes": [], "diff": "", **left}


def test_a_command_that_failed_says_so_in_its_status():
    script = use(
        "exec", {"command": "make"}, SPACE, run("completed", shell(success=False, exitCode=2, stderr="no rule"))
    )
    assert script.result == {"runId": "run_1", "status": "failed", "exitCode": 2, "stderr": "no rule"}


def test_long_output_is_cut_to_head_and_tail_with_the_way_to_all_of_it():
    text = "".join(f"{number}\n" for number in range(100_000))
    script = use("exec", {"command": "seq"}, SPACE, run("completed", shell(stdout=text, processId="prc_1")))
    shown = script.result["stdout"]
    assert len(shown) < SHOWN_OUTPUT_CHARS + 100
    assert (shown[:4], shown[-6:]) == ("0\n1\n", "99999\n")
    assert "exec_logs has them" in shown
    assert (script.result["truncated"], script.result["processId"]) == (True, "prc_1")


def test_a_command_that_goes_on_names_its_process():
    processes = [
        {"processId": "prc_8", "running": True, "runId": "run_0"},
        {"processId": "prc_9", "running": True, "runId": "run_1"},
    ]
    script = use("exec", {"command": "sleep 100"}, SPACE, run("running"), processes)
    assert script.result == {"runId": "run_1", "status": "running", "processId": "prc_9", "next": "exec_logs"}
    lost = use("exec", {"command": "sleep 100"}, SPACE, run("running"), refusal("forbidden"))
    assert lost.result == {"runId": "run_1", "status": "running", "next": "workspace_run"}


def test_a_background_command_returns_at_once():
    started = {"processId": "prc_1", "runId": "run_1", "running": True}
    script = use("exec", {"command": "serve", "background": True}, SPACE, started)
    assert script.asked[1].params == {"spaceId": "spc_1", "command": "serve"}
    assert script.result == {"status": "running", "processId": "prc_1", "runId": "run_1", "next": "exec_logs"}


def test_what_a_run_leaves_that_undo_cannot_put_back_is_in_its_result():
    stays = [{"path": "large", "reason": "has more than 67,108,864 bytes"}]
    event = {"type": "shell", "command": "make", "success": True, "exitCode": 0, "notUndoable": stays}
    run = {"runId": "run_1", "status": "completed", "events": [event]}
    assert use("exec", {"command": "make"}, SPACE, run).result["notUndoable"] == stays


def test_what_asks_says_who_decides_and_how_to_go_on():
    asks = {"type": "approvalRequired", "operationType": "shell", "reason": "Destructive command requires approval"}
    asks["details"] = {"command": "rm -rf x", "policy": "shell.approvalRequired", "approvalId": "apr_1"}
    result = use("exec", {"command": "rm -rf x"}, SPACE, run("awaiting_approval", asks)).result
    assert (result["status"], result["next"]) == ("awaiting_approval", "workspace_run")
    assert result["details"]["approvalId"] == "apr_1"
    assert "bascule approvals" in result["hint"]


def test_what_is_denied_says_what_to_change():
    denied = {
        "type": "policyDenied",
        "operationType": "shell",
        "reason": "no",
        "suggestion": "Remove sudo from command",
    }
    result = use("exec", {"command": "sudo id"}, SPACE, run("completed", denied)).result
    assert result == {"runId": "run_1", "status": "denied", "reason": "no", "suggestion": "Remove sudo from command"}


def test_logs_are_read_in_pages_and_waited_for_no_longer_than_a_slice():
    page = {"processId": "p", "stream": "stdout", "text": "x", "offset": 0, "nextOffset": 1, "size": 1, "running": True}
    script = use("exec_logs", {"processId": "p", "waitMs": 600_000}, page)
    asked = script.asked[0]
    assert (asked.method, asked.wait_ms) == ("processes.logs", 45_000)
    assert asked.params == {"processId": "p", "limit": DEFAULT_LOG_BYTES}
    assert script.result == {"text": "x", "offset": 0, "nextOffset": 1, "size": 1, "running": True}


def test_a_stopped_command_says_how_it_ended():
    view = {"processId": "p", "running": False, "exitCode": 137, "endedBy": "cancelled", "command": "serve"}
    script = use("exec_stop", {"processId": "p"}, view)
    assert script.result == {"processId": "p", "running": False, "exitCode": 137, "endedBy": "cancelled"}


def read(content, **arguments):
    event = {**WHEN, "type": "readFile", "path": "a", "success": True, "content": content, "size": len(content)}
    return use("read_file", {"path": "a", **arguments}, SPACE, event).result


def test_a_file_is_read_whole():
    assert read("one\ntwo\n") == {"content": "one\ntwo\n", "size": 8}
    assert read("") == {"content": "", "size": 0}


def test_a_file_is_read_by_lines_and_says_where_to_go_on():
    text = "".join(f"{number}\n" for number in range(1, 11))
    assert read(text, line=3, lines=2) == {"content": "3\n4\n", "size": len(text), "nextLine": 5}
    assert read(text, line=9)["content"] == "9\n10\n"
    assert read(text, line=99) == {"content": "", "size": len(text)}


def test_a_long_file_is_read_in_parts_that_make_the_whole():
    text = "".join(f"line {number} \u2028 still the same\n" for number in range(5_000))
    parts, line = [], 1
    while line is not None:
        part = read(text, line=line)
        assert len(part["content"]) <= SHOWN_FILE_CHARS
        parts.append(part["content"])
        line = part.get("nextLine")
    assert "".join(parts) == text


def test_a_single_line_longer_than_all_that_is_shown_still_ends():
    part = read("x" * 100_000 + "\nend")
    assert (len(part["content"]), part["nextLine"]) == (SHOWN_FILE_CHARS + 1, 2)


def test_a_file_that_cannot_be_read_says_why():
    event = {**WHEN, "type": "readFile", "path": "a", "success": False, "error": "No such file"}
    assert use("read_file", {"path": "a"}, SPACE, event).result["error"] == "No such file"


def test_base64_has_no_lines():
    event = {**WHEN, "type": "readFile", "path": "a", "success": True, "content": "AA==", "size": 1}
    with pytest.raises(InvalidRequest, match="base64 has no lines"):
        use("read_file", {"path": "a", "encoding": "base64", "line": 2}, SPACE, event)


@pytest.mark.parametrize(
    ("name", "arguments", "operation"),
    [
        ("create_file", {"path": "a", "content": "x", "overwrite": True}, {"type": "createFile"}),
        ("edit_file", {"path": "a", "edits": [{"oldContent": "x", "newContent": "y"}]}, {"type": "editFile"}),
        ("delete_file", {"path": "a"}, {"type": "deleteFile"}),
    ],
)
def test_a_file_tool_is_a_run_of_one_operation(name, arguments, operation):
    event = {"type": operation["type"], "path": "a", "success": True}
    script = use(name, arguments, SPACE, run("completed", event))
    assert script.asked[1].params["operations"] == [{**operation, **arguments}]
    assert script.result == {"runId": "run_1", "status": "completed"}


def test_a_failed_edit_shows_what_to_act_on():
    event = {"type": "editFile", "path": "a", "success": False, "error": "edit 1: not found; closest is line 3"}
    edit = {"path": "a", "edits": [{"oldContent": "x", "newContent": "y"}]}
    result = use("edit_file", edit, SPACE, run("completed", event)).result
    assert result == {"runId": "run_1", "status": "failed", "error": "edit 1: not found; closest is line 3"}


def test_operations_are_passed_on_as_they_are_and_answered_one_by_one():
    events = (
        {"type": "message", "success": True},
        {"type": "readFile", "path": "a", "success": True, "content": "x" * 99_999},
    )
    script = use(
        "workspace_run",
        {"operations": [{"type": "message", "content": "hi"}, {"type": "bad"}], "onCopy": True},
        SPACE,
        run("completed", *events),
    )
    assert script.asked[1].params["operations"][1] == {"type": "bad"}
    assert script.asked[1].params["onCopy"] is True
    first, second = script.result["events"]
    assert first == {"type": "message", "success": True}
    assert (len(second["content"]), second["truncated"], second["next"]) == (SHOWN_FILE_CHARS, True, "read_file")


def test_a_run_is_followed_and_a_copy_taken_over_by_its_id():
    followed = use("workspace_run", {"runId": "run_1"}, SPACE, run("running"))
    assert followed.asked[1].method == "runs.wait"
    assert followed.result == {"runId": "run_1", "status": "running", "events": [], "next": "workspace_run"}
    taken = use(
        "workspace_run", {"runId": "run_1", "commit": True}, SPACE, {"runId": "run_1", "changes": [], "diff": ""}
    )
    assert taken.asked[1].method == "runs.commit"
    assert taken.result == {"status": "committed", "changes": [], "diff": ""}


@pytest.mark.parametrize("arguments", [{}, {"operations": [], "runId": "r"}])
def test_a_run_is_begun_or_followed(arguments):
    with pytest.raises(InvalidRequest, match="either operations or runId"):
        use("workspace_run", arguments)


def test_a_commit_needs_a_run():
    with pytest.raises(InvalidRequest, match="commit goes with runId"):
        use("workspace_run", {"operations": [], "commit": True}, SPACE)


def test_a_long_diff_is_cut():
    long = {"runId": "run_1", "changes": [{"path": "a", "change": "modified"}], "diff": "+" * 99_999}
    for name in ("run_diff", "run_undo"):
        result = use(name, {"runId": "run_1"}, SPACE, long).result
        assert (len(result["diff"]), result["truncated"]) == (SHOWN_DIFF_CHARS, True)


def test_another_space_is_found_by_name_or_id_and_never_by_a_path():
    spaces = [SPACE, {"spaceId": "spc_2", "name": "heron"}]
    for wanted in ("heron", "spc_2"):
        script = use("run_diff", {"runId": "r", "space": wanted}, spaces, {"changes": [], "diff": ""})
        assert script.asked[1].params["spaceId"] == "spc_2"
    with pytest.raises(InvalidRequest, match="no space '/etc'") as refused:
        use("run_diff", {"runId": "r", "space": "/etc"}, spaces)
    assert "otter, heron" in refused.value.hint


def test_a_client_that_started_nothing_in_a_directory_must_name_a_space():
    with pytest.raises(InvalidRequest, match="no space is named") as refused:
        use("read_file", {"path": "a"}, [SPACE], me=ELSEWHERE)
    assert "otter" in refused.value.hint
    with pytest.raises(InvalidRequest) as refused:
        use("read_file", {"path": "a"}, [], me=ELSEWHERE)
    assert "bascule spaces open" in refused.value.hint


def test_the_answer_says_that_messages_wait():
    done = run("completed", {"type": "deleteFile", "path": "a", "success": True})
    script = Script("delete_file", {"path": "a"}, SPACE, done, {"unread": 2}, me=ME, whole=True)
    assert script.result["unread"] == 2


def test_the_workspace_tools_cost_at_most_2000_tokens():
    listed = {"tools": tools.visible(["workspace"])}
    assert len(listed["tools"]) == 10
    assert tokens_in(json.dumps(listed, separators=(",", ":"))) <= 2_000
