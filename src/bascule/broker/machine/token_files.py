"""agentTokens where helpers find them: one 0600 file per handle in the state directory.

A token is known to nobody but this file and the answer of its registration, and a crash may take the answer. So it
is on disk, under a name of its own, before the registration is; once that is durable it takes its place.
"""

import contextlib
import errno
import os
from collections.abc import Callable

from bascule.foundation import paths
from bascule.foundation.errors import StorageFull
from bascule.kernel.identity.tokens import hash_token
from bascule.kernel.journal_ports import Log

_STAGED = ".next"
# Enough of the token's hash that two of one handle never meet.
_STAGED_CHARS = 16


class StateTokenFiles:
    """A full disk refuses a registration; any other trouble with the file does not: the caller has the token."""

    def __init__(self, state_dir: str, log: Log) -> None:
        self._state_dir = state_dir
        self._directory = paths.tokens_dir(state_dir)
        self._log = log
        paths.make_private_dir(self._directory)

    def prepare(self, agent_id: str, token: str) -> None:
        staged = self._staged(agent_id, token)
        try:
            paths.write_synced(staged, token)
            paths.sync_dir(self._directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(staged)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull(
                    f"the token of {agent_id} cannot be stored: {error.strerror}",
                    hint="free space on the disk that holds the state directory, then try again",
                    retry_after=1.0,
                ) from error
            self._log("token_file", level="error", agent=agent_id, error=error)

    def publish(self, agent_id: str, token: str) -> None:
        staged = self._staged(agent_id, token)
        try:
            if not os.path.exists(staged):
                # It could not be prepared; now it is all there is.
                paths.write_synced(staged, token)
            paths.put_in_place(staged, paths.token_file(self._state_dir, agent_id))
        except OSError as error:
            self._log("token_file", level="error", agent=agent_id, error=error)

    def settle(self, find: Callable[[str], str | None]) -> None:
        """After a crash: registrations that became durable get their file, the others leave none."""
        for name in os.listdir(self._directory):
            if not name.endswith(_STAGED):
                continue
            staged = os.path.join(self._directory, name)
            token = paths.read_private_file(staged)
            agent_id = find(token)
            if agent_id is None:
                os.unlink(staged)
            else:
                self.publish(agent_id, token)

    def remove(self, agent_id: str) -> None:
        try:
            os.unlink(paths.token_file(self._state_dir, agent_id))
        except FileNotFoundError:
            return
        except OSError as error:
            self._log("token_file", level="error", agent=agent_id, error=error)

    def _staged(self, agent_id: str, token: str) -> str:
        path = paths.token_file(self._state_dir, agent_id)
        return f"{path}.{hash_token(token)[:_STAGED_CHARS]}{_STAGED}"
