"""Hooks answered: what the rules say, what is kept first, and what is known of sessions."""

import asyncio
import hashlib
import hmac
from typing import Literal

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.foundation.text import one_line
from bascule.kernel.bridge import Bridge, Gauge, KernelServices
from bascule.kernel.call import DAEMON, LOCAL, Call, Principal, agent_of
from bascule.kernel.consent import blocks
from bascule.kernel.consent.questions import params_and_digest
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.event_ring import Fact, Kind
from bascule.kernel.faults import log_fault
from bascule.kernel.journal import Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.facts import facts_of
from bascule.kernel.policy.shell.reading import read
from bascule.kernel.policy.shell.traits import DESTRUCTIVE, GROUND, OPAQUE, OUTSIDE, UNPLACED
from bascule.kernel.ports import NativeRuns, NativeWork
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Nothing
from bascule.native import answers, rows
from bascule.native.declared import NativeDeclared
from bascule.native.hooks import Hook, read_hook
from bascule.native.modes import Modes
from bascule.native.ports import Machine
from bascule.native.protocol import (
    HookAnswer,
    HookParams,
    ModeParams,
    ModeView,
    NativeFetch,
    NativePaths,
    NativeSessionView,
    NativeShell,
    QuestionParams,
    Report,
    ReportParams,
    SessionRef,
    SessionsParams,
)
from bascule.native.sessions import MAX_SESSIONS, OpenCall, Session, Sessions
from bascule.native.tally import Tally

# A dialog is raced for as long as a question at the desk lives; the client's own stays open without us.
DIALOG_MS = 15 * 60_000
# Nobody sits at a client that answers one prompt and ends, and Codex shows no dialog until its hook has spoken.
HEADLESS_MS = 25_000
CODEX_DIALOG_MS = 15_000
# Dialogs of one session: a person answers one after the other, and subagents have a few more.
MAX_DIALOGS = 32
# What is under way when the daemon stops: the checkpoint after a call.
CLOSE_SECONDS = 5.0


# Programs that remove or overwrite what was there, also without force: such a call waits for its checkpoint.
_TAKES_AWAY = frozenset(["rm", "unlink", "rmdir", "mv", "git", "sed", "perl", "tar", "unzip", "patch", "rsync", "cp"])


# Programs that put files into a directory and leave the rest of it alone, and those that prepare that.
_INTO = frozenset(["cp", "mv", "ln", "install", "cd", "mkdir"])
# Traits of commands that wait for it as well. What is written elsewhere is overwritten there.
_WAITING = frozenset([DESTRUCTIVE, UNPLACED, OPAQUE, OUTSIDE, GROUND])


class _Judged(msgspec.Struct, frozen=True):
    verdict: Verdict | None
    root: str
    may_write: bool
    destructive: bool
    # Absolute, as far as they are known.
    writes: tuple[str, ...]
    # They are put into directories.
    into: bool = False


