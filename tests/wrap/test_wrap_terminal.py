"""Real programs in the wrapper, as the person in front of it sees them."""

import os
import select
import signal
import subprocess
import sys

import pytest
from living import eventually
from person import Person

from patience import PATIENCE

CURSES = """
import curses, sys

def main(screen):
    curses.use_default_colors()
    while True:
        rows, columns = screen.getmaxyx()
        screen.erase()
        screen.border(*map(ord, '||--++++'))
        screen.addstr(1, 2, f"size {columns}x{rows}")
        screen.refresh()
        key = screen.getch()
        if key == ord("q"):
            return
        screen.addstr(2, 2, f"key {key}")
        screen.refresh()

curses.wrapper(main)
sys.exit(9)
"""


def bash(wrap, agent, **more):
    person = wrap(agent, "bash", "--norc", "--noprofile", **more)
    person.sees(r"^\$")
    return person


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def box(columns, rows):
    """The golden screen of the curses program."""
    edge = "+" + "-" * (columns - 2) + "+"
    first = f"| size {columns}x{rows}".ljust(columns - 1) + "|"
    return [edge, first, *["|" + " " * (columns - 2) + "|"] * (rows - 3), edge]


def test_bash_looks_as_it_does_without(wrap, agents):
    person = bash(wrap, agents[0], columns=40, rows=8)
    person.type("printf '\\033[31mred\\033[0m\\n'; stty size\r")
    person.sees(r"^8 40\n\$")
    assert person.lines == ["$ printf '\\033[31mred\\033[0m\\n'; stty si", "ze", "red", "8 40", "$"]
    assert person.screen.buffer[2][0].fg == "red"
    person.type("exit 7\r")
    assert person.ends() == 7


def test_dash_looks_as_it_does_without(wrap, agents):
    person = wrap(agents[0], "dash", columns=40, rows=8)
    person.sees(r"^\$")
    person.type("echo $((6*7)); tty >/dev/null && echo terminal\r")
    person.sees(r"^terminal\n\$")
    assert person.lines == ["$ echo $((6*7)); tty >/dev/null && echo", "terminal", "42", "terminal", "$"]
    person.type("exit 3\r")
    assert person.ends() == 3


def test_the_python_repl_looks_as_it_does_without(wrap, agents):
    person = wrap(agents[0], sys.executable, "-q", columns=60, rows=10)
    person.sees("^>>>")
    person.type("for i in range(2):\r    print(i)\r\r")
    person.sees(r"^1\n>>>")
    assert person.lines == [">>> for i in range(2):", "...     print(i)", "...", "0", "1", ">>>"]
    person.type("exit(4)\r")
    assert person.ends() == 4


def test_a_full_screen_program_is_drawn_and_redrawn_when_the_window_changes(wrap, agents):
    # A terminal that the emulator of these tests knows every word of.
    person = wrap(agents[0], sys.executable, "-c", CURSES, columns=30, rows=6, environment={"TERM": "screen"})
    person.sees("size 30x6")
    person.still(0.2)
    assert person.lines == box(30, 6)
    person.resize(5, 26)
    person.sees("size 26x5")
    person.still(0.2)
    assert person.lines == box(26, 5)
    person.type("q")
    assert person.ends() == 9
    # Back on the first screen, as the program left it.
    assert b"\x1b[?1049l" in person.shown


def test_ctrl_c_interrupts_what_runs_and_not_the_wrapper(wrap, agents):
    person = bash(wrap, agents[0])
    person.type("echo o''n; sleep 1000\r")
    person.sees("^on$")
    person.type("\x03")
    person.sees(r"\^C\n\$")
    person.type("echo $?\r")
    person.sees(r"^130$")


def test_jobs_of_a_wrapped_shell_are_its_own(wrap, agents):
    person = bash(wrap, agents[0])
    person.type("echo o''n; sleep 1000\r")
    person.sees("^on$")
    person.type("\x1a")
    person.sees("Stopped +.*sleep 1000")
    person.type("kill %1; fg\r")
    person.sees(r"Terminated|sleep 1000\n\$")


