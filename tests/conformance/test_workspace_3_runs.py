"""Agent Spaces: policy, approval, and the life of a run: followed, cancelled, left alone, killed under way."""

import shutil
import signal
import threading

import pytest
from real_house import until
from spaces_peer import Space, need_bubblewrap, person

from inside import memory_house


@pytest.fixture
def own_space(new_house):
    """A space in a daemon that the test may stop, kill and configure."""
    need_bubblewrap()
    made = []

    def make(settings=None) -> Space:
        made.append(Space(new_house(settings)))
        return made[-1]

    yield make
    for space in made:
        # Its daemon is ended by whoever made it.
        shutil.rmtree(space.folder, ignore_errors=True)


def shell(command, **more):
    return {"type": "shell", "command": command, "timeout": 60_000, **more}


SAY = {"type": "message", "content": "done", "id": "said"}


# -- policy ------------------------------------------------------------------------------------------------


@pytest.mark.req("ASP-event-11", "ASP-event-12")
def test_sudo_is_blocked_by_the_default_policy_in_the_words_of_the_specification(space):
    event = space.shell("sudo make install", id="s")
    assert {key: event[key] for key in ("type", "operationType", "reason", "suggestion")} == {
        "type": "policyDenied",
        "operationType": "shell",
        "reason": "Command 'sudo' is blocked",
        "suggestion": "Remove sudo from command",
    }


@pytest.mark.req("ASP-event-9", "ASP-event-10", "ASP-result-2")
def test_a_recursive_forced_delete_pauses_the_run_in_the_words_of_the_specification(space):
    space.write("data/1", "x")
    run = space.run(SAY, shell("rm -rf data/", id="wipe"))
    assert run["status"] == "awaiting_approval"
    event = run["events"][1]
    assert {key: event[key] for key in ("type", "operationId", "operationType", "reason")} == {
        "type": "approvalRequired",
        "operationId": "wipe",
        "operationType": "shell",
        "reason": "Destructive command requires approval",
    }
    assert event["details"]["command"] == "rm -rf data/"
    assert event["details"]["policy"] == "shell.approvalRequired"
    assert (space.folder / "data/1").exists()


@pytest.mark.req("ASP-category-2")
def test_what_a_rule_says_about_an_operation_is_no_error_event(space):
    run = space.run(shell("sudo id"), shell("doas id"), shell("su -c id"))
    assert {event["type"] for event in run["events"]} == {"policyDenied"}


# -- approval ------------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-ASP-12", "DEC-ASP-13", "ASP-result-2")
def test_an_approved_operation_is_executed_once_and_then_the_rest(space):
    space.write("data/1", "x")
    run = space.run(shell("rm -rf data; echo gone >> log", id="wipe"), SAY)
    resumed = space.resume(run)
    assert resumed["status"] == "completed"
    assert [(event["type"], event["operationId"]) for event in resumed["events"]] == [
        ("shell", "wipe"),
        ("message", "said"),
    ]
    assert not (space.folder / "data").exists()
    assert (space.folder / "log").read_text() == "gone\n"
    assert space.show(run) == resumed


@pytest.mark.req("DEC-ASP-13")
def test_a_denied_operation_is_reported_and_the_rest_goes_on(space):
    space.write("data/1", "x")
    resumed = space.resume(space.run(shell("rm -rf data", id="wipe"), SAY), "denied", reason="we need it")
    assert [event["type"] for event in resumed["events"]] == ["policyDenied", "message"]
    assert "we need it" in resumed["events"][0]["reason"]
    assert (space.folder / "data/1").exists()


@pytest.mark.req("DEC-ASP-12")
def test_nobody_but_the_person_answers_not_even_over_http(space):
    run = space.run(shell("rm -rf data", id="wipe"))
    body = {"approval": {"operationId": "wipe", "decision": "approved"}}
    assert space.house.post(space.of(run, "/resume"), body).status == 403
    agent = space.house.register()
    assert space.house.post(space.of(run, "/resume"), body, token=agent.token).status == 403
    assert space.show(run)["status"] == "awaiting_approval"


