"""Puts the workspace bridge together: `compose`, for spaces and runs."""

import os
from collections.abc import Callable

from bascule.adapters.checkpoints.spaces import GitCheckpoints
from bascule.adapters.files.roots import WorkspaceFiles
from bascule.adapters.sandbox.sandboxes import Sandboxes
from bascule.adapters.scratch import ScratchDirectory
from bascule.audit.journal import Journal, Transaction
from bascule.audit.ports import JournalStore, Log
from bascule.bridges.workspace.service import Workspace
from bascule.clock import Clock
from bascule.daemon.config import Config
from bascule.daemon.space_doors import SpaceDoors
from bascule.kernel.gate import Gate


def make_workspace(
    config: Config,
    ours: str,
    private: tuple[str, ...],
    *,
    store: JournalStore,
    journal: Journal,
    clock: Clock,
    log: Log,
    gate: Gate,
    key: bytes,
    doors: SpaceDoors,
    on_closed: Callable[[Transaction, str], None],
) -> Workspace:
    """`ours`: the directory for what the bridge keeps itself. `private`: where no space may lie."""
    return Workspace(
        store=store,
        journal=journal,
        clock=clock,
        gate=gate,
        files=WorkspaceFiles(private),
        sandboxes=Sandboxes(
            os.path.join(ours, "sandbox"), log=log, readable=config.readable_directories(), doors=doors
        ),
        checkpoints=GitCheckpoints(os.path.join(ours, "checkpoints")),
        scratch=ScratchDirectory(os.path.join(ours, "copies")),
        log=log,
        key=key,
        limits=config.workspace_limits(),
        network=config.workspace_network == "on",
        sandbox=config.sandbox,
        on_closed=on_closed,
    )
