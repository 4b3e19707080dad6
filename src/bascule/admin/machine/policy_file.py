"""`policy.toml` in the config directory: read, never written, and never from a workspace."""

import os
import stat

from bascule.kernel.policy.rules import MAX_POLICY_CHARS, BadPolicy

POLICY_FILE = "policy.toml"
# Every character may be four bytes.
_MAX_BYTES = 4 * MAX_POLICY_CHARS


class PolicyFile:
    def __init__(self, config_dir: str) -> None:
        self.path = os.path.join(config_dir, POLICY_FILE)

    def read(self) -> str | None:
        """Its text; None when there is none. `BadPolicy` when it cannot be read."""
        try:
            # O_NONBLOCK: a pipe somebody put there must not make us wait for its writer. Links are followed: people
            # keep their settings elsewhere, and what is accepted is the text, wherever it lies.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadPolicy(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadPolicy(f"{self.path} is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(_MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(data) > _MAX_BYTES:
            raise BadPolicy(f"{self.path} has more than {MAX_POLICY_CHARS} characters; no policy is that long")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadPolicy(f"{self.path} is not UTF-8 (byte {error.start})") from error
