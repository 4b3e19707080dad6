"""Agent Spaces: the operations and their events, with real files and real commands in the real sandbox."""

import base64

import pytest

from inside import memory_house, parse_operation


@pytest.mark.req("ASP-op-3", "ASP-op-4", "ASP-event-2", "DEC-ASP-17")
def test_a_file_is_created_with_its_directories_and_its_bytes_are_counted(space):
    event = space.event(type="createFile", id="c", path="src/deep/grüße.txt", content="grüße\n")
    assert set(event) == {"type", "timestamp", "operationId", "path", "success", "bytesWritten"}
    assert (event["path"], event["bytesWritten"]) == ("src/deep/grüße.txt", 8)
    assert (space.folder / "src/deep/grüße.txt").read_text("utf-8") == "grüße\n"


@pytest.mark.req("ASP-op-5")
def test_base64_content_becomes_bytes(space):
    data = bytes(range(256))
    event = space.event(type="createFile", path="all.bin", content=base64.b64encode(data).decode(), encoding="base64")
    assert event["bytesWritten"] == 256
    assert (space.folder / "all.bin").read_bytes() == data


@pytest.mark.req("ASP-op-6", "ASP-event-3")
def test_an_existing_file_is_kept_unless_overwrite_says_otherwise(space):
    space.write("a.txt", "old")
    failed = space.event(type="createFile", path="a.txt", content="new")
    assert (failed["success"], failed["error"], failed["path"]) == (False, "File already exists", "a.txt")
    assert (space.folder / "a.txt").read_text() == "old"
    assert space.event(type="createFile", path="a.txt", content="new", overwrite=True)["success"]
    assert (space.folder / "a.txt").read_text() == "new"


@pytest.mark.req("ASP-op-7", "ASP-op-8", "ASP-event-4", "DEC-ASP-18")
def test_a_file_is_read_with_encoding_and_size_in_bytes(space):
    space.write("config.json", '{"name": "Ärger"}')
    event = space.event(type="readFile", id="r", path="config.json")
    assert set(event) == {"type", "timestamp", "operationId", "path", "success", "content", "encoding", "size"}
    assert (event["content"], event["encoding"], event["size"]) == ('{"name": "Ärger"}', "utf-8", 18)
    as_base64 = space.event(type="readFile", path="config.json", encoding="base64")
    assert base64.b64decode(as_base64["content"]).decode() == '{"name": "Ärger"}'
    assert (as_base64["encoding"], as_base64["size"]) == ("base64", 18)


@pytest.mark.req("DEC-ASP-18")
def test_other_bytes_than_utf8_are_not_read_as_text(space):
    (space.folder / "image").write_bytes(b"\x89PNG\xff")
    event = space.event(type="readFile", path="image")
    assert event["success"] is False
    assert "base64" in event["error"]


@pytest.mark.req("ASP-op-9", "ASP-op-10", "ASP-event-5", "DEC-ASP-19")
def test_edits_apply_to_a_file_that_exists_all_or_none(space):
    path = space.write("app.py", "one = 1\ntwo = 2\n")
    edits = [{"oldContent": "one = 1", "newContent": "one = 11"}, {"oldContent": "two = 2", "newContent": "two = 22"}]
    event = space.event(type="editFile", path="app.py", edits=edits)
    assert (event["success"], event["editsApplied"]) == (True, 2)
    assert path.read_text() == "one = 11\ntwo = 22\n"
    failed = space.event(
        type="editFile",
        path="app.py",
        edits=[{"oldContent": "one", "newContent": "x"}, {"oldContent": "nine", "newContent": ""}],
    )
    assert failed["success"] is False
    assert path.read_text() == "one = 11\ntwo = 22\n"
    assert space.event(type="editFile", path="new.py", edits=edits)["success"] is False


@pytest.mark.req("DEC-ASP-19")
def test_an_edit_that_could_mean_two_places_changes_neither(space):
    path = space.write("app.py", "x = 1\nx = 1\n")
    event = space.event(type="editFile", path="app.py", edits=[{"oldContent": "x = 1", "newContent": "x = 2"}])
    assert event["success"] is False
    assert path.read_text() == "x = 1\nx = 1\n"


@pytest.mark.req("ASP-op-11", "ASP-event-6", "DEC-ASP-17")
def test_a_file_is_deleted_and_a_directory_is_not(space):
    space.write("dir/temp.txt", "")
    event = space.event(type="deleteFile", id="d", path="dir/temp.txt")
    assert {key: event[key] for key in ("operationId", "path", "success")} == {
        "operationId": "d",
        "path": "dir/temp.txt",
        "success": True,
    }
    assert not (space.folder / "dir/temp.txt").exists()
    assert space.event(type="deleteFile", path="dir")["success"] is False
    assert (space.folder / "dir").is_dir()


