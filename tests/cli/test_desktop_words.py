"""What the words behind `bascule desktop` mean: each command line is a call that fits the daemon's row."""

import io
import json

import pytest

from bascule.cli.main import build_parser, main
from bascule.desktop import rows as desktop_rows
from bascule.desktop.cli import command as desktop
from bascule.desktop.cli import person as desktop_person
from bascule.desktop.cli import ways as desktop_ways
from bascule.foundation.errors import ApprovalRequired, Conflict, NotFound, PeerFailed
from bascule.local_client.exits import NOT_FOUND, NOTHING_CAME, REFUSED, USAGE, WrongUsage
from gabp import codec

ROWS = {row.name: row for row in desktop_rows.METHODS}
ANSWER = {
    "executionId": "x",
    "effect": "unverified",
    "evidence": {"dir": "/e/"},
    "windows": [],
    "modals": [],
    "elementRefs": [],
    "matched": 1,
    "elapsedMs": 1,
}


@pytest.fixture
def call_of(monkeypatch):
    """`said("click --title OK")`: the method and params that the daemon would be asked."""
    asked = []

    def held(_args, method, params, *, wait):
        codec.convert(params, ROWS[method].params)
        asked.append((method, params, wait))
        return ANSWER

    monkeypatch.setattr(desktop_ways, "ask_held", held)
    monkeypatch.setattr(desktop_ways.paths, "home", lambda: "/nonexistent")

    def call_of(words):
        assert main(["desktop", *(words.split() if isinstance(words, str) else words)]) == 0
        method, params, _ = asked[-1]
        return method.removeprefix("desktop."), params

    call_of.asked = asked
    return call_of


BUTTON = {"selector": {"byRole": "AXButton"}}


@pytest.mark.parametrize(
    ("words", "method", "params"),
    [
        ("windows", "windows", {}),
        ("observe --app a.b", "observe", {"route": {"app": {"bundleId": "a.b"}}}),
        ("observe --window ^t$", "observe", {"route": {"window": {"titlePattern": "^t$"}}}),
        ("observe --window w:1f", "observe", {"route": {"window": {"windowId": "w:1f"}}}),
        ("find --value x --limit 3", "find", {"selector": {"valueContains": "x", "limit": 3}}),
        ("click --role AXButton", "click", {"target": BUTTON}),
        ("click --double --role AXButton", "doubleClick", {"target": BUTTON}),
        ("click --right --ref e:7", "rightClick", {"target": {"elementRef": {"elementId": "e:7"}}}),
        ("click --title A --index 2", "click", {"target": {"selector": {"titleContains": "A", "index": 2}}}),
        ("type hello", "typeText", {"text": "hello"}),
        ("type hello --clear --ref e:1", "typeText", {"options": {"clearBefore": True}}),
        ("hotkey ctrl s", "hotkey", {"keys": ["ctrl", "s"]}),
        ("dialogs --app a.b", "listModals", {"route": {"app": {"bundleId": "a.b"}}}),
        ("dismiss --button OK", "dismissModal", {"button": "OK"}),
        ("dismiss --app a.b", "dismissModal", {"route": {"app": {"bundleId": "a.b"}}}),
        ("focus --app a.b", "focusWindow", {"route": {"app": {"bundleId": "a.b"}}}),
        ("wait --role AXButton", "waitUntil", {"condition": {"selectorExists": BUTTON["selector"]}}),
        ("wait --role AXButton --gone", "waitUntil", {"condition": {"selectorGone": BUTTON["selector"]}}),
        ("wait --titled saved", "waitUntil", {"condition": {"titleMatches": "saved"}}),
        ("wait --window-opens x", "waitUntil", {"condition": {"windowExists": {"titlePattern": "x"}}}),
        ("wait --stable --timeout 2", "waitUntil", {"condition": {"stable": {}}, "timeoutMs": 2000}),
        (
            "wait --role AXButton --contains 42",
            "waitUntil",
            {"condition": {"valueContains": {**BUTTON, "text": "42"}}},
        ),
    ],
)
def test_each_command_is_one_call(call_of, words, method, params):
    asked, what = call_of(words)
    assert asked == method
    assert {name: what[name] for name in params} == params
    assert "workspacePath" not in what


def test_a_secret_may_come_from_stdin_where_other_programs_cannot_see_it(call_of, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("päss\n"))
    assert call_of("type -")[1]["text"] == "päss\n"


