"""Hooks answered: what the rules say, what is kept first, and what is known of sessions."""

import asyncio
import hashlib
import hmac
import json
from typing import Any, Literal

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.deferred import Deferred, Leavable
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.foundation.text import one_line, short_id
from bascule.kernel.bridge import Bridge, Gauge, KernelServices
from bascule.kernel.call import LOCAL, Call, agent_of
from bascule.kernel.consent import blocks
from bascule.kernel.consent.questions import params_and_digest
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.event_ring import Fact, Kind
from bascule.kernel.faults import log_fault
from bascule.kernel.journal import Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.ports import Began, NativeRuns, NativeWork
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Nothing
from bascule.native import answers, rows, texts
from bascule.native.declared import NativeDeclared
from bascule.native.dialogs import Dialogs, hook_of, question_of
from bascule.native.hooks import Hook, Unreadable, read
from bascule.native.judging import UNREADABLE, Judge, Judged
from bascule.native.modes import Modes
from bascule.native.ports import Machine
from bascule.native.protocol import (
    EditText,
    HookAnswer,
    HookParams,
    Mode,
    ModeParams,
    ModeView,
    NativeSessionView,
    QuestionParams,
    Report,
    ReportParams,
    SessionRef,
    SessionsParams,
)
from bascule.native.sessions import OpenCall, Session, Sessions
from bascule.native.settings import NativeSettings
from bascule.native.tally import Tally
from gabp import codec

# Of what an agent was asked, where that is kept: enough to know it again.
MAX_PROMPT_CHARS = 200
# More is read on a thread: a whole output that comes with a call's end takes tens of milliseconds.
MAX_READ_AT_ONCE = 64 * 1024
# What is under way when the daemon stops: the checkpoint after a call.
CLOSE_SECONDS = 5.0
# A process that a call has left counts for it so long: a build or a test in the background. A server runs for hours,
# and what a person changes meanwhile would be taken for its work.
LEFT_SECONDS = 10 * 60.0