def test_ctrl_z_stops_program_and_wrapper_and_fg_continues_both(wrap, agents, daemon):
    """The wrapper as a job of the person's own shell."""
    outer = Person(["bash", "--norc", "--noprofile"])
    try:
        outer.sees(r"^\$")
        words = (
            f"{sys.executable} -P -m bascule.programs.wrap.command --no-start --state-dir {daemon.state} --agent "
            f"{agents[0]}"
        )
        outer.type(f"clear; PS1='in ' {words} -- sh -c 'echo r''uns; exec cat'\r")
        outer.sees("^runs$")
        outer.type("first\r")
        outer.sees("first\nfirst")
        outer.type("\x1a")
        outer.sees("Stopped")
        outer.type("echo out$((1+1))side\r")
        outer.sees("^out2side")
        outer.type("fg\r")
        outer.sees("^PS1=|bascule.programs.wrap.command", 5)
        outer.still(0.3)
        outer.type("second\r")
        outer.sees("second\nsecond")
        outer.type("\x04")
        outer.sees(r"second\nsecond\n\$")
        outer.type("echo code $?\r")
        outer.sees("^code 0")
    finally:
        outer.leave()


def test_a_stop_that_nobody_could_end_is_ended_at_once(wrap, agents):
    """The wrapper leads the session here, as in a tmux pane: nobody could say `fg`."""
    person = wrap(agents[0], "sh", "-c", "echo it runs; exec cat")
    person.sees("it runs")
    person.type("\x1a")
    person.type("still here\r")
    person.sees("still here\nstill here")


def test_a_program_killed_by_a_signal_is_reported_as_shells_do(wrap, agents):
    person = bash(wrap, agents[0])
    person.type("kill -9 $$\r")
    assert person.ends() == 128 + signal.SIGKILL


def test_the_terminal_of_a_killed_program_is_put_back(wrap, agents):
    person = wrap(agents[0], sys.executable, "-c", "print('\\33[?1049h\\33[?1000hup',end='',flush=1);input()")
    person.sees("up")
    os.kill(child_of(child_of(person.pid)), signal.SIGKILL)
    assert person.ends() == 137
    assert person.shown.endswith(b"\x1b[?1000l\x1b[?1049l\x1b[?25h")


def test_a_program_that_is_not_there_is_said_to_be(wrap, agents):
    person = wrap(agents[0], "no-such-program-anywhere")
    assert person.ends() == 127
    assert "bridge-wrap: no-such-program-anywhere: command not found" in "\n".join(person.lines)


def test_closing_the_window_ends_the_program(wrap, agents):
    person = wrap(agents[0], "dash")
    person.sees(r"^\$")
    person.type("echo pid=$$.\r")
    pid = int(person.sees(r"pid=(\d+)")[1])
    person.leave()
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the program is gone")


def test_sigterm_reaches_the_program_and_a_shell_that_ignores_it_is_hung_up(wrap, agents):
    for agent, ways in zip(agents, ("exec sleep 1000", "trap '' TERM; while :; do sleep 1; done"), strict=True):
        person = wrap(agent, "sh", "-c", f"echo it runs; {ways}")
        person.sees("it runs")
        os.kill(person.pid, signal.SIGTERM)
        assert person.ends() == 128 + signal.SIGTERM


def piped(daemon, agent, *command, stdin, **more):
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
    return subprocess.run(
        [*words, "--agent", agent, "--", *command],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        **more,
    )


