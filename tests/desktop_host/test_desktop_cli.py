"""`bascule desktop ...` and its report, as a person uses them."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from host_process import Refused, route

from patience import PATIENCE


@pytest.fixture
def bascule(host):
    def run(*arguments, text=None, code=0):
        command = [sys.executable, "-P", "-m", "bascule.cli.start", "desktop", *arguments]
        verb = arguments[0]
        if verb != "report":
            command += ["--socket", host.socket_path]
        command += ["--workspace", str(host.workspace)]
        done = subprocess.run(
            command, capture_output=True, text=True, input=text, timeout=PATIENCE, check=False, cwd=host.workspace
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_a_person_sees_finds_clicks_types_and_waits(bascule, host, start):
    app = start("gtk3")
    here = ("--window", f"^{app.title}$")
    assert app.title in bascule("windows")
    assert "the desktop can be seen and used" in bascule("doctor")
    assert 'button "Press me"' in bascule("observe", *here)
    assert "1 matched" in bascule("find", "--title", "Press me", *here)
    bascule("click", "--role", "AXCheckBox", "--title", "Agree", *here)
    app.until(agreed=True)
    bascule("type", "-", "--role", "AXTextField", "--title", "Name", *here, text="from stdin")
    app.until(name="from stdin")
    bascule("hotkey", "cmd", "a", *here)
    assert json.loads(bascule("wait", "--title", "Press me", "--json", *here))["ok"] is True
    bascule("wait", "--title", "Press me", "--gone", "--timeout", "0.2", *here, code=3)
    bascule("click", "--title", "No such", *here, code=5)
    assert "--role, --title or --value" in bascule("click", *here, code=2)
    bascule("stop")
    try:
        assert "DESKTOP_HOST_STOPPED" in bascule("click", "--title", "Press me", *here, code=4)
    finally:
        bascule("resume")


def test_where_no_host_listens_the_command_says_how_to_start_one(tmp_path):
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "desktop", "windows", "--socket", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 7
    assert "bascule desktop-host --listen" in done.stderr


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []
        self.words = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def read_page(text):
    page = Page()
    page.feed(text)
    return page


def test_a_report_shows_pictures_tree_and_timeline_and_loads_nothing(bascule, host, start):
    app = start("gtk3", title="<script>alert(1)</script> & co")
    result = host.call("desktop.observe", route=route(app))
    page = read_page(bascule("report", result["executionId"], "-o", "-"))
    names = [tag for tag, _ in page.tags]
    assert "script" not in names
    assert any("<script>alert(1)</script> & co" in word for word in page.words)
    sources = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert len(sources) == 1
    assert sources[0].startswith("data:image/png;base64,")
    policy = next(attributes for tag, attributes in page.tags if tag == "meta" and "http-equiv" in attributes)
    assert "default-src 'none'" in policy["content"]
    text = " ".join(page.words)
    for part in ("desktop.observe", "Timeline", "Elements", "AXButton", "Press me"):
        assert part in text


def test_a_report_of_a_failure_says_what_failed(bascule, host, start):
    start("gtk3")
    with pytest.raises(Refused) as refused:
        host.call("desktop.observe", route={"window": {"titlePattern": "^none$"}})
    name = bascule("report", refused.value.details["executionId"]).strip()
    text = (host.workspace / name).read_text()
    assert "DESKTOP_ELEMENT_NOT_FOUND" in text
    assert os.stat(host.workspace / name).st_mode & 0o077 == 0


def test_a_report_says_what_was_changed_since_the_host_wrote_it(bascule, host, start):
    app = start("gtk3")
    result = host.call("desktop.observe", route=route(app))
    folder, name = host.evidence(result), result["executionId"]
    assert "Changed since" not in bascule("report", name, "-o", "-")
    deep = {"bundleId": "x", "window": "y", "nodes": [{"role": "AXButton", "depth": 10**12, "title": "z"}]}
    (folder / "ax.json").write_text(json.dumps(deep))
    (folder / "trace.jsonl").write_text('[1]\n{"ms"')
    text = bascule("report", name, "-o", "-")
    assert "Changed since the host wrote it: ax.json, trace.jsonl" in text
    assert "trace.jsonl is not what the host wrote" in text
    # However deep it says it is, a line has its end.
    assert "AXButton" in text
    assert len(text) < (folder / "observe.png").stat().st_size * 2 + 20_000
    (folder / "result.json").write_text("[]")
    assert "is not what the host wrote" in bascule("report", name, "-o", "-", code=5)


@pytest.mark.parametrize("name", ["../../etc/passwd", "00000000-0000-4000-8000-000000000000", ""])
def test_a_report_of_nothing_is_not_found(bascule, name):
    assert "bascule:" in bascule("report", name, code=5)
