"""Fuzzing drives the parts that other tests have scenes for."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "policy"))
