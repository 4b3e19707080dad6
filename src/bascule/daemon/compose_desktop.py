"""Puts the desktop bridge together: `compose`, for the screen."""

from collections.abc import Callable
from functools import partial

from bascule import places
from bascule.adapters.desktop.launcher import HostLauncher, program_of
from bascule.adapters.desktop.workspaces import EvidencePlaces
from bascule.approval.desk import Desk
from bascule.audit.journal import Journal
from bascule.audit.ports import JournalStore, Log
from bascule.bridges.desktop.apps import Apps
from bascule.bridges.desktop.hosting import Hosting
from bascule.bridges.desktop.judging import Judging
from bascule.bridges.desktop.ports import Launcher, Programs, Workspaces
from bascule.bridges.desktop.service import DesktopBridge
from bascule.bridges.desktop.switch import Switch
from bascule.clock import Clock
from bascule.daemon.config import Config
from bascule.kernel.gate import Gate
from bascule.later import Carrier
from bascule.transports.backoff import delays

# A host that ends at once is not there to stay: a person looks sooner than it is tried for the tenth time.
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_METHODS = "desktop."


def make_desktop(
    config: Config,
    state_dir: str,
    config_dir: str,
    *,
    store: JournalStore,
    journal: Journal,
    clock: Clock,
    log: Log,
    desk: Desk,
    gate: Gate,
) -> DesktopBridge:
    own = EvidencePlaces(config.desktop_directory(), places.desktop_dir(state_dir), (state_dir, config_dir))
    return compose(
        HostLauncher(own.root, own.own, keep_out=config.kept_out()),
        own,
        program_of,
        store=store,
        journal=journal,
        clock=clock,
        log=log,
        desk=desk,
        gate=gate,
    )


def compose(
    launcher: Launcher,
    workspaces: Workspaces,
    programs: Programs,
    *,
    store: JournalStore,
    journal: Journal,
    clock: Clock,
    log: Log,
    desk: Desk,
    gate: Gate,
) -> DesktopBridge:
    switch = Switch(store, clock)
    apps = Apps(store, clock)

    def hosting(carrier: Carrier, on_stopped: Callable[[], None]) -> Hosting:
        return Hosting(
            launcher,
            clock,
            log,
            carrier,
            delays=partial(delays, _FIRST_DELAY, _LONGEST_DELAY),
            on_stopped=on_stopped,
            is_stopped=lambda: switch.stopped,
        )

    return DesktopBridge(
        switch=switch,
        apps=apps,
        judging=Judging(gate, apps),
        hosting=hosting,
        workspaces=workspaces,
        program_of=programs,
        journal=journal,
        clock=clock,
        log=log,
        on_disabled=lambda tx: desk.end_methods(tx, _METHODS),
    )
