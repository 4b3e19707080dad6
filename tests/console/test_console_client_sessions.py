"""Sessions of agents' clients on the Live page: what they do, what says so, as it changes."""

import re

from playwright.sync_api import expect
from scenes import Scene


def report(scene, name, session="5e0c61d2-one", **more):
    event = {"hook_event_name": name, "session_id": session, "cwd": "/srv/shop", **more}
    answer = scene.jerry.post("/v1/sessions/note", {"client": "claude", "event": event, "pane": "%3"})
    assert answer.status == 200, answer


def row(person, session="5e0c61d2-one"):
    return person.page.get_by_role("region", name="Table of clients' sessions").get_by_role("row", name=session)


def test_a_session_is_shown_with_its_state_and_what_says_so_as_it_changes(scene: Scene, person):
    person.go("live")
    panel = person.page.get_by_role("region", name="Sessions of clients", exact=True)
    expect(panel).to_contain_text("bascule on")
    report(scene, "SessionStart")
    expect(row(person)).to_contain_text(re.compile("idle.*SessionStart.*ago.*/srv/shop.*tmux pane.*%3", re.DOTALL))
    report(scene, "UserPromptSubmit")
    expect(row(person)).to_contain_text(re.compile("works.*UserPromptSubmit", re.DOTALL))
    report(scene, "PermissionRequest", tool_name="Bash")
    expect(row(person)).to_contain_text(re.compile("waits for permission.*PermissionRequest", re.DOTALL))
    report(scene, "ConfigChange", switched_off="/srv/shop/.claude/settings.json sets disableAllHooks")
    expect(row(person)).to_contain_text("sets disableAllHooks")
    report(scene, "SessionEnd")
    expect(row(person)).to_have_count(0)
