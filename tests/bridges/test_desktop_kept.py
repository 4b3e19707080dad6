"""What a desktop call leaves behind: nothing of what was typed, and a picture for as long as its question is open."""

import base64
import os
from pathlib import Path

import msgspec
import pytest
from desktop_scene import CLICK, JERRY, SPOCK, TYPE, answer_of

from bascule.bridge_list import tables_of
from bascule.foundation.errors import (
    ApprovalRequired,
    BasculeError,
    Forbidden,
    NotFound,
)
from bascule.stores.picture_files import PictureFiles
from bascule.stores.sqlite import SqliteStore
from bascule.testing.policies import preset
from scripted_host import EDITOR, PICTURE, FakeWindow

WAIT = {"route": EDITOR, "condition": {"selectorExists": {"byRole": "AXSheet"}}}


def test_what_is_typed_is_kept_nowhere_once_it_is_over(make_desktop, tmp_path):
    path = str(tmp_path / "bascule.db")
    desktop = make_desktop(store=SqliteStore(path, tables=tables_of()))
    secrets = ("hunter2-typed", "hunter2-denied", "hunter2-expired", "hunter2-failed", "hunter2-value")
    typed, denied, expired, failed, value = secrets
    desktop.approved("typeText", text=typed, **TYPE)
    desktop.approved("setValue", value=value, **TYPE)
    desktop.decide(desktop.asks("typeText", text=denied, **TYPE), "denied")
    desktop.asks("typeText", text=expired, **TYPE)
    desktop.house.advance(16 * 60)
    desktop.decide(desktop.asks("typeText", text=failed, **TYPE))
    desktop.screen.before = lambda _: desktop.screen.windows.clear()
    with pytest.raises(BasculeError):
        desktop.call("typeText", text=failed, **TYPE)
    shown = msgspec.json.encode(
        [desktop.house.ledger(), desktop.house.log, desktop.house.call("local", "approvals.list", {"all": True})],
        enc_hook=str,
    ).decode()
    # The control: who did it is there.
    assert JERRY in shown
    for secret in secrets:
        assert secret not in shown
    desktop.house.close()
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert JERRY.encode() in stored
    for secret in secrets:
        assert secret.encode() not in stored


def test_a_picture_lives_as_long_as_its_question(make_desktop, tmp_path):
    folder = tmp_path / "pictures"
    desktop = make_desktop(pictures=PictureFiles(str(folder)))
    for end in ("approved", "denied", "expired"):
        question = desktop.asks("click", **CLICK)
        with open(question["picture"], "rb") as file:
            assert file.read() == PICTURE
        assert question["hasPicture"]
        about = {"approvalId": question["approvalId"]}
        blob = desktop.house.call("local", "approvals.picture", about)
        assert (blob["contentType"], base64.b64decode(blob["base64"])) == ("image/png", PICTURE)
        match end:
            case "approved":
                desktop.decide(question)
                desktop.call("click", **CLICK)
            case "denied":
                desktop.decide(question, "denied")
            case "expired":
                desktop.house.advance(16 * 60)
        assert list(folder.iterdir()) == [], end
        with pytest.raises(NotFound, match="has no picture"):
            desktop.house.call("local", "approvals.picture", about)


@pytest.mark.parametrize("what", ["nothing", "a link", "another file", "a pipe"])
def test_what_was_put_in_the_place_of_a_picture_is_not_shown(make_desktop, tmp_path, what):
    desktop = make_desktop(pictures=PictureFiles(str(tmp_path / "pictures")))
    question = desktop.asks("click", **CLICK)
    secret = tmp_path / "secret"
    secret.write_bytes(PICTURE)
    place = Path(question["picture"])
    place.unlink()
    match what:
        case "a link":
            place.symlink_to(secret)
        case "another file":
            place.write_text("<html>")
        case "a pipe":
            os.mkfifo(place)
    with pytest.raises(NotFound, match="has no picture"):
        desktop.house.call("local", "approvals.picture", {"approvalId": question["approvalId"]})


def test_a_picture_is_taken_once_for_a_question_and_outlives_the_daemon_with_it(make_desktop, tmp_path):
    folder = tmp_path / "pictures"
    desktop = make_desktop(pictures=PictureFiles(str(folder)))

    def pictures_taken():
        return sum(params["picture"] for _, params in desktop.asked("desktop.resolve"))

    for _ in range(3):
        desktop.asks("click", **CLICK)
    assert pictures_taken() == 1
    (folder / "left-behind.png").write_bytes(b"x")
    desktop.house.restart(clean=False)
    (kept,) = folder.iterdir()
    (question,) = desktop.house.call("local", "approvals.list")
    shown = desktop.house.call("local", "approvals.show", {"approvalId": question["approvalId"]})
    assert shown["picture"] == str(kept)
    desktop.decide(question)
    desktop.call("click", **CLICK)
    # The act itself needs none.
    assert pictures_taken() == 1


def test_a_full_disk_keeps_the_picture_and_not_the_question(make_desktop, tmp_path):
    folder = tmp_path / "pictures"
    desktop = make_desktop(pictures=PictureFiles(str(folder)))
    folder.rmdir()
    assert "picture" not in desktop.asks("click", **CLICK)
    assert [fields["level"] for event, fields in desktop.house.log if event == "picture_not_kept"] == ["warning"]


def test_where_evidence_may_not_go_nothing_is_asked(desktop):
    with pytest.raises(Forbidden):
        desktop.call("click", workspacePath="/etc", **CLICK)
    assert desktop.house.call("local", "approvals.list") == []
    with pytest.raises(ApprovalRequired):
        desktop.call("click", workspacePath="/home/me/project", **CLICK)


def test_a_flood_of_one_agent_waits_its_turn_and_another_is_not_kept_waiting(make_desktop):
    desktop = make_desktop(policy=preset("permissive"))
    desktop.screen.windows.append(FakeWindow("other", 400, 4, "other"))
    held = [desktop.begin("observe", route=EDITOR) for _ in range(100)]
    desktop.call("observe", SPOCK, route=EDITOR)
    for each in held:
        assert answer_of(desktop, each)["executionId"]