def test_evidence_goes_where_one_says_or_into_this_directory_below_the_home(call_of, monkeypatch, tmp_path):
    assert call_of(["observe", "--workspace", str(tmp_path)])[1]["workspacePath"] == str(tmp_path)
    monkeypatch.setattr(desktop_ways.paths, "home", lambda: str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert call_of("observe")[1]["workspacePath"] == str(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    assert "workspacePath" not in call_of("observe")[1]


def test_the_option_no_wait_is_passed_on(call_of):
    call_of("click --ref e:1 --no-wait")
    call_of("click --ref e:1")
    assert [wait for _, _, wait in call_of.asked] == [False, True]


@pytest.mark.parametrize("words", ["click", "find", "wait", "focus"])
def test_what_names_nothing_is_refused_before_anybody_is_asked(call_of, words, capsys):
    assert main(["desktop", *words.split()]) == USAGE
    assert call_of.asked == []
    assert capsys.readouterr().err.startswith("bascule: ")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused_before_anybody_is_asked(call_of, seconds, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["desktop", "wait", "--title", "x", f"--timeout={seconds}"])
    assert (ended.value.code, call_of.asked) == (USAGE, [])
    assert "is not a number of seconds above zero" in capsys.readouterr().err


NO_WINDOW = {"code": "DESKTOP_ELEMENT_NOT_FOUND", "details": {"reason": "route"}}


@pytest.mark.parametrize(
    ("error", "details", "expected"),
    [
        (NotFound, {"code": "DESKTOP_ELEMENT_NOT_FOUND"}, (NOT_FOUND, "bascule desktop observe shows")),
        (NotFound, NO_WINDOW, (NOT_FOUND, "bascule desktop windows shows")),
        (PeerFailed, {"code": "DESKTOP_TIMEOUT"}, (NOTHING_CAME, "the daemon's own")),
        (Conflict, {"code": "DESKTOP_HOST_STOPPED"}, (REFUSED, "the daemon's own")),
    ],
)
def test_the_contracts_codes_are_exit_codes_and_hints_name_commands(monkeypatch, capsys, error, details, expected):
    def refused(*_, **__):
        raise error("no", hint="the daemon's own", details={"desktop": details})

    monkeypatch.setattr(desktop_ways, "ask_held", refused)
    code, hint = expected
    assert main(["desktop", "click", "--ref", "e:1"]) == code
    assert hint in capsys.readouterr().err


def test_a_question_stays_a_question(monkeypatch):
    def waits(*_, **__):
        raise ApprovalRequired("why", details={"desktop": {"code": "DESKTOP_CONFIRM_REQUIRED"}, "approvalId": "apr_1"})

    monkeypatch.setattr(desktop_ways, "ask_held", waits)
    args = build_parser("desktop").parse_args(["desktop", "click", "--ref", "e:1"])
    with pytest.raises(ApprovalRequired):
        desktop.run_click(args)


def test_titles_that_are_not_shown_are_said_to_be_so(monkeypatch, capsys):
    window = {"windowId": "w:1", "bundleId": "a.b", "title": "", "active": True, "forbidden": False}
    monkeypatch.setattr(desktop_ways, "ask_held", lambda *_, **__: {"windows": [window]})
    assert main(["desktop", "windows"]) == 0
    call_of = capsys.readouterr()
    assert call_of.out.split() == ["*", "w:1", "a.b", "-"]
    assert "apps that you may look at" in call_of.err
    assert main(["desktop", "windows", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["windows"] == [window]


def test_enabling_says_what_it_means_under_this_policy():
    standard = desktop_person._meaning(":1", "standard", "Ctrl+X")
    for words in ("on display :1", "once for each app", "10 minutes", "password managers", "press Ctrl+X"):
        assert words in standard
    other = desktop_person._meaning(None, "mine", "Ctrl+X")
    assert "bascule policy show" in other
    assert "10 minutes" not in other
    assert "of the daemon's session" in other


def test_without_a_display_enabling_is_refused_before_the_passphrase(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    args = build_parser("desktop").parse_args(["desktop", "enable"])
    with pytest.raises(WrongUsage, match="nor DISPLAY is set"):
        desktop_person.run_enable(args)


def test_an_unverified_click_says_for_how_long_a_change_was_looked_for(monkeypatch, capsys):
    monkeypatch.setattr(desktop_ways, "ask_held", lambda *_, **__: {**ANSWER, "watchedMs": 63})
    monkeypatch.setattr(desktop_ways.paths, "home", lambda: "/nonexistent")
    assert main(["desktop", "click", "--ref", "e:1"]) == 0
    assert "no change was seen within 63 ms" in capsys.readouterr().out
