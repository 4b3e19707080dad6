"""Who is asked about what on the desktop, what they see, and that nothing else than that is done."""

import pytest
from desktop_scene import CLICK, JERRY, SPOCK, TYPE

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.guesses import MAX_MISSES, WITHIN_SECONDS
from bascule.desktop.terminals import is_terminal_element
from bascule.foundation.errors import ApprovalRequired, BasculeError, Conflict, NotFound, PolicyDenied
from bascule.testing.policies import preset
from scripted_host import EDITOR, FakeWindow

XTERM = {"app": {"bundleId": "xterm"}}


# -- looking --


def test_a_first_look_at_an_app_asks_and_later_ones_do_not(desktop):
    question = desktop.asks("observe", route=EDITOR)
    assert question["rule"] == "new-apps-ask"
    assert "editor (pid 100)" in question["preview"]
    desktop.decide(question)
    assert desktop.call("observe", route=EDITOR)["executionId"] == "x-1"
    assert desktop.call("find", route=EDITOR, selector={"byRole": "AXButton"})["matched"] == 0
    assert desktop.call("status")["seen"] == ["editor"]
    # The controls: another app asks, and so does another agent.
    assert desktop.asks("observe", route=XTERM)["rule"] == "new-apps-ask"
    assert desktop.asks("observe", SPOCK, route=EDITOR)["rule"] == "new-apps-ask"


def test_the_same_name_with_another_program_is_another_app(desktop):
    desktop.approved("observe", route=EDITOR)
    desktop.screen.window("editor").program = "/home/me/Downloads/editor"
    assert "/home/me/Downloads/editor" in desktop.asks("observe", route=EDITOR)["preview"]


def test_a_look_that_was_denied_is_asked_again(desktop):
    desktop.decide(desktop.asks("observe", route=EDITOR), "denied")
    assert desktop.asks("observe", route=EDITOR)["state"] == "pending"
    assert not desktop.asked("desktop.observe")


def test_looking_for_ten_minutes_is_not_looking_for_ever(desktop):
    question = desktop.asks("observe", route=EDITOR)
    desktop.decide(question, scope="rule", offer=1)
    desktop.call("observe", route=EDITOR)
    desktop.call("find", route=EDITOR, selector={"byRole": "AXButton"})
    desktop.house.advance(601)
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"


def test_what_a_person_allowed_to_see_outlives_the_daemon_and_ends_with_the_desktop(desktop):
    desktop.approved("observe", route=EDITOR)
    desktop.house.restart(clean=False)
    desktop.call("observe", route=EDITOR)
    desktop.house.call("local", "desktop.disable")
    desktop.enable()
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"


def test_a_revoked_agent_leaves_nothing_to_the_next_holder_of_its_name(desktop):
    desktop.approved("observe", route=EDITOR)
    desktop.approved("observe", SPOCK, route=EDITOR)
    desktop.house.call("person", "agents.revoke", {"agentId": "Jerry"})
    desktop.house.register("Jerry")
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"
    desktop.call("observe", SPOCK, route=EDITOR)
    assert [row["details"] for row in desktop.records("forget")] == [{"apps": 1}]


def test_windows_have_titles_only_where_one_may_look(desktop):
    def titles(who=JERRY):
        return {each["bundleId"]: each["title"] for each in desktop.call("windows", who)["windows"]}

    assert titles() == {"editor": "", "xterm": "", "keepassxc": ""}
    desktop.approved("observe", route=EDITOR)
    assert titles() == {"editor": "letter to Ann", "xterm": "", "keepassxc": ""}
    assert titles(SPOCK)["editor"] == ""
    # Not even the person's: nobody sees into what is kept out.
    assert titles("person") == {"editor": "letter to Ann", "xterm": "root shell", "keepassxc": ""}


