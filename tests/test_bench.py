"""The bench runs at all, and writes only where it should. How fast anything is, is not a test's business."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def test_one_quick_measure_prints_a_table_with_every_call_of_an_ask():
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", "cpu"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for method in ("messages.send", "inbox.take", "inbox.ack", "replies.post", "replies.wait"):
        assert f"`{method}`" in done.stdout
    assert "wrote" not in done.stdout


def test_writing_the_page_keeps_what_people_wrote_around_the_tables(bench, tmp_path):
    import report

    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    section = report.Section("ask", "An ask", ("", "p50"))
    section.add("Bascule", "1 us")
    report.write_page(str(page), [section], ["measured here"])
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{report.BEGIN}\nmeasured here\n")
    assert text.endswith(f"\n{report.END}\nafter\n")
    assert "| Bascule | 1 us |" in text
    assert "old" not in text


def test_a_page_without_markers_is_left_alone(bench, tmp_path):
    import report

    page = tmp_path / "performance.md"
    page.write_text("by hand\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no"):
        report.write_page(str(page), [], [])
    assert page.read_text("utf-8") == "by hand\n"


def test_the_plot_has_a_bar_per_contender_and_says_its_figures_in_words(bench, tmp_path):
    import plot
    import report

    section = report.Section("ask", "An ask", ("",))
    section.keep("bare broker", clients=1, p50_us=80.0)
    section.keep("Bascule, link", clients=1, p50_us=1600.0)
    section.keep("Bascule, link", clients=32, p50_us=9000.0)
    path = tmp_path / "img" / "ask.svg"
    plot.write(str(path), [section])
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.parse(path).getroot()
    widths = [float(bar.get("width")) for bar in root.iter(f"{svg}rect")]
    assert len(widths) == 2
    assert widths[1] == pytest.approx(widths[0] * 20, rel=0.01)
    assert "Bascule, link 1.60 ms" in root.find(f"{svg}title").text