class Native:
    def __init__(self, kernel: KernelServices, runs: NativeRuns, machine: Machine, settings: NativeSettings) -> None:
        self._clock = kernel.clock
        self._journal = kernel.journal
        self._gate = kernel.gate
        self._events = kernel.events
        self._key = kernel.key
        self._keep_prompts = settings.native_keep_prompts
        self._runs = runs
        self._machine = machine
        # Ends of calls that wait for processes which the calls have left.
        self._waiting: set[asyncio.Task[Any]] = set()
        self._tasks = Tasks(lambda name, error: log_fault(kernel.log, error, task=name))
        self.modes = Modes(kernel.store)
        self.sessions = Sessions(kernel.clock, machine.start_of, self.modes.of, self._forgotten)
        self._runs.silenced = self._is_silenced
        self.tally = Tally(rfc3339(kernel.clock.wall_ms()))
        self._judge = Judge(kernel.gate, machine)
        self._dialogs = Dialogs(kernel.desk, kernel.journal, machine)

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
            end=self.end,
            close=self.close,
        )

    # -- before --

    def before(self, call: Call, params: HookParams, effect: RecordedEffect) -> Leavable[HookAnswer]:
        """A client that stops waiting for its hook goes on: then this is cancelled, and nothing is kept any more."""
        answer: Leavable[HookAnswer] = Leavable()
        work = self._tasks.answer(self._before(call, params, effect, answer), "native.before", detached=True)
        work.add_done_callback(answer.take_over)
        return answer

    async def _before(
        self, call: Call, params: HookParams, effect: RecordedEffect, gone: Leavable[HookAnswer]
    ) -> HookAnswer:
        found = await _found(params)
        hook = _known(found)
        if isinstance(found, Hook) and (hook.moment not in ("before", None) or hook.tool is None):
            found = Unreadable(hook, f"{hook.name or 'an event without a name'} does not begin a call")
        session = self.sessions.note(params, hook, agent_of(call.principal))
        judged = await self._judge.judge(call.principal, found)
        mode = self._mode(params, found, judged.root)
        collision = self.sessions.collision(session, judged.writes)
        output, decided = answers.answer(hook.client, mode, judged.verdict, [collision] if collision else [])
        stops = decided and judged.verdict is not None and judged.verdict.decision is Decision.DENY
        verdict = judged.verdict
        record: Literal["observed", "decided"] = "decided" if decided else "observed"
        effect.details |= {
            "client": hook.client,
            "session": hook.session,
            "tool": hook.tool,
            "record": record,
            "mode": mode,
            "call": self._digest(f"{hook.tool}\0{found.title}"),
            **({"verdict": verdict.decision.value, "rule": verdict.rule} if verdict is not None else {}),
            **({"agent": hook.agent} if hook.agent is not None else {}),
            **self._written(*texts.cut(hook.edits)),
        }
        yes = self._approved_by(hook, mode, verdict)
        began = await self._keep(found, session, judged, yes, gone) if judged.may_write and not stops else None
        run_id, note = (began.run_id, began.note) if began is not None else (None, None)
        if began is not None:
            effect.details["run"] = began.run_id
            news = session.kept(began.note, undoable=began.undoable)
            output = answers.without_undo(hook.client, output, news) if news is not None else output
        key = self._key_of(hook)
        ticks = self._machine.ticks_now() if hook.kind == "shell" else 0
        begun = OpenCall(
            key=key,
            tool=hook.tool or "",
            run_id=run_id,
            client=session.process,
            cwd=session.directory,
            root=judged.root,
            began_ticks=ticks,
            about=self._about(hook),
        )
        lost = self.sessions.began(session, begun)
        if lost is not None:
            self._give_up(session, [lost])
        if stops:
            self.sessions.ended(session, key)
        undoable = began.undoable if began is not None else None
        self.tally.call(hook.client, verdict, found.title, undoable=undoable)
        return HookAnswer(
            output=output,
            record=record,
            verdict=verdict.decision.value if verdict is not None else None,
            rule=verdict.rule if verdict is not None else None,
            reason=verdict.reason if verdict is not None else None,
            run_id=run_id,
            note=note,
            question=question_of(hook, judged.root) if decided and answers.needs_desk(hook.client, verdict) else None,
        )

    def _mode(self, params: HookParams, found: Hook | Unreadable, root: str) -> Mode:
        if isinstance(found, Hook):
            return self.modes.of(found.client, root)
        if params.closed:
            # Its user would rather be refused than have a call that nobody looked at.
            return "enforce"
        return self.modes.of(params.client, root) if found.hook.cwd else self.modes.strictest(params.client)

    async def _keep(
        self,
        found: Hook | Unreadable,
        session: Session,
        judged: Judged,
        yes: tuple[str, ...],
        gone: Leavable[HookAnswer],
    ) -> Began:
        hook = _known(found)
        return await self._runs.begin(
            NativeWork(
                client=hook.client,
                session=hook.session,
                pid=session.pid or 0,
                agent=session.agent,
                prompt=session.prompt,
                asked=session.asked,
                tool=hook.tool or "",
                title=found.title,
                approved_by=yes,
                root=judged.root,
                writes=judged.writes,
                only_these=hook.kind == "write" and bool(judged.writes) and all(map(_is_absolute, judged.writes)),
                into=judged.into,
            ),
            gone,
        )

    def _approved_by(self, hook: Hook, mode: Mode, verdict: Verdict | None) -> tuple[str, ...]:
        """Before the call; a question at the desk is answered later (`answered`)."""
        if mode != "enforce":
            return (f"nobody: {mode}",)
        if verdict is None or verdict.decision is Decision.DENY:
            return ()
        if verdict.decision is Decision.ALLOW:
            words = self._gate.desk.approver(rule=verdict.rule, timed_rule=verdict.timed_rule, approval_id=None)
            return (words,)
        return () if answers.needs_desk(hook.client, verdict) else ("client: its own dialog",)

    # -- questions --

    async def question(self, call: Call, params: QuestionParams) -> Resolution:
        """What the person sees; the answer is good for the same call once.

        A client that has opened its own dialog asks, whatever our rules say: what they allow is not a person's yes.
        """
        hook = hook_of(params)
        if texts.length_of(params.edits) > texts.MAX_SHOWN_CHARS:
            # What hooks are answered with is cut already.
            raise InvalidRequest(
                f"edits have more than {texts.MAX_SHOWN_CHARS} characters", hint="send their beginning"
            )
        judged = await self._judge.judge(call.principal, hook)
        asks = " It asks to run outside of the client's own sandbox, too." if params.unsandboxed else ""
        where = blocks.facts(f"{params.client}, in {params.cwd}, with its own tool and outside of our sandbox.{asks}")
        others = blocks.text("\n".join([*params.paths, params.url or ""]).strip())
        bound = {"policy": self._gate.policy.digest}
        verdict = judged.verdict
        if params.dialog is not None:
            digest = params_and_digest(call.params, bound)[1]
            self._dialogs.opened(params.client, params.dialog, self._about(hook), (call.principal, digest))
            if verdict is None or verdict.decision is Decision.ALLOW:
                verdict = Verdict(Decision.ASK, "client-asks", f"{params.client} asks you in its own window, too")
        return Resolution(
            summary=f"{params.client}: {hook.title}",
            preview=(
                where,
                blocks.command(params.command) if params.command is not None else others,
                *texts.preview(params.edits, params.whole),
            ),
            bound=bound,
            verdict=verdict,
        )

    def answered(self, call: Call, params: QuestionParams, effect: RecordedEffect) -> HookAnswer:
        """A person has said yes, or no rule asks any more."""
        effect.details |= {"client": params.client, "record": "answered", **self._written(params.edits, params.whole)}
        asked = self.sessions.asked(params.client, params.dialog, self._about(hook_of(params)))
        if asked is not None and asked.run_id is not None:
            asked.answered = True
            effect.details["run"] = asked.run_id
            self._runs.approved(asked.run_id, self._gate.effects.approver(effect))
        if params.dialog is None:
            return HookAnswer(record="answered")
        effect.details["session"] = params.dialog
        return HookAnswer(record="answered", output=answers.dialog(allow=True))

    # -- after --

    async def after(self, call: Call, params: HookParams, effect: RecordedEffect) -> HookAnswer:
        hook = _known(await _found(params))
        session = self.sessions.note(params, hook, agent_of(call.principal))
        ended = self.sessions.ended(session, self._key_of(hook))
        self._dialogs.close(hook.client, hook.session, self._about(hook))
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
            self._end_later(session, ended, ok=hook.moment != "failed")
        return HookAnswer(record="observed", run_id=ended.run_id)

    def _end_later(self, session: Session, call: OpenCall, *, ok: bool) -> None:
        if call.run_id is not None:
            self._runs.reported(call.run_id)
        self._tasks.start(self._end(session, call, ok=ok), f"end {call.run_id}")

    async def _end(self, session: Session, call: OpenCall, *, ok: bool) -> None:
        if call.run_id is None:
            return
        note: str | None = None
        try:
            if call.began_ticks:
                note = await self._left(session, call, call.run_id)
        finally:
            # The next call waits for it.
            paths = await self._runs.end(call.run_id, ok=ok, note=note)
        root = session.directory or "/"
        self.sessions.changed(session, tuple(f"{root}/{path}" for path in paths))

    async def _left(self, session: Session, call: OpenCall, run_id: str) -> str | None:
        """Wait for processes that the call has left, whose changes are its work; a note of those that stay too long."""
        client, until = session.process, self._clock.monotonic() + LEFT_SECONDS
        while client is not None:
            left = await asyncio.to_thread(
                self._machine.left_by,
                client,
                call.began_ticks,
                call.root,
                others=[each for each, other in session.left.items() if other != run_id],
                orphans_only=any(each.began_ticks for each in session.open.values()),
            )
            session.left_by(run_id, (each.process for each in left))
            if not left:
                break
            first = f"{left[0].process.pid}, {one_line(left[0].command)}"
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            if not self._runs.left_running(run_id, f"a process of the call still runs ({first}){more}"):
                break
            gone = self._tasks.start(self._machine.gone(left[0].process), f"wait for what {run_id} has left")
            self._waiting.add(gone)
            await asyncio.wait({gone}, timeout=until - self._clock.monotonic())
            self._waiting.discard(gone)
            if gone.cancelled() or not gone.done():
                gone.cancel()
                return f"a process of the call ran on ({first}){more}: what it changed later is not in this"
        return None

    async def _is_silenced(self, client: str, name: str, run_id: str) -> bool:
        """Nothing of the call runs, and its client is gone, or the directory in which it would start a hook."""
        if not self.sessions.knows(client, name):
            return False
        session = self.sessions.find(client, name)
        call = next((each for each in session.open.values() if each.run_id == run_id), None)
        if call is None or call.client is None or call.cwd is None or not call.began_ticks:
            return False
        return await asyncio.to_thread(self._machine.is_silenced, call.client, call.began_ticks, call.cwd)

    # -- sessions --

    def note(self, call: Call, params: HookParams) -> HookAnswer | Deferred[HookAnswer]:
        if _is_large(params):
            return self._tasks.answer(self._note_large(call, params), "sessions.note")
        return self._note(call, params, _read(params))

    async def _note_large(self, call: Call, params: HookParams) -> HookAnswer:
        return self._note(call, params, await _found(params))

    def _note(self, call: Call, params: HookParams, found: Hook | Unreadable) -> HookAnswer:
        hook = _known(found)
        if hook.moment == "woken" and not self.sessions.knows(hook.client, hook.session):
            # Its bell is installed, and our hooks are not: nothing would end what this begins.
            return HookAnswer(record="observed")
        session = self.sessions.note(params, hook, agent_of(call.principal))
        if hook.switched_off is not None:
            return self._guard(session, hook.switched_off)
        if isinstance(found, Unreadable):
            return self._unreadable(params, found)
        if hook.moment == "question":
            return self._dialogs.answer(hook, session, self.modes.of(hook.client, hook.cwd))
        if hook.moment in ("prompt", "stop", "stop_failed", "end") and hook.agent is None:
            self._dialogs.close(hook.client, hook.session)
        if hook.moment == "prompt" and hook.prompt is not None:
            session.prompt = self._digest(hook.prompt)
            session.asked = hook.prompt[:MAX_PROMPT_CHARS] if self._keep_prompts else None
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
        line = one_line(f"{session.client} {short_id(session.name)}: {reason}")
        self._events.publish(Fact(kind=Kind.AGENT, event="hooks switched off", id=session.name, text=line))
        return HookAnswer(record="decided", output=answers.kept(reason))

    def _unreadable(self, params: HookParams, found: Unreadable) -> HookAnswer:
        """A dialog about what nobody can read is answered, as the call itself was."""
        self.tally.call(params.client, Verdict(Decision.DENY, UNREADABLE, found.reason), found.title, undoable=False)
        mode = self._mode(params, found, found.hook.cwd or "/")
        if found.hook.moment != "question" or mode != "enforce" or params.client == "gemini":
            return HookAnswer(record="observed")
        words = f"nobody can say what it does: {found.reason} (Bascule, rule {UNREADABLE})"
        return HookAnswer(record="decided", output=answers.dialog(allow=False, why=words))

    async def _warm(self, directory: str) -> None:
        await self._runs.warm(await asyncio.to_thread(self._machine.project, directory))

    async def _stopped(self, session: Session, calls: list[OpenCall], transcript: str | None) -> None:
        self._give_up(session, calls)
        if session.client != "claude" or transcript is None:
            return
        named = await asyncio.to_thread(self._machine.calls_in, transcript)
        missed = named - session.announced.keys()
        # Each is said once.
        session.announce(missed)
        if missed:
            self.tally.gaps(session.client, len(missed))
            self._record(session, "gap", {"calls": len(missed)})

    def _give_up(self, session: Session, calls: list[OpenCall]) -> None:
        """Begun, and nobody said how they ended: a client that was killed, a call that failed without a word."""
        for each in calls:
            self.tally.open(session.client)
            self._record(session, "open", {"tool": each.tool, **({"run": each.run_id} if each.run_id else {})})
            self._end_later(session, each, ok=False)

    def _forgotten(self, session: Session, calls: list[OpenCall]) -> None:
        """It made room for others: its calls end here, or their runs would never."""
        self._give_up(session, calls)

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

    def end(self) -> None:
        """The daemon stops: nobody waits any more for processes that calls have left; the next life ends their runs."""
        self.sessions.end()
        for task in self._waiting:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close(CLOSE_SECONDS)

    # -- small things --

    def _key_of(self, hook: Hook) -> str:
        """The client's id of the call; where it has none, what it is about."""
        return hook.call_id or self._digest(f"{hook.tool}\0{self._about(hook)}")

    def _about(self, hook: Hook) -> str:
        return self._digest(f"{hook.command}\0{hook.paths}\0{hook.url}")

    def _written(self, edits: list[EditText], whole: str | None) -> dict[str, object]:
        """What would be written, for the ledger: never the text."""
        shown = json.dumps([(each.old, each.new, each.place) for each in edits])
        return {"text": self._digest(whole or shown)} if edits else {}

    def _digest(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _is_large(params: HookParams) -> bool:
    return params.raw is not None and len(params.raw) > MAX_READ_AT_ONCE


async def _found(params: HookParams) -> Hook | Unreadable:
    return await asyncio.to_thread(_read, params) if _is_large(params) else _read(params)


def _read(params: HookParams) -> Hook | Unreadable:
    raw = params.raw if params.raw is not None else codec.encode(params.event)
    found = read(params.client, raw)
    if isinstance(found, Hook) or found.hook.cwd is not None or not params.cwd:
        return found
    # A hook runs in the directory of its session.
    return Unreadable(msgspec.structs.replace(found.hook, cwd=params.cwd), found.reason)


def _known(found: Hook | Unreadable) -> Hook:
    return found.hook if isinstance(found, Unreadable) else found


def _is_absolute(path: str) -> bool:
    return path.startswith("/")