@pytest.mark.req("DEC-ASP-16")
def test_a_link_that_leaves_the_workspace_is_refused_when_it_is_opened(space, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("outside")
    (space.folder / "link").symlink_to(secret)
    (space.folder / "dir").symlink_to(tmp_path)
    for path in ("link", "dir/secret"):
        event = space.event(type="readFile", path=path)
        assert event["success"] is False
        assert "outside" not in str(event.get("content"))
    space.event(type="createFile", path="dir/planted", content="x")
    space.event(type="createFile", path="link", content="x", overwrite=True)
    assert (sorted(path.name for path in tmp_path.iterdir()), secret.read_text()) == (["secret"], "outside")


# -- shell -----------------------------------------------------------------------------------------------


@pytest.mark.req("ASP-op-12", "ASP-event-7", "DEC-ASP-5")
def test_a_command_is_executed_and_told_with_both_outputs(space):
    event = space.shell("echo out; echo err >&2; exit 3", id="s")
    assert {key: event[key] for key in ("operationId", "command", "success", "exitCode", "stdout", "stderr")} == {
        "operationId": "s",
        "command": "echo out; echo err >&2; exit 3",
        "success": False,
        "exitCode": 3,
        "stdout": "out\n",
        "stderr": "err\n",
    }
    assert event["durationMs"] >= 0
    assert space.shell("true")["success"] is True


@pytest.mark.req("ASP-op-13")
def test_a_command_runs_in_the_workspace_or_in_the_directory_it_names(space):
    (space.folder / "sub").mkdir()
    assert space.shell("pwd")["stdout"] == f"{space.folder}\n"
    assert space.shell("pwd", cwd="sub")["stdout"] == f"{space.folder}/sub\n"
    assert space.shell("pwd", cwd=".")["stdout"] == f"{space.folder}\n"


@pytest.mark.req("ASP-op-15")
def test_a_command_gets_the_variables_it_is_given_and_not_the_daemons(space):
    event = space.shell('echo "$GREETING-$BASCULE_LOG-${PATH:+path}"', env={"GREETING": "hallo"})
    assert event["stdout"] == "hallo--path\n"


@pytest.mark.req("ASP-op-14", "ASP-event-8", "DEC-ASP-23")
def test_a_command_that_runs_too_long_ends_with_124_keeps_its_output_and_leaves_nothing(space):
    event = space.shell("echo begun; setsid sleep 31.4159 & sleep 31.4159", timeout=300)
    assert (event["success"], event["timedOut"], event["exitCode"]) == (False, True, 124)
    assert event["stdout"] == "begun\n"
    assert 300 <= event["durationMs"] < 30_000
    space.gone("sleep 31.4159")


@pytest.mark.req("ASP-op-14")
def test_without_a_timeout_a_command_has_thirty_seconds():
    assert parse_operation({"type": "shell", "command": "x"}).timeout == 30_000


@pytest.mark.req("DEC-ASP-20")
def test_a_command_has_no_network_no_input_and_sees_nothing_of_ours(space):
    state = space.house.state
    assert space.shell("cat; echo read nothing")["stdout"] == "read nothing\n"
    assert space.shell(f"ls {state}")["success"] is False
    assert space.shell("cat /proc/net/dev | grep -v lo: | grep -c :")["stdout"] == "0\n"
    assert space.shell("cat /etc/shadow")["success"] is False


@pytest.mark.req("DEC-ASP-22")
def test_of_long_output_head_and_tail_are_reported_and_the_rest_is_found_by_its_process(space):
    event = space.shell("seq 1 400000")
    assert event["truncated"] is True
    assert event["stdout"].startswith("1\n2\n")
    assert event["stdout"].endswith("400000\n")
    assert len(event["stdout"]) < 1_200_000
    page = space.house.get(f"{space.at}/processes/{event['processId']}/logs?offset=1000000&limit=100")
    assert page.status == 200
    whole = "".join(f"{n}\n" for n in range(1, 400_001))
    assert page.json["text"] == whole[1_000_000:1_000_100]
    assert page.json["size"] == len(whole)


@pytest.mark.req("ASP-category-3", "DEC-ASP-11")
def test_without_bubblewrap_a_command_is_an_execution_error_with_its_remedy():
    problem = "bubblewrap is not installed: apt install bubblewrap"
    with memory_house(directories=["/work"], sandbox_problem=problem) as call:
        space = call("local", "spaces.open", {"path": "/work"})
        message = {"protocolVersion": "1.0", "operations": [{"type": "shell", "command": "true"}]}
        (event,) = call("local", "runs.start", {"spaceId": space["spaceId"], **message})["events"]
    assert (event["type"], event["category"]) == ("error", "execution")
    assert event["message"] == space["problem"] == problem
