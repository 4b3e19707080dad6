"""Puts the workspace bridge together: spaces and runs, and the sockets of their commands."""

import os

from bascule.daemon.ports import CONFIG_DIR, SIDE_APP, STATE_DIR
from bascule.daemon.space_doors import SPACE_METHODS, SpaceDoors
from bascule.foundation import paths
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import SPACE_AGENTS
from bascule.surfaces.http.admission import SpaceAdmission
from bascule.surfaces.http.app import App
from bascule.workspace.declared import CHECKPOINTS, GIT_STATES, OUTSIDE
from bascule.workspace.machine.callers import standing_of
from bascule.workspace.machine.checkpoints.git_states import GitStates
from bascule.workspace.machine.checkpoints.outside import OutsideFiles
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from bascule.workspace.machine.scratch import ScratchDirectory
from bascule.workspace.service import Workspace
from bascule.workspace.settings import WorkspaceSettings


def make_workspace(kernel: KernelServices, ports: Ports) -> Bridge:
    settings = kernel.config.of(WorkspaceSettings)
    state_dir = ports.need(STATE_DIR)
    agents = ports.need(SPACE_AGENTS)
    side_app = ports.need(SIDE_APP)
    ours = paths.workspace_dir(state_dir)
    paths.make_private_dir(ours)

    def app(space_id: str) -> App:
        """What a space's own socket leads to: messages, as the space's agent."""
        agents.add_agent(space_id, "space", {"space": workspace.spaces.record(space_id).name})
        return side_app(SpaceAdmission(space_id, agents.may_connect), SPACE_METHODS, "it is for messages only")

    doors = SpaceDoors(os.path.join(ours, "doors"), app, agents.mark_offline)
    workspace = Workspace(
        store=kernel.store,
        journal=kernel.journal,
        clock=kernel.clock,
        gate=kernel.gate,
        # No space may lie in our own directories.
        files=WorkspaceFiles((state_dir, ports.need(CONFIG_DIR))),
        sandboxes=Sandboxes(
            os.path.join(ours, "sandbox"),
            log=kernel.log,
            readable=settings.readable_directories(),
            doors=doors,
            emergency=kernel.emergency,
        ),
        checkpoints=GitCheckpoints(os.path.join(ours, CHECKPOINTS)),
        git=GitStates(os.path.join(ours, GIT_STATES)),
        outside=OutsideFiles(os.path.join(ours, OUTSIDE), ours=(state_dir, ports.need(CONFIG_DIR))),
        standing_of=standing_of,
        scratch=ScratchDirectory(os.path.join(ours, "copies")),
        log=kernel.log,
        key=kernel.key,
        events=kernel.events,
        limits=settings.limits(),
        network=settings.workspace_network == "on",
        sandbox=settings.sandbox,
        on_closed=agents.remove_agent,
        on_shut=doors.close,
    )
    return workspace.bridge()
