import os
import sys

# Real daemons, the wires to them, terminals and what to do without root are shared with other tests.
for neighbour in ("daemon", "e2e", "faults"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))