def test_waiting_for_any_window_asks_once_for_all_apps(desktop):
    wait = {"condition": {"windowExists": {"titlePattern": "passw"}}}

    def waits(**route):
        before = len(desktop.asked("desktop.waitUntil"))
        held = desktop.begin("waitUntil", **route, **wait)
        desktop.until(lambda: len(desktop.asked("desktop.waitUntil")) > before, "the wait at the host")
        held.cancel()

    desktop.approved("observe", route=EDITOR)
    # Of an app that one may look at, its windows; tied to the process that is there.
    waits(route=EDITOR)
    assert desktop.asked("desktop.waitUntil")[-1][1]["route"]["app"] == {"pid": 100}
    not_open = {"app": {"bundleId": "not-open"}}
    for route in ({}, {"route": not_open}, {"route": {"window": {"titlePattern": "x"}}}):
        assert "every app" in desktop.asks("waitUntil", **route, **wait)["preview"]
    desktop.decide(desktop.asks("waitUntil", **wait))
    for route in ({}, {}, {"route": not_open}):
        waits(**route)


def test_what_is_in_an_app_cannot_be_guessed_without_looking_at_it(desktop):
    def guess(number, who=JERRY):
        with pytest.raises(BasculeError) as refused:
            desktop.call("click", who, route=EDITOR, target={"selector": {"titleContains": f"Guess {number}"}})
        return refused.value

    for number in range(MAX_MISSES):
        assert isinstance(guess(number), NotFound)
    refused = guess("once more")
    assert isinstance(refused, PolicyDenied)
    assert "desktop.observe" in refused.hint
    last = desktop.records("click")[-1]
    assert (last["principal"], last["outcome"], last["rule"]) == (JERRY, "policy_denied", "desktop.guesses")
    # Others are not counted with it; time heals; and whoever may look may miss.
    assert isinstance(guess("another's", SPOCK), NotFound)
    desktop.house.advance(WITHIN_SECONDS + 1)
    assert isinstance(guess("later"), NotFound)
    desktop.approved("observe", route=EDITOR)
    for number in range(2 * MAX_MISSES):
        assert isinstance(guess(number), NotFound)
        assert isinstance(guess(number, "person"), NotFound)


def test_guesses_are_counted_where_another_window_of_the_app_is_kept_out(desktop):
    """A tab of our own console is in front in a browser whose other window an agent would like to know."""
    desktop.screen.windows.insert(0, FakeWindow("editor", 100, 9, "Approvals \u00b7 Bascule", forbidden=True))
    route = {**EDITOR, "window": {"windowId": "w:1"}}

    def guess(number, who=JERRY):
        with pytest.raises(BasculeError) as refused:
            desktop.call("click", who, route=route, target={"selector": {"titleContains": f"Guess {number}"}})
        return refused.value

    for number in range(MAX_MISSES):
        assert isinstance(guess(number), NotFound)
    assert isinstance(guess("once more"), PolicyDenied)
    # The control: who may look at the app may miss.
    desktop.approved("observe", SPOCK, route=route)
    for number in range(2 * MAX_MISSES):
        assert isinstance(guess(number, SPOCK), NotFound)


def test_a_guess_is_counted_where_the_host_does_not_say_whether_the_app_is_open(desktop):
    """Only that no window of it is open is said by the list of windows as well."""

    def guess(number):
        with pytest.raises(BasculeError) as refused:
            desktop.call("click", route=EDITOR, target={"selector": {"titleContains": f"Guess {number}"}})
        return refused.value

    guess("first")
    whole = desktop.host._resolve

    def failing(intent, **more):
        if intent["method"] == "desktop.listModals":
            raise DesktopError(Code.TIMEOUT, "the request took longer than meta.timeoutMs")
        return whole(intent, **more)

    desktop.host._resolve = failing
    for number in range(MAX_MISSES - 1):
        assert isinstance(guess(number), NotFound)
    assert isinstance(guess("once more"), PolicyDenied)


# -- acting --


def test_an_act_asks_with_everything_it_would_do(desktop):
    question = desktop.asks("typeText", text="  two\nlines \u202e\ufe0f\u3000\ufffc\U00016fe4\t", **TYPE)
    assert question["rule"] == "desktop-acting-asks"
    shown = question["preview"].split("\n")
    assert "app      editor (pid 100)" in shown
    assert "program  /usr/bin/editor" in shown
    assert 'window   "letter to Ann" (w:1)' in shown
    assert 'element  AXTextField "Name", at 10,20, 30 x 40' in shown
    assert shown[-3:] == [
        "text, 18 characters:",
        '  | "  two"⏎',
        '  | "lines ⟨U+202E⟩⟨U+FE0F⟩⟨U+3000⟩⟨U+FFFC⟩⟨U+16FE4⟩⟨TAB⟩"',
    ]
    assert "two" not in question["summary"]
    assert desktop.screen.done == []


