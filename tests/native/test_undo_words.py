"""The words of `bascule undo`, `redo`, `log` and `show`: two clients and a person work in one project, and what is not
meant stays byte for byte."""

import os
from datetime import UTC, datetime

import pytest

from bascule.client import SyncClient
from undo_place import CONFLICT, NOT_FOUND, USAGE, left, paths, register, with_back

# -- which work --


def test_undo_takes_back_the_last_run_here_and_nothing_else(place):
    place.claude.run("sed -i s/value/claude/ src/m5.py")
    was = place.look()
    run = place.codex.run("sed -i s/value/codex/ src/m6.py; rm src/m7.py; mkdir made; echo x > made/new")["runId"]
    place.codex.run("git status; ls")
    place.person("notes.txt", "a person's\n")
    now = place.look()
    output = place.done("undo")
    assert place.look() == with_back(now, was, "src/m6.py", "src/m7.py", "made", "made/new")
    assert f"put back 3 files of {run} (codex: " in output
    assert "to take this undo back: bascule redo" in output


def test_undo_twice_takes_back_the_run_before_it(place):
    was = place.look()
    place.claude.run("echo claude > src/m5.py")
    place.codex.run("echo codex > src/m6.py")
    place.done("undo")
    place.done("undo")
    assert place.look() == was
    assert "there is nothing to take back" in place.refused("undo", code=NOT_FOUND)


def test_undo_of_a_run_takes_back_that_run_alone(place):
    was = place.look()
    run = place.claude.run("sed -i s/value/claude/ src/m5.py src/m6.py; rm run.sh; echo x > new")["runId"]
    place.codex.run("sed -i s/value/codex/ src/m7.py; echo y > newer")
    place.person("src/m8.py", "a person's\n")
    now = place.look()
    assert f"of {run} (claude: " in place.done("undo", run)
    assert place.look() == with_back(now, was, "src/m5.py", "src/m6.py", "run.sh", "new")
    assert "was undone already" in place.refused("undo", run, code=CONFLICT)


def test_undo_of_an_undo_does_the_run_again_and_nothing_else(place):
    run = place.claude.run("echo claude > src/m5.py; rm run.sh")["runId"]
    then = place.look()
    place.done("undo", run)
    undo = place.log()[0]["operationId"]
    place.codex.run("echo codex > src/m6.py")
    place.person("src/m8.py", "a person's\n")
    now = place.look()
    assert f"took back {undo}: 2 files changed" in place.done("undo", undo)
    assert place.look() == with_back(now, then, "src/m5.py", "run.sh")


def test_an_unknown_operation_is_refused(place):
    place.claude.run("echo x > new")
    for word in ("run_" + "0" * 20, "undo_" + "0" * 20):
        assert "unknown" in place.refused("undo", word, code=NOT_FOUND)


def test_more_than_one_operation_or_one_with_a_session_is_refused_with_a_hint(place):
    run = place.claude.run("echo x > new")["runId"]
    assert "one operation at a time" in place.refused("undo", run, run, code=USAGE)
    assert "choose several" in place.refused("undo", run, "--session", "claude", code=USAGE)
    assert "not allowed with" in place.refused("undo", "--last", "2h", "--since", "14:00", code=USAGE)


def test_a_clients_name_takes_back_its_newest_session_and_never_an_older_one(place):
    older = place.session("codex", "session-0")
    older.run("echo older > src/m4.py; echo older > old.txt")
    place.codex.run("git status")
    was = place.look()
    place.codex.run("sed -i s/value/codex/ src/m5.py; rm src/m6.py")
    place.claude.run("sed -i s/value/claude/ src/m7.py; echo x > claude.txt")
    place.codex.run("echo more >> src/m5.py; mv run.sh ran.sh")
    place.person("src/m8.py", "a person's\n")
    now = place.look()
    output = place.done("undo", "--session", "codex")
    assert place.look() == with_back(now, was, "src/m5.py", "src/m6.py", "run.sh", "ran.sh")
    assert "session codex: 2 operations" in output
    assert "nothing to take back" in place.refused("undo", "--session", "codex", code=NOT_FOUND)


