"""Clocks that differ, and a week without a machine: one daemon's wall clock is moved."""

import os

import pytest
from fleet import SERVERS, fleet
from living import eventually, run_command
from wall_clock import WallClock
from wires import Caller

# What nobody will confirm is looked for this often; each minute outside of tests.
QUICK_SWEEP = {"bascule.daemon.composition.SWEEP_EVERY_MS": 300}
# Our own sign of life brings the server's time, which is compared with ours.
QUICK_SIGNS = {"bascule.mesh.engine.LIFE_SIGN_SECONDS": 0.5}
# The servers' clock stays where it is: a week is not to count as a wrong clock.
ANY_SKEW = {"bascule.mesh.engine.SKEW_STOP_MS": 10**12}


@pytest.fixture
def wall(tmp_path, monkeypatch):
    """Moves the clock of daemons that are started while it is on."""
    clock = WallClock(tmp_path / "wall", monkeypatch)
    preload = os.environ["LD_PRELOAD"]
    monkeypatch.delenv("LD_PRELOAD")
    clock.on = lambda: monkeypatch.setenv("LD_PRELOAD", preload)
    clock.off = lambda: monkeypatch.delenv("LD_PRELOAD")
    return clock


@pytest.mark.req("MESH-DAY-10")
@pytest.mark.parametrize("servers", SERVERS)
def test_a_clock_that_is_wrong_is_warned_about_and_from_an_hour_on_mail_waits(wall, servers):
    with fleet(servers) as ships:
        (desk,) = ships.join("desk", constants=QUICK_SIGNS)
        wall.on()
        (vm,) = ships.join("vm", constants=QUICK_SIGNS)
        wall.off()
        assert not vm.faults()
        wall.set("+3m")
        assert "from an hour on mail is not taken" in vm.await_fault("differs from the server's", "NTP")
        vm.reply(desk.send(vm, "still taken") and vm.await_message("still taken")["ticketId"])
        wall.set("+2h")
        vm.await_fault("mail is not taken", "NTP")
        shown = run_command("doctor", "--state-dir", vm.state).stdout
        assert "mail is not taken" in shown
        ticket = desk.send(vm, "waits")
        eventually(lambda: desk.ticket(ticket)["delivery"]["state"] == "mailed", "it waits for a receipt")
        assert vm.take() == []
        wall.set("+0")
        vm.await_well()
        vm.reply(vm.await_message("waits")["ticketId"])
        desk.await_status(ticket, "responded")


@pytest.mark.req("MESH-M-1", "MESH-DAY-9")
@pytest.mark.parametrize("servers", SERVERS)
def test_a_week_without_a_machine_leaves_its_mail_and_after_that_it_is_undeliverable(wall, servers):
    with fleet(servers) as ships:
        wall.on()
        desk, vm = ships.join("desk", "vm", constants=QUICK_SWEEP | ANY_SKEW)
        vm.kill()
        week = 7 * 24 * 3_600_000
        arrives, never = (desk.send(vm, payload, timeoutMs=week) for payload in ("in time", "never"))
        local = Caller(desk.daemon)
        wall.set("+6d")
        desk.restart()
        vm.start()
        wall.off()
        assert {each["payload"] for each in (vm.await_message("in time"), vm.await_message("never"))}
        assert desk.ticket(never)["status"] == "pending"
        both = (arrives, never)
        eventually(lambda: {desk.ticket(each)["delivery"]["state"] for each in both} == {"arrived"}, "desk hears of it")
        vm.kill()
        late = desk.send(vm, "too late", timeoutMs=week)
        wall.set("+14d")
        reason = desk.await_status(late, "cancelled")["reason"]
        assert "vm was not reached in time" in reason
        events = local.get("/events/recent").json
        assert ("ticket.undeliverable", late) in {(each["event"], each.get("ticketId")) for each in events}
        # What had arrived before is not undeliverable.
        assert desk.ticket(arrives)["status"] == "pending"
