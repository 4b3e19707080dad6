import os
import sys

# Real daemons and the wires to them are shared with the tests of the daemon, terminals with `e2e`.
for neighbour in ("daemon", "e2e", "faults"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))
