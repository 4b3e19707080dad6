"""An agent, a person, a daemon, a host and a program: what the program itself says is what counts."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from desktop_rig import SYSTEM_PYTHON

CALLERS = 64


def route(program):
    return {"app": {"pid": program.pid}}


def button(title):
    return {"selector": {"byRole": "AXButton", "titleContains": title}}


def titled(title):
    return {"window": {"titlePattern": f"^{title}$"}}


NAME = {"selector": {"byRole": "AXTextField", "titleContains": "Name"}}
SECRET_FIELD = {"selector": {"titleContains": "Secret"}}


# -- consent --


@pytest.mark.req("DSK-0-4")
def test_a_click_asks_and_is_done_once_when_the_person_approves(house, start):
    app = start("gtk3")
    click = {"route": route(app), "target": button("Press me")}
    question = house.asks("click", **click)
    assert app.title in question["preview"]
    assert 'AXButton "Press me"' in question["preview"]
    with open(question["picture"], "rb") as file:
        assert file.read().startswith(b"\x89PNG")
    assert os.stat(question["picture"]).st_mode & 0o777 == 0o600
    assert "pressed" not in app.state
    house.decide(question)
    assert house.done("click", **click)["clicked"]
    app.until(pressed=1)
    assert not os.path.exists(question["picture"])
    assert house.call("click", **click).status == 202
    assert app.state["pressed"] == 1


@pytest.mark.req("DSK-6-4")
def test_a_refusal_in_the_contracts_words_says_what_is_asked(house, start):
    app = start("gtk3")
    answer = house.call("click", route=route(app), target=button("Press me"))
    desktop_error = answer.error["details"]["desktop"]
    assert desktop_error["code"] == "DESKTOP_CONFIRM_REQUIRED"
    assert desktop_error["details"]["approvalId"] == answer.error["details"]["approvalId"]
    assert set(desktop_error) == {"code", "message", "retryable", "details"}


def test_what_the_person_denies_does_not_happen(house, start):
    app = start("gtk3")
    click = {"route": route(app), "target": button("Press me")}
    house.decide(house.asks("click", **click), "denied")
    # Asked again, not done.
    assert house.call("click", **click).status == 202
    # The control: it would have been seen.
    house.approved("click", route=route(app), target=button("Replace"))
    app.until(replaced=1)
    assert "pressed" not in app.state


def test_what_is_typed_is_what_was_approved_and_where(house, start):
    app = start("gtk3")
    text = "中文 é 🎉"
    question = house.asks("typeText", route=route(app), target=NAME, text=text)
    assert f'  | "{text}"' in question["preview"].split("\n")
    house.decide(question)
    assert house.done("typeText", route=route(app), target=NAME, text=text)["effect"] == "confirmed"
    app.until(name=text)


def test_a_window_that_takes_the_place_of_another_gets_nothing_of_its_yes(house, start):
    """Named by its title: another program opens a window of the same title, and the first is gone."""
    first = start("gtk3", title="Letter")
    typing = {"route": titled("Letter"), "target": NAME, "text": "for the first"}
    question = house.asks("typeText", **typing)
    house.decide(question)
    first.kill()
    second = start("gtk3", title="Letter")
    again = house.asks("typeText", **typing)
    assert again["approvalId"] != question["approvalId"]
    assert f"(pid {second.pid})" in again["preview"]
    assert "name" not in second.state
    # The control: a yes for the second is one.
    house.decide(again)
    house.done("typeText", **typing)
    second.until(name="for the first")


def test_an_element_that_becomes_another_gets_nothing_of_its_yes(house, start):
    app = start("gtk3")
    click = {"route": route(app), "target": button("Old")}
    house.decide(house.asks("click", **click))
    house.approved("click", route=route(app), target=button("Rename"))
    app.until(renamed=1)
    answer = house.call("click", **click)
    assert answer.status == 404
    assert answer.error["details"]["desktop"]["code"] == "DESKTOP_ELEMENT_NOT_FOUND"
    assert "old" not in app.state


def test_a_rule_for_one_app_lasts_ten_minutes(house, start):
    app, other = start("gtk3"), start("gtk3")
    question = house.asks("click", route=route(app), target=button("Press me"))
    house.decide(question, scope="rule", offer=1)
    for _ in range(2):
        house.done("click", route=route(app), target=button("Press me"))
    house.done("typeText", route=route(app), target=NAME, text="more")
    app.until(pressed=2, name="more")
    assert house.call("click", route=route(other), target=button("Press me")).status == 202
    assert house.call("observe", route=route(app)).status == 202


@pytest.mark.req("DSK-0-4")
def test_of_many_callers_with_one_yes_one_acts(house, start):
    app = start("gtk3")
    click = {"route": route(app), "target": button("Press me")}
    house.decide(house.asks("click", **click))
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda _: house.call("click", **click).status, range(CALLERS)))
    assert answers.count(200) == 1, answers
    assert set(answers) <= {200, 202, 409}, answers
    app.until(pressed=1)
    outcomes = [each["outcome"] for each in house.records("click")]
    assert outcomes.count("begun") == outcomes.count("ok") == 1


# -- looking --


@pytest.mark.req("DSK-0-4")
def test_a_first_look_asks_and_later_ones_do_not(house, start):
    app = start("gtk3")
    titles = {each["title"] for each in house.agent.get("/v1/desktop/windows").json["windows"]}
    assert app.title not in titles
    seen = house.approved("observe", route=route(app), options={"snapshot": True, "includeScreenshot": False})
    assert "Press me" in seen["snapshot"]
    assert house.done("find", route=route(app), selector=button("Press me")["selector"])["matched"] == 1
    titles = {each["title"] for each in house.agent.get("/v1/desktop/windows").json["windows"]}
    assert app.title in titles
    assert house.agent.get("/v1/desktop/status").json["seen"]
    other = house.register(f"{house.name}-other")
    assert house.call("observe", agent=other, route=route(app)).status == 202


def test_a_program_that_was_updated_while_it_runs_is_still_the_app_that_may_be_looked_at(house, start, tmp_path):
    file = shutil.copy(SYSTEM_PYTHON, tmp_path / "program")
    app = start("gtk3", python=file, env={"PYTHONHOME": "/usr"})
    house.approved("observe", route=route(app))

    def title():
        windows = house.agent.get("/v1/desktop/windows").json["windows"]
        return next(each["title"] for each in windows if each["pid"] == app.pid)

    assert title() == app.title
    os.unlink(file)
    # The control: the kernel says that the file is gone.
    assert os.readlink(f"/proc/{app.pid}/exe") == f"{file} (deleted)"
    assert title() == app.title
    house.done("observe", route=route(app))


@pytest.mark.req("DSK-6-3")
def test_evidence_goes_where_the_call_says_and_not_among_our_own_things(house, start):
    app = start("gtk3")
    seen = house.approved("observe", route=route(app), workspacePath=str(house.work))
    assert os.path.isdir(house.work / "artifacts" / "desktop")
    assert seen["evidence"]["dir"]
    for named in ("/usr", house.state, f"{house.state}/desktop", "relative"):
        answer = house.call("observe", route=route(app), workspacePath=named)
        assert answer.status == 403
        assert answer.error["details"]["desktop"]["code"] == "DESKTOP_WORKSPACE_FORBIDDEN"


def test_health_and_doctor_are_the_hosts_own(house):
    health = house.agent.get("/v1/desktop/health")
    assert health.status == 200, health.json
    assert health.json["permissions"]["accessibility"] == "granted"
    assert house.agent.get("/v1/desktop/doctor").json["issues"] == []


# -- what nobody may --


def test_a_window_of_a_password_manager_is_neither_seen_nor_used(house, start):
    app = start("gtk3", title="Vault")
    assert house.asks("click", route=titled("Vault"), target=button("Press me"))
    search = ["xdotool", "search", "--onlyvisible", "--name", "^Vault$", "set_window"]
    names = ["--class", "keepassxc", "--classname", "keepassxc"]
    subprocess.run([*search, *names], env=house.desktop.environment, check=True, capture_output=True)
    vault = {"app": {"bundleId": "keepassxc"}}
    for method, more in (("click", {"target": button("Press me")}), ("observe", {})):
        answer = house.call(method, route=vault, **more)
        assert answer.status == 403, answer.json
        assert answer.error["code"] == "policy_denied"
        assert answer.error["details"]["desktop"]["code"] == "DESKTOP_APP_FORBIDDEN"
        # By its title it is not even there.
        assert house.call(method, route=titled("Vault"), **more).status == 404
    # Not for the person either.
    refused = house.person.refusal("desktop.click", {"route": vault, "target": button("Press me")})
    assert refused["code"] == "policy_denied"
    assert "pressed" not in app.state


def test_what_was_typed_is_in_no_file_once_it_is_over(own_house, start):
    """Store, ledger, log, evidence, pictures: every byte of the house's directories."""
    house = own_house
    app = start("gtk3")
    denied, secret = "never-typed-Kx7", "hunter2-Kx7qTz"
    typing = {"route": route(app), "target": SECRET_FIELD, "text": secret, "workspacePath": str(house.work)}
    house.decide(house.asks("typeText", route=route(app), target=NAME, text=denied), "denied")
    question = house.asks("typeText", **typing)
    assert secret in question["preview"]
    house.decide(question)
    house.done("typeText", **typing)
    app.until(secret=secret)
    house.approved("setValue", route=route(app), target=NAME, value=secret)
    answered = house.person.call("approvals.list", {"all": True})
    assert {each["state"] for each in answered} == {"done", "denied"}
    assert secret not in str(answered)
    house.person.close()
    assert house.daemon.stop() == 0
    for wanted in (secret, denied):
        held = [path for path, data in house.files() if wanted.encode() in data]
        assert held == []
    # The control: the search finds what is there.
    assert [path for path, data in house.files() if house.name.encode() in data]
    assert [path for path, _ in house.files() if path.endswith("after.png")]
    house.live()