def test_an_approved_act_is_done_once_and_on_the_object_that_was_seen(desktop):
    assert desktop.approved("click", **CLICK)["clicked"]
    ((method, params),) = desktop.screen.done
    assert method == "desktop.click"
    assert params["route"] == {"app": {"pid": 100}, "window": {"windowId": "w:1"}}
    assert params["target"]["elementRef"]["fingerprint"] == "w:1/OK"
    with pytest.raises(ApprovalRequired):
        desktop.call("click", **CLICK)
    assert len(desktop.screen.done) == 1


def test_what_was_denied_is_not_done(desktop):
    desktop.decide(desktop.asks("click", **CLICK), "denied")
    assert desktop.screen.done == []


@pytest.mark.parametrize("change", ["window", "title", "element", "process", "program"])
def test_a_yes_never_fits_another_window(desktop, change):
    question = desktop.asks("click", **CLICK)
    desktop.decide(question)
    window = desktop.screen.window("editor")
    match change:
        case "window":
            desktop.screen.windows[0] = FakeWindow("editor", 100, 9, "letter to Ann")
        case "title":
            window.title = "bank"
        case "process":
            window.pid = 101
        case "program":
            window.program = "/usr/bin/other"
        case "element":
            window.elements.remove("OK")
    if change == "element":
        with pytest.raises(NotFound):
            desktop.call("click", **CLICK)
    else:
        assert desktop.asks("click", **CLICK)["approvalId"] != question["approvalId"]
    assert desktop.screen.done == []


def test_a_window_that_is_swapped_at_the_last_moment_gets_nothing(desktop):
    """After the judging, while the record is written: the call names the window itself, which is not there any more."""

    def swap(_method):
        desktop.screen.windows[0] = FakeWindow("editor", 100, 9, "letter to Ann")

    desktop.screen.before = swap
    with pytest.raises(NotFound) as refused:
        desktop.approved("click", **CLICK)
    assert refused.value.details["desktop"]["code"] == "DESKTOP_ELEMENT_NOT_FOUND"
    assert desktop.screen.done == []
    assert [row["outcome"] for row in desktop.records("click")] == ["approval_required", "begun", "not_found"]


def test_a_rule_for_one_app_covers_this_process_and_these_acts(desktop):
    question = desktop.asks("click", **CLICK)
    (offer,) = question["offers"]
    assert 'about.pid":"100"' in offer["text"]
    assert "ui-control" in offer["text"]
    desktop.decide(question, scope="rule", offer=1)
    desktop.call("click", **CLICK)
    desktop.call("typeText", text="more", **TYPE)
    desktop.call("hotkey", keys=["ctrl", "s"], route=EDITOR)
    assert len(desktop.screen.done) == 3
    # Acting is not looking, another agent is another, and so is another process of the same app.
    assert desktop.asks("observe", route=EDITOR)["rule"] == "new-apps-ask"
    assert desktop.asks("click", SPOCK, **CLICK)["rule"] == "desktop-acting-asks"
    desktop.screen.window("editor").pid = 101
    assert desktop.asks("click", **CLICK)["rule"] == "desktop-acting-asks"
    desktop.screen.window("editor").pid = 100
    desktop.house.advance(601)
    assert desktop.asks("click", **CLICK)["rule"] == "desktop-acting-asks"


def test_a_question_without_a_picture_says_that_there_can_be_none(desktop):
    act = {"route": EDITOR, "text": "Dear Ann"}
    assert "no pictures" not in desktop.asks("typeText", **act)["preview"]
    desktop.screen.has_pictures = False
    question = desktop.asks("typeText", route=EDITOR, text="Dear Bob")
    assert question["preview"].startswith("This session shows no pictures")
    assert question.get("picture") is None


def test_a_question_says_where_keys_are_only_checked(desktop):
    act = {"route": EDITOR, "text": "Dear Ann"}
    assert "checked just before" not in desktop.asks("typeText", **act)["preview"]
    desktop.screen.holds = False
    question = desktop.asks("typeText", route=EDITOR, text="Dear Bob")
    assert "checked just before they are sent" in question["preview"]


