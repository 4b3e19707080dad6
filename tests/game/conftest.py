"""The living daemon, the wires to it and the small MCP client are shared with their own tests."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / folder) for folder in ("daemon", "shim", "mcp")]
