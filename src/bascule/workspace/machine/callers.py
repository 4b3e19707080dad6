"""Below which programs a caller's process stands: a terminal of the person's, or an agent's client.

A program of the same user can pretend either (SECURITY.md). This tells apart what people and agents do without malice.
"""

import os
import re
from collections.abc import Sequence

from bascule.programs.helpers.process_tree import Processes
from bascule.workspace.ports import Standing

# Names of clients' programs, and of the packages that their scripts lie in.
CLIENTS = frozenset({"claude", "claude-code", "codex", "gemini", "gemini-cli", "opencode", "opencode-ai"})
# What clients set for every command that they start. It is there also where the shell in between has ended.
MARKS = (b"CLAUDECODE=", b"GEMINI_CLI=", b"CODEX_THREAD_ID=", b"CODEX_SANDBOX=", b"OPENCODE=")
# What runs a script, whose name follows its options; `vim claude.md` is no client.
_INTERPRETER = re.compile(r"(node|nodejs|bun|deno|python[0-9.]*|sh|bash|dash|zsh|env)")
# An environment may be as large as the stack allows; clients' marks are small.
_MAX_ENVIRONMENT_BYTES = 1 << 20


def standing_of(pid: int) -> Standing:
    """Of a process that is gone nothing is known: it stands below a client."""
    processes = Processes()
    chain = [pid, *processes.ancestors(pid)]
    client = next((each for each in chain if _is_client(each, processes)), 0)
    is_below = bool(client) or not processes.name(pid) or _is_marked(pid)
    return Standing(frozenset(chain), is_below, client)


def _is_client(pid: int, processes: Processes) -> bool:
    return processes.name(pid) in CLIENTS or is_client_by(processes.arguments(pid))


def is_client_by(words: Sequence[str]) -> bool:
    """By the words that a process was started with: of a script by its own name, not by the words behind it."""
    program = words[:1]
    if program and _INTERPRETER.fullmatch(os.path.basename(program[0])):
        program = [each for each in words[1:] if not each.startswith("-")][:1]
    for word in program:
        # /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js; but a file of /home/claude is anybody's.
        package = word.split("/node_modules/")[1:]
        if os.path.splitext(os.path.basename(word))[0] in CLIENTS or (package and _is_package(package[-1])):
            return True
    return False


def _is_package(path: str) -> bool:
    return not CLIENTS.isdisjoint(path.split("/")[:2])


def _is_marked(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read(_MAX_ENVIRONMENT_BYTES).split(b"\0")
    except OSError:
        return False
    return any(each.startswith(MARKS) for each in variables)