def test_a_session_is_known_by_its_id_and_by_its_end(place):
    other = place.session("codex", "0199-aaaa-7b2f")
    was = place.look()
    other.run("echo x > src/m5.py")
    place.codex.run("echo y > src/m6.py")
    now = place.look()
    assert "session 7b2f: 1 operation" in place.done("undo", "--session", "7b2f")
    assert place.look() == with_back(now, was, "src/m5.py")
    place.done("redo")
    assert place.look() == now
    place.done("undo", "--session", "0199-aaaa-7b2f")
    assert place.look() == with_back(now, was, "src/m5.py")
    place.done("undo", "--session", "session-2")
    assert place.look() == was


def test_an_end_that_several_sessions_have_is_refused_and_names_them(place):
    for name in ("0199-aaaa-7b2f", "0199-bbbb-7b2f"):
        place.session("codex", name).run(f"echo {name} > {name}")
    output = place.refused("undo", "--session", "7b2f", code=USAGE)
    assert "0199-aaaa-7b2f, 0199-bbbb-7b2f" in output
    assert "give more of the id" in output
    output = place.refused("undo", "--session", "nobody", code=NOT_FOUND)
    assert "codex 0199-aaaa-7b2f" in output


def test_a_whole_session_goes_and_what_others_did_later_to_its_files_stays_and_is_named(place):
    was = place.look()
    place.codex.run("echo codex > src/m5.py; echo codex > src/m6.py; echo codex > src/m7.py")
    place.claude.run("echo claude > src/m5.py")
    place.person("src/m6.py", "a person's\n")
    now = place.look()
    result = place.json("undo", "--session", "codex")
    assert place.look() == with_back(now, was, "src/m7.py")
    assert sorted(left(result)) == ["src/m5.py", "src/m6.py"]
    assert left(result)["src/m6.py"] == "was changed since"
    assert "was changed later by run_" in left(result)["src/m5.py"]
    assert "(claude: " in left(result)["src/m5.py"]


def test_an_agents_handle_takes_back_its_runs_and_the_calls_of_its_session(place):
    ada = register(place, "Ada")
    with SyncClient.connect(place.daemon.state_dir, token=ada) as own:
        event = place.codex.event("UserPromptSubmit", prompt="x")
        own.call("sessions.note", {"client": "codex", "event": event, "pid": os.getpid()})
        was = place.look()
        first = place.codex.run("echo ada > src/m5.py")["runId"]
        place.claude.run("echo claude > src/m6.py")
        second = place.codex.run("rm run.sh")["runId"]
        now = place.look()
        result = place.json("undo", "--agent", "Ada")
    assert result["operations"] == [second, first]
    assert place.look() == with_back(now, was, "src/m5.py", "run.sh")
    assert "nothing to take back" in place.refused("undo", "--agent", "Ada", code=NOT_FOUND)
    assert "nothing to take back" in place.refused("undo", "--agent", "Nobody", code=NOT_FOUND)


# -- since when --


def seconds(operation):
    return datetime.fromisoformat(operation["startedAt"]).replace(microsecond=0)


def in_another_second(place):
    """Runs until one begins in a later second than the first: the beginning of that second."""
    first = place.log()[-1]
    while seconds(place.log()[0]) == seconds(first):
        place.codex.run("date +%N > tick")
    return seconds(place.log()[0])


def clock(moment, hour=14):
    """A time zone in which it is, or was, that hour at this moment."""
    west = moment.hour * 3600 + moment.minute * 60 + moment.second - hour * 3600
    return f"XXX{'-' if west < 0 else ''}{abs(west) // 3600}:{abs(west) // 60 % 60:02}:{abs(west) % 60:02}"


@pytest.mark.parametrize("form", ["clock", "date", "date with its zone"])
def test_since_a_time_takes_back_only_what_began_then_or_later(place, form):
    place.codex.run("echo before > src/m5.py")
    moment = in_another_second(place)
    later = [each["operationId"] for each in place.log() if seconds(each) >= moment]
    place.codex.run("echo after > src/m6.py")
    place.claude.run("echo claude > src/m7.py")
    later[:0] = [each["operationId"] for each in place.log()[1:2]]
    now = place.look()
    word = {"clock": "14:00", "date": moment.isoformat()[:19], "date with its zone": moment.isoformat()}[form]
    zone = clock(moment) if form == "clock" else "UTC"
    result = place.json("undo", "--session", "codex", "--since", word, TZ=zone)
    assert result["operations"] == later
    assert paths(result["changes"]) == ["src/m6.py", "tick"]
    assert (place.root / "src" / "m6.py").read_text() == "value = 6\n"
    assert with_back(place.look(), now, "src/m6.py", "tick") == now


