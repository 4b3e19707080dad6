"""A daemon under churn for a while: what it holds does not grow with what it has done."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from living import short_dir

from load_scenes import HERE as BENCH
from load_scenes import descriptors, rss_bytes, threads, until, zombies
from patience import PATIENCE
from ports import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = bool(os.environ.get("BASCULE_LONG"))
WARM_UP_SECONDS = 300 if LONG else 5
SECONDS = 3_600 if LONG else 15
# And so much work, however long a busy machine takes: less says nothing of what it leaves behind.
WARM_UP_ACTS = 20_000
ACTS = 20_000
# A client's process lives so long before it is killed in the middle of what it does.
LIFE_SECONDS = 7.0
# The bound, and what a minute cannot tell from it: caches with a bound of their own that still fill, and the
# allocator's ups and downs.
MAX_MB_PER_100_000 = 1.0
SLACK_MB = 0.0 if LONG else 10.0

# Rings, caches and heaps that have a bound of their own, further up than a minute reaches.
BOUNDED = (
    "bascule.broker.events.BrokerEvent",
    "bascule.broker.records.Remembered",
    "bascule.foundation.timers.Deadline",
    "bascule.kernel.policy.decision.Verdict",
)

# The tables that are empty some time after the last client is gone.
ENDING = ("tickets", "messages", "conversations", "agents", "inboxes", "waits", "links")


class Soak:
    """The daemon, and clients that are killed and come again."""

    def __init__(self, stack, *, leak=0, mcp="on"):
        self.state = os.path.join(stack.enter_context(short_dir()), "s")
        config = {"port": free_port(), "log": "off", "mcp": mcp, "ticket_ttl_ms": 300, "lease_ms": 1_000}
        config |= {"calls_per_second": 0, "max_kept_messages": 10**9}
        self._mcp = mcp
        self.port = config["port"]
        options = {"state": self.state, "config": config, "leak": leak}
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "soaked.py"), json.dumps(options)], stdout=subprocess.PIPE
        )
        stack.callback(self._end)
        with self._process.stdout as ready:
            assert ready.readline() == b"ready\n"
        self.pid = self._process.pid
        self.acts = 0
        # What ended the clients, should anything but us.
        self.trouble = ""
        self._stop = threading.Event()
        self._clients = threading.Thread(target=self._churn)
        self._clients.start()

    def _end(self):
        self.still()
        self._process.terminate()
        try:
            assert self._process.wait(PATIENCE) == 0, "the daemon stops cleanly after all of it"
        finally:
            self._process.kill()
            self._process.wait()

    def still(self):
        """No more clients."""
        self._stop.set()
        self._clients.join()

    def _churn(self):
        with open(self.state + ".churn", "w+b") as errors:
            while not self._stop.is_set() and not self.trouble:
                self._life(errors)

    def _life(self, errors):
        """Of one process of clients, from its start until it is killed."""
        command = [sys.executable, os.path.join(HERE, "churn.py"), self.state, str(self.port), self._mcp]
        client = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": f"{BENCH}:{os.path.dirname(HERE)}"},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        end = time.monotonic() + LIFE_SECONDS
        before = self.acts
        with client.stdout as reports:
            while time.monotonic() < end and not self._stop.is_set():
                line = reports.readline()
                if not line:
                    errors.seek(0)
                    self.trouble = errors.read().decode(errors="replace") or "the clients ended by themselves"
                    break
                self.acts = before + int(line)
            client.kill()
        client.wait()

    def held(self):
        path = self.state + ".held"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.kill(self.pid, signal.SIGUSR1)
        assert until(lambda: os.path.exists(path), PATIENCE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def sample(self):
        return self.acts, rss_bytes(self.pid)

    def watch(self, seconds, acts):
        """(acts, RSS) again and again, for that time and that work."""
        samples = [self.sample()]
        end = time.monotonic() + seconds
        while not self.trouble and (time.monotonic() < end or self.acts < samples[0][0] + acts):
            time.sleep(0.25)
            samples.append(self.sample())
        return samples


def mb_per_100_000(samples):
    """The slope of memory over work, by least squares."""
    count = len(samples)
    mean_x = sum(acts for acts, _ in samples) / count
    mean_y = sum(size for _, size in samples) / count
    spread = sum((acts - mean_x) ** 2 for acts, _ in samples)
    return sum((acts - mean_x) * (size - mean_y) for acts, size in samples) / spread * 1e5 / 1e6


def leaks(samples):
    """Whether more was added over the time than the work done in it may add."""
    acts = (samples[-1][0] - samples[0][0]) / 1e5
    return mb_per_100_000(samples) * acts > MAX_MB_PER_100_000 * acts + SLACK_MB


@pytest.mark.timeout(WARM_UP_SECONDS + SECONDS + 2 * PATIENCE)
def test_churn_for_a_while_leaves_nothing_behind(record_property):
    with contextlib.ExitStack() as stack:
        soak = Soak(stack)
        quiet = soak.held()
        fds, workers = descriptors(soak.pid), threads(soak.pid)
        soak.watch(WARM_UP_SECONDS, WARM_UP_ACTS)
        samples = soak.watch(SECONDS, ACTS)
        soak.still()
        assert not soak.trouble, soak.trouble
        slope = mb_per_100_000(samples)
        # TTLs, waits and then the leases of the clients that were killed end by themselves.
        left = quiet

        def settled():
            nonlocal left
            left = soak.held()
            return not any(left["tables"][name] for name in ENDING)

        gone = until(settled, PATIENCE)
        figures = {"acts": soak.acts, "mb_per_100_000": slope, "rss_mb": samples[-1][1] / 1e6, "tables": left["tables"]}
        record_property("soak", figures)
        sys.stdout.write(f"soak: {json.dumps(figures)}\n")
        assert gone, left["tables"]
        assert not leaks(samples), figures
        assert until(lambda: descriptors(soak.pid) <= fds + 5, PATIENCE)
        # The loop's own pool, once started, is kept.
        assert threads(soak.pid) <= workers + (os.cpu_count() or 1) + 4
        assert zombies(soak.pid) == 0
        grown = {
            name: count - quiet["types"].get(name, 0)
            for name, count in left["types"].items()
            if name.startswith("bascule.") and count - quiet["types"].get(name, 0) > 200
        }
        for name in BOUNDED:
            grown.pop(name, None)
        assert not grown
        assert left["tables"]["deadlines"] < 2_500


def test_a_planted_leak_is_seen():
    # The control: the same judge, and a daemon that keeps 40 kB of every call.
    with contextlib.ExitStack() as stack:
        soak = Soak(stack, leak=40_000, mcp="off")
        assert until(lambda: soak.acts > 0 or soak.trouble, PATIENCE)
        assert not soak.trouble, soak.trouble
        samples = [soak.sample()]
        assert until(lambda: samples.append(soak.sample()) or soak.acts > samples[0][0] + 1_000, PATIENCE)
        assert leaks(samples)
