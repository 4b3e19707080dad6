"""The bench runs at all, judges rightly, and writes only where it should. How fast anything is, is not a test's
business."""

import contextlib
import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from patience import PATIENCE

BENCH = Path(__file__).resolve().parent.parent / "bench"
SVG = "{http://www.w3.org/2000/svg}"
# Contenders that need nothing but what the tests install.
OWN = ("link", "client", "bare", "forward", "poll")


@pytest.fixture
def bench(monkeypatch):
    """Modules of the bench by name, forgotten afterwards: their names are short and belong to nobody else."""
    monkeypatch.syspath_prepend(str(BENCH))
    own = {file.stem for file in BENCH.glob("*.py")}
    yield importlib.import_module
    for name in own & set(sys.modules):
        del sys.modules[name]


def test_one_quick_measure_prints_a_table_with_every_call_of_an_ask():
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", "cpu", "--only", "scale-tickets"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for method in ("messages.send", "inbox.take", "inbox.ack", "replies.post", "replies.wait"):
        assert done.stdout.count(f"`{method}`") >= 2
    assert "A call with 100,000 open tickets" in done.stdout
    assert "wrote" not in done.stdout


def test_a_quick_look_at_tools_through_the_stdio_program_has_every_row():
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", "mcp"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(row in done.stdout for row in ("co_workers", "send_message", "wait_for_message", "program's CPU"))


@pytest.mark.parametrize(
    ("measures", "rows", "goals"),
    [
        (
            ("game-calls",),
            (
                *("asyncio, Content-Length and JSON", "the same echo as its mod", "a mod with our SDK"),
                *("in memory", "ledger on disk", "through `bascule mcp`", "header and body apart"),
            ),
            ("a bare echo of its frames", "our SDK as the mod"),
        ),
        (
            ("game-events", "game-scale", "game-pump", "game-frames"),
            ("10 readers", "4 games", "60 channels", "a loop that computes", "`echo`", "`work`", "an agent calls"),
            ("beside 20 games", "`mod.poll` in a flood", "with an agent / without"),
        ),
    ],
    ids=["calls", "the rest"],
)
def test_the_quick_measures_of_games_print_every_row_and_judge_their_goals(measures, rows, goals):
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", *(word for each in measures for word in ("--only", each))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables, _, judged = done.stdout.partition("Goals")
    assert [each for each in rows if each not in tables] == []
    assert [each for each in goals if each not in judged] == []
    if "game-calls" in measures and importlib.util.find_spec("pygls") is not None:
        assert "pygls' read loop at both ends" in tables
        assert "pygls' framing" in judged


@pytest.mark.parametrize(
    ("measures", "rows", "goals"),
    [
        (
            ("mesh",),
            ("an agent of another machine", "an agent here, no mesh", "NATS core", "(the limit)"),
            ("a bare NATS request and a local ask on disk", "asks per second / asks of agents here"),
        ),
        (("mesh-local",), ("Bascule, in a mesh", "Bascule, in none"), ("A local ask in a mesh",)),
        (
            ("mesh-node", "mesh-directory"),
            (
                *("1,000 letters for a node that was away", "A node that has nothing to do, CPU"),
                *("a sign of life again", "found: `Jerry-7-3`", "memory per node"),
            ),
            ("until all are in its inboxes", "has nothing to do, CPU", "Of a mesh of 1,000 nodes"),
        ),
    ],
    ids=["asks", "at home", "nodes"],
)
def test_the_quick_measures_of_the_mesh_print_every_row_and_judge_their_goals(measures, rows, goals):
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", *(word for each in measures for word in ("--only", each))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables, _, judged = done.stdout.partition("Goals")
    assert [each for each in rows if each not in tables] == []
    assert [each for each in goals if each not in judged] == []


@contextlib.contextmanager
def contender(bench, kind: str, directory: str):
    processes, measure_ask = bench("processes"), bench("measure_ask")
    servers = {
        "poll": lambda: processes.http_program("poll_broker", directory),
        "bare": lambda: processes.bare_broker(directory),
        "forward": lambda: processes.bare_broker(directory),
    }
    start = servers.get(kind, lambda: processes.bascule(f"{directory}/state", durability="memory"))
    with start() as server, measure_ask.receiver(kind, server) as receiver:
        yield measure_ask.Contender(kind, kind, server, receiver)


