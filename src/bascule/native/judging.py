"""What the rules say about one call of an agent's own tool, and what it may change."""

import asyncio
from collections.abc import Iterable
from posixpath import normpath

import msgspec

from bascule.kernel.call import Principal
from bascule.kernel.gate import Gate
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.facts import facts_of
from bascule.kernel.policy.shell.reading import read
from bascule.kernel.policy.zones import Project
from bascule.native.hooks import Hook, Unreadable
from bascule.native.ports import Machine
from bascule.native.protocol import NativeFetch, NativePaths, NativeShell

# Programs that put files into a directory and leave the rest of it alone, and those that prepare that.
_INTO = frozenset(["cp", "mv", "ln", "install", "cd", "mkdir"])
# Programs that act on a link itself, not on what it leads to.
_ON_LINKS = frozenset(["rm", "unlink", "rmdir", "mv", "ln", "cd", "mkdir"])
UNREADABLE = "unreadable"


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

    async def judge(self, principal: Principal, found: Hook | Unreadable) -> Judged:
        hook = found.hook if isinstance(found, Unreadable) else found
        home = self._machine.home
        cwd = hook.cwd or home
        root = await asyncio.to_thread(self._machine.project, cwd)
        if isinstance(found, Unreadable):
            verdict = Verdict(Decision.DENY, UNREADABLE, f"nobody can say what it does: {found.reason}")
            may_write = hook.kind not in ("read", "fetch")
            return Judged(verdict, root, may_write=may_write, writes=())
        where = {"cwd": cwd, "root": root, "home": home}
        params: NativeShell | NativePaths | NativeFetch
        match hook.kind:
            case "shell":
                params = await self._shell(hook, where)
            case "write" | "read":
                led_to = await self._led_to(hook.paths, where, follow=True)
                params = NativePaths(paths=[*hook.paths, *led_to], **where)
            case "fetch":
                params = NativeFetch(url=hook.url or "", **where)
            case "other":
                return Judged(None, root, may_write=False, writes=())
        method = f"native.{hook.kind}"
        verdict = self._gate.verdict(principal, method, params)
        facts = facts_of(method, params)
        only_looks = hook.kind == "shell" and read(hook.command or "").only_looks
        may_write = hook.kind in ("write", "shell") and not only_looks
        writes = tuple(path if path.startswith(("/", "~")) else f"{root}/{path}" for path in facts.paths)
        into = {command.program for command in facts.commands} <= _INTO
        return Judged(verdict, root, may_write=may_write, writes=writes, into=into)

    async def _shell(self, hook: Hook, where: dict[str, str]) -> NativeShell:
        params = NativeShell(command=hook.command or "", writes=list(hook.paths), **where)
        facts = facts_of("native.shell", params)
        follow = not {command.program for command in facts.commands} <= _ON_LINKS
        led_to = await self._led_to(facts.paths, where | {"cwd": where["root"]}, follow=follow)
        return msgspec.structs.replace(params, writes=[*params.writes, *led_to]) if led_to else params

    async def _led_to(self, paths: Iterable[str], where: dict[str, str], *, follow: bool) -> list[str]:
        """Each path as the file system has it, where that is not what its text says: a path is judged twice."""
        project = Project(where["root"], where["home"])
        written = [path for each in paths if (path := project.absolute(each, where["cwd"])).startswith("/")]
        if not written:
            return []
        real = await asyncio.to_thread(self._machine.resolved, written, follow=follow)
        return list(dict.fromkeys(path for path, text in zip(real, written, strict=True) if path != normpath(text)))
