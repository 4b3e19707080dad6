"""How long tests wait for what must happen: long enough that only a fault, never a loaded machine, reaches it.

Everything that waits for another process, thread or connection uses this one bound. Nothing sleeps for it: it is the
limit of waiting for an event, and a test that passes does not notice it. It is half of the time that pytest gives one
test (`timeout` in pyproject.toml), so the assertion fails first and says what did not happen. With forty busy processes
beside it a test takes twenty times as long. Whoever works on a test that fails sets BASCULE_PATIENCE to a few seconds.

What must not take long is measured by the CPU time that it takes: that is the same on a busy machine.
"""

import os

PATIENCE = float(os.environ.get("BASCULE_PATIENCE") or 600)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU, as Linux says."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
