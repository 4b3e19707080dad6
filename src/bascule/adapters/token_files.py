"""agentTokens where helpers find them: one 0600 file per handle in the state directory."""

import os

from bascule import places
from bascule.audit.ports import Log


class StateTokenFiles:
    """Writing a token file cannot fail a registration that is already durable: the caller has the token."""

    def __init__(self, state_dir: str, log: Log) -> None:
        self._state_dir = state_dir
        self._log = log
        places.make_private_dir(places.tokens_dir(state_dir))

    def write(self, agent_id: str, token: str) -> None:
        try:
            places.write_private_file(places.token_file(self._state_dir, agent_id), token)
        except OSError as error:
            self._log("token_file", level="error", agent=agent_id, error=error)

    def remove(self, agent_id: str) -> None:
        try:
            os.unlink(places.token_file(self._state_dir, agent_id))
        except FileNotFoundError:
            return
        except OSError as error:
            self._log("token_file", level="error", agent=agent_id, error=error)
