import os
import sys

# Real daemons, the wires to them and terminals are shared with the tests of the daemon and its commands.
for neighbour in ("daemon", "e2e"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))
