"""Agent Spaces: messages, versions, the events message, faults."""

import json
import re

import jsonschema
import pytest

from inside import (
    BadOperation,
    events_schema,
    operations_schema,
    parse_operation,
    validate_operation,
    validate_operations_message,
)

EVENTS = jsonschema.Draft202012Validator(events_schema())
OPERATIONS = jsonschema.Draft202012Validator(operations_schema())
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

BAD_PATHS = ["/etc/passwd", "../x", "a/../../x", "a/..", "nul\0byte", "x" * 256, "", "a\\b", "C:/x", "C:x"]

# Every operation with every field, in values of our own.
EXAMPLES = {
    "message": {"type": "message", "id": "note-1", "content": "Looking at the parser"},
    "createFile": {
        "type": "createFile",
        "id": "make-1",
        "path": "lib/greet.py",
        "content": "def greet():\n    return 'hi'\n",
        "encoding": "utf-8",
        "overwrite": False,
    },
    "readFile": {"type": "readFile", "id": "look-1", "path": "settings.json", "encoding": "utf-8"},
    "editFile": {
        "type": "editFile",
        "id": "fix-1",
        "path": "lib/greet.py",
        "edits": [{"oldContent": "'hi'", "newContent": "'hello'"}],
    },
    "deleteFile": {"type": "deleteFile", "id": "drop-1", "path": "scratch.txt"},
    "shell": {
        "type": "shell",
        "id": "try-1",
        "command": "python3 greet.py",
        "cwd": "lib",
        "timeout": 30_000,
        "env": {"VERBOSE": "1"},
    },
}


@pytest.mark.req("ASP-version-1", "ASP-message-1", "ASP-message-2", "ASP-result-1")
def test_a_message_of_all_operations_is_answered_with_one_event_each_in_order(space):
    space.write("settings.json", "{}")
    space.write("scratch.txt", "")
    run = space.run(*EXAMPLES.values())
    assert set(run) == {"protocolVersion", "runId", "status", "events"}
    assert (run["protocolVersion"], run["status"]) == ("1.0", "completed")
    assert [event["type"] for event in run["events"]] == list(EXAMPLES)
    assert [event["operationId"] for event in run["events"]] == [each["id"] for each in EXAMPLES.values()]
    assert all(event["success"] for event in run["events"]), run
    EVENTS.validate(run)


@pytest.mark.req("ASP-validation-1", "ASP-validation-2")
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_complete_example_decodes_and_is_valid_by_the_schema(name):
    example = EXAMPLES[name]
    assert validate_operation(example).success
    assert parse_operation(json.dumps(example)) == validate_operation(example).data
    message = {"protocolVersion": "1.0", "operations": [example]}
    assert validate_operations_message(message).success
    OPERATIONS.validate(message)


@pytest.mark.req("ASP-validation-1", "ASP-validation-2")
def test_what_is_invalid_is_returned_as_an_error_or_thrown():
    wrong = {"type": "readFile", "path": "/etc/hosts"}
    result = validate_operation(wrong)
    assert (result.success, result.data) == (False, None)
    assert "path" in str(result.error)
    with pytest.raises(BadOperation, match="path"):
        parse_operation(wrong)


@pytest.mark.req("ASP-version-2", "ASP-version-3", "DEC-ASP-9")
@pytest.mark.parametrize("version", [None, "2.0", 1, "1.0.0"])
def test_a_message_of_another_version_or_of_none_is_refused_in_the_protocols_form(space, version):
    answer = space.house.post(f"{space.at}/runs", {"protocolVersion": version, "operations": []})
    assert answer.status == 400
    assert (answer.json["protocolVersion"], answer.json["status"]) == ("1.0", "error")
    (event,) = answer.json["events"]
    assert (event["type"], event["category"]) == ("error", "validation")
    assert "protocolVersion" in event["message"]
    EVENTS.validate(answer.json)


@pytest.mark.req("DEC-ASP-9")
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"protocolVersion": "1.0"}',
        b'{"protocolVersion": "1.0", "operations": {}}',
        b'{"protocolVersion": "1.0", "operations": [], "extra": 1}',
    ],
)
def test_what_is_no_message_at_all_is_refused_in_the_same_form(space, body):
    answer = space.house.post(f"{space.at}/runs", body)
    assert answer.status == 400
    assert [event["category"] for event in answer.json["events"]] == ["validation"]
    EVENTS.validate(answer.json)


@pytest.mark.req("DEC-ASP-9")
def test_over_the_link_it_is_the_same_answer(space):
    with space.house.link() as link:
        answer = link.call("runs.start", {"spaceId": space.view["spaceId"], "protocolVersion": "3", "operations": []})
    assert (answer["status"], answer["events"][0]["category"]) == ("error", "validation")


@pytest.mark.req("ASP-category-1", "DEC-ASP-10")
def test_a_bad_operation_has_its_validation_error_and_the_others_run(space):
    run = space.run({"type": "readFile"}, {"type": "createFile", "path": "ok.txt", "content": "x"}, {"type": "dance"})
    assert [(event["type"], event.get("category")) for event in run["events"]] == [
        ("error", "validation"),
        ("createFile", None),
        ("error", "validation"),
    ]
    assert run["status"] == "completed"
    assert "operations[0]" in run["events"][0]["message"]
    assert "path" in run["events"][0]["message"]