def test_a_time_that_is_still_to_come_today_was_yesterday(place):
    was = place.look()
    place.codex.run("echo x > src/m5.py")
    place.done("undo", "--since", "14:00", TZ=clock(datetime.now(UTC), 12))
    assert place.look() == was


def test_last_takes_back_what_began_so_long_ago_at_most(place):
    was = place.look()
    place.codex.run("echo x > src/m5.py")
    place.claude.run("echo y > src/m6.py")
    now = place.look()
    assert "nothing to take back" in place.refused("undo", "--last", "0s", code=NOT_FOUND)
    place.done("undo", "--session", "codex", "--last", "2h")
    assert place.look() == with_back(now, was, "src/m5.py")
    place.done("undo", "--last", "1d")
    assert place.look() == was


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "tomorrow"),
        ("--since", "25:00"),
        ("--since", "14:60"),
        ("--since", ""),
        ("--since", "0001-01-01"),
        ("--since", "run_01"),
        ("--last", "soon"),
        ("--last", "2"),
        ("--last", "2 h"),
        ("--last", "999999d"),
        ("--last", ""),
    ],
)
def test_a_time_that_is_none_is_refused_with_an_example(place, words):
    place.codex.run("echo x > src/m5.py")
    output = place.refused("undo", *words, code=USAGE)
    assert "as in " in output
    assert repr(words[1]) in output


# -- files --


def test_a_file_takes_back_the_last_run_that_changed_it_and_again_one_further_back(place):
    was = place.look()
    first = place.claude.run("echo claude > src/m5.py; echo claude > src/m6.py")["runId"]
    then = place.look()
    second = place.codex.run("echo codex > src/m5.py; echo codex > src/m7.py")["runId"]
    place.claude.run("echo other > src/m8.py")
    now = place.look()
    assert f"of {second} (codex: " in place.done("undo", "src/m5.py")
    assert place.look() == with_back(now, then, "src/m5.py")
    assert f"of {first} (claude: " in place.done("undo", "src/m5.py")
    assert place.look() == with_back(now, was, "src/m5.py")
    assert "src/m5.py" in place.refused("undo", "src/m5.py", code=NOT_FOUND)
    # And back, one by one.
    place.done("redo")
    assert place.look() == with_back(now, then, "src/m5.py")
    place.done("redo")
    assert place.look() == now


def test_a_file_is_named_from_where_the_person_stands(place):
    was = place.look()
    place.codex.run("echo codex > src/m5.py; echo codex > src/m6.py")
    now = place.look()
    place.done("undo", "m5.py", cwd=place.root / "src")
    assert place.look() == with_back(now, was, "src/m5.py")
    place.done("undo", str(place.root / "src" / "m6.py"), cwd=place.root / "tests")
    assert place.look() == was


def test_a_file_that_a_run_deleted_or_moved_comes_back_by_its_name(place):
    was = place.look()
    place.codex.run("rm run.sh; mv src/m5.py src/moved.py; echo x > new")
    now = place.look()
    place.done("undo", "run.sh")
    assert place.look() == with_back(now, was, "run.sh")
    place.done("undo", "src/m5.py", "src/moved.py")
    assert place.look() == with_back(now, was, "run.sh", "src/m5.py", "src/moved.py")


def test_a_file_whose_name_begins_as_an_operation_does_is_a_file(place):
    was = place.look()
    place.claude.run("echo x > run_tests; mkdir undo_all; echo x > undo_all/a; echo x > src/m5.py")
    now = place.look()
    place.done("undo", "run_tests")
    assert place.look() == with_back(now, was, "run_tests")
    place.done("undo", "undo_all")
    assert place.look() == with_back(now, was, "run_tests", "undo_all", "undo_all/a")