class Native:
    def __init__(self, kernel: KernelServices, runs: NativeRuns, machine: Machine) -> None:
        self._clock = kernel.clock
        self._journal = kernel.journal
        self._gate = kernel.gate
        self._events = kernel.events
        self._key = kernel.key
        self._runs = runs
        self._machine = machine
        self._tasks = Tasks(lambda name, error: log_fault(kernel.log, error, task=name))
        self.modes = Modes(kernel.store)
        self.sessions = Sessions(kernel.clock, machine.start_of, self.modes.of, self._forgotten)
        self.tally = Tally(rfc3339(kernel.clock.wall_ms()))
        self._desk = kernel.desk
        # By client and session: what its open dialogs are about, and whose question at the desk is the same.
        self._dialogs: dict[tuple[str, str], dict[str, tuple[Principal, str]]] = {}

    def bridge(self) -> Bridge:
        return Bridge(
            declared=NativeDeclared(),
            service=self,
            methods=[
                rows.NATIVE_BEFORE.bind(self.before),
                rows.NATIVE_AFTER.bind(self.after),
                rows.NATIVE_QUESTION.bind(self.answered, resolve=self.question),
                rows.NATIVE_REPORT.bind(self.report),
                rows.NATIVE_MODE.bind(self.choose_mode),
                rows.NATIVE_MODES.bind(self.list_modes),
                rows.SESSIONS_NOTE.bind(self.note),
                rows.SESSIONS_LIST.bind(self.list_sessions),
                rows.SESSIONS_SHOW.bind(self.show_session),
                rows.SESSIONS_STREAM.bind(self.stream_sessions),
            ],
            gauges=[
                Gauge("bascule_native_sessions", "Sessions of agents' clients.", lambda: len(self.sessions.all())),
            ],
            end=self.sessions.end,
            close=self.close,
        )

    # -- before --

    async def before(self, call: Call, params: HookParams, effect: RecordedEffect) -> HookAnswer:
        hook = read_hook(params.client, params.event)
        session = self.sessions.note(params, hook, agent_of(call.principal))
        judged = await self._judge(call, hook)
        mode = self.modes.of(hook.client, judged.root)
        collision = self.sessions.collision(session, judged.writes)
        output, decided = answers.answer(hook.client, mode, judged.verdict, [collision] if collision else [])
        stops = decided and judged.verdict is not None and judged.verdict.decision is Decision.DENY
        run_id: str | None = None
        note: str | None = None
        if judged.may_write and not stops:
            run_id, note = await self._keep(hook, session, judged)
        key = self._key_of(hook)
        lost = self.sessions.began(session, OpenCall(key, hook.tool or "", run_id, self._clock.wall_ms()))
        if lost is not None:
            await self._give_up(session, [lost])
        if stops:
            self.sessions.ended(session, key)
        self.tally.call(hook.client, judged.verdict, hook.title, undoable=run_id is not None)
        verdict = judged.verdict
        record: Literal["observed", "decided"] = "decided" if decided else "observed"
        effect.details |= {
            "client": hook.client,
            "session": hook.session,
            "tool": hook.tool,
            "record": record,
            "mode": mode,
            "call": self._digest(f"{hook.tool}\0{hook.title}"),
            **({"verdict": verdict.decision.value, "rule": verdict.rule} if verdict is not None else {}),
            **({"run": run_id} if run_id is not None else {}),
            **({"agent": hook.agent} if hook.agent is not None else {}),
        }
        return HookAnswer(
            output=output,
            record=record,
            verdict=verdict.decision.value if verdict is not None else None,
            rule=verdict.rule if verdict is not None else None,
            reason=verdict.reason if verdict is not None else None,
            run_id=run_id,
            note=note,
            question=_question_of(hook, judged.root) if decided and answers.needs_desk(hook.client, verdict) else None,
        )

    async def _judge(self, call: Call, hook: Hook) -> _Judged:
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
                return _Judged(None, root, may_write=False, destructive=False, writes=())
        method = f"native.{hook.kind}"
        verdict = self._gate.verdict(call.principal, method, params)
        facts = facts_of(method, params)
        only_looks = hook.kind == "shell" and not hook.too_long and read(hook.command or "").only_looks
        may_write = hook.kind in ("write", "shell") and not only_looks
        if hook.too_long:
            verdict = Verdict(Decision.DENY, "too-long", "it is longer than anybody can look at before it runs")
        destructive = (
            hook.too_long
            or not _WAITING.isdisjoint(facts.traits)
            or any(command.program in _TAKES_AWAY for command in facts.commands)
        )
        writes = tuple(path if path.startswith(("/", "~")) else f"{root}/{path}" for path in facts.paths)
        into = {command.program for command in facts.commands} <= _INTO
        return _Judged(verdict, root, may_write=may_write, destructive=destructive, writes=writes, into=into)

    async def _keep(self, hook: Hook, session: Session, judged: _Judged) -> tuple[str | None, str | None]:
        return await self._runs.begin(
            NativeWork(
                client=hook.client,
                session=hook.session,
                prompt=session.prompt,
                tool=hook.tool or "",
                title=hook.title,
                root=judged.root,
                writes=judged.writes,
                only_these=hook.kind == "write" and all(path.startswith("/") for path in judged.writes),
                into=judged.into,
                destructive=judged.destructive,
            )
        )

    # -- questions --

    async def question(self, call: Call, params: QuestionParams) -> Resolution:
        """What the person sees; the answer is good for the same call once.

        A client that has opened its own dialog asks, whatever our rules say: what they allow is not a person's yes.
        """
        hook = Hook(
            client=params.client,
            name="question",
            moment="question",
            session="",
            cwd=params.cwd,
            kind=params.kind,
            command=params.command,
            paths=tuple(params.paths),
            url=params.url,
        )
        judged = await self._judge(call, hook)
        where = blocks.facts(f"{params.client}, in {params.cwd}, with its own tool and outside of the sandbox")
        others = blocks.text("\n".join([*params.paths, params.url or ""]).strip())
        bound = {"policy": self._gate.policy.digest}
        verdict = judged.verdict
        if params.dialog is not None:
            digest = params_and_digest(call.params, bound)[1]
            self._opened(params.client, params.dialog, self._about(hook), (call.principal, digest))
            if verdict is None or verdict.decision is Decision.ALLOW:
                verdict = Verdict(Decision.ASK, "client-asks", f"{params.client} asks you in its own window, too")
        return Resolution(
            summary=f"{params.client}: {hook.title}",
            preview=(where, blocks.command(params.command) if params.command is not None else others),
            bound=bound,
            verdict=verdict,
        )

    def answered(self, call: Call, params: QuestionParams, effect: RecordedEffect) -> HookAnswer:
        """A person has said yes, or no rule asks any more."""
        effect.details |= {"client": params.client, "record": "answered"}
        if params.dialog is None:
            return HookAnswer(record="answered")
        effect.details["session"] = params.dialog
        return HookAnswer(record="answered", output=answers.dialog(allow=True))

    def _dialog(self, hook: Hook, session: Session) -> HookAnswer:
        """The client shows a dialog: where hooks decide, the desk shows the same question."""
        mode = self.modes.of(hook.client, hook.cwd)
        # Nobody agrees at the desk to what the desk cannot show.
        if mode != "enforce" or hook.kind == "other" or hook.client == "gemini" or hook.too_long:
            return HookAnswer(record="observed")
        question = msgspec.structs.replace(_question_of(hook, hook.cwd or "/"), dialog=hook.session)
        if hook.client == "codex":
            wait_ms = CODEX_DIALOG_MS
        else:
            seated = session.pid is not None and self._machine.has_terminal(session.pid)
            wait_ms = DIALOG_MS if seated else HEADLESS_MS
        return HookAnswer(record="observed", question=question, wait_ms=wait_ms)

    def _opened(self, client: str, session: str, about: str, asked: tuple[Principal, str]) -> None:
        dialogs = self._dialogs.pop((client, session), {})
        self._dialogs[client, session] = dialogs
        dialogs[about] = asked
        if len(self._dialogs) > MAX_SESSIONS:
            self._dialogs.pop(next(iter(self._dialogs)))
        if len(dialogs) > MAX_DIALOGS:
            dialogs.pop(next(iter(dialogs)))

    def _close_dialogs(self, client: str, session: str, about: str | None = None) -> None:
        """The client went on: its dialog was answered there, and the same question leaves the desk."""
        key = (client, session)
        if key not in self._dialogs:
            return
        dialogs = self._dialogs[key]
        closed = [dialogs.pop(about, None)] if about is not None else list(dialogs.values())
        if about is None or not dialogs:
            del self._dialogs[key]
        tx = Transaction()
        for principal, digest in filter(None, closed):
            self._desk.withdraw_asked(tx, principal, rows.NATIVE_QUESTION.name, digest)
        if tx.puts:
            tx.subject = session
            tx.details = {"client": client, "record": "answered", "where": "its own dialog"}
            self._journal.commit(tx, DAEMON, rows.NATIVE_QUESTION.name, "withdrawn")

    # -- after --

    async def after(self, call: Call, params: HookParams, effect: RecordedEffect) -> HookAnswer:
        hook = read_hook(params.client, params.event)
        session = self.sessions.note(params, hook, agent_of(call.principal))
        ended = self.sessions.ended(session, self._key_of(hook))
        self._close_dialogs(hook.client, hook.session, self._about(hook))
        effect.details |= {
            "client": hook.client,
            "session": hook.session,
            "tool": hook.tool,
            "record": "observed" if ended is not None else "gap",
            "failed": hook.moment == "failed",
        }
        if ended is None:
            # Its beginning was never reported: a hook that failed, or a call that somebody made up.
            self.tally.gaps(hook.client, 1)
            return HookAnswer(record="gap")
        if ended.run_id is not None:
            effect.details["run"] = ended.run_id
            # Off the client's way: the next call that may write waits for it.
            self._tasks.start(self._end(session, ended.run_id, ok=hook.moment != "failed"), f"end {ended.run_id}")
        return HookAnswer(record="observed", run_id=ended.run_id)

    async def _end(self, session: Session, run_id: str, *, ok: bool) -> None:
        paths = await self._runs.end(run_id, ok=ok)
        root = session.directory or "/"
        self.sessions.changed(session, tuple(f"{root}/{path}" for path in paths))

    # -- sessions --

    def note(self, call: Call, params: HookParams) -> HookAnswer:
        hook = read_hook(params.client, params.event)
        session = self.sessions.note(params, hook, agent_of(call.principal))
        if hook.switched_off is not None:
            return self._guard(session, hook.switched_off)
        if hook.moment == "question":
            return self._dialog(hook, session)
        if hook.moment in ("prompt", "stop", "stop_failed", "end") and hook.agent is None:
            self._close_dialogs(hook.client, hook.session)
        if hook.moment == "prompt" and hook.prompt is not None:
            session.prompt = self._digest(hook.prompt)
        if hook.moment == "start" and hook.cwd is not None:
            self._tasks.start(self._warm(hook.cwd), f"first checkpoint for {hook.session}")
        if hook.moment in ("stop", "stop_failed", "end") and hook.agent is None:
            calls = self.sessions.give_up(session)
            self._tasks.start(self._stopped(session, calls, hook.transcript), f"stop of {hook.session}")
        if hook.moment != "start":
            return HookAnswer(record="observed")
        mode = self.modes.of(hook.client, hook.cwd)
        return HookAnswer(record="observed", output=answers.greeting(hook.client, mode, closed=params.closed))

    def _guard(self, session: Session, reason: str) -> HookAnswer:
        """The open session keeps its hooks; that new ones will have none is said where a person looks."""
        self._record(session, "switched_off", {"digest": self._digest(reason)})
        line = one_line(f"{session.client} {session.name[:8]}: {reason}")
        self._events.publish(Fact(kind=Kind.AGENT, event="hooks switched off", id=session.name, text=line))
        return HookAnswer(record="decided", output=answers.kept(reason))

    async def _warm(self, directory: str) -> None:
        await self._runs.warm(await asyncio.to_thread(self._machine.project, directory))

    async def _stopped(self, session: Session, calls: list[OpenCall], transcript: str | None) -> None:
        await self._give_up(session, calls)
        if session.client != "claude" or transcript is None:
            return
        named = await asyncio.to_thread(self._machine.calls_in, transcript)
        missed = named - session.announced.keys()
        # Each is said once.
        session.announce(missed)
        if missed:
            self.tally.gaps(session.client, len(missed))
            self._record(session, "gap", {"calls": len(missed)})

    async def _give_up(self, session: Session, calls: list[OpenCall]) -> None:
        """Begun, and nobody said how they ended: a client that was killed, a call that failed without a word."""
        for each in calls:
            self.tally.open(session.client)
            self._record(session, "open", {"tool": each.tool, **({"run": each.run_id} if each.run_id else {})})
            if each.run_id is not None:
                await self._end(session, each.run_id, ok=False)

    def _forgotten(self, session: Session, calls: list[OpenCall]) -> None:
        """It made room for others: its calls end here, or their runs would never."""
        self._tasks.start(self._give_up(session, calls), f"room for others than {session.name}")

    def _record(self, session: Session, record: str, details: dict[str, object]) -> None:
        tx = Transaction()
        tx.subject = session.name
        tx.details = {"client": session.client, "record": record, **details}
        self._journal.commit(tx, LOCAL, "native.after", record)

    def list_sessions(self, call: Call, params: SessionsParams) -> list[NativeSessionView]:
        return [self.sessions.view(each) for each in self.sessions.all(params.client)]

    def show_session(self, call: Call, params: SessionRef) -> NativeSessionView:
        return self.sessions.view(self.sessions.find(params.client, params.session))

    def stream_sessions(self, call: Call, params: SessionsParams) -> Stream:
        return self.sessions.follow(params.client)

    # -- modes and the report --

    def choose_mode(self, call: Call, params: ModeParams, tx: Transaction) -> ModeView:
        tx.subject = f"{params.client}:{params.directory}"
        tx.details = {"mode": params.mode}
        return self.modes.choose(tx, params.client, params.directory, params.mode, self._clock.wall_ms())

    def list_modes(self, call: Call, params: Nothing) -> list[ModeView]:
        return self.modes.views()

    def report(self, call: Call, params: ReportParams) -> Report:
        return self.tally.report(params.client, self.modes.views())

    async def close(self) -> None:
        await self._tasks.close(CLOSE_SECONDS)

    # -- small things --

    def _key_of(self, hook: Hook) -> str:
        """The client's id of the call; where it has none, what it is about."""
        return hook.call_id or self._digest(f"{hook.tool}\0{self._about(hook)}")

    def _about(self, hook: Hook) -> str:
        return self._digest(f"{hook.command}\0{hook.paths}\0{hook.url}")

    def _digest(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _question_of(hook: Hook, root: str) -> QuestionParams:
    assert hook.kind != "other", "no rule speaks of it"
    cwd = hook.cwd or root
    return QuestionParams(
        client=hook.client, kind=hook.kind, cwd=cwd, command=hook.command, paths=list(hook.paths), url=hook.url
    )
