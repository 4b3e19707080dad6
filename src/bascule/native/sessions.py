"""Sessions of agents' clients in this life of the daemon: what they do, and which of their calls are open."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import timedelta

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import NotFound, Overloaded
from bascule.foundation.stream import Stream
from bascule.foundation.text import short_id
from bascule.kernel.policy.steering import why_obeyed
from bascule.native.hooks import Hook
from bascule.native.ports import ProcessStart
from bascule.native.protocol import HookParams, Mode, NativeSessionView, SessionChange
from bascule.native.states import State, following, is_probably_idle
from gabp.text import escaped

CONFIG_CHANGED = "ConfigChange"
# Sessions that are remembered; those that ended first make room.
MAX_SESSIONS = 500
# Calls of one session that have begun and not ended: agents have a few at once. The oldest is given up.
MAX_OPEN = 64
# Calls of one session whose ids are remembered: more than the part of a transcript that is read has.
MAX_ANNOUNCED = 5_000
# Followers of the stream, and items that one may be behind.
MAX_FOLLOWERS = 64
MAX_BEHIND = 256
# Processes of one session's calls that are remembered beyond their call.
MAX_LEFT = 256
# A write to what another session changed so lately is worth a line.
COLLISION = timedelta(minutes=10)
MAX_REMEMBERED_PATHS = 2_000
# Files that other programs obey, named in a session's view; the newest of more.
MAX_STEERING = 64


class OpenCall(msgspec.Struct, kw_only=True):
    key: str
    tool: str
    run_id: str | None
    # The process that has begun it, and where: others may report for the same session.
    client: ProcessStart | None
    cwd: str | None
    # The project, and since when processes that start may be its own; 0 of a call that starts none.
    root: str
    began_ticks: int
    # A digest of what it does, which a question about it has too; and whether one was answered with yes.
    about: str
    answered: bool = False


class Session:
    def __init__(self, client: str, name: str) -> None:
        self.client = client
        self.name = name
        self.state = State.UNKNOWN
        self.evidence = ""
        # A bell has woken it before its Stop was heard: both run side by side.
        self.woken = False
        self.noted_at = 0.0
        self.directory: str | None = None
        self.process: ProcessStart | None = None
        self.pid: int | None = None
        self.pane: str | None = None
        self.agent: str | None = None
        self.notice: str | None = None
        # What its calls changed that other programs obey: path and why.
        self.steering: OrderedDict[str, str] = OrderedDict()
        # A keyed digest of what it was asked last.
        self.prompt: str | None = None
        # The beginning of it, where that is kept.
        self.asked: str | None = None
        self.calls = 0
        # Calls that went on without an undo; and what of the last one that may have changed something has none.
        self.without_undo = 0
        self.no_undo: str | None = None
        self.open: OrderedDict[str, OpenCall] = OrderedDict()
        # Processes that calls have left, and the run that they belong to.
        self.left: OrderedDict[ProcessStart, str] = OrderedDict()
        # The newest calls that were announced, for the comparison with the end of the transcript.
        self.announced: OrderedDict[str, None] = OrderedDict()

    def kept(self, note: str | None, *, undoable: bool) -> str | None:
        """What of a call cannot be undone, where the client was not told of the same at the call before."""
        known, self.no_undo = self.no_undo, note
        self.without_undo += not undoable
        return note if note != known else None

    def left_by(self, run_id: str, found: Iterable[ProcessStart]) -> None:
        for process in found:
            self.left.setdefault(process, run_id)
        while len(self.left) > MAX_LEFT:
            self.left.popitem(last=False)

    def announce(self, keys: Iterable[str]) -> None:
        self.announced.update(dict.fromkeys(keys))
        while len(self.announced) > MAX_ANNOUNCED:
            self.announced.popitem(last=False)


class Sessions:
    def __init__(
        self,
        clock: Clock,
        start_of: Callable[[int], ProcessStart | None],
        mode_of: Callable[[str, str | None], Mode],
        forgotten: Callable[[Session, list[OpenCall]], None],
    ) -> None:
        """`forgotten`: told of a session that made room while calls of it were open."""
        self._clock = clock
        self._start_of = start_of
        self._mode_of = mode_of
        self._forgotten = forgotten
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()
        # The sessions that name a process as theirs and have not ended.
        self._of_process: dict[int, set[str]] = {}
        self._streams: dict[Stream, str | None] = {}
        # Path -> who changed it last, and when.
        self._changed: OrderedDict[str, tuple[Session, float]] = OrderedDict()

    def note(self, params: HookParams, hook: Hook, agent: str | None = None) -> Session:
        """Whatever an event says about its session; `agent` is who called, if its MCP server did."""
        key = (hook.client, hook.session)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(hook.client, hook.session)
            session.evidence, session.noted_at = hook.name, self._clock.monotonic()
            self._make_room()
        self._sessions.move_to_end(key)
        session.directory = hook.cwd or session.directory
        session.pane = params.pane or session.pane
        session.agent = agent or session.agent
        if params.pid is not None and params.pid != session.pid:
            if session.process is not None:
                # It was resumed by another process; what the last one did is over.
                session.state = State.UNKNOWN
            self._leave_process(session)
            session.pid, session.process = params.pid, self._start_of(params.pid)
        # What a subagent ends is not over for the session. That a file changed says nothing about it.
        if hook.name == CONFIG_CHANGED:
            session.notice = hook.switched_off
        elif hook.agent is None or hook.moment in ("before", "after", "failed", "question", "asks"):
            self._follow(session, hook)
        if session.state is State.ENDED:
            self._leave_process(session)
        elif session.pid is not None:
            self._of_process.setdefault(session.pid, set()).add(session.name)
        self._publish(session)
        return session

    def _follow(self, session: Session, hook: Hook) -> None:
        now = self._clock.monotonic()
        if hook.moment == "stop" and session.woken:
            # The end of the turn before: a bell answered it with another one.
            session.woken = False
            return
        state = following(session.state, hook.moment, hook.about, timedelta(seconds=now - session.noted_at))
        session.woken = hook.moment == "woken" and session.state is State.WORKS
        # What says nothing new is no evidence: a notice that is late, a start in the middle.
        if state is not session.state or hook.moment not in ("notice", "start"):
            session.state, session.noted_at = state, now
            session.evidence = f"{hook.name} {hook.about}" if hook.about else hook.name

    # -- looking --

    def knows(self, client: str, name: str) -> bool:
        return (client, name) in self._sessions

    def find(self, client: str, name: str) -> Session:
        session = self._sessions.get((client, name))
        if session is None:
            raise NotFound(f"no session {name} of {client}", hint="sessions.list shows those that are remembered")
        return session

    def all(self, client: str | None = None) -> list[Session]:
        return [each for each in reversed(self._sessions.values()) if client in (None, each.client)]

    def view(self, session: Session) -> NativeSessionView:
        age = timedelta(seconds=self._clock.monotonic() - session.noted_at)
        state, evidence, verified = session.state, session.evidence, False
        if session.process is not None and state is not State.ENDED:
            verified = session.pid is not None and self._start_of(session.pid) == session.process
            if not verified:
                state, evidence = State.DEAD, f"process {session.pid} is gone"
        quiet = is_probably_idle(state, age, open_calls=len(session.open))
        return NativeSessionView(
            client=session.client,
            session=session.name,
            state=State.IDLE if quiet else state,
            probably=quiet,
            evidence=f"nothing since {evidence}" if quiet else evidence,
            age_ms=round(age.total_seconds() * 1000),
            directory=session.directory,
            pid=session.pid,
            process="verified" if verified else "claimed",
            # Codex runs the servers of all its sessions from one process, and so in one pane: it may be another's.
            pane=session.pane if len(self._of_process.get(session.pid or 0, ())) <= 1 else None,
            calls=session.calls,
            open=len(session.open),
            mode=self._mode_of(session.client, session.directory),
            agent=session.agent,
            notice=session.notice,
            without_undo=session.without_undo,
            no_undo=session.no_undo,
            steering=[f"{escaped(path)}: {why}" for path, why in session.steering.items()],
        )

    def follow(self, client: str | None) -> Stream:
        if len(self._streams) >= MAX_FOLLOWERS:
            raise Overloaded(f"{MAX_FOLLOWERS} readers follow sessions already", hint="close some", retry_after=1.0)
        stream = Stream(limit=MAX_BEHIND, on_close=lambda: self._unfollow(stream))
        self._streams[stream] = client
        for session in reversed(self.all(client)):
            stream.push(SessionChange(session=self.view(session)))
        return stream

    def _unfollow(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    # -- calls --

    def began(self, session: Session, call: OpenCall) -> OpenCall | None:
        """The oldest open call, when there are too many."""
        session.calls += 1
        if call.key in session.open:
            # A client without ids does the same twice at once.
            call.key = f"{call.key}#{session.calls}"
        session.open[call.key] = call
        session.announce([call.key])
        return session.open.popitem(last=False)[1] if len(session.open) > MAX_OPEN else None

    def asked(self, client: str, name: str | None, about: str) -> OpenCall | None:
        """The newest call that a question is about: an agent that was refused tries the same again."""
        calls = [
            call
            for session in self._sessions.values()
            if session.client == client and name in (None, session.name)
            for call in session.open.values()
            if call.about == about and not call.answered
        ]
        return calls[-1] if calls else None

    def ended(self, session: Session, key: str) -> OpenCall | None:
        if key not in session.open:
            key = next((each for each in session.open if each.startswith(f"{key}#")), key)
        return session.open.pop(key, None)

    def give_up(self, session: Session) -> list[OpenCall]:
        """Its open calls, which nobody will end any more."""
        calls = list(session.open.values())
        session.open.clear()
        return calls

    # -- collisions --

    def changed(self, session: Session, paths: tuple[str, ...]) -> None:
        now = self._clock.monotonic()
        for path in paths:
            self._changed[path] = (session, now)
            self._changed.move_to_end(path)
            if (why := why_obeyed(path)) is not None:
                session.steering[path] = why
                session.steering.move_to_end(path)
        while len(session.steering) > MAX_STEERING:
            session.steering.popitem(last=False)
        while len(self._changed) > MAX_REMEMBERED_PATHS:
            self._changed.popitem(last=False)

    def collision(self, session: Session, paths: tuple[str, ...]) -> str | None:
        """One line about another live session that changed one of these lately."""
        now = self._clock.monotonic()
        for path in paths:
            other, when = self._changed.get(path, (session, 0.0))
            recent = now - when <= COLLISION.total_seconds()
            if other is not session and recent and other.state not in (State.ENDED, State.DEAD):
                minutes = round((now - when) / 60)
                return (
                    f"{path} was changed {minutes} min ago by another session ({other.client} {short_id(other.name)})"
                )
        return None

    def end(self) -> None:
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()

    # -- inside --

    def _publish(self, session: Session) -> None:
        if not self._streams:
            return
        change = SessionChange(session=self.view(session))
        for stream, client in list(self._streams.items()):
            if client in (None, session.client):
                stream.push(change)

    def _leave_process(self, session: Session) -> None:
        names = self._of_process.get(session.pid or 0)
        if names is not None and session.pid is not None:
            names.discard(session.name)
            if not names:
                del self._of_process[session.pid]

    def _make_room(self) -> None:
        """Those that ended go first, then those that do nothing: sessions that somebody made up push no other out."""
        while len(self._sessions) > MAX_SESSIONS:
            keys = list(self._sessions)[:-1]
            over = next((key for key in keys if self._sessions[key].state is State.ENDED), None)
            over = over or next((key for key in keys if not self._sessions[key].open), keys[0])
            session = self._sessions.pop(over)
            self._leave_process(session)
            if session.open:
                self._forgotten(session, self.give_up(session))
