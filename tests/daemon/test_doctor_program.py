"""The doctor as a child of the daemon: bounded in time and output, and nothing of it is left."""

import asyncio
import sys
import time

import pytest

from bascule.admin.doctor import Doctor
from bascule.admin.machine.doctor_program import examine
from bascule.admin.protocol import DoctorCheck
from bascule.foundation.errors import Unavailable
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import LOCAL, Call
from bascule.testing.clock import FakeClock
from patience import PATIENCE

CALL = Call(LOCAL, "daemon.doctor", None, door="testing")


def python(program):
    return [sys.executable, "-c", program]


def report(program, **limits):
    return asyncio.run(examine(python(program), **limits))


def test_a_report_is_read_whatever_the_exit_code_says():
    checks = report(
        """print('{"version": "1", "ok": false, "checks": [{"name": "disk", "result": "fail", "message": "full",'
                 '"fix": "free some"}, {"name": "x", "result": "info", "message": "y"}]}'); raise SystemExit(1)"""
    )
    assert checks == [
        DoctorCheck(name="disk", state="fail", text="full", remedy="free some"),
        DoctorCheck(name="x", state="info", text="y"),
    ]


@pytest.mark.parametrize(
    ("program", "limits", "words"),
    [
        ("print('no json')", {}, "cannot be read"),
        ("print('{}')", {}, "cannot be read"),
        ("raise SystemExit(3)", {}, "cannot be read"),
        ("print('x' * 10_000)", {"max_bytes": 100}, "longer than 100 bytes"),
        ("import time; print('x' * 10, flush=True); time.sleep(3600)", {"seconds": 0.3}, "longer than 0.3 s"),
    ],
)
def test_what_is_no_report_is_said_and_ended(program, limits, words):
    began = time.monotonic()
    with pytest.raises(Unavailable, match=words) as refused:
        report(program, **limits)
    assert "bascule doctor" in refused.value.hint
    assert time.monotonic() - began < PATIENCE


def test_a_doctor_that_cannot_be_started_is_said():
    with pytest.raises(Unavailable, match="could not be started"):
        asyncio.run(examine(["/nonexistent/python"]))


def test_an_examination_is_shared_by_all_who_wait_and_good_for_a_while():
    async def story():
        clock, looks, go = FakeClock(), [], asyncio.Event()

        async def looking():
            looks.append(1)
            await go.wait()
            return [DoctorCheck(name="disk", state="ok", text=str(len(looks)))]

        tasks = Tasks(lambda *_: None)
        doctor = Doctor(looking, clock, tasks)
        first, second = doctor.look(CALL, None), doctor.look(CALL, None)
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert (await second).checks[0].text == "1"
        assert doctor.look(CALL, None) == await second
        clock.advance(11)
        assert (await doctor.look(CALL, None)).checks[0].text == "2"
        await tasks.close()

    asyncio.run(story())


def test_a_failed_examination_is_tried_anew():
    async def story():
        answers = [Unavailable("no"), []]

        async def looking():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        doctor = Doctor(looking, FakeClock(), Tasks(lambda *_: None))
        with pytest.raises(Unavailable):
            await doctor.look(CALL, None)
        assert (await doctor.look(CALL, None)).checks == []

    asyncio.run(story())
