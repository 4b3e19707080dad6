"""The desktop bridge behind its method rows.

Looking and acting go one way: what does this call mean now (`desktop.resolve`), what does the policy say of that, who
is asked; then exactly that is done, or nothing.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop import refusals
from bascule.desktop import rows as a
from bascule.desktop.apps import App, Apps
from bascule.desktop.declared import DesktopDeclared
from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.evidence import EvidenceShelf
from bascule.desktop.guesses import Guesses
from bascule.desktop.hosting import Hosting
from bascule.desktop.intents import intent_of, without_nothing
from bascule.desktop.judging import JudgedTarget, Judging, doing_of
from bascule.desktop.news import DesktopNews
from bascule.desktop.ports import Host, HostGone, Programs, Workspaces
from bascule.desktop.switch import Switch, check_session
from bascule.desktop.traffic import Traffic
from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Forbidden
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, Gauge
from bascule.kernel.call import DAEMON, PERSON, Call, Principal, agent_of, agent_principal
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.faults import log_fault
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import Log
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Nothing

# Beyond the time a wait is given in its params, so that the host says that it is over, and not that it took long.
WAIT_GRACE_MS: Final = 1_000
# Finding out what a call means is not what its own time is for.
RESOLVE_MS: Final = 15_000

Ask = Callable[[Host], Coroutine[Any, Any, Any]]


class DesktopBridge:
    def __init__(
        self,
        *,
        switch: Switch,
        apps: Apps,
        judging: Judging,
        hosting: Callable[[Tasks, Callable[[], None]], Hosting],
        workspaces: Workspaces,
        program_of: Programs,
        evidence: EvidenceShelf,
        news: DesktopNews,
        journal: Journal,
        clock: Clock,
        log: Log,
        on_disabled: Callable[[Transaction], None],
    ) -> None:
        self.switch = switch
        self.apps = apps
        self._judging = judging
        self._tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        self.hosting = hosting(self._tasks, self._keys_pressed)
        self.traffic = Traffic()
        self._workspaces = workspaces
        self._program_of = program_of
        self._evidence = evidence
        self._news = news
        self._journal = journal
        self._log = log
        self._on_disabled = on_disabled
        self._guesses = Guesses(clock)

    # -- what is mounted --

    def bridge(self) -> Bridge:
        return Bridge(
            declared=DesktopDeclared(),
            service=self,
            methods=[
                a.DESKTOP_STATUS.bind(self.status),
                a.DESKTOP_ENABLE.bind(self.enable),
                a.DESKTOP_DISABLE.bind(self.disable),
                a.DESKTOP_STOP.bind(self.stop),
                a.DESKTOP_RESUME.bind(self.resume),
                a.DESKTOP_HEALTH.bind(self.health),
                a.DESKTOP_DOCTOR.bind(self.doctor),
                a.DESKTOP_WINDOWS.bind(self.windows, resolve=self._resolve_windows),
                a.DESKTOP_OBSERVE.bind(self.look, resolve=self._resolve),
                a.DESKTOP_FIND.bind(self.look, resolve=self._resolve),
                a.DESKTOP_LIST_MODALS.bind(self.look, resolve=self._resolve),
                a.DESKTOP_WAIT_UNTIL.bind(self.look, resolve=self._resolve),
                a.DESKTOP_CLICK.bind(self.act, resolve=self._resolve),
                a.DESKTOP_DOUBLE_CLICK.bind(self.act, resolve=self._resolve),
                a.DESKTOP_RIGHT_CLICK.bind(self.act, resolve=self._resolve),
                a.DESKTOP_TYPE_TEXT.bind(self.act, resolve=self._resolve),
                a.DESKTOP_HOTKEY.bind(self.act, resolve=self._resolve),
                a.DESKTOP_SCROLL.bind(self.act, resolve=self._resolve),
                a.DESKTOP_DRAG.bind(self.act, resolve=self._resolve),
                a.DESKTOP_SET_VALUE.bind(self.act, resolve=self._resolve),
                a.DESKTOP_FOCUS_WINDOW.bind(self.act, resolve=self._resolve),
                a.DESKTOP_DISMISS_MODAL.bind(self.act, resolve=self._resolve),
                a.DESKTOP_ABORT.bind(self.abort),
                *self._evidence.bound(),
            ],
            gauges=[
                Gauge("bascule_desktop_enabled", "1 while agents may use the desktop.", lambda: self.switch.enabled),
                Gauge("bascule_desktop_stopped", "1 after a stop, until a resume.", lambda: self.switch.stopped),
                Gauge(
                    "bascule_desktop_calls", "Looks, acts and waits at the desktop host.", lambda: self.traffic.count
                ),
            ],
            forget_agent=self.forget_agent,
            stop=self.stop_with_everything,
            resume=self.resume_with_everything,
            end=self.end,
            close=self.close,
        )

    def end(self) -> None:
        """Answer the callers that wait for something on the screen."""
        self.traffic.end()

    async def close(self) -> None:
        await self.hosting.close()
        await self._tasks.close()
        await self._evidence.close()

    def forget_agent(self, agent_id: str) -> None:
        """A handle was revoked or taken over: its next holder may see nothing, and what it had under way ends."""
        principal = agent_principal(agent_id)
        tx = Transaction()
        if self.apps.forget(tx, principal):
            tx.subject = principal
            tx.details = {"apps": len(tx.puts)}
            self._journal.commit(tx, DAEMON, "desktop.forget")
        for request_id in self.traffic.of(principal):
            self._abandon(principal, request_id)

    # -- the switch --

    def status(self, call: Call, params: Nothing) -> a.DesktopStatus:
        environment = self.switch.environment
        return a.DesktopStatus(
            enabled=self.switch.enabled,
            stopped=self.switch.stopped,
            host=self.hosting.state,
            pid=self.hosting.pid,
            display=environment.get("WAYLAND_DISPLAY") or environment.get("DISPLAY"),
            problem=self.hosting.problem,
            stop_keys=self._stop_keys(),
            seen=self.apps.of(call.principal),
        )

    def enable(self, call: Call, params: a.EnableParams, tx: Transaction) -> a.DesktopStatus:
        check_session(params.environment)
        if params.environment != self.switch.environment:
            self.hosting.end()
        self.switch.enable(tx, call.principal, params.environment)
        tx.subject = "desktop"
        return self.status(call, Nothing())

    def disable(self, call: Call, params: Nothing, tx: Transaction) -> a.DesktopStatus:
        self.switch.disable(tx)
        tx.subject = "desktop"
        tx.details = {"apps": self.apps.forget(tx)}
        self._on_disabled(tx)
        self.hosting.end()
        return self.status(call, Nothing())

    def stop(self, call: Call, params: Nothing, tx: Transaction) -> None:
        """At once: it waits neither for the disk nor for the caller."""
        self.switch.stop(tx, call.principal)
        stopping = self._tasks.answer(self._stop_host(), call.method, detached=True)
        tx.subject = "desktop"
        tx.then = lambda _: stopping.copy()

    def stop_with_everything(self, tx: Transaction) -> Awaitable[str]:
        self.switch.stop_with_everything(tx)
        return self._tasks.answer(self._stopped_in_words(), "desktop.stop", detached=True)

    async def _stopped_in_words(self) -> str:
        aborted = await self.hosting.stop()
        return f"{aborted} actions aborted, all keys released" if aborted else "takes no input"

    def resume_with_everything(self, tx: Transaction) -> None:
        if self.switch.resume_with_everything(tx):
            tx.after.append(self._resume_host)

    def _resume_host(self) -> None:
        self._tasks.start(self.hosting.resume(), "desktop.resume")

    async def _stop_host(self) -> m.StopResult:
        return m.StopResult(stopped=True, aborted=await self.hosting.stop())

    def _keys_pressed(self) -> None:
        """In the host, which has stopped by itself already; it is remembered here."""
        tx = Transaction()
        self.switch.stop(tx, "keys")
        tx.subject = "desktop"
        tx.details = {"by": self._stop_keys()}
        self._journal.commit(tx, DAEMON, "desktop.stop")
        self._log("desktop_stopped", level="warning", by=self._stop_keys())

    def _stop_keys(self) -> str | None:
        host = self.hosting.live
        return d.STOP_CHORDS[0] if host is None else host.stop_keys

    def resume(self, call: Call, params: Nothing, tx: Transaction) -> None:
        self.switch.resume(tx)
        tx.subject = "desktop"
        # Not before it is on disk: what a crash would undo must not have reached the screen.
        tx.then = lambda _: self._tasks.answer(self._resuming(call, self._journal.durable()), call.method)

    async def _resuming(self, call: Call, durable: Deferred[None] | None) -> a.DesktopStatus:
        if durable is not None:
            await durable
        await self.hosting.resume()
        return self.status(call, Nothing())

    # -- looking and acting --

    def _resolve(self, call: Call, params: d.Routed) -> Coroutine[Any, Any, Resolution]:
        self._check(call)
        self._workspaces.place(params.workspace_path)
        return self._resolution(call, params)

    def _check(self, call: Call) -> None:
        self.switch.must_be_enabled()
        if doing_of(call.method) == "act":
            self.switch.must_take_input()

    async def _resolution(self, call: Call, params: d.Routed, *, picture: bool = False) -> Resolution:
        awaited = params.condition.window_exists if isinstance(params, d.WaitUntilCall) else None
        if awaited is not None and (params.route is None or params.route.app is None):
            # Its condition is about the titles of all windows.
            return self._judging.about_all_windows(call, intent_of(params), awaited.title_pattern)
        try:
            found = await self._resolved(call, params, picture=picture)
            if doing_of(call.method) == "look":
                return self._judging.about_window(call, found)
            return self._judging.about_window(
                call,
                found,
                illustrate=None if picture else partial(self._resolution, call, params, picture=True),
                renew=partial(
                    self._renewed, call, params, msgspec.structs.replace(found, picture=None), self.hosting.live
                ),
            )
        except DesktopError as error:
            if error.code is Code.APP_FORBIDDEN:
                return self._judging.kept_out(error)
            if awaited is not None and error.code is Code.ELEMENT_NOT_FOUND:
                # The app is not open: whose window will call itself so is not known yet.
                return self._judging.about_all_windows(call, intent_of(params), awaited.title_pattern)
            if error.code is Code.ELEMENT_NOT_FOUND and not await self._may_miss(call, params):
                return self._judging.guessed_too_often()
            refusal = refusals.refusal(error)
            if isinstance(params, d.WaitUntilCall):
                refusal.hint = "there is no such window yet: wait for one first, with the condition windowExists"
            raise refusal from None

    async def _renewed(self, call: Call, params: d.Routed, found: m.ResolveResult, host: Host | None) -> Resolution:
        """After the person's yes. What is on the screen is compared by the host when it acts."""
        self._check(call)
        self._workspaces.place(params.workspace_path)
        if self.hosting.live is not host:
            # Another host does not know the elements by these names.
            return await self._resolution(call, params)
        return self._judging.about_window(call, found)

    async def _may_miss(self, call: Call, params: d.Routed) -> bool:
        """A caller that may look learns what is not there; others only as often as one mistypes."""
        if call.principal == PERSON or await self._may_look(call, params.route):
            return True
        may = self._guesses.may(call.principal)
        if may:
            self._guesses.missed(call.principal)
        return may

    async def _may_look(self, call: Call, route: d.Route | None) -> bool:
        """At the app that is meant, whichever window of it."""
        if route is not None and route.app is None:
            # By a title alone: of any app.
            return False
        app = {} if route is None else {"route": {"app": without_nothing(msgspec.to_builtins(route.app))}}
        asked = {"intent": {"method": "desktop.listModals", "params": app}, "picture": False}
        try:
            found = await self._looked(
                call, lambda host: host.call("desktop.resolve", asked, client=call.principal, timeout_ms=RESOLVE_MS)
            )
        except DesktopError as error:
            if error.code is Code.APP_FORBIDDEN:
                # The window in front is kept out; the app has others.
                return await self._may_look_at_all(call, error.details.get("bundleId"))
            # Not found: no window of it is open, which `windows` says as well.
            return error.code is Code.ELEMENT_NOT_FOUND
        return self._judging.may_look_at(call.principal, found)

    async def _may_look_at_all(self, call: Call, app: object) -> bool:
        """At each window of an app that is not kept out, of which there is one."""
        found: m.WindowsResult = await self._refusing(
            call, lambda host: host.call("desktop.windows", client=call.principal, timeout_ms=RESOLVE_MS)
        )
        open_ = [each for each in found.windows if each.bundle_id == app and not each.forbidden]
        return bool(open_) and all(
            self._judging.may_see_title(call.principal, each, self._program_of(each.pid)) for each in open_
        )

    async def _resolved(self, call: Call, params: d.Routed, *, picture: bool) -> m.ResolveResult:
        asked = {"intent": {"method": call.method, "params": intent_of(params)}, "picture": picture}
        found: m.ResolveResult = await self._looked(
            call, lambda host: host.call("desktop.resolve", asked, client=call.principal, timeout_ms=RESOLVE_MS)
        )
        return found

    def _resolve_windows(self, call: Call, params: d.DesktopCall) -> Resolution:
        self.switch.must_be_enabled()
        self._workspaces.place(params.workspace_path)
        return self._judging.about_window_list()

    def look(self, call: Call, params: d.Routed, effect: RecordedEffect) -> Deferred[Any] | Coroutine[Any, Any, Any]:
        self._check(call)
        work = self._looking(call, params, effect)
        if isinstance(params, d.WaitUntilCall):
            return self.traffic.waiting(self._tasks.answer(work, call.method))
        return work

    async def _looking(self, call: Call, params: d.Routed, effect: RecordedEffect) -> Any:
        target: JudgedTarget = effect.resolution.resolved
        yes = self._note(call, target, effect)
        self._evidence.note(params.workspace_path, effect)
        ask = target.params
        limit = params.timeout_ms
        if isinstance(params, d.WaitUntilCall):
            limit = min(limit, MAX_WAIT_MS)
            ask = {**ask, "timeoutMs": limit}
            limit += WAIT_GRACE_MS
        request_id = params.request_id or str(uuid.uuid4())
        waits = isinstance(params, d.WaitUntilCall)
        with yes, self.traffic.under_way(call.principal, request_id, waits=waits):
            try:
                result = await self._looked(
                    call,
                    lambda host: host.call(
                        call.method,
                        ask,
                        client=call.principal,
                        request_id=request_id,
                        timeout_ms=limit,
                        workspace=self._workspaces.place(params.workspace_path),
                    ),
                    waits=waits,
                )
            except asyncio.CancelledError:
                # The caller has left: the work stops.
                self._abandon(call.principal, request_id)
                raise
            except DesktopError as error:
                raise refusals.failed(error, effect) from None
        effect.details["executionId"] = result.execution_id
        self._news.executed(call, target.about.app, result.execution_id)
        return result

    async def act(self, call: Call, params: d.Routed, effect: RecordedEffect) -> Any:
        self._check(call)
        target: JudgedTarget = effect.resolution.resolved
        assert target.resolved is not None
        # A person was shown where the elements are; the policy does not judge that.
        resolved = msgspec.structs.replace(target.resolved, unmoved=effect.approval_id is not None)
        yes = self._note(call, target, effect)
        self._evidence.note(params.workspace_path, effect)
        request_id = params.request_id or str(uuid.uuid4())
        host = await self.hosting.host(self.switch.environment)
        # Between the judging and this lie the record on disk and perhaps the start of a host.
        self._check(call)
        with yes:
            async with self.traffic.acting(call.principal, request_id):
                try:
                    result = await host.call(
                        call.method,
                        {**target.params, "confirm": {"resolved": msgspec.to_builtins(resolved)}},
                        client=call.principal,
                        request_id=request_id,
                        timeout_ms=params.timeout_ms,
                        workspace=self._workspaces.place(params.workspace_path),
                    )
                except DesktopError as error:
                    raise refusals.failed(error, effect) from None
                except asyncio.CancelledError:
                    # The house closes, and the host with it.
                    effect.unknown = True
                    raise
                except HostGone as error:
                    self.hosting.lost(host, str(error))
                    effect.unknown = True
                    effect.details |= {"executed": "unknown", "reason": str(error)}
                    raise refusals.lost_while_acting(error) from None
        effect.details |= {"executionId": result.execution_id, "effect": result.effect}
        self._news.executed(call, target.about.app, result.execution_id, result.effect)
        return result

    def _note(self, call: Call, target: JudgedTarget, effect: RecordedEffect) -> AbstractContextManager[None]:
        """For the ledger: where, and never what. A person's yes to an app is kept with the record it was spent for, and
        counts already while that lasts."""
        about = target.about
        if about.pid is not None:
            effect.details["pid"] = about.pid
        approval_id = effect.approval_id
        if approval_id is None:
            return nullcontext()
        app = App(about.app, about.program)
        yes = self.apps.spend(call.principal, doing_of(call.method), app, approval_id=approval_id)
        effect.changes.append(lambda tx: self.apps.keep(tx, yes))
        return yes

    async def windows(self, call: Call, params: d.DesktopCall, effect: RecordedEffect) -> m.WindowsResult:
        self.switch.must_be_enabled()
        found: m.WindowsResult = await self._refusing(
            call,
            lambda host: host.call(
                "desktop.windows",
                client=call.principal,
                timeout_ms=params.timeout_ms,
                workspace=self._workspaces.place(params.workspace_path),
            ),
        )
        return m.WindowsResult(windows=[self._shown(call.principal, each) for each in found.windows])

    def _shown(self, principal: Principal, window: m.WindowInfo) -> m.WindowInfo:
        """A title is the name of a letter, of a page, of a patient: only callers that may look at the window get it."""
        open_ = not window.forbidden and self._judging.may_see_title(principal, window, self._program_of(window.pid))
        return window if open_ else msgspec.structs.replace(window, title="")

    # -- the rest --

    def health(self, call: Call, params: Nothing) -> Deferred[d.HealthResult]:
        return self._ask_host(call, {})

    def doctor(self, call: Call, params: d.DoctorCall) -> Deferred[d.DoctorResult]:
        if params.programs and agent_of(call.principal) is not None:
            raise Forbidden(
                "only the user of this machine sees which programs cannot be read",
                hint="leave programs out; the user runs `bascule desktop doctor`",
            )
        return self._ask_host(call, {"programs": params.programs})

    def _ask_host(self, call: Call, asked: dict[str, Any]) -> Deferred[Any]:
        """Of the host itself, not of any window."""
        self.switch.must_be_enabled()
        asking = self._refusing(call, lambda host: host.call(call.method, asked, client=call.principal))
        return self._tasks.answer(asking, call.method)

    async def abort(self, call: Call, params: d.AbortCall, effect: RecordedEffect) -> Any:
        """Without waiting for a turn behind what it aborts."""
        self.switch.must_be_enabled()
        host = self.hosting.live
        asked = {"executionId": params.execution_id}
        if host is None:
            raise refusals.refusal(DesktopError(Code.INVALID_REQUEST, "nothing is under way", **asked))
        try:
            return await host.call("desktop.abort", asked, client=call.principal)
        except DesktopError as error:
            raise refusals.refusal(error) from None
        except HostGone as error:
            # With it ends all that it did.
            self.hosting.lost(host, str(error))
            return d.AbortResult(aborted=True, execution_id=params.execution_id)

    def _abandon(self, principal: Principal, request_id: str) -> None:
        host = self.hosting.live
        if host is None:
            return

        async def abort() -> None:
            try:
                await host.call("desktop.abort", {"executionId": request_id}, client=principal)
            except (DesktopError, HostGone):
                # It has ended by itself.
                return

        self._tasks.start(abort(), "desktop.abort")

    async def _refusing(self, call: Call, ask: Ask) -> Any:
        try:
            return await self._looked(call, ask)
        except DesktopError as error:
            raise refusals.refusal(error) from None

    async def _looked(self, call: Call, ask: Ask, *, waits: bool = False) -> Any:
        """What changes nothing: when the host goes meanwhile, trying again is all there is to say."""
        host = await self.hosting.host(self.switch.environment)
        async with nullcontext() if waits else self.traffic.room(call.principal):
            try:
                return await ask(host)
            except HostGone as error:
                self.hosting.lost(host, str(error))
                raise refusals.lost_while_looking(error) from None