def test_without_a_terminal_bytes_pass_as_they_are(daemon, agents):
    done = piped(daemon, agents[0], "cat", stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\ntwo\n", b"")


def test_without_a_terminal_the_program_has_one_and_its_exit_code_counts(daemon, agents, tmp_path):
    done = piped(daemon, agents[0], "sh", "-c", "test -t 0 && test -t 1 && echo terminal; exit 6", stdin=b"")
    assert (done.returncode, done.stdout) == (6, b"terminal\n")
    # A file can be neither waited for nor read twice.
    path = tmp_path / "lines"
    path.write_bytes(b"line\n" * 5000)
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
    with path.open("rb") as file:
        done = subprocess.run(
            [*words, "--agent", agents[1], "--", "wc", "-l"],
            stdin=file,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.stdout.strip() == b"5000"


def test_output_is_complete_when_the_reader_is_slow(daemon, agents):
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
    reader, writer = os.pipe()
    with (
        open(reader, "rb") as slow,
        open(writer, "wb") as full,
        subprocess.Popen(
            [*words, "--agent", agents[0], "--", "seq", "200000"], stdin=subprocess.DEVNULL, stdout=full
        ) as running,
    ):
        # Not a byte more fits in: the wrapper has to keep what the program writes, or let it wait.
        eventually(lambda: not select.select([], [full], [], 0)[1], "the pipe is full")
        full.close()
        out = slow.read()
    assert out == b"".join(b"%d\n" % number for number in range(1, 200_001))
    assert running.returncode == 0


def wrapper(daemon, agent, *command, options=()):
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
    return [*words, "--agent", agent, *options, "--", *command]


def test_a_reader_that_leaves_ends_the_program_as_a_pipe_would(daemon, agents):
    with subprocess.Popen(
        wrapper(daemon, agents[0], "yes"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout.readline() == b"y\n"
        running.stdout.close()
        assert running.wait(timeout=PATIENCE) == 128 + signal.SIGPIPE
        assert running.stderr.read() == b""


def test_output_that_finds_no_room_is_reported(daemon, agents):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            wrapper(daemon, agents[0], "echo", "lost"),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert done.stderr == b"bridge-wrap: the program's output is not complete: No space left on device\n"


def test_a_recording_that_finds_no_room_costs_the_person_nothing(daemon, agents, tmp_path):
    done = piped(daemon, agents[0], "seq", "5000", stdin=b"")
    for path, expected in (("/dev/full", b"bridge-wrap: the recording is not complete: No space left on device\n"),):
        recorded = subprocess.run(
            wrapper(daemon, agents[1], "seq", "5000", options=["--record", path]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, done.stdout, expected)
    # One that was there before, open to everybody, is so no more: what is typed is in it.
    kept = tmp_path / "cast"
    kept.touch(0o644)
    subprocess.run(
        wrapper(daemon, agents[1], "true", options=["--record", str(kept)]),
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )
    assert kept.stat().st_mode & 0o777 == 0o600


def test_without_any_descriptors_the_program_runs_and_nothing_is_taken_for_keys(daemon, agents):
    """0, 1 and 2 would be the next sockets and pipes that are opened."""
    command = wrapper(daemon, agents[0], "sh", "-c", "read line && exit 9; test -t 0 && exit 7")
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], timeout=PATIENCE, check=False)
    assert done.returncode == 7


def test_a_daemon_that_is_away_does_not_keep_the_program_from_running(agents, tmp_path):
    words = [
        sys.executable,
        "-P",
        "-m",
        "bascule.programs.wrap.command",
        "--state-dir",
        str(tmp_path / "s"),
        "--no-start",
    ]
    done = subprocess.run(
        [*words, "--agent", "J", "--", "echo", "ran"], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"ran\n")
    assert b"Bascule is not running" in done.stderr
    assert b"going on without it; J joins when it runs" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--agent", "J"], "which program? Write it behind `--`"),
        (["--", "true"], "which agent?"),
        (["--agent", "a b", "--", "true"], "is not a handle"),
        (["--agent", "J", "--profile", "vms", "--", "true"], "there is no profile 'vms'"),
        (["--agent", "J", "--ticket", "no/ticket", "--", "true"], "is not a ticket id"),
    ],
)
def test_wrong_usage_is_reported_with_what_to_write(words, expected):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bascule.programs.wrap.command", *words],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_program_that_is_treated_as_another_by_its_type_is_named_with_the_profile(wrap, agents):
    person = wrap(agents[0], "id", options=("--type", "bash"))
    person.sees("uid=")
    expected = " ".join(person.shown.decode().split())
    assert "is treated as bash-5.2, by --type" in expected


def test_what_is_said_before_a_program_that_fills_the_screen_stays_until_a_key(wrap, agents, tmp_path):
    """Without pyte no bell is typed for such a program; the warning would be hidden at once."""
    hidden = tmp_path / "hidden"
    (hidden / "pyte").mkdir(parents=True)
    # A package that cannot be found: the finder of this directory says so before any other is asked.
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pyte' else find(name, *rest)\n"
    )
    program = "import sys; sys.stdout.write('\\x1b[?1049h\\x1b[2J full'); sys.stdout.flush(); input()"
    person = wrap(
        agents[0],
        sys.executable,
        "-c",
        program,
        options=("--type", "codex"),
        environment={"PYTHONPATH": str(hidden)},
    )
    person.sees("cannot be read without pyte")
    person.type("x")
    person.sees("full")
