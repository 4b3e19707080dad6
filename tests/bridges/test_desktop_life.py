"""The desktop's switch, the kill switch and the host's life: what is stopped stays stopped, what is lost is said."""

import asyncio

import pytest
from desktop_scene import CLICK, JERRY, SPOCK, TYPE, answer_of

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.refusals import refusal
from bascule.desktop.rows import METHODS
from bascule.foundation.errors import (
    BasculeError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    PeerFailed,
    StorageFull,
    Unavailable,
)
from bascule.testing.policies import preset
from bascule.testing.stores import HeldStore
from scripted_host import EDITOR

WAIT = {"route": EDITOR, "condition": {"selectorExists": {"byRole": "AXSheet"}}}
ALWAYS = {"desktop.status", "desktop.stop", "desktop.disable", "desktop.enable", "desktop.resume"}
SWITCH = {"desktop.enable", "desktop.resume"}


@pytest.fixture
def free(make_desktop):
    """Where nobody is asked: the person's own calls, and looks under the permissive policy."""
    return make_desktop(policy=preset("permissive"))


# -- off and on --


def params_of(name):
    return {
        "find": {"selector": {"byRole": "AXButton"}},
        "waitUntil": WAIT,
        "typeText": {**TYPE, "text": "x"},
        "hotkey": {"keys": ["a"]},
        "scroll": {**CLICK, "direction": "up"},
        "drag": {**CLICK, "to": CLICK["target"]},
        "setValue": {**CLICK, "value": "x"},
        "abort": {"executionId": "x"},
    }.get(name, CLICK if "lick" in name else {})


@pytest.mark.parametrize("name", [row.name for row in METHODS if row.name not in ALWAYS])
def test_nothing_works_before_a_person_has_enabled_the_desktop(make_desktop, name):
    desktop = make_desktop(enabled=False)
    for who in (JERRY, "local", "person"):
        with pytest.raises(Conflict, match="the desktop is not enabled") as refused:
            desktop.house.call(who, name, params_of(name.removeprefix("desktop.")))
        assert "bascule desktop enable" in refused.value.hint
        assert refused.value.details["desktop"]["code"] == "DESKTOP_PERMISSION_MISSING"
    assert desktop.screen.hosts == []
    assert desktop.house.call("local", "approvals.list") == []


@pytest.mark.parametrize("name", sorted(SWITCH))
@pytest.mark.parametrize("who", [JERRY, "local"])
def test_only_a_person_enables_and_resumes(desktop, name, who):
    with pytest.raises(BasculeError) as refused:
        desktop.house.call(who, name)
    assert refused.value.status == 403


@pytest.mark.parametrize("name", ["desktop.stop", "desktop.disable"])
def test_agents_neither_stop_nor_disable(desktop, name):
    with pytest.raises(Forbidden):
        desktop.house.call(JERRY, name)
    desktop.house.call("local", name)


def test_the_session_that_was_enabled_is_used_also_in_another_life(free):
    free.call("observe", route=EDITOR)
    free.house.restart()
    free.call("observe", route=EDITOR)
    assert free.screen.environments == [{"DISPLAY": ":7"}] * 2
    assert free.call("status")["display"] == ":7"
    free.enable(DISPLAY=":8")
    free.call("observe", route=EDITOR)
    assert free.screen.environments[-1] == {"DISPLAY": ":8"}
    assert free.screen.hosts[1].closed


def test_without_a_session_the_daemons_own_is_used(make_desktop):
    desktop = make_desktop(enabled=False, policy=preset("permissive"))
    desktop.house.call("person", "desktop.enable")
    desktop.call("observe", route=EDITOR)
    assert desktop.screen.environments == [{"DISPLAY": ":own"}]


@pytest.mark.parametrize("environment", [{"LD_PRELOAD": "/tmp/x.so"}, {"DISPLAY": ":0\0x"}])
def test_only_variables_of_a_session_are_passed_on(desktop, environment):
    with pytest.raises(InvalidRequest):
        desktop.house.call("person", "desktop.enable", {"environment": environment})


def test_disabling_ends_the_host_and_all_that_was_asked_or_allowed(desktop):
    question = desktop.asks("click", **CLICK)
    desktop.decide(question, scope="rule", offer=1)
    desktop.call("click", **CLICK)
    desktop.asks("observe", route=EDITOR)
    desktop.house.call("local", "desktop.disable")
    assert desktop.host.closed
    assert desktop.house.call("local", "approvals.list") == []
    desktop.enable()
    assert desktop.asks("click", **CLICK)["rule"] == "desktop-acting-asks"


# -- the kill switch --


