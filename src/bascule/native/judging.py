"""What the rules say about one call of an agent's own tool, and what it may change."""

import asyncio

import msgspec

from bascule.kernel.call import Principal
from bascule.kernel.gate import Gate
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.facts import facts_of
from bascule.kernel.policy.shell.reading import read
from bascule.native.hooks import Hook
from bascule.native.ports import Machine
from bascule.native.protocol import NativeFetch, NativePaths, NativeShell

# Programs that put files into a directory and leave the rest of it alone, and those that prepare that.
_INTO = frozenset(["cp", "mv", "ln", "install", "cd", "mkdir"])


class Judged(msgspec.Struct, frozen=True):
    verdict: Verdict | None
    root: str
    may_write: bool
    # Absolute, as far as they are known.
    writes: tuple[str, ...]
    # They are put into directories.
    into: bool = False


class Judge:
    def __init__(self, gate: Gate, machine: Machine) -> None:
        self._gate = gate
        self._machine = machine

    async def judge(self, principal: Principal, hook: Hook) -> Judged:
        home = self._machine.home
        cwd = hook.cwd or home
        root = await asyncio.to_thread(self._machine.project, cwd)
        where = {"cwd": cwd, "root": root, "home": home}
        params: NativeShell | NativePaths | NativeFetch
        match hook.kind:
            case "shell":
                params = NativeShell(command=hook.command or "", **where)
            case "write" | "read":
                params = NativePaths(paths=list(hook.paths), **where)
            case "fetch":
                params = NativeFetch(url=hook.url or "", **where)
            case "other":
                return Judged(None, root, may_write=False, writes=())
        method = f"native.{hook.kind}"
        verdict = self._gate.verdict(principal, method, params)
        facts = facts_of(method, params)
        only_looks = hook.kind == "shell" and not hook.too_long and read(hook.command or "").only_looks
        may_write = hook.kind in ("write", "shell") and not only_looks
        if hook.too_long:
            verdict = Verdict(Decision.DENY, "too-long", "it is longer than anybody can look at before it runs")
        writes = tuple(path if path.startswith(("/", "~")) else f"{root}/{path}" for path in facts.paths)
        into = {command.program for command in facts.commands} <= _INTO
        return Judged(verdict, root, may_write=may_write, writes=writes, into=into)
