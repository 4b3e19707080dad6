"""Which agent a hook belongs to.

A client (Claude Code, Codex) is the parent of both its hooks and its `bascule mcp`. The hook's client is its
nearest ancestor that is not a shell; the stdio program registers its own process id. The agent is the online one whose
stdio program descends from that client, the nearest first. Where the processes cannot be looked at, the working
directory and the kind of client decide, and only if exactly one agent fits: a bell rung at the wrong agent is worse
than none.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Agent = dict[str, Any]

# Deeper than terminal, multiplexer, shells and wrappers go together.
MAX_ANCESTORS = 32
# Clients run a hook as `sh -c`; these stand between it and the client and mean nothing.
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox", "env", "nice", "timeout", "setsid"})
# What makes a client answer once and leave. Such a session must not be kept waiting by a bell.
ONE_SHOT = {
    "claude": frozenset({"-p", "--print", "--output-format", "--input-format"}),
    "codex": frozenset({"exec", "review"}),
}


class Processes:
    """Parents, names and arguments: from /proc, else from `ps`."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc if os.path.exists(f"{proc}/self/stat") else None
        self._listed: dict[int, tuple[int, str]] | None = None

    def ancestors(self, pid: int) -> list[int]:
        """Parent, its parent and so on; not `pid` itself, and not process 1, from which everything descends."""
        chain: list[int] = []
        while len(chain) < MAX_ANCESTORS:
            parent = self._look(pid)[0]
            if parent <= 1 or parent in chain:
                break
            chain.append(parent)
            pid = parent
        return chain

    def name(self, pid: int) -> str:
        return self._look(pid)[1]

    def arguments(self, pid: int) -> list[str]:
        if self._proc is None:
            return self._ps("-o", "args=", "-p", str(pid)).split()
        try:
            with open(f"{self._proc}/{pid}/cmdline", "rb") as file:
                return file.read().decode("utf-8", "replace").split("\0")
        except OSError:
            return []

    def alive(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _look(self, pid: int) -> tuple[int, str]:
        """Parent and name; (0, "") of a process that is gone."""
        if self._proc is None:
            if self._listed is None:
                self._listed = dict(_listing(self._ps("-A", "-o", "pid=,ppid=,comm=")))
            return self._listed.get(pid, (0, ""))
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return 0, ""
        # The name may hold spaces and brackets; what follows the last one cannot.
        head, _, rest = text.rpartition(")")
        return int(rest.split()[1]), head.partition("(")[2]

    @staticmethod
    def _ps(*words: str) -> str:
        import subprocess  # noqa: PLC0415 - only where there is no /proc

        done = subprocess.run(  # noqa: S603 - fixed words and a number
            ["/bin/ps", *words], capture_output=True, text=True, check=False, errors="replace", timeout=5
        )
        return done.stdout


def _listing(text: str) -> list[tuple[int, tuple[int, str]]]:
    rows = (line.split(None, 2) for line in text.splitlines())
    return [(int(row[0]), (int(row[1]), os.path.basename(row[2].strip()))) for row in rows if len(row) == 3]


def client_of(pid: int, processes: Processes) -> int | None:
    """The program that started `pid`, shells aside."""
    for ancestor in processes.ancestors(pid):
        # A login shell is called `-bash`.
        if processes.name(ancestor).removeprefix("-") not in SHELLS:
            return ancestor
    return None


def is_one_shot(client: str, pid: int, processes: Processes) -> bool:
    return not ONE_SHOT[client].isdisjoint(processes.arguments(pid)[1:])


def named_by(agents: Sequence[Agent], session: str | None) -> tuple[Agent | None, list[Agent]]:
    """The agent of the client's own session id, and the agents that belong to no other session.

    Codex starts the MCP servers of all its sessions from one process: only the id tells two of them apart. An agent
    has it from its first call on.
    """
    if session is None:
        return None, list(agents)
    left = [agent for agent in agents if _client_session(agent) in (None, session)]
    return _only([agent for agent in left if _client_session(agent) == session]), left


def agent_of_session(
    agents: Sequence[Agent], client_pid: int | None, cwd: str | None, processes: Processes
) -> Agent | None:
    """The agent whose stdio program descends from the client, the nearest; of several as near, the one of `cwd`."""
    nearest: list[Agent] = []
    best = MAX_ANCESTORS
    for agent in agents:
        pid = _stdio_pid(agent)
        chain = processes.ancestors(pid) if pid and client_pid else []
        if client_pid not in chain or chain.index(client_pid) > best:
            continue
        if chain.index(client_pid) < best:
            best, nearest = chain.index(client_pid), []
        nearest.append(agent)
    return _only(nearest) or _only([agent for agent in nearest if _is_at(agent, cwd)])


def agent_of_place(agents: Sequence[Agent], client: str, cwd: str | None, processes: Processes) -> Agent | None:
    """The one agent of this kind and directory, among those whose process cannot be looked at.

    A stdio program that can be looked at and was not found by `agent_of_session` is somebody else's.
    """
    return _only(
        [
            agent
            for agent in agents
            if _is_at(agent, cwd)
            and str(agent.get("type", "")).lower().startswith(client)
            and not processes.ancestors(_stdio_pid(agent) or 0)
        ]
    )


def _client_session(agent: Agent) -> Any:
    return (agent.get("metadata") or {}).get("clientSession")


def _stdio_pid(agent: Agent) -> int | None:
    pid = (agent.get("metadata") or {}).get("pid")
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 1 else None


def _is_at(agent: Agent, cwd: str | None) -> bool:
    registered_cwd = (agent.get("metadata") or {}).get("cwd")
    return (
        bool(cwd) and isinstance(registered_cwd, str) and os.path.realpath(registered_cwd) == os.path.realpath(str(cwd))
    )


def _only(agents: list[Agent]) -> Agent | None:
    return agents[0] if len(agents) == 1 else None