def under_way(desktop, method="click", who=JERRY, **params):
    """An act that is in the middle of it."""
    desktop.screen.gate = asyncio.Event()
    held = desktop.begin(method, who, **(params or CLICK))
    desktop.until(desktop.screen.gate.is_set, "the act at the host")
    return held


def test_a_stop_aborts_what_goes_on_and_takes_no_more_input_until_a_person_resumes(free):
    held = under_way(free, "click", "person")
    assert free.house.call("local", "desktop.stop") == {"stopped": True, "aborted": 1}
    with pytest.raises(Conflict, match="aborted"):
        answer_of(free, held)
    for who in (JERRY, "person"):
        with pytest.raises(Conflict, match="input was stopped") as refused:
            free.call("click", who, **CLICK)
        assert refused.value.details["desktop"]["code"] == "DESKTOP_HOST_STOPPED"
    assert free.call("status")["stopped"]
    # Looking goes on: it touches nothing.
    free.call("observe", route=EDITOR)
    free.screen.gate = None
    assert free.house.call("person", "desktop.resume")["stopped"] is False
    free.call("click", "person", **CLICK)
    assert len(free.screen.done) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_outlives_the_daemon_and_the_host(free, clean):
    free.house.call("local", "desktop.stop")
    free.house.restart(clean=clean)
    with pytest.raises(Conflict, match="input was stopped"):
        free.call("click", "person", **CLICK)
    free.call("observe", route=EDITOR)
    assert free.host.stopped, "a new host is told"
    free.house.call("person", "desktop.resume")
    free.call("click", "person", **CLICK)


def test_the_keys_stop_the_daemon_too_and_the_ledger_says_so(free):
    free.call("observe", route=EDITOR)
    free.house.run(free.host.press_stop_keys)
    with pytest.raises(Conflict, match="input was stopped"):
        free.call("click", "person", **CLICK)
    (record,) = free.records("stop")
    assert (record["principal"], record["details"]) == ("daemon", {"by": "Ctrl+Alt+Shift+F12"})
    free.house.restart()
    assert free.call("status")["stopped"]


def test_the_status_names_the_keys_that_the_host_has(free):
    assert free.call("status")["stopKeys"] == "Ctrl+Alt+Shift+Escape", "what a host tries first"
    free.call("observe", route=EDITOR)
    assert free.call("status")["stopKeys"] == "Ctrl+Alt+Shift+F12"
    free.host.stop_keys = None
    assert free.call("status")["stopKeys"] is None


def test_a_stop_that_the_disk_does_not_take_still_stops(make_desktop):
    store = HeldStore(hold=False)
    desktop = make_desktop(policy=preset("permissive"), store=store)
    desktop.call("observe", route=EDITOR)

    def refused(who, method):
        store.hold = True
        held = desktop.house.begin(who, f"desktop.{method}")
        desktop.house.run(store.fail)
        store.hold = False
        with pytest.raises(StorageFull):
            answer_of(desktop, held)

    refused("local", "stop")
    assert desktop.host.stopped
    with pytest.raises(Conflict, match="input was stopped"):
        desktop.call("click", "person", **CLICK)
    refused("person", "resume")
    assert desktop.host.stopped, "what is not on disk is not resumed"
    # The control: what is, is.
    desktop.house.call("person", "desktop.resume")
    assert not desktop.host.stopped


def test_a_host_that_does_not_stop_is_ended(free, monkeypatch):
    monkeypatch.setattr("bascule.desktop.hosting.STOP_SECONDS", 0.01)
    free.call("observe", route=EDITOR)
    host = free.host

    async def hangs(*_, **__):
        await asyncio.Event().wait()

    host.call = hangs
    assert free.house.call("local", "desktop.stop") == {"stopped": True, "aborted": 0}
    free.until(lambda: host.closed, "the end of the host")


def test_a_yes_is_not_spent_while_input_is_stopped(desktop):
    desktop.decide(desktop.asks("click", **CLICK))
    desktop.house.call("local", "desktop.stop")
    with pytest.raises(Conflict, match="input was stopped"):
        desktop.call("click", **CLICK)
    desktop.house.call("person", "desktop.resume")
    desktop.call("click", **CLICK)


def held_question(desktop, method="click", **params):
    """A call that waits for its answer, and the question."""
    desktop.house.call("local", "person.set", {"passphrase": "a long sentence"})
    held = desktop.begin(method, **(params or CLICK))
    (question,) = desktop.until(lambda: desktop.house.call("local", "approvals.list"), "the question")
    return held, question


def test_a_yes_that_comes_while_input_is_stopped_is_not_spent(desktop):
    held, question = held_question(desktop)
    desktop.house.call("local", "desktop.stop")
    desktop.decide(question)
    with pytest.raises(Conflict, match="input was stopped"):
        answer_of(desktop, held)
    desktop.house.call("person", "desktop.resume")
    desktop.call("click", **CLICK)
    assert len(desktop.screen.done) == 1


