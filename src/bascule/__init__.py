"""Bascule: one local daemon through which AI agents act.

Nothing is imported here: `bridge-reply` and `bascule mcp` start thousands of times a day and pay for
every module they touch. Start reading at `kernel/gate.py`; `docs/architecture.md` draws the whole.
"""

__version__ = "0.1.0"
