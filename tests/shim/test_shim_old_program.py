"""A `bascule mcp` of an older commit, still running in somebody's session, goes on with the daemon of today.

It has its tools inside it and calls rows over the link; those rows are still there.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from living import Living, short_dir
from raw_client import RawClient

from patience import PATIENCE

# The last one whose program carried out tools by itself.
OLD = "94de70c"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def old_source(tmp_path_factory):
    """The package as it was; a clone without history has none."""
    folder = tmp_path_factory.mktemp("old")
    archive = folder / "old.tar"
    made = subprocess.run(
        ["git", "-C", ROOT, "archive", "--output", archive, OLD, "src"],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if made.returncode != 0:
        asked = ["git", "-C", ROOT, "rev-parse", "--is-shallow-repository"]
        whole = (
            subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout.strip()
            == "false"
        )
        # A clone with its whole history has it; one without cannot, in CI either.
        assert not (whole and os.environ.get("CI") == "true"), made.stderr
        pytest.skip(f"this checkout has no commit {OLD}: a shallow clone, or no git")
    with tarfile.open(archive) as tar:
        # Python 3.11.2 has no filters yet, later ones want one named.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / "src"


class OldClient(RawClient):
    def __init__(self, source, state, *options, **variables):
        super().__init__(state, "--no-start", *options, PYTHONPATH=str(source), **variables)
        self._command[0] = sys.executable


@pytest.fixture
def daemon():
    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living


def test_an_old_program_asks_and_answers_and_works_with_the_daemon_of_today(daemon, old_source, tmp_path):
    code = "import bascule.shim.calls; print(bascule.shim.calls.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(old_source)},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    assert where.stdout.startswith(str(old_source)), "the control: it is the old package that runs"
    with (
        OldClient(old_source, daemon.state, "--agent", "Old", "--toolset", "agents,workspace,games") as old,
        RawClient(daemon.state, "--no-start", "--agent", "New") as new,
    ):
        old.initialize()
        new.initialize()
        new.call("co_workers")
        asking = old.start_call("send_message", agentId="New", payload="6 x 7?")
        message = new.call("wait_for_message")["structuredContent"]
        assert message["from"] == "Old"
        new.call("post_reply", ticketId=message["ticketId"], payload=42)
        assert old.answer_to(asking)["result"]["structuredContent"]["payload"] == 42
        new.call("send_message", agentId="Old", payload="and you?", awaitResponse=False)
        assert old.call("wait_for_message")["structuredContent"]["payload"] == "and you?"
        assert old.call("list_tickets")["structuredContent"]["tickets"]
        assert old.call("games_list")["structuredContent"]["games"] == []
        read = old.request("resources/read", uri="bascule://transactions/recent")["result"]
        assert "ticket.sent" in read["contents"][0]["text"]


def test_an_old_program_goes_on_when_the_daemon_is_replaced(old_source):
    with short_dir() as folder, OldClient(old_source, f"{folder}/s", "--agent", "Old") as old:
        with Living(f"{folder}/s") as before:
            old.initialize()
            old.call("co_workers")
            before.stop()
        with Living(f"{folder}/s"):
            assert old.call("co_workers")["structuredContent"]["you"] == "Old"
