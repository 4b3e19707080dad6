"""Evidence, read back: newest first over workspaces, and nothing else than what the host writes, whatever is planted.

Each attack has its control: the same bytes in a plain file of the folder are read.
"""

import json
import os
import uuid

import pytest

from bascule.desktop.machine.evidence_files import EvidenceFiles, ReadLimits
from bascule.desktop.ports import EvidenceGone
from bascule.foundation import png
from bascule.kernel.evidence import Evidence, EvidenceRoot
from bascule.testing.clock import FakeClock

PNG = png.SIGNATURE + (13).to_bytes(4) + b"IHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"\x08\x06rest"
DAY_SECONDS = 24 * 60 * 60


class Ground:
    """A root with our own place and two workspaces, and a host's way of writing into them."""

    def __init__(self, base):
        self.base = base
        self.root = base / "root"
        for name in ("own", "one", "two"):
            (self.root / name).mkdir(parents=True)
        self.clock = FakeClock()
        self.limit(ReadLimits())
        self.workspaces = [str(self.root / "one"), str(self.root / "two")]
        self._at = 1_700_000_000

    def limit(self, limits):
        """Read within these from now on."""
        self.files = EvidenceFiles(str(self.root), str(self.root / "own"), limits)

    def execute(self, workspace="own", **result):
        """As the host does it."""
        root = EvidenceRoot(str(self.root))
        try:
            folder = Evidence(root, str(self.root / workspace), self.clock).folder(str(uuid.uuid4()))
            folder.write("before.png", PNG)
            folder.write("ax.json", b'{"nodes":[]}')
            about = {"executionId": folder.execution_id, "method": "desktop.click", "at": "2026-01-01T00:00:00.000Z"}
            done = {"ok": True, "client": "agent:Jerry", "result": {"effect": "confirmed"}}
            trace = [{"ms": 1, "step": "route", "bundleId": "org.gnome.TextEditor"}, {"ms": 2, "step": "acted"}]
            folder.finish({**about, **done, **result}, trace, {"executionId": folder.execution_id})
        finally:
            root.close()
        # Folders of one moment have an order all the same.
        self._at += 1
        os.utime(folder.path, (self._at, self._at))
        return folder

    def newest(self, before=None, limit=50):
        return [each.execution_id for each in self.files.newest(self.workspaces, before, limit)]

    def show(self, execution_id):
        return self.files.show(self.workspaces, execution_id)

    def picture(self, folder, name="before.png"):
        return self.files.picture(self.workspaces, folder.execution_id, name)


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


# -- finding --


def test_executions_of_all_workspaces_are_one_list_newest_first_with_pages(ground):
    made = [ground.execute(each).execution_id for each in ("one", "own", "two", "one", "own")]
    ground.clock.advance(2 * DAY_SECONDS)
    made += [ground.execute(each).execution_id for each in ("two", "own")]
    newest = made[::-1]
    assert ground.newest() == newest
    for size in (1, 2, 3):
        pages, before = [], None
        while page := ground.newest(before, size):
            pages += page
            before = page[-1]
        assert pages == newest


def test_an_execution_says_what_was_done_where_and_for_whom(ground):
    folder = ground.execute("one")
    (found,) = ground.files.newest(ground.workspaces, None, 5)
    assert (found.method, found.app, found.client) == ("desktop.click", "org.gnome.TextEditor", "agent:Jerry")
    assert (found.effect, found.error, found.workspace) == ("confirmed", None, ground.workspaces[0])
    assert [name for name, _ in found.files] == ["ax.json", "before.png", "result.json", "trace.jsonl"]
    shown = ground.show(folder.execution_id)
    assert shown.about == found
    assert shown.result["ok"] is True
    assert [step["step"] for step in shown.trace] == ["route", "acted"]
    assert shown.tree == {"nodes": []}
    assert (shown.left_out, shown.changed) == ([], [])
    assert ground.picture(folder) == PNG


def test_what_is_not_there_is_not_found(ground):
    ground.execute()
    for id_ in (str(uuid.uuid4()), "..", "../../..", "a" * 36, ""):
        with pytest.raises(EvidenceGone):
            ground.show(id_)
        with pytest.raises(EvidenceGone):
            ground.newest(before=id_)


def test_a_root_or_a_workspace_that_is_gone_has_nothing(ground, tmp_path):
    assert EvidenceFiles(str(tmp_path / "nowhere"), str(tmp_path / "nowhere/own")).newest([], None, 5) == []
    assert ground.files.newest([str(tmp_path / "nowhere")], None, 5) == []


# -- what is planted --