# -- requests to the host --


@pytest.mark.parametrize(
    ("method", "params"),
    [("click", CLICK), ("typeText", {**TYPE, "text": "x"}), ("hotkey", {"keys": ["a"], "route": EDITOR})],
)
def test_an_act_is_three_requests_where_a_person_is_asked_and_two_where_not(desktop, method, params):
    held, question = held_question(desktop, method, **params)
    desktop.decide(question, scope="rule", offer=1)
    answer_of(desktop, held)
    assert methods_asked(desktop) == ["desktop.resolve", "desktop.resolve", f"desktop.{method}"]
    desktop.host.asked.clear()
    desktop.call(method, **params)
    assert methods_asked(desktop) == ["desktop.resolve", f"desktop.{method}"]


def test_a_look_is_two_requests_and_no_picture_is_asked_for(desktop):
    desktop.decide(desktop.asks("observe", route=EDITOR))
    assert methods_asked(desktop) == ["desktop.resolve"]
    desktop.host.asked.clear()
    desktop.call("observe", route=EDITOR)
    assert methods_asked(desktop) == ["desktop.resolve", "desktop.observe"]


def methods_asked(desktop):
    return [method for method, _, _ in desktop.host.asked]


def test_what_was_asked_about_before_the_host_ended_is_looked_for_again(desktop):
    held, question = held_question(desktop)
    desktop.house.run(desktop.host.crash)
    desktop.house.advance(3)
    desktop.decide(question)
    assert answer_of(desktop, held)["clicked"]
    assert methods_asked(desktop) == ["desktop.resolve", "desktop.click"]


# -- the host's life --


def test_a_host_that_ends_during_an_act_leaves_it_unknown(desktop):
    desktop.decide(desktop.asks("click", **CLICK))
    held = under_way(desktop)
    desktop.house.run(desktop.host.crash)
    with pytest.raises(PeerFailed, match="whether the act happened is not known") as lost:
        answer_of(desktop, held)
    assert lost.value.details["executed"] == "unknown"
    assert [row["outcome"] for row in desktop.records("click")] == ["approval_required", "begun", "unknown"]
    (answered,) = desktop.house.call("local", "approvals.list", {"all": True})
    assert answered["state"] == "unknown"


def test_a_host_that_ended_is_started_again_after_a_while_that_grows(free):
    free.call("observe", route=EDITOR)
    waits = []
    for number in range(4):
        free.house.run(free.host.crash)
        status = free.call("status")
        assert status["host"] == "lost"
        assert "ended" in status["problem"]
        with pytest.raises(Unavailable, match="it is started again in") as refused:
            free.call("observe", route=EDITOR)
        assert refused.value.details["desktop"]["retryable"]
        waits.append(refused.value.retry_after)
        free.house.advance(31)
        free.call("observe", route=EDITOR)
        assert len(free.screen.hosts) == number + 2
    assert waits[-1] > waits[0]
    assert free.call("status")["host"] == "ready"
    # One that lived well is forgiven.
    free.house.advance(120)
    free.house.run(free.host.crash)
    with pytest.raises(Unavailable) as refused:
        free.call("observe", route=EDITOR)
    assert refused.value.retry_after <= waits[0] + 1


def test_a_host_that_cannot_be_started_is_said_with_its_reason(free):
    free.screen.fail_start = "the desktop host could not be started: no such file"
    with pytest.raises(Unavailable, match="no such file"):
        free.call("observe", route=EDITOR)
    assert "no such file" in free.call("status")["problem"]
    free.screen.fail_start = None
    free.house.advance(31)
    free.call("observe", route=EDITOR)


def test_many_first_calls_start_one_host(free):
    held = [free.begin("observe", route=EDITOR) for _ in range(20)]
    for each in held:
        answer_of(free, each)
    assert len(free.screen.hosts) == 1


def test_an_act_under_way_when_the_daemon_closes_is_unknown(make_desktop):
    desktop = make_desktop()
    held = under_way(desktop, "click", "person")
    desktop.house.restart()
    assert held.done
    assert [row["outcome"] for row in desktop.records("click")] == ["begun", "unknown"]


# -- waits and aborts --


def waiting(desktop, who=JERRY, **more):
    before = len(desktop.asked("desktop.waitUntil"))
    held = desktop.begin("waitUntil", who, **WAIT, **more)
    desktop.until(lambda: len(desktop.asked("desktop.waitUntil")) > before, "the wait at the host")
    return held


