"""`bascule demo`: a throw-away daemon, two little agents, one question, and what the ledger says about it."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from bascule.client.messages import SyncMessage
from bascule.client.sync import SyncClient
from bascule.foundation.errors import Unavailable
from bascule.programs.helpers.terminal import show

QUESTION = "Which is larger: the number of moons of Mars, or of Earth?"
ANSWER = "Mars: it has two, Phobos and Deimos. Earth has one."
# A start takes a fraction of a second; past this something is wrong with the machine.
START_SECONDS = 20.0
STOP_SECONDS = 10.0
_WIDTH = 54


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
        "demo",
        help="watch one agent ask another, in a throw-away daemon (under 5 s)",
        description="Starts a daemon in a temporary directory, registers two little agents, lets one ask the other, "
        "shows the ticket's life and the ledger, and removes everything again. Your own daemon is not touched.",
    )
    demo.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:  # noqa: ARG001 - every command has this signature
    state = tempfile.mkdtemp(prefix="bascule-demo-")
    try:
        daemon = _start(state)
        try:
            _exchange(state)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(STOP_SECONDS)
    finally:
        shutil.rmtree(state, ignore_errors=True)
    show("\nThat was all of it; the throw-away daemon and its directory are gone. Yours starts with `bascule up -d`.")
    return 0


def _start(state: str) -> "subprocess.Popen[bytes]":
    began = time.monotonic()
    read, write = os.pipe()
    daemon = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [
            *(sys.executable, "-P", "-m", "bascule.cli.start", "up", "--state-dir", state),
            *("--port", "0", "--log", "off", "--ready-fd", str(write)),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=(write,),
        start_new_session=True,
    )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        if pipe.read(6) != b"ready\n":
            daemon.wait(START_SECONDS)
            raise Unavailable("the throw-away daemon did not start", hint="`bascule doctor` may say why")
    _step("A daemon in a throw-away directory is ready", time.monotonic() - began)
    return daemon


def _exchange(state: str) -> None:
    with (
        SyncClient.connect(state_dir=state, agent="Jerry", register=True, type="script") as jerry,
        SyncClient.connect(state_dir=state, agent="Ada", register=True, type="script") as ada,
    ):
        _step("Jerry and Ada register; each gets a token of its own")
        answering = threading.Thread(target=_answer_one, args=(jerry,), daemon=True)
        answering.start()
        began = time.monotonic()
        reply = ada.ask("Jerry", QUESTION, timeout=10)
        took = time.monotonic() - began
        answering.join(STOP_SECONDS)
        _step("Ada has the answer", took)
        show(f"     Jerry (verified): {reply.payload}")
        show("\nThe ticket's life:")
        for event in ada.call("events.recent", {"agentId": "Jerry"}):
            if event.get("ticketId"):
                show(f"  {event['at'][11:23]}  {event['event']:<18} {event.get('from', '')} -> {event['agentId']}")
        show("\nWhat the ledger says (ids, sizes and keyed digests, never what was said):")
    with SyncClient.connect(state_dir=state) as local:
        for record in local.call("ledger.tail", {"limit": 6}):
            subject = (record.get("subject") or "")[:13]
            who, what = record["principal"], record["method"]
            show(f"  {record['seq']:>3}  {who:<12} {what:<16} {subject:<14} {record['hash'][:16]}")
        verdict = local.call("ledger.verify")
        show(f"  verified: {verdict['records']} records, {'every hash fits' if verdict['ok'] else verdict['faults']}")


def _answer_one(jerry: SyncClient) -> None:
    for message in jerry.messages():
        _show_question(message)
        message.reply(ANSWER)
        return


def _show_question(message: SyncMessage) -> None:
    _step(f"Jerry receives a message from {message.from_} (verified)")
    show(f"     {message.payload}")


_counter = iter(range(1, 100))


def _step(text: str, seconds: float | None = None) -> None:
    timing = f"{seconds * 1000:6.0f} ms" if seconds is not None else ""
    show(f"{next(_counter):>2}.  {text:<{_WIDTH}} {timing}".rstrip())
