"""The moving picture of the README, and the tool that makes it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from patience import PATIENCE

HERE = Path(__file__).resolve().parent.parent
COMMITTED = HERE / "docs" / "img" / "undo.svg"
MAX_BYTES = 500 * 1024
SVG = "{http://www.w3.org/2000/svg}"
# What each frame is made of; nothing of it is executed, and nothing is fetched.
ELEMENTS = {"svg", "title", "style", "defs", "text", "rect", "g", "use"}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The tool plays the scene with a real daemon; it ends with an error where an undo does not do what is said."""
    file = tmp_path_factory.mktemp("cast") / "undo.svg"
    command = [sys.executable, HERE / "tools" / "cast.py", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return file


@pytest.fixture(params=["committed", "played"])
def picture(request):
    return COMMITTED if request.param == "committed" else request.getfixturevalue("played")


def lines(picture):
    """What stands in the terminals, each line once, in the order in which they came."""
    root = ET.parse(picture).getroot()
    return [each.text for each in root.iter(f"{SVG}text")]


def test_the_picture_is_well_formed_small_and_nothing_in_it_runs_or_is_fetched(picture):
    assert picture.stat().st_size <= MAX_BYTES
    root = ET.parse(picture).getroot()
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == ELEMENTS
    attributes = {name.rpartition("}")[2]: value for each in root.iter() for name, value in each.attrib.items()}
    assert not [name for name in attributes if name.startswith("on")]
    links = {value for each in root.iter(f"{SVG}use") for name, value in each.attrib.items() if name.endswith("href")}
    assert all(re.fullmatch(r"#r\d+", link) for link in links)
    (style,) = root.iter(f"{SVG}style")
    assert not re.search(r"url\(|@import|@font-face", style.text)
    assert "prefers-color-scheme:dark" in style.text


def test_the_picture_names_no_place_of_the_machine_it_was_made_on(picture):
    text = picture.read_text("utf-8")
    places = (str(HERE), sys.prefix, tempfile.gettempdir(), os.path.expanduser("~"), os.uname().nodename)
    assert [place for place in places if place in text] == []


def test_the_picture_shows_the_undo_of_one_agent_its_redo_and_the_undo_again(picture):
    shown = lines(picture)
    commands = ["$ bascule log", "$ bascule undo --session codex", "$ bascule redo", "$ bascule undo"]
    assert [command for command in commands if command not in shown] == []
    assert "● Shell(rm -rf src && git stash drop)" in shown
    assert any(re.fullmatch(r"put back 1 file of session codex.*", line) for line in shown)
    assert "stash@{0}: On main: discounts" in shown
    assert "?? tests/" in shown


def test_the_picture_loops_in_less_than_thirty_seconds(picture):
    (seconds,) = re.findall(r"animation:play ([\d.]+)s steps\(1,end\) infinite", picture.read_text("utf-8"))
    assert float(seconds) < 30
