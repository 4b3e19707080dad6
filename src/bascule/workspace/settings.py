"""What its user may set about spaces, runs and the commands in them."""

import os
from collections.abc import Sequence
from typing import Literal

from bascule.foundation import paths
from bascule.kernel.settings import BadConfig, Count, Ms, Settings, limits_in
from bascule.workspace.limits import WorkspaceLimits

_defaults = WorkspaceLimits()


class WorkspaceSettings(Settings, frozen=True, kw_only=True):
    # Where commands of agents run: bubblewrap, or none, which every shell event then says. With none a command can do
    # whatever you can.
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    # Whether commands in the sandbox reach the network.
    workspace_network: Literal["off", "on"] = "off"
    # More directories that commands may read, with commas: toolchains outside /usr, as in ~/.pyenv,~/.cargo.
    workspace_readable: str = ""
    # Directories that are spaces.
    max_spaces: Count = _defaults.max_spaces
    # Runs of one principal under way.
    max_runs: Count = _defaults.max_runs
    # How long a run may work, in milliseconds, not counting what it waits for turns and answers.
    max_run_ms: Ms = _defaults.max_run_ms
    # Runs of one space whose answers and changes are kept.
    max_kept_runs: Count = _defaults.max_kept_runs
    # How long a call of an agent's own tool waits for the tree before it, in milliseconds; then it goes on without an
    # undo, and is listed with the reason.
    native_checkpoint_ms: Ms = _defaults.native_checkpoint_ms
    # Commands in the background of one space.
    max_processes: Count = _defaults.max_processes

    def limits(self) -> WorkspaceLimits:
        return limits_in(self, WorkspaceLimits)

    def readable_directories(self) -> tuple[str, ...]:
        named = (each.strip() for each in self.workspace_readable.split(","))
        return tuple(os.path.abspath(paths.expand(each)) for each in named if each)

    def check(self, ours: Sequence[str], /) -> None:
        """No command may see our directories: the token and the sockets in them are the user's whole authority."""
        for named in self.readable_directories():
            for directory in ours:
                pair = [os.path.realpath(named), os.path.realpath(directory)]
                if os.path.commonpath(pair) in pair:
                    raise BadConfig(
                        f"workspace_readable: {named} and {directory}, which is Bascule's own, lie within each other",
                        hint="name the toolchain's own directory; commands in the sandbox could else act as you",
                    )
