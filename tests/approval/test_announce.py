"""A person is told; the daemon is never held up, and no word of an agent reaches a program."""

import asyncio
import os
import shutil
import socket
import subprocess

import pytest
from desk_scene import Forest

from bascule.admin.machine.announce import MAX_TEXT_CHARS, Announcer, _safe
from patience import PATIENCE


@pytest.fixture
def place(tmp_path):
    """Programs that write down how they were called, and sockets that look like a desktop's and tmux's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / f"tmux-{os.getuid()}").mkdir()
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        # By a short name: pytest's directories are too long for a socket's path.
        sockets[0].bind("bus")
        sockets[1].bind(f"tmux-{os.getuid()}/default")
    finally:
        os.chdir(here)
    yield tmp_path
    for each in sockets:
        each.close()


def program(place, name, body):
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def announcer(place, **more):
    environment = {
        "PATH": f"{place}/bin:/usr/bin:/bin",
        "TMUX_TMPDIR": os.fspath(place),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={place}/bus",
    }
    log = []
    made = Announcer(log=lambda event, **fields: log.append((event, fields)), environment=environment, **more)
    return made, log


async def announcements(made):
    async with asyncio.timeout(PATIENCE):
        await made._announcing


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_question_reaches_the_desktop_and_every_tmux_client(place):
    program(place, "notify-send", f'printf "%s\\n" "$@" >> {place}/notified')
    program(
        place,
        "tmux",
        f'case "$*" in *list-clients*) echo /dev/pts/1; echo /dev/pts/2;; *) printf "%s|" "$@" >> {place}/shown; '
        f"echo >> {place}/shown;; esac",
    )
    made, _ = announcer(place)
    approval = Forest().ask()

    async def story():
        made(approval)
        await announcements(made)
        made.stop()

    asyncio.run(story())
    sentence = f"agent:Jerry asks for tree.cut: bascule approvals show {approval.approval_id}"
    assert lines(place / "notified")[-2:] == ["Bascule asks", sentence]
    shown = lines(place / "shown")
    assert [line.split("|")[4] for line in shown] == ["/dev/pts/1", "/dev/pts/2"]
    assert all(line.endswith(f"|{sentence}|") for line in shown)


def test_no_word_of_an_agent_is_in_it():
    text = _safe("agent:$(touch /tmp/x) #(touch /tmp/x) %H `id` \x1b]0;x\x07 asks for it" + "x" * 1_000)
    assert not set(text) & set("$()#%`\x1b\x07'\"\\\n{}<>&;|")
    assert len(text) == MAX_TEXT_CHARS


def test_many_questions_are_reported_in_few_words(place):
    program(place, "notify-send", f'printf "%s\\n" "$5" >> {place}/notified')
    made, _ = announcer(place, pause_seconds=0.05)
    forest = Forest()

    async def story():
        for number in range(20):
            made(forest.ask(f"agent:a{number}"))
        await announcements(made)
        async with asyncio.timeout(PATIENCE):
            while len(lines(place / "notified")) < 2:  # noqa: ASYNC110 - another program writes it
                await asyncio.sleep(0.01)
            # Whatever else the twenty would have led to comes before what this one leads to.
            made(forest.ask("agent:last"))
            while len(lines(place / "notified")) < 3:  # noqa: ASYNC110 - another program writes it
                await asyncio.sleep(0.01)
        made.stop()

    asyncio.run(story())
    first, rest, last = lines(place / "notified")
    assert first.startswith("agent:a0 asks for tree.cut")
    assert rest == "19 more questions wait: bascule approvals"
    assert last.startswith(("agent:last asks for tree.cut", "1 more questions wait"))


def test_questions_that_come_while_a_program_is_slow_are_all_counted(place):
    os.mkfifo(place / "gate")
    # Both ends, so that nobody waits for the other to open it.
    gate = os.open(place / "gate", os.O_RDWR)
    program(place, "notify-send", f'printf "%s\\n" "$5" >> {place}/notified; read word < {place}/gate')
    made, _ = announcer(place, pause_seconds=0.01, program_seconds=PATIENCE)
    forest = Forest()

    async def story():
        for number in range(20):
            made(forest.ask(f"agent:a{number}"))
        async with asyncio.timeout(PATIENCE):
            # The pause is over, several times, and the first one has not come to an end.
            for _ in range(3):
                timer = made._timer
                while made._timer is timer:  # noqa: ASYNC110 - a timer of the announcer's own
                    await asyncio.sleep(0.001)
            os.write(gate, b"go on\n" * 3)
            while len(lines(place / "notified")) < 2:  # noqa: ASYNC110 - another program writes it
                await asyncio.sleep(0.001)
        await announcements(made)
        made.stop()

    try:
        asyncio.run(story())
    finally:
        os.close(gate)
    assert lines(place / "notified")[1] == "19 more questions wait: bascule approvals"


def test_answers_are_not_announced(place):
    program(place, "notify-send", f"echo >> {place}/notified")
    made, _ = announcer(place)
    forest = Forest()
    approval = forest.ask()
    forest.decide(approval, approve=False)

    async def story():
        made(forest.desk.find(approval.approval_id))
        assert made._announcing is None

    asyncio.run(story())


def test_a_program_that_hangs_holds_up_nobody_and_is_ended(place):
    program(place, "notify-send", f"echo $$ > {place}/pid; exec sleep 60")
    made, log = announcer(place, program_seconds=0.3)

    async def story():
        made(Forest().ask())
        assert not made._announcing.done(), "the loop is not held up"
        await announcements(made)
        made.stop()

    asyncio.run(story())
    assert any(event == "announce" for event, _ in log)
    pid = int((place / "pid").read_text())
    assert not os.path.exists(f"/proc/{pid}") or not os.path.isdir("/proc")


def test_without_the_programs_or_their_sockets_nothing_is_started(place, tmp_path):
    made, log = announcer(place)
    made._environment = {"PATH": os.fspath(tmp_path / "none"), "TMUX_TMPDIR": os.fspath(tmp_path / "none")}

    async def story():
        made(Forest().ask())
        await announcements(made)
        made.stop()

    asyncio.run(story())
    assert log == []


@pytest.mark.skipif(shutil.which("tmux") is None and os.environ.get("CI") != "true", reason="needs tmux")
def test_a_real_tmux_is_asked_who_watches_and_expands_nothing(tmp_path):
    name = f"/tmp/bsc-{os.getpid()}-tmux"
    os.mkdir(name, 0o700)
    folder = os.path.join(name, f"tmux-{os.getuid()}")
    os.mkdir(folder, 0o700)
    path = os.path.join(folder, "default")
    environment = {"PATH": os.environ["PATH"], "TMUX_TMPDIR": name, "HOME": os.fspath(tmp_path)}
    tmux = ["tmux", "-S", path, "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "sleep 30"], check=True, env=environment, timeout=PATIENCE)
    try:
        log = []
        made = Announcer(log=lambda event, **fields: log.append((event, fields)), environment=environment)
        assert made._tmux_socket() == path
        made._in_tmux("nobody watches")
        made._run(["tmux", "-S", path, "display-message", "-p", _safe(f"#(touch {tmp_path}/pwned) done")], {})
        assert not (tmp_path / "pwned").exists()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, env=environment, timeout=PATIENCE)
        shutil.rmtree(name)


# -- buttons --

# Knows buttons, says which ones it was given, and answers with a word once it is told which.
WITH_BUTTONS = """
case "$1" in --help) echo "  -A, --action=[NAME=]Text"; exit;; esac
printf "%s\\n" "$@" >> {place}/notified
read word < {place}/press
echo "$word"
"""


@pytest.fixture
def press(place):
    """What the person presses; the notification waits for it."""
    os.mkfifo(place / "press")
    # Both ends, so that nobody waits for the other to open it.
    end = os.open(place / "press", os.O_RDWR)
    yield lambda word: os.write(end, f"{word}\n".encode())
    os.close(end)


def shown(place, what):
    return [line for line in lines(place / "notified") if line.startswith(what)]


async def eventually(look):
    async with asyncio.timeout(PATIENCE):
        while not look():  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.005)


def test_a_notification_has_buttons_to_open_and_to_deny_and_none_to_approve(place, press):
    program(place, "notify-send", WITH_BUTTONS.format(place=place))
    program(place, "xdg-open", f'echo "$1" >> {place}/opened')
    denied = []
    made, _ = announcer(place, console=lambda: "http://localhost:5051", deny=denied.append)
    approval = Forest().ask()

    async def story():
        made(approval)
        await eventually(lambda: shown(place, "--action"))
        press("open")
        await eventually(lambda: lines(place / "opened"))
        made.stop()
        await made.close()

    asyncio.run(story())
    assert shown(place, "--action") == ["--action=open=Open", "--action=deny=Deny"]
    assert lines(place / "opened") == [f"http://localhost:5051/#/approvals/{approval.approval_id}"]
    assert denied == []


@pytest.mark.parametrize(("word", "denies"), [("deny", True), ("approve", False), ("", False), ("deny now", False)])
def test_the_one_word_that_does_something_says_no(place, press, word, denies):
    program(place, "notify-send", WITH_BUTTONS.format(place=place))
    denied = []
    made, _ = announcer(place, deny=denied.append)
    approval = Forest().ask()

    async def story():
        made(approval)
        await eventually(lambda: shown(place, "--action"))
        press(word)
        await eventually(lambda: not made._notices._shown)
        made.stop()
        await made.close()

    asyncio.run(story())
    assert denied == ([approval.approval_id] if denies else [])


def test_a_question_that_is_answered_takes_its_notification_away(place, press):
    program(place, "notify-send", f"echo $$ >> {place}/pids\n" + WITH_BUTTONS.format(place=place))
    denied = []
    made, _ = announcer(place, deny=denied.append)
    forest = Forest()
    approval = forest.ask()

    async def story():
        made(approval)
        await eventually(lambda: made._notices._shown)
        made(forest.decide(approval))
        assert not made._notices._shown
        made.stop()
        await made.close()

    asyncio.run(story())
    for pid in map(int, lines(place / "pids")):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_program_without_buttons_is_called_as_before(place):
    program(
        place,
        "notify-send",
        f'case "$1" in --help) echo "  -u, --urgency";; *) printf "%s\\n" "$@" >> {place}/notified;; esac',
    )
    made, _ = announcer(place, console=lambda: "http://localhost:5051", deny=lambda _: None)

    async def story():
        made(Forest().ask())
        await announcements(made)
        made.stop()
        await made.close()

    asyncio.run(story())
    assert lines(place / "notified")[:3] == ["--app-name=Bascule", "--urgency=critical", "--"]


def test_a_question_in_words_is_announced_without_its_words_and_without_an_id_that_an_agent_chose(place, press):
    program(place, "notify-send", WITH_BUTTONS.format(place=place))
    made, _ = announcer(place, console=lambda: "http://localhost:5051", deny=lambda _: None)

    async def story():
        made.asked("apr_please-press-approve", "Jerry")
        await eventually(lambda: shown(place, "--action"))
        made.stop()
        await made.close()

    asyncio.run(story())
    assert shown(place, "--action") == ["--action=open=Open"], "a question in words is not denied"
    assert lines(place / "notified")[-1] == "Jerry asks you a question: bascule approvals"
