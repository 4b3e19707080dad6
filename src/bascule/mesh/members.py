"""Puts the parts of membership together."""

from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import KernelServices
from bascule.kernel.journal import Table
from bascule.mesh.admissions import Admissions
from bascule.mesh.connection import Connection
from bascule.mesh.joining import Joining
from bascule.mesh.machine_ports import Machine, Traffic
from bascule.mesh.membership import OwnPlace
from bascule.mesh.membership_methods import MembershipMethods
from bascule.mesh.membership_views import Views
from bascule.mesh.records import Membership
from bascule.mesh.roster import Roster


def make_members(
    kernel: KernelServices, table: Table[Membership], machine: Machine, traffic: Traffic
) -> MembershipMethods:
    clock, store = kernel.clock, kernel.store
    tasks = Tasks(kernel.gate.call_log.task_failed)
    place = OwnPlace(table)
    roster = Roster(store, clock, lambda: None if place.row is None else (place.row.mesh, place.row.mesh_key))
    admissions = Admissions(store, clock, roster)
    connection = Connection(
        machine=machine,
        place=place,
        roster=roster,
        admissions=admissions,
        traffic=traffic,
        clock=clock,
        log=kernel.log,
        tasks=tasks,
    )
    joining = Joining(machine=machine, place=place, roster=roster, journal=kernel.journal, clock=clock, tasks=tasks)
    views = Views(
        place=place, roster=roster, admissions=admissions, connection=connection, joining=joining, clock=clock
    )
    return MembershipMethods(
        machine=machine,
        place=place,
        roster=roster,
        admissions=admissions,
        connection=connection,
        joining=joining,
        views=views,
        journal=kernel.journal,
        clock=clock,
        events=kernel.events,
        tasks=tasks,
    )
