"""Start the daemon for a program that wants one."""

import os
import sys

# Longer than the 30 s that `bascule up -d` gives its daemon.
START_SECONDS = 40.0
# After a start that failed because somebody else was at it: how long theirs may take.
JOIN_SECONDS = 5.0
# What a daemon of the user needs. Not what this program has: tokens, virtual environments, sockets.
KEPT_ENVIRONMENT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
# The end of what it complained about; the rest is in its log.
_MAX_COMPLAINT_CHARS = 600


def start(state: str) -> str | None:
    """Run `bascule up -d`, which returns when the daemon is ready; what it complained about if it is not."""
    import subprocess  # noqa: PLC0415 - time that only this path pays

    # -P: a folder named `bascule` in the working directory must not become the daemon.
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "up", "-d", "--tcp-optional", "--state-dir", state]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter, our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was not ready after {START_SECONDS:.0f} s"
    if not done.returncode:
        return None
    return done.stderr.decode(errors="replace").strip()[-_MAX_COMPLAINT_CHARS:] or "it said nothing"
