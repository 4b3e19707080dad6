"""What /metrics tells about the house as it is now."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bascule.daemon.compose import Daemon


def add_gauges(daemon: "Daemon") -> None:
    state = daemon.broker.state
    gauge = daemon.metrics.gauge
    gauge("bascule_tickets", "Tickets kept.", lambda: len(state.tickets.rows))
    gauge("bascule_tickets_open", "Tickets not settled.", lambda: state.open_count)
    gauge("bascule_agents", "Agents known.", lambda: len(state.agents.rows))
    gauge("bascule_agents_online", "Agents online.", daemon.broker.agents.online_count)
    gauge("bascule_waits", "Long polls and streams held open.", daemon.broker.waits.count)
    gauge("bascule_link_connections", "Link connections.", lambda: len(daemon.connections.all))
    gauge("bascule_approvals_pending", "Questions that wait for the person.", lambda: len(daemon.desk.pending()))
    gauge("bascule_spaces", "Spaces.", lambda: len(daemon.workspace.spaces.table.rows))
    gauge("bascule_runs_live", "Runs under way or waiting for the person.", lambda: len(daemon.workspace.runs.live))
    gauge("bascule_games_running", "Games that are not stopped.", lambda: len(daemon.games.games.running()))
    desktop = daemon.desktop
    gauge("bascule_desktop_enabled", "1 while agents may use the desktop.", lambda: float(desktop.switch.enabled))
    gauge("bascule_desktop_stopped", "1 after a stop, until a resume.", lambda: float(desktop.switch.stopped))
    gauge("bascule_desktop_calls", "Looks, acts and waits at the desktop host.", lambda: desktop.traffic.count)
    gauge("bascule_ledger_records", "Number of the newest ledger record.", lambda: daemon.journal.chain.seq)
    gauge("bascule_store_bytes", "Size of the database on disk.", daemon.store.size_bytes)
    gauge(
        "bascule_store_fault",
        "1 while the store cannot be written.",
        lambda: float(daemon.journal.fault is not None),
    )