def test_a_client_that_leaves_its_wait_ends_it_at_the_host(free):
    held = waiting(free)
    assert len(free.host.under_way) == 1
    held.leave()
    free.until(lambda: not free.host.under_way, "the end of the wait")
    assert free.house.desktop.traffic.count == 0
    assert [row["outcome"] for row in free.records("waitUntil")] == ["begun", "cancelled"]


def test_a_yes_counts_while_the_wait_it_was_given_for_lasts(desktop):
    desktop.decide(desktop.asks("waitUntil", **WAIT))
    held = waiting(desktop)
    desktop.call("observe", route=EDITOR)
    # The controls: another agent asks, and an act does.
    desktop.asks("observe", SPOCK, route=EDITOR)
    desktop.asks("click", **CLICK)
    held.leave()
    desktop.until(lambda: not desktop.host.under_way, "the end of the wait")
    desktop.call("observe", route=EDITOR)


@pytest.mark.parametrize("ended", ["revoked", "disabled"])
def test_a_yes_whose_call_ends_after_its_agent_or_the_desktop_is_not_kept(desktop, ended):
    desktop.decide(desktop.asks("waitUntil", **WAIT))
    held = waiting(desktop)
    if ended == "revoked":
        desktop.house.call("person", "agents.revoke", {"agentId": "Jerry"})
        desktop.house.register("Jerry")
    else:
        desktop.house.call("local", "desktop.disable")
        desktop.enable()
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"
    desktop.until(lambda: held.done, "the end of the wait")
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"


def test_agents_do_not_see_which_programs_cannot_be_read(desktop):
    with pytest.raises(Forbidden, match="only the user of this machine"):
        desktop.call("doctor", programs=True)
    desktop.call("doctor")
    desktop.call("doctor", "local", programs=True)
    assert [params for _, params in desktop.asked("desktop.doctor")] == [{"programs": False}, {"programs": True}]


def test_one_aborts_ones_own_calls_and_nobody_elses(free):
    held = waiting(free, requestId="mine")
    with pytest.raises(InvalidRequest):
        free.call("abort", SPOCK, executionId="mine")
    assert not held.done
    assert free.call("abort", executionId="mine")["aborted"]
    with pytest.raises(Conflict, match="aborted"):
        answer_of(free, held)


def test_what_a_revoked_agent_had_under_way_ends(free):
    held, other = waiting(free), waiting(free, SPOCK)
    free.house.call("person", "agents.revoke", {"agentId": "Jerry"})
    with pytest.raises(Conflict, match="aborted"):
        answer_of(free, held)
    assert not other.done


def test_waiting_calls_are_answered_when_the_bridge_closes(free):
    held = waiting(free)
    free.house.run(free.house.desktop.end)
    with pytest.raises(Unavailable, match="the daemon is stopping"):
        held.result()


def test_waits_of_one_agent_are_few_and_a_request_id_is_used_once_at_a_time(free):
    waiting(free, requestId="same")
    with pytest.raises(Conflict, match="same is in use"):
        answer_of(free, free.begin("waitUntil", **WAIT, requestId="same"))
    for _ in range(7):
        waiting(free)
    with pytest.raises(Overloaded, match="watch the screen"):
        answer_of(free, free.begin("waitUntil", **WAIT))
    # Another's wait has room, and so has a look.
    waiting(free, SPOCK)
    free.call("observe", route=EDITOR)


def test_a_wait_for_what_has_no_window_yet_says_what_to_wait_for_first(free):
    with pytest.raises(NotFound) as refused:
        answer_of(free, free.begin("waitUntil", **{**WAIT, "route": {"app": {"bundleId": "not-open"}}}))
    assert "windowExists" in refused.value.hint


def test_a_wait_is_held_no_longer_than_any_wait_of_the_house(free):
    waiting(free, timeoutMs=600_000)
    ((_, params),) = free.asked("desktop.waitUntil")
    assert params["timeoutMs"] == 60_000


def test_each_principal_is_a_client_of_its_own_at_the_host(free):
    free.call("observe", route=EDITOR)
    free.call("observe", SPOCK, route=EDITOR)
    free.call("click", "person", **CLICK)
    assert [client for client, _ in free.asked("desktop.observe")] == [JERRY, SPOCK]
    assert [client for client, _ in free.asked("desktop.click")] == ["person"]


# -- refusals --


@pytest.mark.parametrize("code", Code)
def test_every_word_of_the_contract_reaches_the_caller_as_it_is(code):
    error = DesktopError(code, "why", reason="x")
    refused = refusal(error)
    assert refused.details == {"desktop": error.body()}
    assert refused.message == "why"
    assert (refused.retry_after is not None) == (code is Code.HOST_NOT_READY)