def test_terminals_ask_every_time_and_say_why(desktop):
    act = {"route": XTERM, "text": "rm -rf ~"}
    question = desktop.asks("typeText", **act)
    assert question["rule"] == "terminals-ask"
    assert question["preview"].startswith("This is a terminal")
    assert "offers" not in question
    desktop.decide(question)
    desktop.call("typeText", **act)
    assert desktop.asks("typeText", **act)["rule"] == "terminals-ask"


@pytest.mark.parametrize("title", ["Terminal", "Terminal 1, bash Use Alt+F1 for terminal accessibility help"])
def test_a_terminal_inside_an_editor_is_one(desktop, title):
    desktop.screen.window("editor").elements.append(title)
    into = {"route": EDITOR, "target": {"selector": {"titleContains": title}}, "text": "rm -rf ~"}
    assert desktop.asks("typeText", **into)["rule"] == "terminals-ask"
    # The control: another field of the same editor.
    assert desktop.asks("typeText", text="x", **TYPE)["rule"] == "desktop-acting-asks"


@pytest.mark.parametrize(
    ("native_role", "title", "expected"),
    [("terminal", None, True), ("text", "Terminal 2", True), ("text", "Name", False), ("entry", None, False)],
)
def test_what_is_known_for_a_terminal(native_role, title, expected):
    assert is_terminal_element(native_role, title) is expected


@pytest.mark.parametrize(
    ("keys", "beyond"),
    [
        (["ctrl", "s"], False),
        (["enter"], False),
        (["alt", "f"], False),
        (["super"], True),
        (["Win", "l"], True),
        (["alt", "F2"], True),
        (["Alt", "Tab"], True),
        (["cmd", "option", "t"], True),
        (["print"], True),
    ],
)
@pytest.mark.parametrize("name", ["standard", "permissive"])
def test_keys_for_the_desktop_itself_are_no_part_of_a_yes_to_an_app(make_desktop, name, keys, beyond):
    desktop = make_desktop(policy=preset(name))
    desktop.decide(desktop.asks("click", **CLICK), scope="rule", offer=1)
    press = {"keys": keys, "route": EDITOR}
    if not beyond:
        desktop.call("hotkey", **press)
        return
    question = desktop.asks("hotkey", **press)
    assert question["rule"] == "keys-beyond-the-app-ask"
    assert "offers" not in question
    assert "for the desktop itself" in question["preview"]


def test_what_is_kept_out_is_refused_whatever_anybody_approves(desktop):
    for who in (JERRY, "local", "person"):
        with pytest.raises(PolicyDenied) as refused:
            desktop.call("click", who, route={"app": {"bundleId": "keepassxc"}}, target=CLICK["target"])
        assert refused.value.details["desktop"]["code"] == "DESKTOP_APP_FORBIDDEN"
        assert refused.value.details["rule"] == "desktop.keep-out"
    assert [row["outcome"] for row in desktop.records("click")] == ["policy_denied"] * 3
    assert desktop.screen.done == []


def test_the_person_is_never_asked_about_their_own_calls(make_desktop):
    for name in ("restrictive", "standard", "permissive"):
        desktop = make_desktop(policy=preset(name))
        desktop.call("observe", "person", route=EDITOR)
        desktop.call("click", "person", **CLICK)
        desktop.call("typeText", "person", route=XTERM, text="ls")
        assert len(desktop.screen.done) == 2


def test_restrictive_looks_after_asking_and_never_acts(make_desktop):
    desktop = make_desktop(policy=preset("restrictive"))
    with pytest.raises(PolicyDenied, match="looked at, not used"):
        desktop.call("click", **CLICK)
    desktop.approved("observe", route=EDITOR)
    assert desktop.asks("observe", route=EDITOR)["rule"] == "desktop-looking-asks"
    assert desktop.asks("windows")["rule"] == "desktop-looking-asks"