@pytest.mark.parametrize("kind", OWN)
def test_two_clients_get_their_answers_through(bench, kind, tmp_path):
    with contender(bench, kind, str(tmp_path)) as asked:
        figures = bench("measure_ask").run_asker(asked, 2, 0.05)
    assert figures["p99_us"] >= figures["p50_us"] > 0
    assert figures["per_second"] > 0
    if sys.platform == "linux":
        assert figures["server_us"] > 0
        assert figures["asker_us"] > 0
        assert figures["receiver_us"] > 0


def test_a_contender_that_fails_is_named(bench, tmp_path):
    with contender(bench, "bare", str(tmp_path)) as asked:
        pass
    with pytest.raises(RuntimeError, match=r"^bare: .*"):
        bench("measure_ask").run_asker(asked, 1, 0.05)


def test_the_poll_broker_hands_each_message_over_once(bench, tmp_path):
    broker = bench("poll_broker").Broker(str(tmp_path / "poll.db"))
    for text in ("one", "two"):
        broker.send({"from": "Tom", "to": "Jerry", "text": text})
    assert broker.poll({"id": "Tom"}) == []
    assert [each["text"] for each in broker.poll({"id": "Jerry"})] == ["one", "two"]
    assert broker.poll({"id": "Jerry"}) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the bench says ? for other processes' CPU elsewhere")
def test_cpu_of_another_process_is_what_it_computed_not_how_long_it_lived(bench):
    cpu_seconds = bench("processes").cpu_seconds
    used = {}
    for name, program in {
        "computes": "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()",
        "sleeps": "import time\ntime.sleep(0.4)\nprint(flush=True); input()",
    }.items():
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            used[name] = cpu_seconds(child.pid)
            child.stdin.close()
    assert used["computes"] >= 0.3
    assert used["sleeps"] < 0.3


# -- what limits --


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.97, 0.5, 0.2), "server"),
        ((0.95, 0.95, None), "server and asker"),
        ((0.3, 0.2, 0.1), "waiting"),
        ((0.85, 0.85, 0.6), "the cores"),
    ],
)
def test_the_report_names_the_side_that_had_no_time_left(bench, monkeypatch, shares, expected):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    figures = dict(zip(("server_busy", "asker_busy", "receiver_busy"), shares, strict=True))
    assert bench("measure_ask").bound_by(figures) == expected


# -- goals --


def asks(report, goals, ours: float, nats: float):
    section = report.Section("ask", "An ask", ("",))
    for label, value in ((goals.LINK, ours), (goals.NATS, nats)):
        for clients in (1, 32):
            section.keep(label, clients=clients, p50_us=value, per_second=1e6 / value, server_us=value)
    return section


@pytest.mark.parametrize(("ours", "met"), [(60.0, True), (60.1, False)])
def test_a_goal_is_met_at_its_bound_and_missed_behind_it(bench, ours, met):
    goals = bench("goals")
    verdicts = goals.judge([asks(bench("report"), goals, ours, 100.0)])
    p50 = [each for each in verdicts.figures if "p50 / NATS" in each["label"]]
    assert [each["met"] for each in p50] == [met]
    assert {row[-1] for row in verdicts.rows if "p50 / NATS" in row[0]} == {"met" if met else "**missed**"}


def test_more_per_second_is_better_and_less_time_is_better(bench):
    goals = bench("goals")
    # Twice as fast: p50 is half, throughput double.
    verdicts = goals.judge([asks(bench("report"), goals, 50.0, 100.0)])
    assert all(each["met"] for each in verdicts.figures)
    assert not any(each["met"] for each in goals.judge([asks(bench("report"), goals, 100.0, 50.0)]).figures)


def test_goals_of_measures_that_did_not_run_are_not_judged(bench):
    assert bench("goals").judge([]).rows == []


def grown(report, name: str, **growth: float):
    section = report.Section(name, "scale", ("",))
    for label, times in growth.items():
        section.keep(label, growth=times, costs={10: 5.0, 1_000: 5.0, 100_000: 5.0 * times})
    return section


