"""Puts the desktop bridge together."""

from collections.abc import Callable
from functools import partial

from bascule.daemon.ports import CONFIG_DIR, CONSOLE_IS_OPEN, STATE_DIR
from bascule.desktop.apps import Apps
from bascule.desktop.evidence import EvidenceShelf
from bascule.desktop.hosting import Hosting
from bascule.desktop.judging import Judging
from bascule.desktop.machine.evidence_files import EvidenceFiles
from bascule.desktop.machine.launcher import HostLauncher
from bascule.desktop.machine.workspaces import EvidencePlaces
from bascule.desktop.news import DesktopNews
from bascule.desktop.ports import EvidenceReader, Launcher, Programs, Workspaces
from bascule.desktop.service import DesktopBridge
from bascule.desktop.settings import DesktopSettings
from bascule.desktop.switch import Switch
from bascule.foundation import paths
from bascule.foundation.backoff import Backoff
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, KernelServices, Ports

# A host that ends at once is not there to stay: a person looks sooner than it is tried for the tenth time.
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_METHODS = "desktop."


def make_desktop(kernel: KernelServices, ports: Ports) -> Bridge:
    settings, state_dir = kernel.config.of(DesktopSettings), ports.need(STATE_DIR)
    private = (state_dir, ports.need(CONFIG_DIR))
    own = EvidencePlaces(settings.directory(), paths.desktop_dir(state_dir), private)
    launcher = HostLauncher(
        own.root, own.own, keep_out=settings.kept_out(), trust=settings.desktop_trust, emergency=kernel.emergency
    )
    reader = EvidenceFiles(own.root, own.own)
    return compose(
        kernel, launcher, own, paths.program_file, reader, console_is_open=ports.need(CONSOLE_IS_OPEN)
    ).bridge()


def compose(
    kernel: KernelServices,
    launcher: Launcher,
    workspaces: Workspaces,
    programs: Programs,
    reader: EvidenceReader,
    *,
    console_is_open: Callable[[], bool] = lambda: False,
) -> DesktopBridge:
    news = DesktopNews(kernel.events)
    switch = Switch(kernel.store, kernel.clock, news.switched)
    apps = Apps(kernel.store, kernel.clock)

    def hosting(tasks: Tasks, on_stopped: Callable[[], None]) -> Hosting:
        return Hosting(
            launcher,
            kernel.clock,
            kernel.log,
            tasks,
            delays=partial(Backoff, _FIRST_DELAY, _LONGEST_DELAY),
            on_stopped=on_stopped,
            is_stopped=lambda: switch.stopped,
            news=news,
        )

    return DesktopBridge(
        switch=switch,
        apps=apps,
        judging=Judging(kernel.gate, apps, console_is_open),
        hosting=hosting,
        workspaces=workspaces,
        program_of=programs,
        evidence=EvidenceShelf(kernel.store, kernel.clock, reader),
        news=news,
        journal=kernel.journal,
        clock=kernel.clock,
        log=kernel.log,
        on_disabled=lambda tx: kernel.desk.end_methods(tx, _METHODS),
    )
