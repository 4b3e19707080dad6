"""How long tests wait for what must happen: long enough that only a fault, never a loaded machine, reaches it.

Everything that waits for another process, thread or connection uses this one bound. Nothing sleeps for it: it is the
limit of waiting for an event, and a test that passes does not notice it. It is half of the time that pytest gives one
test (`timeout` in pyproject.toml), so the assertion fails first and says what did not happen.
"""

PATIENCE = 60.0
