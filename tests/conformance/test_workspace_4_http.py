"""The workspace's own addresses beside the protocol: files, processes, diffs, copies, spaces. With a real daemon."""

import json

import jsonschema
import pytest
from real_house import until

# A daemon of this module's own, on which no person is set: then what asks is answered at once.
SETTINGS = {"max_spaces": 99}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def described(house):
    return house.get("/openapi.json").json


def fits(described, verb, path, answer):
    """The answer is one that the description names, in the form it gives."""
    responses = described["paths"][path][verb.lower()]["responses"]
    response = responses[str(answer.status)]
    if "$ref" in response:
        response = described["components"]["responses"][str(answer.status)]
    schema = response["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(answer.json)
    return answer.json


def test_every_address_of_a_space_answers_as_described(space, described):
    house = space.house
    at = "/v1/spaces/{spaceId}"

    def ask(verb, address, body=None, query="", **names):
        filled = f"/v1/spaces{address}".format(spaceId=space.view["spaceId"], **names) + query
        return fits(described, verb, f"/v1/spaces{address}", house.http(verb, filled, body))

    message = {"protocolVersion": "1.0"}
    run = ask(
        "POST", "/{spaceId}/runs", {**message, "operations": [{"type": "createFile", "path": "a", "content": "x"}]}
    )
    ask("POST", "/{spaceId}/runs", {**message, "operations": 7})
    ask("POST", "", {"path": str(space.folder)})
    ask("GET", "")
    ask("GET", "/{spaceId}")
    assert [view["runId"] for view in ask("GET", "/{spaceId}/runs")] == [run["runId"]]
    assert ask("GET", "/{spaceId}/runs/{runId}", runId=run["runId"]) == run
    assert ask("GET", "/{spaceId}/runs/{runId}/wait", runId=run["runId"]) == run
    assert ask("GET", "/{spaceId}/runs/{runId}/diff", runId=run["runId"])["changes"][0]["path"] == "a"
    ask("POST", "/{spaceId}/runs/{runId}/undo", {"dryRun": True}, runId=run["runId"])
    ask("POST", "/{spaceId}/runs/{runId}/cancel", {}, runId=run["runId"])
    ask("POST", "/{spaceId}/runs/{runId}/commit", runId=run["runId"])
    ask(
        "POST",
        "/{spaceId}/runs/{runId}/resume",
        {"approval": {"operationId": "x", "decision": "denied"}},
        runId="run_x",
    )
    ask("PUT", "/{spaceId}/files/{path}", {"content": "hello"}, path="dir/b.txt")
    assert ask("GET", "/{spaceId}/files/{path}", path="dir/b.txt")["content"] == "hello"
    assert ask("GET", "/{spaceId}/files/{path}/", path="dir")["entries"] == [
        {"name": "b.txt", "type": "file", "size": 5}
    ]
    assert [entry["name"] for entry in ask("GET", "/{spaceId}/files")["entries"]] == ["a", "dir"]
    ask("DELETE", "/{spaceId}/files/{path}", path="dir/b.txt")
    process = ask("POST", "/{spaceId}/processes", {"command": "echo up; sleep 60"})
    name = process["processId"]
    ask("GET", "/{spaceId}/processes")
    page = ask("GET", "/{spaceId}/processes/{processId}/logs", query="?waitMs=20000", processId=name)
    assert page["text"] == "up\n"
    assert ask("POST", "/{spaceId}/processes/{processId}/stop", processId=name)["running"] is False
    assert ask("DELETE", "/{spaceId}")["path"] == str(space.folder)
    assert ask("GET", "/{spaceId}")["error"]["code"] == "not_found"
    assert at in described["paths"]


def test_a_run_is_undone_over_http_byte_for_byte(space):
    path = space.write("a.txt", "before\n")
    edits = [{"oldContent": "before", "newContent": "after"}]
    run = space.run(
        {"type": "editFile", "path": "a.txt", "edits": edits},
        {"type": "shell", "command": "echo x > b; chmod +x a.txt"},
    )
    assert path.read_text() == "after\n"
    undone = space.house.post(space.of(run, "/undo"), {})
    assert undone.status == 200
    assert path.read_text() == "before\n"
    assert sorted(file.name for file in space.folder.iterdir()) == ["a.txt"]
    assert space.house.post(space.of(run, "/undo"), {}).status == 409


def test_a_run_on_a_copy_leaves_the_space_alone_until_it_is_committed(space):
    space.write("data/1", "x")
    run = space.run({"type": "shell", "command": "pwd; echo new > made; rm -rf data"}, onCopy=True)
    event = run["events"][0]
    assert event["success"], event
    # Commands find it where the workspace is.
    assert event["stdout"] == f"{space.folder}\n"
    assert (space.folder / "data/1").exists()
    assert not (space.folder / "made").exists()
    assert {change["path"] for change in space.house.get(space.of(run, "/diff")).json["changes"]} >= {"made", "data/1"}
    # What would have asked in the space asks now.
    asked = space.house.post(space.of(run, "/commit"))
    assert (asked.status, asked.error["code"]) == (202, "approval_required")
    assert (space.folder / "data/1").exists()


@pytest.mark.parametrize("folder", ["/", "/etc", "/proc/self", "STATE", "ABOVE"])
def test_no_space_is_the_system_a_home_or_ours(house, folder):
    path = {"STATE": house.state, "ABOVE": house.state.rpartition("/")[0]}.get(folder, folder)
    answer = house.post("/v1/spaces", {"path": path})
    # Some of these the policy asks about before anybody looks; no answer of a person makes a space of them.
    assert answer.status in (202, 409)
    assert answer.error["hint"]
    assert path not in [view["path"] for view in house.get("/v1/spaces").json]


def test_a_path_cannot_be_smuggled_through_the_address(space, tmp_path):
    for path in ("..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "a%00b", "%5c..", "C%3A/x"):
        answer = space.house.get(f"{space.at}/files/{path}")
        assert answer.status == 400, path
        assert "path" in answer.error["message"]


def test_a_body_over_the_limit_is_refused_and_one_below_it_is_not(space):
    body = json.dumps({"protocolVersion": "1.0", "operations": [], "x": "y" * (17 * 1024 * 1024)}).encode()
    assert space.house.http("POST", f"{space.at}/runs", body, headers=JSON).status == 413
    small = json.dumps(
        {"protocolVersion": "1.0", "operations": [{"type": "message", "content": "x" * 99_000}] * 90}
    ).encode()
    assert len(small) > 8 * 1024 * 1024
    assert space.house.http("POST", f"{space.at}/runs", small, headers=JSON).status == 200


def test_a_process_in_the_background_is_gone_when_its_space_is_closed(space):
    started = space.house.post(f"{space.at}/processes", {"command": "sleep 51.9615"})
    assert started.status == 200
    until(lambda: space.processes("sleep 51.9615"), "the command")
    space.house.http("DELETE", space.at)
    space.gone("sleep 51.9615")