def test_a_workspace_outside_of_the_root_is_not_read(ground, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = ground.execute("one")
    os.rename(ground.root / "one/artifacts", outside / "artifacts")
    os.rmdir(ground.root / "one")
    os.symlink(outside, ground.root / "one")
    assert ground.newest() == []
    with pytest.raises(EvidenceGone):
        ground.picture(secret)
    # The control: in the root it is read.
    os.unlink(ground.root / "one")
    os.rename(outside, ground.root / "one")
    assert ground.newest() == [secret.execution_id]


@pytest.mark.parametrize("part", ["artifacts", "artifacts/desktop", "day", "execution"])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(ground, part):
    folder = ground.execute("one")
    day = os.path.dirname(folder.path.rstrip("/"))
    place = {"day": day, "execution": folder.path.rstrip("/")}.get(part) or str(ground.root / "one" / part)
    os.rename(place, ground.base / "moved")
    os.symlink(ground.base / "moved", place)
    assert ground.newest() == []
    with pytest.raises(EvidenceGone):
        ground.picture(folder)
    os.unlink(place)
    os.rename(ground.base / "moved", place)
    assert ground.picture(folder) == PNG


@pytest.mark.parametrize("how", ["symlink", "hard link", "fifo", "directory"])
def test_a_file_that_is_not_a_plain_one_is_not_read(ground, how):
    secret = ground.base / "secret.png"
    secret.write_bytes(PNG)
    folder = ground.execute("one")
    for name in ("before.png", "result.json", "trace.jsonl", "ax.json"):
        os.unlink(folder.path + name)
        match how:
            case "symlink":
                os.symlink(secret, folder.path + name)
            case "hard link":
                os.link(secret, folder.path + name)
            case "fifo":
                os.mkfifo(folder.path + name)
            case _:
                os.mkdir(folder.path + name)
    shown = ground.show(folder.execution_id)
    assert (shown.result, shown.trace, shown.tree, shown.about.files) == (None, [], None, [])
    with pytest.raises(EvidenceGone):
        ground.picture(folder)


def test_only_pictures_by_our_names_are_served(ground):
    folder = ground.execute("one")
    with open(folder.path + "evil.png", "wb") as file:
        file.write(PNG)
    for name in ("evil.png", "result.json", "../before.png", "/etc/passwd", "before.png/", "before.png\0"):
        with pytest.raises(EvidenceGone):
            ground.picture(folder, name)
    assert ground.picture(folder) == PNG


def huge(width, height):
    return PNG[:16] + width.to_bytes(4) + height.to_bytes(4) + PNG[24:]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"<svg onload=alert(1)>", b"GIF89a", PNG[1:], png.SIGNATURE, b" " + PNG),
        *(huge(60_000, 60_000), huge(0, 480), huge(2**32 - 1, 1)),
    ],
)
def test_a_file_that_is_called_png_and_is_none_is_not_served(ground, data):
    folder = ground.execute("one")
    with open(folder.path + "before.png", "wb") as file:
        file.write(data)
    with pytest.raises(EvidenceGone):
        ground.picture(folder)


def test_a_picture_that_is_too_large_is_not_served(ground):
    folder = ground.execute("one")
    for limit in (ReadLimits(picture_bytes=len(PNG) - 1), ReadLimits(picture_pixels=640 * 480 - 1)):
        ground.limit(limit)
        with pytest.raises(EvidenceGone):
            ground.picture(folder)
    ground.limit(ReadLimits(picture_bytes=len(PNG), picture_pixels=640 * 480))
    assert ground.picture(folder) == PNG


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[" * 100_000, b'"text"', b"[1]", b"\xff", b'{"a":1} {"b":2}', b"x" * 300_000]
)
def test_a_result_that_the_host_did_not_write_is_left_out_and_breaks_nothing(ground, text):
    folder = ground.execute("one")
    with open(folder.path + "result.json", "wb") as file:
        file.write(text)
    (found,) = ground.files.newest(ground.workspaces, None, 5)
    assert found.method is None
    shown = ground.show(folder.execution_id)
    assert "result.json" in shown.left_out or shown.result in ("text", [1])


def test_a_trace_and_a_tree_that_are_too_large_are_left_out_and_said(ground):
    ground.limit(ReadLimits(trace_lines=3, tree_bytes=1_000))
    folder = ground.execute("one")
    with open(folder.path + "trace.jsonl", "w") as file:
        file.write('{"step":"x"}\n' * 5)
    with open(folder.path + "ax.json", "w") as file:
        file.truncate(1_001)
    shown = ground.show(folder.execution_id)
    assert len(shown.trace) == 3
    assert sorted(shown.left_out) == ["ax.json", "trace.jsonl"]
    assert shown.changed == ["ax.json", "trace.jsonl"]


def test_a_tree_of_more_values_than_a_screen_has_is_left_out_before_it_is_read(ground):
    """An agent may put any file there, and eight megabytes of `[],` are 200 in memory, and seconds of everything."""
    folder = ground.execute("one")
    with open(folder.path + "ax.json", "w") as file:
        file.write("[" + "[]," * 100 + "0]")
    ground.limit(ReadLimits(values=200))
    shown = ground.show(folder.execution_id)
    assert (shown.tree, shown.left_out) == (None, ["ax.json"])
    # The control: with more room it is read, all of it.
    ground.limit(ReadLimits(values=201))
    assert len(ground.show(folder.execution_id).tree) == 101


def test_a_picture_that_was_changed_is_named(ground):
    folder = ground.execute("one")
    with open(folder.path + "before.png", "ab") as file:
        file.write(b"more")
    assert ground.show(folder.execution_id).changed == ["before.png"]


def test_values_of_other_types_than_ours_are_left_out(ground):
    ground.execute("one", method=["x"], at=5, client={"a": 1}, result=[], error="no")
    (found,) = ground.files.newest(ground.workspaces, None, 5)
    assert (found.method, found.at, found.client, found.effect, found.error) == (None,) * 5


def test_folders_that_are_not_executions_are_not_listed(ground):
    folder = ground.execute("one")
    day = os.path.dirname(folder.path.rstrip("/"))
    for name in ("x", "..x", str(uuid.uuid4()).upper()):
        os.mkdir(f"{day}/{name}")
    os.mkdir(f"{os.path.dirname(day)}/9999-99-9")
    with open(f"{day}/{uuid.uuid4()}", "w") as file:
        json.dump({}, file)
    assert ground.newest() == [folder.execution_id]