def test_permissive_looks_freely_and_asks_once_before_acting_in_an_app(make_desktop):
    desktop = make_desktop(policy=preset("permissive"))
    desktop.call("observe", route=EDITOR)
    assert desktop.call("windows")["windows"][1]["title"] == "root shell"
    assert desktop.asks("click", **CLICK)["rule"] == "acting-in-new-apps-asks"
    desktop.approved("click", **CLICK)
    desktop.call("typeText", text="more", **TYPE)
    # A timed yes is not a yes for ever; and terminals ask anyway.
    assert desktop.asks("typeText", route=XTERM, text="ls")["rule"] == "terminals-ask"
    desktop.approved("typeText", route=XTERM, text="ls")
    assert desktop.asks("typeText", route=XTERM, text="ls")["rule"] == "terminals-ask"


def test_where_a_person_must_be_asked_the_contracts_word_for_it_comes_along(desktop):
    with pytest.raises(ApprovalRequired) as asked:
        desktop.call("click", **CLICK)
    details = asked.value.details
    assert details["desktop"]["code"] == "DESKTOP_CONFIRM_REQUIRED"
    assert details["desktop"]["details"] == {"approvalId": details["approvalId"]}


def test_a_window_that_changes_while_the_person_reads_makes_the_yes_void(desktop):
    """The caller waits: a person is set, so it is held until the answer."""
    desktop.house.call("local", "person.set", {"passphrase": "a long sentence"})
    held = desktop.begin("click", **CLICK)
    (question,) = desktop.until(lambda: desktop.house.call("local", "approvals.list"), "the question")
    desktop.screen.window("editor").title = "bank"
    desktop.decide(question)
    desktop.until(lambda: held.done, "the answer")
    with pytest.raises(Conflict, match=f"has changed since {question['approvalId']} was approved") as refused:
        held.result()
    assert desktop.screen.done == []
    assert refused.value.details["executed"] == "no"
    assert refused.value.details["desktop"]["code"] == "DESKTOP_CONFIRM_REQUIRED"
    # The yes is spent: what the window is now is another question.
    *_, begun, end = desktop.records("click")
    assert (begun["outcome"], end["outcome"], end["details"]["executed"]) == ("begun", "conflict", "no")
    assert begun["details"]["approval"] == end["details"]["approval"] == question["approvalId"]
    (spent,) = desktop.house.call("local", "approvals.list", {"all": True})
    assert spent["state"] == "done"


@pytest.mark.parametrize("change", ["title", "process", "program"])
def test_a_window_that_changes_at_the_last_moment_gets_nothing_though_nobody_is_asked(make_desktop, change):
    desktop = make_desktop(policy=preset("permissive"))
    desktop.approved("click", **CLICK)
    window = desktop.screen.window("editor")

    def changes(_method):
        match change:
            case "title":
                window.title = "bank"
            case "process":
                desktop.screen.windows[0] = FakeWindow("editor", 101, 1, window.title)
            case "program":
                window.program = "/usr/bin/other"

    desktop.screen.before = changes
    with pytest.raises(BasculeError) as refused:
        desktop.call("click", **CLICK)
    if change == "process":
        assert isinstance(refused.value, NotFound)
    else:
        assert "has changed since it was judged" in refused.value.message
        assert refused.value.details["executed"] == "no"
    assert len(desktop.screen.done) == 1


def test_only_what_a_person_saw_must_be_where_it_was(make_desktop):
    desktop = make_desktop(policy=preset("permissive"))
    desktop.approved("click", **CLICK)
    desktop.call("click", **CLICK)
    confirmed = [params["confirm"]["resolved"] for _, params in desktop.asked("desktop.click")]
    assert [each.get("unmoved", True) for each in confirmed] == [True, False]


# -- our own console --


def test_a_browser_is_not_offered_for_minutes_while_the_console_is_open_in_one(desktop):
    """The controls: without the console, and in another app, it is."""
    desktop.screen.windows.append(FakeWindow("chromium", 400, 4, "News - Chromium"))
    browser = {**CLICK, "route": {"app": {"bundleId": "chromium"}}}
    desktop.approved("observe", route=browser["route"])
    desktop.approved("observe", route=EDITOR)
    judging = desktop.house.desktop._judging
    judging._console_is_open = lambda: True
    assert "offers" not in desktop.asks("click", **browser)
    assert desktop.asks("click", **CLICK)["offers"]
    judging._console_is_open = lambda: False
    desktop.house.advance(901)
    assert desktop.asks("click", **browser)["offers"]
