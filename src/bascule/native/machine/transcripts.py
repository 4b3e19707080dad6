"""A client's own record of its session, read for the ids of calls and nothing else."""

import os
import re
import stat

# The end of a long session; calls before that were compared at earlier stops.
MAX_BYTES = 8 * 1024 * 1024
# Claude Code 2.1.325: {"type":"tool_use","id":"toolu_...","name":"Bash",...} in the content of a message. Only tools
# whose hooks we ask for; MCP tools and the client's own helpers are left out.
_CALL = re.compile(
    rb'"type":\s*"tool_use",\s*"id":\s*"([\w-]{1,100})",\s*"name":\s*"(?:Bash|Write|Edit|MultiEdit|NotebookEdit|WebFetch)"'
)


def calls_in(transcript: str) -> frozenset[str]:
    try:
        descriptor = os.open(transcript, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return frozenset()
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return frozenset()
        file.seek(max(0, found.st_size - MAX_BYTES))
        return frozenset(each.decode() for each in _CALL.findall(file.read(MAX_BYTES)))