@pytest.mark.req("ASP-op-1", "ASP-op-2", "ASP-event-1", "ASP-event-14")
def test_a_message_is_acknowledged_and_executes_nothing(space):
    event = space.event(type="message", id="note", content="rm -rf / && sudo reboot")
    assert set(event) == {"type", "timestamp", "operationId", "success"}
    assert (event["operationId"], event["success"]) == ("note", True)
    assert RFC3339.fullmatch(event["timestamp"])
    assert list(space.folder.iterdir()) == []
    assert validate_operation({"type": "message"}).error is not None


@pytest.mark.req("DEC-ASP-2", "DEC-ASP-3")
def test_failures_too_have_timestamp_and_id_and_ids_are_made_where_there_are_none(space):
    run = space.run({"type": "readFile", "path": "a"}, {"type": "deleteFile", "path": "b", "id": "x"}, {"type": "no"})
    assert [event["operationId"] for event in run["events"]] == ["op-1", "x", "op-3"]
    assert all(RFC3339.fullmatch(event["timestamp"]) for event in run["events"])


@pytest.mark.req("DEC-ASP-3")
def test_two_operations_with_one_id_make_the_message_invalid(space):
    answer = space.post({"type": "message", "content": "a", "id": "x"}, {"type": "message", "content": "b", "id": "x"})
    assert answer.status == 400
    assert "operations[1].id" in answer.json["events"][0]["message"]


@pytest.mark.req("DEC-ASP-1")
def test_an_operation_that_fails_does_not_stop_the_rest(space):
    run = space.run(
        {"type": "readFile", "path": "no"}, {"type": "shell", "command": "false"}, {"type": "message", "content": ""}
    )
    assert [event["success"] for event in run["events"]] == [False, False, True]
    assert run["status"] == "completed"


@pytest.mark.req("ASP-path-1", "ASP-path-2", "ASP-path-3", "ASP-path-4", "DEC-ASP-16")
@pytest.mark.parametrize("type_", ["createFile", "readFile", "editFile", "deleteFile", "shell"])
def test_a_path_that_breaks_a_rule_is_a_validation_error_for_every_operation(space, type_):
    more = {
        "createFile": {"content": "x"},
        "editFile": {"edits": [{"oldContent": "x", "newContent": "y"}]},
        "shell": {"command": "ls"},
    }.get(type_, {})
    field = "cwd" if type_ == "shell" else "path"
    run = space.run(*({"type": type_, field: path, **more} for path in BAD_PATHS))
    assert [(event["type"], event["category"]) for event in run["events"]] == [("error", "validation")] * len(BAD_PATHS)
    assert all(f"operations[{n}].{field}: " in event["message"] for n, event in enumerate(run["events"]))
    assert list(space.folder.iterdir()) == []


@pytest.mark.req("ASP-path-2", "ASP-path-4")
def test_a_path_that_only_looks_odd_is_taken(space):
    odd = ["a..b", "...", "x" * 255, "sub/./file", " spaced name ", "/".join(["é" * 127, "ü" * 127])]
    run = space.run(
        *({"type": "createFile", "path": path, "content": "x"} for path in odd),
        *({"type": "readFile", "path": path} for path in odd),
    )
    assert [event["success"] for event in run["events"]] == [True] * 12


@pytest.mark.req("ASP-path-4")
def test_a_path_that_the_file_system_does_not_take_is_valid_and_fails_there(space):
    """255 characters are a path; that this name has 510 bytes is what the file system has to say."""
    for event in space.run(
        {"type": "createFile", "path": "é" * 255, "content": "x"}, {"type": "readFile", "path": "é" * 255}
    )["events"]:
        assert (event["type"] in ("createFile", "readFile"), event["success"]) == (True, False)
        assert "a name in it has 510 bytes, and this file system takes 255" in event["error"]


@pytest.mark.req("DEC-ASP-21")
@pytest.mark.parametrize(
    ("operation", "field"),
    [
        ({"type": "shell", "command": "x" * 4_097}, "command"),
        ({"type": "message", "content": "x" * 100_001}, "content"),
        ({"type": "shell", "command": "ls", "timeout": 3_600_001}, "timeout"),
        ({"type": "shell", "command": "ls", "timeout": 0}, "timeout"),
        ({"type": "createFile", "path": "big", "content": "x" * (10 * 1024 * 1024 + 1)}, "content"),
    ],
    ids=["command", "message", "timeout", "no timeout", "content"],
)
def test_what_is_over_a_limit_is_a_validation_error_that_names_it(space, operation, field):
    event = space.event(**operation)
    assert (event["type"], event["category"]) == ("error", "validation")
    assert f"operations[0].{field}" in event["message"]


@pytest.mark.req("DEC-ASP-21")
def test_ten_mebibytes_are_written_and_read_over_http(space):
    content = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
    assert space.event(type="createFile", path="big", content=content)["bytesWritten"] == len(content)
    assert space.event(type="readFile", path="big")["content"] == content