def test_growth_is_judged_by_the_worst_call_and_names_it(bench):
    judge = bench("goals").judge
    report = bench("report")
    [flat] = judge([grown(report, "scale-tickets", send=1.2, take=0.9)]).figures
    assert flat["met"]
    [steep] = judge([grown(report, "scale-tickets", send=1.0, watch=19.0, take=1.3)]).figures
    assert not steep["met"]
    assert "2 of 3 calls grow more, most `watch`" in steep["label"]
    assert steep["measured"] == "19x"


def test_every_goal_asks_for_a_figure_that_its_measure_keeps(bench):
    goals = bench("goals")
    run = bench("run")
    named = {each.measure for each in goals.GOALS if isinstance(each, goals.Growth)}
    named |= {
        figure.measure for each in goals.GOALS if isinstance(each, goals.Ratio) for figure in (each.ours, each.theirs)
    }
    assert named <= set(run.MEASURES)


# -- which Python --


def test_the_fastest_python_is_taken_if_it_is_clearly_faster(bench):
    pythons = bench("pythons")
    ours = pythons.Python("/ours", (3, 11, 7), optimised=False, micros=100.0)
    close, faster, old = (
        pythons.Python(f"/{version}", version, optimised=True, micros=micros)
        for version, micros in (((3, 12, 0), 96.0), ((3, 11, 2), 88.0), ((3, 10, 9), 50.0))
    )
    assert pythons.best(ours, []) is ours
    assert pythons.best(ours, [close]) is ours
    assert pythons.best(ours, [close, faster]) is faster
    assert pythons.best(ours, [old]) is ours, "too old for us, however fast"


def test_a_shim_on_path_without_a_python_behind_it_is_passed_over(bench, tmp_path, monkeypatch):
    pythons = bench("pythons")
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho 'no such version' >&2\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pythons.candidates() == [str(shim)]
    assert pythons.probe(str(shim)) is None
    assert pythons.here().version == tuple(sys.version_info[:3])


# -- the load --


def test_numbered_requests_keep_their_length_and_run_out(bench):
    http_load = bench("http_load")
    text = b'POST / HTTP/1.1\r\n\r\n{"ticketId":"run1-%b"}' % http_load.NUMBER
    made = list(http_load.requests(text, 3))
    assert [each[-10:-2] for each in made] == [b"00000000", b"00000001", b"00000002"]
    assert {len(each) for each in made} == {len(text)}
    assert len(list(itertools.islice(http_load.requests(b"GET /", 0), 5))) == 5


# -- the desktop --