def test_a_project_is_found_through_a_link_to_it(place):
    was = place.look()
    link = place.root.parent / "link"
    link.symlink_to(place.root)
    place.claude.run("echo x > src/m5.py; echo x > src/m6.py; echo x > src/m7.py")
    now = place.look()
    place.done("undo", "src/m5.py", cwd=link)
    place.done("undo", str(link / "src" / "m6.py"))
    assert place.look() == with_back(now, was, "src/m5.py", "src/m6.py")
    place.done("undo", str(link))
    assert place.look() == was


def test_a_link_in_the_project_is_named_itself_and_not_what_it_leads_to(place):
    was = place.look()
    place.claude.run("rm link; ln -s src/m9.py link; echo x > src/m1.py")
    now = place.look()
    place.done("undo", "link")
    assert place.look() == with_back(now, was, "link")


def test_a_directory_takes_back_the_last_run_that_changed_something_in_it(place):
    was = place.look()
    place.claude.run("rm -r src/deep; echo claude > src/m5.py; echo claude > run.sh")
    then = place.look()
    place.codex.run("echo codex > src/m5.py; echo codex > src/new.py; echo codex > private")
    place.codex.run("echo other > link2")
    now = place.look()
    in_src = [path for path in {**was[0], **now[0]} if path.startswith("src/")]
    place.done("undo", "src/")
    assert place.look() == with_back(now, then, *in_src)
    place.done("undo", "src")
    assert place.look() == with_back(now, was, *in_src)


def test_the_project_itself_is_a_directory_too(place):
    was = place.look()
    place.claude.run("rm -r src/deep; echo claude > src/m5.py; echo claude > run.sh")
    place.done("undo", ".")
    assert place.look() == was


def test_a_persons_edit_since_stays_in_a_file_that_is_named(place):
    was = place.look()
    place.codex.run("echo codex > src/m5.py; echo codex > src/m6.py")
    place.person("src/m5.py", "a person's\n")
    now = place.look()
    result = place.json("undo", "src/m5.py", "src/m6.py")
    assert place.look() == with_back(now, was, "src/m6.py")
    assert left(result) == {"src/m5.py": "was changed since"}
    output = place.done("undo", "src/m5.py")
    assert "left alone src/m5.py: was changed since" in output
    assert place.look() == with_back(now, was, "src/m6.py")


def test_a_run_and_a_file_take_back_what_that_run_did_to_the_file(place):
    was = place.look()
    run = place.claude.run("echo claude > src/m5.py; echo claude > src/m6.py")["runId"]
    place.codex.run("echo codex > src/m7.py")
    now = place.look()
    place.done("undo", run, "src/m5.py")
    assert place.look() == with_back(now, was, "src/m5.py")
    # The run as a whole can still be taken back.
    place.done("undo", run)
    assert place.look() == with_back(now, was, "src/m5.py", "src/m6.py")


def test_a_session_and_a_directory_take_back_what_the_session_did_there(place):
    was = place.look()
    place.codex.run("echo codex > src/m5.py; echo codex > run.sh")
    place.codex.run("echo more >> src/m5.py; echo x > tests/new")
    place.claude.run("echo claude > src/m6.py")
    now = place.look()
    place.done("undo", "--session", "codex", "src")
    assert place.look() == with_back(now, was, "src/m5.py")


def test_a_file_outside_of_the_project_is_refused_with_its_name(place):
    place.codex.run("echo codex > src/m5.py")
    outside = place.root.parent / "outside"
    outside.write_text("x")
    for word in (str(outside), "../outside", "/etc/passwd"):
        output = place.refused("undo", word, code=USAGE)
        assert f"{word} is not in {place.root}" in output
    assert outside.read_text() == "x"


def test_where_no_agent_has_worked_there_is_nothing_to_take_back_and_it_is_said(place, tmp_path):
    place.codex.run("echo codex > src/m5.py")
    for words in (("undo",), ("undo", "run.sh"), ("redo",), ("log",), ("undo", "--session", "codex")):
        output = place.refused(*words, code=NOT_FOUND, cwd=tmp_path)
        assert f"no agent has worked in {tmp_path}" in output
        assert "bascule spaces" in output


def test_a_run_is_taken_back_from_anywhere_by_its_id(place, tmp_path):
    was = place.look()
    run = place.codex.run("echo codex > src/m5.py")["runId"]
    place.done("undo", run, cwd=tmp_path)
    assert place.look() == was


# -- up to, merge, dry run --


def test_to_an_operation_takes_back_everything_after_it(place):
    place.claude.run("echo claude > src/m5.py")
    keep = place.codex.run("echo codex > src/m6.py")["runId"]
    was = place.look()
    gone = place.claude.run("echo claude > src/m6.py; rm -r src/deep")["runId"]
    place.codex.run("echo codex > src/m7.py; echo x > new")
    place.done("undo", gone)
    place.claude.run("echo last > src/m9.py")
    place.person("notes.txt", "a person's\n")
    now = place.look()
    output = place.done("undo", "--to", keep)
    assert f"after {keep}: " in output
    files = [path for path in {**was[0], **now[0]} if path != "notes.txt"]
    assert place.look() == with_back(now, was, *files)
    assert "nothing to take back" in place.refused("undo", "--to", place.log()[0]["operationId"], code=NOT_FOUND)


LINES = [f"line {number}\n" for number in range(1, 21)]


@pytest.fixture
def edited(place):
    """A file of twenty lines: claude edits the second, and another one beside it; codex the one before the last."""
    place.person("text", "".join(LINES))
    run = place.claude.run("sed -i 's/line 2$/claude/' text; echo claude > src/m5.py")["runId"]
    place.codex.run("sed -i 's/line 19$/codex/' text")
    return place, run


def test_without_merge_a_file_that_another_edited_later_stays_and_is_named(edited):
    place, run = edited
    now = place.look()
    result = place.json("undo", run)
    assert place.look()[0]["text"] == now[0]["text"]
    assert (place.root / "src" / "m5.py").read_text() == "value = 5\n"
    assert sorted(left(result)) == ["text"]
    assert left(result)["text"].startswith("was changed later by run_")


def test_with_merge_the_lines_of_the_other_stay(edited):
    place, run = edited
    now = place.look()
    result = place.json("undo", run, "--merge")
    assert left(result) == {} or "not merged" not in left(result)["text"]
    wanted = [*LINES[:18], "codex\n", LINES[19]]
    assert (place.root / "text").read_text() == "".join(wanted)
    assert with_back(place.look(), now, "text", "src/m5.py") == now
    place.done("redo")
    assert place.look() == now


def test_a_conflict_of_a_merge_is_named_with_its_lines_and_nothing_of_it_is_written(edited):
    place, run = edited
    place.codex.run("sed -i 's/claude/codex too/' text")
    now = place.look()
    result = place.json("undo", run, "--merge")
    assert place.look()[0]["text"] == now[0]["text"]
    assert "<<<<" not in (place.root / "text").read_text()
    assert "not merged: " in left(result)["text"]
    assert "line 2" in left(result)["text"]
    # The rest comes back.
    assert paths(result["changes"]) == ["src/m5.py"]


def test_a_dry_run_of_every_word_changes_nothing_and_says_what_the_undo_then_does(edited):
    place, run = edited
    keep = place.log()[-1]["operationId"]
    place.codex.run("rm -r tests; mkdir made; echo x > made/new; git commit -qam more")
    place.person("src/m5.py", "a person's\n")
    place.claude.run("mv src/m6.py src/moved.py")
    place.done("undo")
    undo = place.log()[0]["operationId"]
    rows = [
        ("undo",), ("undo", run), ("undo", undo), ("undo", "--session", "codex"), ("undo", "--session", "session-1"),
        ("undo", "--since", "2020-01-01"), ("undo", "--last", "2h"), ("undo", "text"), ("undo", "src", "tests"),
        ("undo", run, "text"), ("undo", "--to", keep), ("undo", run, "--merge"),
        ("undo", "--session", "claude", "--merge"), ("redo",), ("redo", undo),
    ]  # fmt: skip
    did = 0
    for words in rows:
        now, log = place.look(), place.log()
        dry = place.json(*words, "--dry-run")
        assert (place.look(), place.log()) == (now, log), words
        assert "takenBackBy" not in dry, words
        output = place.done(*words, "--dry-run")
        assert "would put back " in output or "would take back " in output, words
        assert place.look() == now, words
        real = place.json(*words)
        assert (dry.pop("dryRun", True), real.pop("dryRun", False)) == (True, False), words
        taken_back_by = real.pop("takenBackBy", None)
        if "--last" in words:
            # It is said since when.
            del dry["what"], real["what"]
        assert dry == real, words
        if taken_back_by is None:
            # What was taken back by hand may count as undone from now on.
            assert (place.look(), len(place.log())) == (now, len(log)), words
            continue
        did += 1
        assert place.look() != now, words
        # And what it did is taken back to the last byte: the next word begins where this one did.
        place.done("undo", place.log()[0]["operationId"])
        assert place.look() == now, words
    assert did > len(rows) / 2


