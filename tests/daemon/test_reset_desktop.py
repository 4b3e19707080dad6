"""A new person inherits neither the desktop that the old one enabled nor the apps they said yes to."""

import asyncio

from bascule.daemon.offline import reset_person
from bascule.desktop.apps import App, Apps
from bascule.desktop.switch import Switch
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock
from bascule.kernel.call import PERSON, agent_principal
from bascule.kernel.journal import Journal, Transaction
from bascule.stores.sqlite import SqliteStore

JERRY = agent_principal("Jerry")
EDITOR = App("editor", "/usr/bin/editor")


def test_a_reset_of_the_person_takes_the_desktop_away_and_leaves_a_stop_in_force(state):
    paths.make_private_dir(state)
    clock = SystemClock()

    async def before():
        store = SqliteStore(paths.database_file(state))
        journal = Journal(store, clock, on_anchor=lambda _: None)
        journal.start()
        switch, apps = Switch(store, clock), Apps(store, clock)
        tx = Transaction()
        switch.enable(tx, PERSON, {"DISPLAY": ":0"})
        switch.stop(tx, PERSON)
        apps.keep(tx, apps.spend(JERRY, "look", EDITOR, approval_id="apr_1"))
        await journal.commit(tx, PERSON, "desktop.enable")
        store.close()

    def now():
        store = SqliteStore(paths.database_file(state))
        switch = Switch(store, clock)
        found = (switch.enabled, switch.stopped, Apps(store, clock).compare(JERRY, "look", EDITOR))
        store.close()
        return found

    asyncio.run(before())
    assert now() == (True, True, "same")
    reset_person(state)
    assert now() == (False, True, "new")
