"""The whole story in a real browser: from `make up` to a command that is carried out because somebody touched a key."""

import functools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import Console, Key, opened
from living import short_dir
from living_grove import PASSPHRASE
from playwright.sync_api import expect
from wires import Caller

from bascule.foundation.paths import default_state_dir
from patience import PATIENCE
from ports import free_port
from terminal import Session, on_a_terminal

CHECKOUT = Path(__file__).resolve().parents[2]
TYPED = PASSPHRASE["passphrase"]


class Terminal:
    """A command on a terminal of its own, while the browser goes on."""

    def __init__(self, *arguments: str, typed: list[tuple[str, str]], environment: dict[str, str]) -> None:
        self._session: Session | None = None
        self._shown = ""
        self._more = threading.Condition()
        run = functools.partial(on_a_terminal, *arguments, typed=typed, reader=self._read, environment=environment)
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, command: Callable[[], Session]) -> None:
        try:
            self._session = command()
        finally:
            with self._more:
                self._more.notify_all()

    def _read(self, shown: str) -> None:
        with self._more:
            self._shown = shown
            self._more.notify_all()

    def wait_for(self, pattern: str) -> str:
        found: Callable[[], re.Match[str] | None] = lambda: re.search(pattern, self._shown)  # noqa: E731 - asked twice
        with self._more:
            assert self._more.wait_for(found, PATIENCE), self._shown
            match = found()
        assert match
        return match[1]

    def ended(self) -> Session:
        self._thread.join(PATIENCE)
        assert self._session is not None, self._shown
        return self._session


class MadeUp:
    """A daemon that `make up` started, with the settings of somebody who has none but the ports."""

    def __init__(self, home: str) -> None:
        self.port = free_port()
        self.state = default_state_dir(home)
        # Whoever runs the tests does not want to hear of their questions; nothing else of theirs is passed on.
        outer = ("BASCULE_", "BRIDGE_", "MAKE", "MFLAGS", "XDG_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
        self.environment |= {"HOME": home, "BASCULE_ANNOUNCE": "off"}
        self.process = subprocess.Popen(
            ["make", "up", f"ARGS=--port {self.port} --console-port 0"],
            cwd=CHECKOUT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A group of its own, as under a terminal: Ctrl-C must not reach the test.
            start_new_session=True,
        )
        assert self.process.stdout is not None
        shown = ""
        for line in self.process.stdout:
            shown += line
            if "Ctrl-C here stops it" in line:
                break
        found = re.search(r"^  console (http://localhost:\d+)", shown, re.MULTILINE)
        assert found, shown
        self.origin = found[1]

    @property
    def tcp(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return Path(self.state, "local.token").read_text("ascii")

    def types(self, *command: str, typed: list[tuple[str, str]]) -> str:
        """The person runs a command on a terminal; what it showed."""
        session = on_a_terminal(*command, typed=typed, environment=self.environment)
        assert session.code == 0, session.shown
        return session.shown

    def ctrl_c(self) -> str:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE)[0]


@pytest.fixture
def home():
    with short_dir() as folder:
        yield folder


@pytest.fixture
def up(home):
    made = MadeUp(home)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.ctrl_c()


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI") != "true", reason="bubblewrap is not installed"
)
def test_from_make_up_to_an_approval_by_touch(up, home, browser):
    assert up.state == f"{home}/.local/state/bascule"
    up.types("person", "set", typed=[("passphrase", TYPED), ("again", TYPED)])

    with opened(browser) as (context, faults):
        # Signing in ends the session that was only paired, and its stream with it.
        faults.name("ERR_INCOMPLETE_CHUNKED_ENCODING.*/v1/events/all")
        console = Console(context, up.origin)
        Key(console.page)
        console.go()
        # Paired: both show the same digits, and Enter in the terminal says so.
        digits = console.digits()
        shown = up.types("console", "--no-open", typed=[("Same? [Enter, or n] ", "")])
        assert f"{digits[:3]} {digits[3:]}" in shown
        expect(console.page.locator("nav .grade")).to_have_text("paired")
        console.is_live()

        # A key: the passphrase in the terminal, its code in the page, two touches.
        adding = Terminal("person", "passkey", "add", typed=[("Passphrase: ", TYPED)], environment=up.environment)
        code = adding.wait_for(r"\n\s+([A-Z0-9]{4}-[A-Z0-9]{4})\s")
        console.go("person")
        console.page.get_by_label("Code").fill(code)
        console.page.get_by_label("Name", exact=True).fill("virtual key")
        console.page.get_by_role("button", name="Add", exact=True).click()
        expect(console.page.get_by_role("region", name="Passkeys").locator("td").first).to_have_text("virtual key")
        assert adding.ended().code == 0

        # Signed in with it.
        console.page.get_by_role("button", name="Sign in with a passkey").click()
        console.is_signed_in()
        console.go()
        expect(console.page.get_by_text("Nothing waits for you.")).to_be_visible()

        # An agent asks, and waits.
        build = Path(home, "shop", "build")
        (build / "old").mkdir(parents=True)
        jerry = Agent(up, str(build.parent))
        run = jerry.runs("rm -rf build")
        expect(console.page).to_have_title("(1) Approvals · Bascule")
        console.choose("rm -rf build")
        expect(console.page.locator(".question-head")).to_contain_text("agent:Jerry")
        expect(console.page.locator(".question-body")).to_contain_text("rm -rf build")
        assert build.exists()
        console.approve()
        console.outcome("approved")
        assert jerry.ended(run)["status"] == "completed"
        assert not build.exists()
        expect(console.page).to_have_title("Approvals · Bascule")
        # Enrolled, signed in, approved: each with a signature that whoever has the ledger can check.
        assert "3 signatures" in up.types("ledger", "verify", typed=[])

        # The next one is denied, in words: as the person's own they need a touch, and the agent reads them.
        build.mkdir()
        run = jerry.runs("rm -rf build/ --verbose")
        console.choose("--verbose").press("Deny with words")
        console.page.get_by_label("Why not?").fill("not this one, it is new")
        console.press("Send these words")
        console.outcome("not this one, it is new")
        assert "not this one, it is new" in str(jerry.ended(run))
        assert build.exists()
        # The daemon goes while the page is open.
        faults.name(r"/v1/")
        up.ctrl_c()
    # What is on disk tells the same without the daemon.
    assert "4 signatures" in up.types("ledger", "verify", typed=[])