# -- redo --


def test_redo_takes_back_the_last_undo_and_nothing_else(place):
    place.codex.run("echo codex > src/m5.py; rm run.sh")
    now = place.look()
    place.done("undo")
    place.claude.run("echo claude > src/m6.py")
    place.person("notes.txt", "a person's\n")
    later = place.look()
    output = place.done("redo")
    assert place.look() == with_back(later, now, "src/m5.py", "run.sh")
    assert f"to take this undo back: bascule undo {place.log()[0]['operationId']}" in output


def test_redo_twice_goes_one_undo_further_back_and_then_says_that_there_is_none(place):
    was = place.look()
    place.claude.run("echo claude > src/m5.py")
    then = place.look()
    place.codex.run("echo codex > src/m6.py")
    now = place.look()
    place.done("undo")
    place.done("undo")
    assert place.look() == was
    place.done("redo")
    assert place.look() == then
    place.done("redo")
    assert place.look() == now
    output = place.refused("redo", code=NOT_FOUND)
    assert "there is no undo here to take back" in output
    assert "bascule log" in output


def test_redo_of_an_undo_takes_back_that_one(place):
    was = place.look()
    first = place.claude.run("echo claude > src/m5.py")["runId"]
    second = place.codex.run("echo codex > src/m6.py")["runId"]
    now = place.look()
    place.done("undo", second)
    undo = place.log()[0]["operationId"]
    place.done("undo", first)
    assert place.look() == was
    place.done("redo", undo)
    assert place.look() == with_back(was, now, "src/m6.py")
    assert "was undone already" in place.refused("redo", undo, code=CONFLICT)
    assert "unknown undo" in place.refused("redo", first, code=NOT_FOUND)


def test_undo_after_redo_takes_the_run_back_once_more_and_again(place):
    was = place.look()
    run = place.codex.run("echo codex > src/m5.py; rm run.sh")["runId"]
    now = place.look()
    for words in (("undo",), ("undo", run)):
        place.done(*words)
        assert place.look() == was
        place.done("redo")
        assert place.look() == now
    place.done("undo", run)
    assert place.look() == was
    assert [each["kind"] for each in place.log()] == ["undo", "redo", "undo", "redo", "undo", "run"]


def test_a_redo_leaves_alone_what_was_changed_since_its_undo(place):
    place.codex.run("echo codex > src/m5.py; echo codex > src/m6.py")
    then = place.look()
    place.done("undo")
    place.person("src/m5.py", "a person's\n")
    now = place.look()
    result = place.json("redo")
    assert left(result) == {"src/m5.py": "was changed since"}
    assert place.look() == with_back(now, then, "src/m6.py")


def test_an_undo_that_puts_back_nothing_is_no_operation_and_costs_nothing(place):
    run = place.codex.run("echo codex > src/m5.py")["runId"]
    place.person("src/m5.py", "a person's\n")
    now, log = place.look(), place.log()
    for words in (("undo",), ("undo", run), ("undo", "--session", "codex"), ("undo", "src/m5.py")):
        result = place.json(*words)
        assert (result["changes"], left(result)) == ([], {"src/m5.py": "was changed since"})
        assert "takenBackBy" not in result
        assert "put back 0 files" in place.done(*words)
    assert (place.look(), place.log()) == (now, log)
    assert "no undo here to take back" in place.refused("redo", code=NOT_FOUND)
    # The run can still be taken back, once what it left is there again.
    place.person("src/m5.py", "codex\n")
    place.done("undo")
    assert (place.root / "src" / "m5.py").read_text() == "value = 5\n"


