"""The contract's methods behind one door: decode, workspace, confirmation, execution, evidence, in this order.

The one place where anything that goes wrong becomes the contract's error object (invariant I4).
"""

import asyncio
import contextlib
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from bascule import __version__
from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop.errors import Code, DesktopError, invalid
from bascule.desktop.host_methods import EXTENSIONS, METHODS, DesktopMethod
from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.evidence import Evidence, EvidenceRoot, WorkspaceForbidden
from bascule.kernel.faults import EventLog, log_fault
from bascule.kernel.rows import Nothing, Params
from bascule.programs.desktop_host import ports
from bascule.programs.desktop_host.acting import Acting
from bascule.programs.desktop_host.executions import Execution, Executions
from bascule.programs.desktop_host.expecting import Expected
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.peers import Client, PeerId
from bascule.programs.desktop_host.pointing import Pointing
from bascule.programs.desktop_host.redaction import Typed
from bascule.programs.desktop_host.refs import Refs
from bascule.programs.desktop_host.resolving import Resolving
from bascule.programs.desktop_host.routes import KEEP_OUT
from bascule.programs.desktop_host.tokens import Grant, Tokens, TooManyTokens
from bascule.programs.desktop_host.waiting import Waiting
from bascule.programs.desktop_host.writing import Writing
from bascule.wire import canonical
from gabp import codec

# ui-control is one at a time; more than these waiting means that nobody looks at the answers.
MAX_WAITING: Final = 32
# Workspaces whose evidence we keep count of; the count of another is taken again.
MAX_WORKSPACES: Final = 256
# The part of a request that is about the request, not about what is to be done.
_NOT_SIGNED: Final = ("meta", "confirm")


class Host:
    """One desktop, one WORKSPACE_ROOT, any number of peers."""

    def __init__(
        self,
        desktop: ports.Desktop,
        root: EvidenceRoot,
        clock: Clock,
        log: EventLog,
        *,
        phrase: bool = True,
        keep_out: Sequence[str] = KEEP_OUT,
        max_bytes: int | None = None,
    ) -> None:
        self._desktop = desktop
        self._root = root
        self._clock = clock
        self._log = log
        self._phrase = phrase
        self._quota = {} if max_bytes is None else {"max_bytes": max_bytes}
        self.tokens = Tokens(clock)
        self.executions = Executions(clock)
        self._evidence: dict[str, Evidence] = {}
        self._screen = asyncio.Lock()
        self._waiting = 0
        # None: still opening. A sentence: why it could not be opened.
        self._ready: bool | None = None
        self.stopped = False
        # Told when everything was stopped: how much was aborted, and by whom; None: by the person's keys or a signal.
        self.on_stopped: Callable[[int, PeerId | None], None] = lambda _aborted, _by: None
        looking = self._looking = Looking(desktop, Refs(), Typed(), keep_out=keep_out)
        acting = Acting(looking)
        pointing = Pointing(acting, looking)
        self._methods: dict[str, Callable[[Execution, Any], Awaitable[Any]]] = {
            "desktop.observe": looking.observe,
            "desktop.find": looking.find,
            "desktop.windows": looking.windows,
            "desktop.listModals": looking.list_modals,
            "desktop.waitUntil": Waiting(looking).wait_until,
            "desktop.resolve": Resolving(acting, looking).resolve,
            "desktop.click": acting.click,
            "desktop.hotkey": acting.hotkey,
            "desktop.typeText": Writing(acting, looking).type_text,
            "desktop.doubleClick": pointing.double_click,
            "desktop.rightClick": pointing.right_click,
            "desktop.scroll": pointing.scroll,
            "desktop.drag": pointing.drag,
            "desktop.setValue": pointing.set_value,
            "desktop.focusWindow": pointing.focus_window,
            "desktop.dismissModal": pointing.dismiss_modal,
        }
        self._at_once: dict[str, Callable[[Client, Any, str], Awaitable[Any]]] = {
            "desktop.health": self._health,
            "desktop.doctor": self._doctor,
            "desktop.abort": self._abort,
            "desktop.confirm.issue": self._issue,
            "desktop.stop": self._stop,
            "desktop.resume": self._resume,
        }
        self._decoders = {name: codec.decoder(row.wire_type()) for name, row in METHODS.items()}

    # -- life --

    async def open(self) -> None:
        """Until this is through, what needs the desktop answers DESKTOP_HOST_NOT_READY."""
        try:
            await self._desktop.open()
        except ports.BackendError as error:
            # Not the end: what is missing may come, and every call looks again.
            self._log("not_reachable", level="warning", reason=str(error))
        self._ready = True

    async def close(self) -> None:
        await self.executions.abort_all()
        await self._looking.close()
        await self._desktop.close()
        self._root.close()

    async def peer_gone(self, peer: PeerId) -> None:
        """Its process ended: its tokens, its refs and whatever it still had under way end with it."""
        self.tokens.forget(peer)
        self._looking.forget(peer)
        await self.executions.abort_all(peer)

    async def stop_everything(self, by: PeerId | None = None) -> int:
        """The kill switch: nothing more reaches the screen until somebody resumes."""
        self.stopped = True
        self.tokens.forget_all()
        count = await self.executions.abort_all()
        try:
            await self._desktop.release_all()
        except ports.BackendError as error:
            # Without a screen nothing is held down on it; that all is stopped is to be told all the same.
            self._log("not_released", level="error", reason=str(error))
        self._log("stopped", level="warning", aborted=count, pid=by.pid if by is not None else None)
        self.on_stopped(count, by)
        return count

    # -- a request --

    async def handle(
        self, peer: PeerId, method: str, params: codec.Raw, on_execution: Callable[[Execution], None] | None = None
    ) -> Any:
        """The result, or DesktopError."""
        began = self._clock.monotonic()
        outcome = "ok"
        execution_id = None
        try:
            result = await self._handle(peer, method, params, on_execution)
            execution_id = getattr(result, "execution_id", None)
            return result
        except DesktopError as error:
            outcome = error.code.value
            execution_id = error.details.get("executionId")
            raise
        finally:
            took = round((self._clock.monotonic() - began) * 1000)
            known = method if method in METHODS else "unknown"
            self._log("call", method=known, pid=peer.pid, outcome=outcome, ms=took, executionId=execution_id)

    async def _handle(
        self, peer: PeerId, method: str, params: codec.Raw, on_execution: Callable[[Execution], None] | None
    ) -> Any:
        row = METHODS.get(method)
        if row is None:
            raise invalid("unknown method", methods=list(METHODS))
        decoded = self._decode(row, params)
        call, meta = row.call_of(decoded), decoded.meta
        workspace = self._workspace(meta)
        client = Client(peer, meta.client)
        if row.confirmed:
            self._check_confirm(row, client, workspace, decoded, params)
        if row.at_once:
            return await self._guarded(None, meta.timeout_ms, self._at_once[method](client, call, workspace))
        if self._ready is None:
            raise DesktopError(Code.HOST_NOT_READY, "the host is still connecting to the desktop: try again")
        if self.stopped and (row.confirmed or _is_about_acting(call)):
            raise DesktopError(Code.HOST_STOPPED, "input was stopped: a person resumes it with desktop.resume")
        with self.executions.running(client, meta, method) as execution:
            if row.confirmed and decoded.confirm.resolved is not None:
                execution.expected = Expected(decoded.confirm.resolved)
            if on_execution is not None:
                on_execution(execution)
            return await self._execute(row, execution, call, workspace)

    def _decode(self, row: DesktopMethod, params: codec.Raw) -> Any:
        try:
            if row.confirmed or row.name == "desktop.confirm.issue":
                # Where a digest is taken, no second reading of the text may be possible.
                codec.check_no_duplicate_keys(params)
            decoded: Any = self._decoders[row.name].decode(params)
        except codec.BadJson as error:
            raise invalid(error.message) from None
        if decoded.meta.schema_version != d.SCHEMA_VERSION:
            raise invalid(
                f"meta.schemaVersion {decoded.meta.schema_version} is not spoken here", supported=[d.SCHEMA_VERSION]
            )
        return decoded

    def _workspace(self, meta: d.Meta) -> str:
        try:
            return self._root.resolve(meta.workspace_path)
        except WorkspaceForbidden as error:
            raise DesktopError(Code.WORKSPACE_FORBIDDEN, str(error)) from None

    def _check_confirm(
        self, row: DesktopMethod, client: Client, workspace: str, decoded: Any, params: codec.Raw
    ) -> None:
        """Contract 4.2: the token before the phrase; any failure is DESKTOP_CONFIRM_REQUIRED. Ours comes last."""
        confirm: d.Confirm | None = decoded.confirm
        reason = "this method needs confirm"
        if confirm is not None and confirm.token is not None:
            signed = codec.decode(params)
            grant = Grant(client=client, method=row.name, digest=params_digest(signed), workspace=workspace)
            failure = self.tokens.spend(confirm.token, grant)
            if failure is None:
                return
            reason = failure
        elif confirm is not None and confirm.phrase is not None:
            if not self._phrase:
                reason = "this host takes tokens only (--no-phrase)"
            elif confirm.phrase in ("CONFIRM", f"CONFIRM:{decoded.meta.request_id}"):
                return
            else:
                reason = "confirm.phrase is neither CONFIRM nor CONFIRM:<requestId>"
        elif confirm is not None and confirm.resolved is not None and not row.at_once:
            # Compared when it acts.
            return
        raise DesktopError(Code.CONFIRM_REQUIRED, reason, method=row.name)

    async def _execute(self, row: DesktopMethod, execution: Execution, call: Params, workspace: str) -> Any:
        if row.evidence:
            execution.folder = self._store(workspace).folder(execution.id)
        method = self._methods[row.name]
        seconds = execution.timeout_ms / 1000

        async def run() -> Any:
            async with asyncio.timeout(seconds):
                if not row.confirmed:
                    return await method(execution, call)
                return await self._alone(execution, method, call)

        outcome: dict[str, Any] = {}
        try:
            result = await self._guarded(execution, execution.timeout_ms, run())
            outcome = {"ok": True, "result": _without_values(result)}
            return result
        except DesktopError as error:
            outcome = {"ok": False, "error": error.body()}
            raise
        finally:
            # An abort that comes now must not leave half a record.
            execution.ending = True
            if execution.folder is not None:
                await asyncio.shield(asyncio.to_thread(self._finish, execution, outcome))

    def _store(self, workspace: str) -> Evidence:
        found = self._evidence.pop(workspace, None) or Evidence(self._root, workspace, self._clock, **self._quota)
        self._evidence[workspace] = found
        if len(self._evidence) > MAX_WORKSPACES:
            del self._evidence[next(iter(self._evidence))]
        return found

    async def _alone(
        self, execution: Execution, method: Callable[[Execution, Any], Awaitable[Any]], call: Params
    ) -> Any:
        if self._waiting >= MAX_WAITING:
            raise DesktopError(Code.HOST_NOT_READY, f"{MAX_WAITING} actions wait for the screen: try again")
        self._waiting += 1
        try:
            await self._screen.acquire()
        finally:
            self._waiting -= 1
        try:
            execution.halt.check()
            return await method(execution, call)
        except BaseException:
            # Also when its time is over: the input thread does not know of that by itself.
            execution.halt.set()
            raise
        finally:
            if execution.halt.is_set:
                # Behind whatever the input thread is still in the middle of: after this, and so after the answer,
                # not one event comes, and nothing is held down.
                with contextlib.suppress(ports.BackendError):
                    await asyncio.shield(self._desktop.release_all())
            self._screen.release()

    async def _guarded(self, execution: Execution | None, timeout_ms: int, work: Awaitable[Any]) -> Any:
        """Everything that can go wrong, as the contract says it."""
        try:
            return await work
        except DesktopError as error:
            raise self._about(error, execution) from None
        except (ports.Aborted, asyncio.CancelledError):
            if execution is not None and execution.halt.is_set:
                raise self._about(DesktopError(Code.ABORTED, "the execution was aborted"), execution) from None
            raise
        except _KNOWN as error:
            failure = _as_desktop_error(error, timeout_ms)
        except Exception as error:  # noqa: BLE001 - the boundary: an unknown fault says an id and nothing else
            fault = log_fault(self._log, error)
            failure = DesktopError(Code.INTERNAL_ERROR, f"internal error {fault}: the host's log has it", fault=fault)
        raise self._about(failure, execution) from None

    def _about(self, error: DesktopError, execution: Execution | None) -> DesktopError:
        if execution is None or execution.folder is None:
            return error
        details = {**error.details, "executionId": execution.id, "evidenceDir": execution.folder.path}
        return DesktopError(error.code, error.message, **details)

    def _finish(self, execution: Execution, outcome: dict[str, Any]) -> None:
        assert execution.folder is not None
        peer, client = execution.client
        about = {
            "executionId": execution.id,
            "requestId": execution.request_id,
            "method": execution.method,
            "at": execution.at,
            "ms": execution.elapsed_ms(),
            "peer": {"pid": peer.pid, "auditTokenDigest": peer.digest},
            **({} if client is None else {"client": client}),
        }
        error = outcome.get("error")
        line = {**about, "outcome": "ok" if outcome.get("ok") else error["code"] if error else "unknown"}
        try:
            execution.folder.finish({**about, **outcome}, execution.trace, line)
        except (OSError, WorkspaceForbidden) as failure:
            self._log("evidence_lost", level="error", executionId=execution.id, reason=str(failure))

    # -- answered at once --

    async def _health(self, client: Client, _params: Nothing, _workspace: str) -> d.HealthResult:
        status = await self._status()
        permissions = d.Permissions(accessibility=status.accessibility, screen_recording=status.screen_recording)
        mac = platform.mac_ver()[0] if sys.platform == "darwin" else None
        return d.HealthResult(
            host_version=__version__,
            macos=mac or None,
            platform=f"{platform.system().lower()} {platform.release()}",
            permissions=permissions,
            bridge=d.BridgeInfo(),
            peer=_peer_info(client.peer),
            extensions=EXTENSIONS,
            stopped=self.stopped,
            stop_keys=status.stop_keys,
            capabilities=status.capabilities,
        )

    async def _doctor(self, client: Client, params: d.DoctorCall, _workspace: str) -> d.DoctorResult:
        status = await self._status()
        issues, remedies, notes = list(status.issues), list(status.remedies), list(status.notes)
        if params.programs and status.accessibility == "granted":
            try:
                notes += await self._desktop.unreadable()
            except ports.BackendError as error:
                # The doctor answers on every machine: it is what one asks when nothing works.
                notes.append(f"Which programs can be read is not known: {error}")
        if self.stopped:
            issues.append("Input was stopped")
            remedies.append("desktop.resume, or restart the host")

        def detail(permission: d.Permission, purpose: str) -> d.PermissionDetail:
            return d.PermissionDetail(granted=permission == "granted", required=True, purpose=purpose)

        return d.DoctorResult(
            permissions=d.DoctorPermissions(
                accessibility=detail(status.accessibility, "AX observe/find/action"),
                screen_recording=detail(status.screen_recording, "Screenshot capture"),
            ),
            issues=issues,
            healthy=not issues,
            peer=_peer_info(client.peer),
            remedies=remedies,
            notes=notes,
            capabilities=status.capabilities,
        )

    async def _status(self) -> ports.Status:
        if self._ready is None:
            return ports.Status(
                accessibility="unknown",
                screen_recording="unknown",
                issues=("Host not ready",),
                remedies=("try again in a moment",),
            )
        return await self._desktop.status()

    async def _abort(self, client: Client, params: d.AbortCall, _workspace: str) -> d.AbortResult:
        execution = self.executions.find(client, params.execution_id)
        if execution is None:
            raise invalid("no such execution of this client is under way", executionId=params.execution_id)
        await self.executions.abort(execution)
        # The id that was given, be it the executionId or the requestId: the caller knows it by that.
        return d.AbortResult(aborted=True, execution_id=params.execution_id)

    async def _issue(self, client: Client, params: d.ConfirmIssueParams, workspace: str) -> d.ConfirmIssueResult:
        intent = params.intent
        row = METHODS.get(intent.method)
        if row is None or not row.confirmed:
            raise invalid("intent.method is not one that needs confirm", method=intent.method)
        try:
            # A token for what would be refused anyway helps nobody.
            codec.convert({k: v for k, v in intent.params.items() if k != "meta"}, row.wire_type(meta=False))
        except codec.BadJson as error:
            raise invalid(f"intent.params: {error.message}") from None
        digest = params_digest(intent.params)
        grant = Grant(client=client, method=row.name, digest=digest, workspace=workspace)
        try:
            token = self.tokens.issue(grant, params.ttl_ms / 1000)
        except TooManyTokens as error:
            raise DesktopError(Code.HOST_NOT_READY, f"{error}: use them or let them expire") from None
        return d.ConfirmIssueResult(
            token=token,
            expires_at=rfc3339(self._clock.wall_ms() + params.ttl_ms),
            scope=d.Scope(method=row.name, params_digest=digest[: canonical.SHORT_DIGEST_CHARS]),
            peer=_peer_info(client.peer),
        )

    async def _stop(self, client: Client, _params: Nothing, _workspace: str) -> m.StopResult:
        return m.StopResult(stopped=True, aborted=await self.stop_everything(client.peer))

    async def _resume(self, _client: Client, _params: d.Routed, _workspace: str) -> m.StopResult:
        self.stopped = False
        self._log("resumed", level="warning")
        return m.StopResult(stopped=False, aborted=0)


# What the parts below raise; everything else is a fault of ours.
_KNOWN: Final = (TimeoutError, ports.BackendError, WorkspaceForbidden, OSError)


def _as_desktop_error(error: Exception, timeout_ms: int) -> DesktopError:
    """The error as the contract names it."""
    match error:
        case TimeoutError():
            return DesktopError(Code.TIMEOUT, "the request took longer than meta.timeoutMs", timeoutMs=timeout_ms)
        case ports.NotReachable():
            return DesktopError(Code.PERMISSION_MISSING, f"{error}: ask desktop.doctor")
        case ports.NoSuchKey():
            return invalid(str(error))
        case ports.Elsewhere():
            return DesktopError(Code.ELEMENT_NOT_FOUND, str(error), reason=error.reason)
        case ports.NotAnswering():
            return DesktopError(Code.TIMEOUT, str(error), reason="unresponsive")
        case ports.AppGone():
            return DesktopError(Code.INTERNAL_ERROR, f"{error}; the act may have happened", reason="appGone")
        case WorkspaceForbidden():
            return DesktopError(Code.WORKSPACE_FORBIDDEN, str(error))
        case OSError():
            return DesktopError(Code.INTERNAL_ERROR, f"evidence could not be written: {error.strerror or error}")
        case _:
            return DesktopError(Code.INTERNAL_ERROR, str(error))


def params_digest(params: dict[str, Any]) -> str:
    """Of everything that says what will be done: `route` and `options` are in it, `meta` and `confirm` are not."""
    return canonical.digest({name: value for name, value in params.items() if name not in _NOT_SIGNED})


def _is_about_acting(call: Params) -> bool:
    """Nobody need be asked about what would be refused anyway."""
    intent = getattr(call, "intent", None)
    row = METHODS.get(intent.method) if intent is not None else None
    return row is not None and row.confirmed


def _peer_info(peer: PeerId) -> d.PeerInfo:
    return d.PeerInfo(pid=peer.pid, audit_token_digest=peer.digest)


def _without_values(result: Any) -> Any:
    """result.json says what was found and done, not what stands in the fields: ax.json does, redacted."""
    plain = msgspec.to_builtins(result)
    plain.pop("snapshot", None)
    plain.pop("diff", None)
    plain.pop("image", None)
    for each in plain.get("elementRefs", ()):
        for name in ("value", "title", "fingerprint"):
            each.pop(name, None)
    plain.pop("modals", None)
    plain.pop("windows", None)
    plain.pop("routeResolved", None)
    return plain