@pytest.mark.req("DEC-ASP-14")
def test_a_script_that_changed_while_it_waited_is_asked_about_anew(space):
    script = space.write("clean.sh", "rm -rf data\n")
    run = space.run(shell("rm -rf old && sh clean.sh"))
    script.write_text("touch evil\n")
    again = space.resume(run)
    assert again["status"] == "awaiting_approval"
    assert "clean.sh changed" in again["events"][0]["details"]["again"]
    assert not (space.folder / "evil").exists()
    with person(space.house) as link:
        shown = link.call("approvals.show", {"approvalId": again["events"][0]["details"]["approvalId"]})
    assert "clean.sh" in shown["preview"]


@pytest.mark.req("DEC-ASP-15")
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_paused_run_survives_the_daemon_and_goes_on_after_its_approval(own_space, end):
    space = own_space({"durability": "fsync"})
    space.write("data/1", "x")
    run = space.run(SAY, shell("rm -rf data; echo once >> log", id="wipe"))
    getattr(space.house, end)()
    space.house.start()
    assert space.show(run) == run
    assert space.resume(run)["status"] == "completed"
    assert (space.folder / "log").read_text() == "once\n"


# -- the life of a run ------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-ASP-4")
def test_a_cancelled_run_is_an_error_its_processes_are_gone_and_its_record_stays(space):
    run = space.run(shell("setsid sleep 27.1828 & sleep 27.1828"), SAY, waitMs=0)
    assert run["status"] == "running"
    until(lambda: space.processes("sleep 27.1828"), "the command")
    cancelled = space.house.post(space.of(run, "/cancel"), {"reason": "enough"}).json
    assert cancelled["status"] == "error"
    assert cancelled["events"][0]["endedBy"] == "cancelled"
    assert cancelled["events"][1]["category"] == "execution"
    space.gone("sleep 27.1828")
    assert space.show(run) == cancelled


@pytest.mark.req("DEC-ASP-7")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_a_waiting_client_that_leaves_takes_its_run_along(space, door):
    number = f"16.18{len(door)}"
    message = {"protocolVersion": "1.0", "operations": [shell(f"sleep {number}")]}
    connection = space.house.begin("POST", f"{space.at}/runs", message, door=door)
    until(lambda: space.processes(f"sleep {number}"), "the command")
    connection.close()
    space.gone(f"sleep {number}")
    (view,) = until(lambda: [each for each in space.house.get(f"{space.at}/runs").json if "endedAt" in each], "the end")
    assert view["status"] == "cancelled"


@pytest.mark.req("DEC-ASP-7")
def test_with_waitms_the_run_lives_by_itself(space):
    run = space.run(shell("sleep 0.3; echo late > late.txt"), waitMs=1)
    assert run["status"] == "running"
    assert space.ended(run)["status"] == "completed"
    assert (space.folder / "late.txt").exists()


@pytest.mark.req("DEC-ASP-6")
def test_runs_that_change_a_space_take_turns_and_reading_goes_on(space):
    space.write("a.txt", "x")
    first = space.run(shell("echo 1 >> order; sleep 0.5; echo 2 >> order"), waitMs=0)
    until((space.folder / "order").exists, "the first run")
    second = space.run(shell("echo 3 >> order"), waitMs=0)
    assert space.event(type="readFile", path="a.txt")["content"] == "x"
    assert space.show(first)["status"] == "running"
    space.ended(first)
    space.ended(second)
    assert (space.folder / "order").read_text() == "1\n2\n3\n"