# -- log, show --


def test_the_log_lists_runs_undos_and_redos_with_who_and_what(place):
    first = place.claude.run("echo claude > src/m5.py")["runId"]
    second = place.codex.run("echo codex > src/m6.py; rm run.sh")["runId"]
    place.done("undo", first)
    place.done("redo")
    place.done("undo", second)
    views = place.json("log")
    undo, redo, undone, *_ = [each["operationId"] for each in views]
    assert [each["kind"] for each in views] == ["undo", "redo", "undo", "run", "run"]
    assert [each.get("parent") for each in views] == [redo, undone, second, first, None]
    assert [each.get("undoes", []) for each in views] == [[second], [undone], [first], [], []]
    assert [each["files"] for each in views] == [2, 1, 1, 2, 1]
    state = {each["operationId"]: (each.get("undone", False), each.get("undoneBy")) for each in views}
    assert state == {
        undo: (False, None), redo: (False, None), undone: (True, redo), second: (True, undo), first: (False, None)
    }  # fmt: skip
    native = {each["operationId"]: each.get("native") for each in views}
    assert native[first] | {"title": ""} == {"client": "claude", "session": "session-1", "tool": "Bash", "title": ""}
    lines = place.bascule("log").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [each["operationId"] for each in views]
    assert f"(undone by {undo})" in lines[4]
    assert "codex" in lines[4]
    assert "echo codex > src/m6.py; rm run.sh" in lines[4]
    assert len(place.bascule("log", "-n", "2").stdout.splitlines()) == 3


def test_the_log_of_a_file_a_directory_a_session_or_an_agent_has_only_those(place):
    first = place.claude.run("echo claude > src/m5.py")["runId"]
    second = place.codex.run("echo codex > src/m6.py; rm run.sh")["runId"]
    place.done("undo", second)
    undo = place.log()[0]["operationId"]

    def ids(*words, **more):
        return [each["operationId"] for each in place.json("log", *words, **more)]

    assert ids("src/m5.py") == [first]
    assert ids("run.sh") == [undo, second]
    assert ids("src") == [undo, second, first]
    assert ids(".", cwd=place.root / "src") == [undo, second, first]
    assert ids("m5.py", cwd=place.root / "src") == [first]
    assert ids("tests") == []
    assert "nothing was done here" in place.done("log", "tests")
    assert ids("--session", "codex") == [second]
    assert ids("--session", "session-1") == [first]
    assert ids("--session", "claude", "run.sh") == []
    assert ids("--agent", "Ada") == []
    output = place.refused("log", "/etc/passwd", code=USAGE)
    assert f"/etc/passwd is not in {place.root}" in output


def test_show_has_who_when_and_the_diff_of_a_run_and_of_an_undo(place):
    run = place.codex.run("sed -i 's/value = 5/codex = 5/' src/m5.py; rm run.sh")["runId"]
    place.person("src/m6.py", "a person's\n")
    place.done("undo", run)
    undo = place.log()[0]["operationId"]
    output = place.done("show", run)
    assert f"run:   {run}" in output
    assert "codex, session session-2" in output
    assert "-value = 5\n+codex = 5" in output
    assert f"(undone by {undo})" in output
    assert "m6.py" not in output
    output = place.done("show", undo)
    assert f"undo:  {undo}" in output
    assert f"undo of {run}" in output
    assert "-codex = 5\n+value = 5" in output
    assert "m6.py" not in output
    shown = place.json("show", undo)
    assert shown["operation"]["undoes"] == [run]
    assert paths(shown["diff"]["changes"]) == ["run.sh", "src/m5.py"]
    shown = place.json("show", run)
    assert shown["operation"]["operationId"] == run
    assert paths(shown["diff"]["changes"]) == ["run.sh", "src/m5.py"]
    assert "unknown" in place.refused("show", "run_" + "0" * 20, code=NOT_FOUND)