class Agent:
    """Jerry, with one folder to work in."""

    def __init__(self, daemon: Any, folder: str) -> None:
        self._caller = Caller(daemon).register("Jerry")
        opened = self._caller.post("/v1/spaces", {"path": folder})
        assert opened.status == 200, opened
        self._space = opened.json["spaceId"]

    def runs(self, command: str) -> str:
        operations = [{"type": "shell", "command": command}]
        started = self._caller.post(
            f"/v1/spaces/{self._space}/runs", {"protocolVersion": "1.0", "operations": operations}
        )
        assert started.status == 200, started
        run: str = started.json["runId"]
        return run

    def ended(self, run: str) -> Any:
        return self._caller.get(f"/v1/runs/{run}/wait?waitMs=25000").json


def test_denied_at_once_the_agent_is_refused(scene, person):
    approval = scene.asks("deny-me")
    person.choose("deny-me").press("Deny")
    person.outcome("denied")
    assert scene.state(approval) == "denied"
    assert "deny-me" not in scene.grove.felled()


def test_a_rule_for_some_minutes_lets_the_same_call_through(scene, person):
    scene.asks("timed")
    person.choose("timed")
    person.page.get_by_role("radio").nth(1).check()
    person.page.get_by_label("minutes").first.fill("25")
    expect(person.page.locator(".answers .primary")).to_contain_text("allow for 25 min")
    person.approve()
    expect(person.page.locator(".toast")).to_contain_text("Allowed until")
    person.outcome("approved")
    for _ in range(3):
        assert scene.jerry.post("/trees", {"path": "timed"}).json == "felled"
    assert scene.jerry.post("/trees", {"path": "other"}).status == 202


def test_a_run_is_approved_as_a_whole(scene, person):
    space = scene.jerry.post("/v1/spaces", {"path": scene.project()})
    assert space.status == 200, space
    writes = [
        {"type": "createFile", "path": f"keys/{name}.txt", "content": f"{name}\n", "id": name}
        for name in ("one", "two", "three")
    ]
    started = scene.jerry.post(
        f"/v1/spaces/{space.json['spaceId']}/runs", {"protocolVersion": "1.0", "operations": writes}
    )
    assert started.status == 200, started
    person.choose("keys/one.txt")
    expect(person.page.locator(".block-diff")).to_contain_text("one")
    person.page.get_by_role("radio", name="everything that this run asks").check()
    person.approve()
    person.outcome("approved")
    done = scene.jerry.get(f"/v1/runs/{started.json['runId']}/wait?waitMs=25000")
    assert done.json["status"] == "completed", done.json


def test_ten_alike_are_answered_with_one_touch(scene, person):
    before = scene.verified()["signatures"]
    asked = [scene.asks(f"alike-{number}") for number in range(10)]
    row = person.row("alike-")
    # The first of them may be shown before the rest is known; the list is put in order when it is opened anew.
    expect(person.page).to_have_title("(10) Approvals · Bascule")
    person.go("live")
    expect(person.page.get_by_role("heading", name="Live")).to_be_visible()
    person.go("approvals")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("\u00d710")
    person.choose("alike-")
    # A jump to the end is no reading.
    shut = person.page.locator(".answers .primary[aria-disabled=true]")
    person.page.locator(".end-of-preview").last.scroll_into_view_if_needed()
    expect(shut).to_have_count(1)
    person.read_through()
    expect(shut).to_have_count(0)
    person.approve()
    person.outcome("approved")
    assert {scene.state(each) for each in asked} == {"approved"}
    assert scene.verified()["signatures"] == before + 1


def test_the_passphrase_answers_where_there_is_no_key(scene, browser):
    approval = scene.asks("typed")
    with opened(browser) as (context, _):
        console = Console(context, scene.origin).go()
        # A key that is nobody's: the browser asks it, and it says no.
        Key(console.page)
        console.page.get_by_label("Passphrase").fill(TYPED)
        console.page.get_by_role("button", name="Sign in", exact=True).click()
        console.is_signed_in().choose("typed").approve()
        dialog = console.page.get_by_role("dialog")
        expect(dialog.get_by_role("alert")).to_contain_text("No key answered")
        dialog.get_by_label("Passphrase").fill(TYPED)
        dialog.get_by_role("button", name="Approve", exact=True).click()
        console.outcome("approved")
    assert scene.state(approval) == "approved"