@pytest.mark.req("DEC-ASP-8")
def test_a_run_under_way_when_the_daemon_is_killed_is_unknown_and_not_repeated(own_space):
    space = own_space({"durability": "fsync"})
    made = {"type": "createFile", "path": "made.txt", "content": "x", "id": "made"}
    run = space.run(made, shell("echo ran >> log; sleep 14.1421", id="slow"), SAY, waitMs=0)
    log = space.folder / "log"
    # The shell makes the file before it writes to it.
    until(lambda: log.exists() and log.read_text(), "the command")
    space.house.kill()
    space.gone("sleep 14.1421")
    space.house.start()
    shown = space.show(run)
    assert shown["status"] == "error"
    assert [event["operationId"] for event in shown["events"]] == ["made", "slow", "said"]
    assert shown["events"][0]["success"] is True
    assert shown["events"][1]["message"].startswith("unknown: may have run")
    assert shown["events"][2]["message"].startswith("not run")
    assert log.read_text() == "ran\n"


@pytest.mark.req("ASP-category-4")
def test_a_run_that_works_too_long_is_a_timeout(own_space):
    space = own_space({"max_run_ms": 400})
    run = space.run(shell("sleep 17.3205"), SAY)
    assert run["status"] == "error"
    assert run["events"][1]["category"] == "timeout"
    space.gone("sleep 17.3205")


@pytest.mark.req("ASP-category-5")
def test_a_full_disk_is_a_system_error():
    with memory_house(directories=["/work"], disk_full=True) as call:
        space = call("local", "spaces.open", {"path": "/work"})["spaceId"]
        message = {"protocolVersion": "1.0", "operations": [{"type": "createFile", "path": "a", "content": "x"}]}
        (event,) = call("local", "runs.start", {"spaceId": space, **message})["events"]
    assert (event["type"], event["category"]) == ("error", "system")


@pytest.mark.req("ASP-event-13")
def test_an_error_has_category_message_and_details(space):
    event = space.event(type="dance")
    assert set(event) == {"type", "timestamp", "operationId", "category", "message", "details"}
    assert isinstance(event["details"], dict)


@pytest.mark.req("DEC-ASP-11")
def test_without_a_sandbox_because_the_settings_say_so_every_shell_event_says_so(own_space):
    space = own_space({"sandbox": "none"})
    event = space.shell("echo bare; sleep 11.2358 &")
    assert (event["stdout"], event["sandbox"]) == ("bare\n", "none")
    space.gone("sleep 11.2358")


# -- following over HTTP ------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-ASP-7")
def test_a_run_is_followed_live_and_a_reader_may_come_back(space):
    gate = space.folder / "go"
    run = space.run(shell("echo first; while ! test -e go; do sleep 0.02; done; echo second >&2"), SAY, waitMs=0)
    with space.stream(run) as stream:
        items = iter(stream)
        name, item = next(items)
        assert (name, item["text"]) == ("stdout", "first\n")
        # It came while the command still runs.
        assert space.show(run)["status"] == "running"
        gate.touch()
        rest = [(name, item.get("text") or item.get("status") or item["event"]["type"]) for name, item in items]
    assert rest == [("stderr", "second\n"), ("event", "shell"), ("event", "message"), ("status", "completed")]
    with space.stream(run, since=item["seq"]) as again:
        assert [name for name, _ in again] == ["stderr", "event", "event", "status"]


@pytest.mark.req("DEC-ASP-4")
def test_a_stopping_daemon_ends_its_runs_and_answers_waiting_callers(own_space):
    space = own_space()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(space.post(shell("sleep 22.3606"), SAY)))
    waiting.start()
    until(lambda: space.processes("sleep 22.3606"), "the command")
    space.house.signal(signal.SIGTERM)
    assert space.house.ended() == 0
    waiting.join()
    assert answers[0].json["status"] == "error"
    space.gone("sleep 22.3606")


def test_commands_do_not_see_each_others_spaces(space, own_space):
    other = own_space()
    other.write("secret", "x")
    assert space.shell(f"cat {other.folder}/secret")["success"] is False
    assert other.shell("cat secret")["stdout"] == "x"
