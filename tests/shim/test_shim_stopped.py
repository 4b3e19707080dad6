"""The hidden tool of hooks, and the tools of models, while the daemon's process is stopped."""

import os
import signal
import sys

import pytest
from living import Living, short_dir
from raw_client import RawClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says that a process is stopped")
_HOOK = {"client": "claude", "event": "PreToolUse", "session": "s", "cwd": "/", "tool": "Bash", "id": "t1"}


def test_a_hook_is_answered_while_the_daemon_is_stopped_and_a_question_of_the_model_waits(tmp_path):
    with short_dir() as folder, Living(f"{folder}/s") as living, RawClient(living.state, cwd=str(tmp_path)) as client:
        client.initialize()
        client.call("list_agents")
        os.kill(living.process.pid, signal.SIGSTOP)
        try:
            waits = client.ask("tools/call", name="list_agents", arguments={})
            sent = client.call("native_hook", **_HOOK)
            assert "whether it acted is unknown" in sent["content"][0]["text"]
            # Over a connection that was made anew.
            unsent = client.call("native_hook", **_HOOK)
            assert f"the daemon is stopped: process {living.process.pid}" in unsent["content"][0]["text"]
        finally:
            os.kill(living.process.pid, signal.SIGCONT)
        assert "agents" in client.answer_to(waits)["result"]["structuredContent"]
        assert not client.call("native_hook", **_HOOK).get("isError")