@pytest.mark.parametrize(
    ("measure", "rows"),
    [
        (
            "desktop",
            # The peers are Debian packages of `make bench`; where they are not, it is said.
            (
                *("Bascule, the reading and acting alone", "Bascule, the whole call"),
                *("libatspi through PyGObject", "dogtail"),
            ),
        ),
        ("desktop-wait", ("`find` every 500 ms",)),
        ("desktop-sessions", ("X11 (Xvfb, openbox)", "sway", "KWin")),
        ("desktop-pictures", ("the screen into memory", "as PNG")),
        ("desktop-tokens", ("mousepad, a note", "A snapshot of gnome-calculator, programming")),
        (
            "console",
            (
                "An agent asks, until the question is painted: p95",
                "First contentful paint: median",
                "What a first visit loads",
                "Scripts of others among it",
                "Scrolled through tickets, script in a frame: p95",
                "The daemon with a console open, idle",
                "The console: what a first visit loads",
            ),
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_quick_look_at_the_desktop_or_the_console_has_every_figure(measure, rows):
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", measure],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    missing = [line for line in done.stdout.splitlines() if "not measured" in line]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(missing[0].strip())
    assert missing == []
    assert [row for row in rows if f"  {row}" not in done.stdout] == []


# -- the page --


def test_writing_the_page_keeps_what_people_wrote_around_the_tables(bench, tmp_path):
    report = bench("report")
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    section = report.Section("ask", "An ask", ("", "p50"))
    section.add("Bascule", "1 us")
    verdicts = report.Section("goals", "Goals", ("", "measured"))
    verdicts.add("fast", "yes")
    report.write_page(str(page), verdicts, [section], ["measured here"], ["img/ask-latency.svg"])
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"\n{report.END}\nafter\n")
    parts = ["measured here", "## Goals", "| fast | yes |", "![ask latency](img/ask-latency.svg)", "| Bascule | 1 us |"]
    assert sorted(parts, key=text.index) == parts
    assert "old" not in text


def test_a_run_beside_busy_neighbours_says_that_its_times_are_worth_nothing(bench):
    report = bench("report")
    settings = report.Settings(quick=True, directory=None)
    assert "too much" in report.noise(settings, [200.0], 0.85)
    assert "too much" not in report.noise(settings, [200.0], 0.02)
    assert "Other programs" not in report.noise(settings, [200.0], None)


@pytest.mark.skipif(sys.platform != "linux", reason="who else computes is read from /proc")
def test_neighbours_are_those_who_are_not_our_children(bench):
    spin = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"]
    watched = bench("report").Neighbours()
    subprocess.run(spin, check=True)
    with_child = watched._read()[2] - watched._before[2]
    assert with_child >= 0.5
    assert 0 <= watched.share() <= 1


def test_a_page_without_markers_is_left_alone(bench, tmp_path):
    report = bench("report")
    page = tmp_path / "performance.md"
    page.write_text("by hand\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no"):
        report.write_page(str(page), report.Section("goals", "Goals", ("",)), [], [], [])
    assert page.read_text("utf-8") == "by hand\n"


def test_the_page_of_this_repository_can_be_written_into(bench):
    report = bench("report")
    text = (BENCH.parent / "docs" / "performance.md").read_text("utf-8")
    assert text.count(report.BEGIN) == text.count(report.END) == 1


# -- pictures --


def pictures(bench, directory: Path):
    report, ask = bench("report"), bench("measure_ask")
    section = report.Section("ask", "An ask", ("",))
    # Among them the longest name there is.
    for label, p50 in ((ask.REDIS_ALWAYS, 80.0), ("Bascule, link", 1600.0)):
        for clients in (1, 32):
            section.keep(label, clients=clients, p50_us=p50, p99_us=p50 * 10, per_second=1e6 / p50)
    scale = grown(report, "scale-tickets", send=1.0, watch=19.0)
    names = bench("plot").write(str(directory), [section, scale])
    return {name: ET.parse(directory / name).getroot() for name in names}


def test_the_pictures_show_every_contender_and_say_their_figures_in_words(bench, tmp_path):
    plots = pictures(bench, tmp_path / "img")
    latency = plots["ask-latency.svg"]
    # Two panels of two contenders, a dot for p50 and a ring for p99 each.
    assert len(list(latency.iter(f"{SVG}circle"))) == 8
    assert "Bascule, link 1.60 ms (p99 16.00 ms)" in latency.find(f"{SVG}title").text
    widths = [float(bar.get("width")) for bar in plots["ask-throughput.svg"].iter(f"{SVG}rect")]
    assert widths[0] == pytest.approx(widths[1] * 20, rel=0.01)
    assert "open tickets: watch 19x, send 1.00x" in plots["scale.svg"].find(f"{SVG}title").text


def test_nothing_is_drawn_outside_the_picture(bench, tmp_path):
    for name, root in pictures(bench, tmp_path).items():
        width, height = (float(root.get(side)) for side in ("width", "height"))
        points = [(float(each.get("cx")), float(each.get("cy"))) for each in root.iter(f"{SVG}circle")]
        for each in root.iter(f"{SVG}text"):
            # About as wide as the letters of the usual fonts.
            width_of = 7.0 * len(each.text) * (-1 if each.get("text-anchor") == "end" else 1)
            points += [(float(each.get("x")) + shift, float(each.get("y"))) for shift in (0, width_of)]
        for line in root.iter(f"{SVG}polyline"):
            points += [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points), name


def test_a_run_without_their_measures_draws_no_pictures(bench, tmp_path):
    assert bench("plot").write(str(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []
