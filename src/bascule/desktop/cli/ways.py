"""The two ways to a desktop host: through the daemon, which asks; or, with --socket, one that listens by itself."""

import argparse
import asyncio
import os
from typing import Any

from bascule.cli.asking import ask_held
from bascule.desktop.cli.host import socket_of
from bascule.foundation import paths
from bascule.foundation.errors import ApprovalRequired, BasculeError
from bascule.foundation.text import visible
from bascule.local_client.exits import NOT_FOUND, NOTHING_CAME, REFUSED, UNEXPECTED, UNREACHABLE, USAGE, DoorError

DEFAULT_TIMEOUT_MS = 60_000
_EXIT_CODES = {
    "DESKTOP_ELEMENT_NOT_FOUND": NOT_FOUND,
    "DESKTOP_TIMEOUT": NOTHING_CAME,
    "DESKTOP_INVALID_REQUEST": USAGE,
    "DESKTOP_INTERNAL_ERROR": UNEXPECTED,
    "DESKTOP_HOST_NOT_READY": UNREACHABLE,
}


def ask(
    args: argparse.Namespace,
    method: str,
    params: dict[str, Any],
    *,
    confirmed: bool = False,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> Any:
    """The answer as plain JSON values."""
    if args.socket is not None:
        return _of_a_host(args, method, params, confirmed=confirmed, timeout_ms=timeout_ms)
    arguments: dict[str, Any] = {**params, "timeoutMs": timeout_ms}
    if (workspace := _workspace(args)) is not None:
        arguments["workspacePath"] = workspace
    try:
        return ask_held(args, method, arguments, wait=not args.no_wait)
    except BasculeError as error:
        raise _refused_by_the_daemon(error) from error


def _workspace(args: argparse.Namespace) -> str | None:
    """What was named; else this directory if the daemon takes it, as below a home it does."""
    if args.workspace is not None:
        return os.path.realpath(str(args.workspace))
    home, here = os.path.realpath(paths.home()), os.path.realpath(".")
    return here if here != home and os.path.commonpath((home, here)) == home else None


def _refused_by_the_daemon(error: BasculeError) -> Exception:
    desktop_error = (error.details or {}).get("desktop")
    if not isinstance(desktop_error, dict) or isinstance(error, ApprovalRequired):
        return error
    code = str(desktop_error.get("code"))
    hint = error.hint
    if code == "DESKTOP_ELEMENT_NOT_FOUND":
        # The daemon speaks of methods; here there are commands.
        missing = (desktop_error.get("details") or {}).get("reason") == "route"
        hint = f"bascule desktop {'windows' if missing else 'observe'} shows what is there now"
    failure = DoorError(visible(error.message), hint)
    failure.exit_code = _EXIT_CODES.get(code, REFUSED)
    return failure


def _of_a_host(
    args: argparse.Namespace, method: str, params: dict[str, Any], *, confirmed: bool, timeout_ms: int
) -> Any:
    import msgspec

    from bascule.desktop.errors import DesktopError
    from bascule.desktop.machine.client import HostClient, HostLost

    workspace = os.path.realpath(args.workspace or ".")
    # Only here is it a field of its own, beside meta's.
    arguments = {**params, "timeoutMs": timeout_ms} if method == "desktop.waitUntil" else params

    async def ask() -> Any:
        client = await HostClient.connect(socket_of(args), workspace)
        try:
            act = client.confirmed if confirmed else client.call
            return await act(method, arguments, timeout_ms=timeout_ms)
        finally:
            await client.close()

    try:
        return msgspec.to_builtins(asyncio.run(ask()))
    except HostLost as error:
        failure = DoorError(str(error), "start one with: bascule desktop-host --listen --workspace-root DIR")
        failure.exit_code = UNREACHABLE
        raise failure from error
    except DesktopError as error:
        failure = DoorError(f"{error.code.value}: {visible(error.message)}", error.details.get("evidenceDir"))
        failure.exit_code = _EXIT_CODES.get(error.code.value, REFUSED)
        raise failure from error
