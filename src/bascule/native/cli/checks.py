"""What of agents' own tools is really seen here, client by client."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from bascule.cli.checks.patient import Check, Daemon, Patient, Verdict, info, ok, warn
from bascule.cli.setup import toml_text
from bascule.cli.setup.codex_trust import CannotAsk, untrusted
from bascule.cli.setup.everything import folder_of
from bascule.cli.setup.json_text import BadJson, JsonText
from bascule.cli.setup.native_hooks import PROGRAM, installed
from bascule.cli.setup.planning import SetupRequest
from bascule.client import SyncClient
from bascule.foundation import paths
from bascule.foundation.errors import BasculeError
from bascule.foundation.text import short_id

# What was seen of these is in docs/native.md, and `make test-clients` sees it again.
KNOWN = {"claude": "2.1.327", "codex": "0.169.0", "gemini": "0.61.0"}
# A client that starts slowly on a busy machine; one that hangs is ended.
VERSION_SECONDS = 20
MAX_SETTINGS_BYTES = 1024 * 1024
_LIMITS = {
    "claude": "daemon down: calls go on, or are refused with --closed",
    "codex": "daemon down: calls go on; text typed into a shell that runs is not seen",
    "gemini": "daemon down: calls go on; it has no ids of calls",
}


def check_of(client: str) -> Callable[[Patient], Verdict]:
    return lambda patient: _check(client, patient)


def _check(client: str, patient: Patient) -> Verdict:
    request = SetupRequest(bascule="", bridge_wait="", home=paths.home(), environment=patient.environment or os.environ)
    program = shutil.which(client, path=patient.path or None)
    if not installed(client, request):
        return info(f"its own tools are not seen: {'`bascule on`' if program else 'it is not installed'}")
    if reason := _switched_off(client, request):
        return warn(f"hooks are installed and do not run: {reason}", "take that line out, or know that nothing is seen")
    if client == "codex":
        try:
            if waiting := untrusted({**request.environment, "HOME": request.home}, os.getcwd()):
                return warn(f"Codex does not trust {len(waiting)} of our hooks, and skips them", "bascule on codex")
        except CannotAsk as fault:
            return warn(f"whether Codex trusts our hooks is not known: {fault}", "type /hooks in Codex")
    trusted = "trusted" if client == "codex" else "it asks for no trust"
    known = _version(client, program, request)
    return ok(f"hooks are installed, {trusted}; {known}; {_seen(client, patient)}; {_LIMITS[client]}")


def _version(client: str, program: str | None, request: SetupRequest) -> str:
    if program is None:
        return "its program is not in PATH, so its version is not known"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own client, asked for its version
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
            env=dict(request.environment),
        )
    except (OSError, subprocess.TimeoutExpired):
        return "it does not say its version"
    found = re.search(r"\d+\.\d+\.\d+", done.stdout)
    if found is None:
        return "it does not say its version"
    if found[0] == KNOWN[client]:
        return f"{found[0]} is known to obey an answer of ours"
    newer = tuple(map(int, found[0].split("."))) > tuple(map(int, KNOWN[client].split(".")))
    if newer:
        return f"{found[0]} is newer than {KNOWN[client]}, the last that was tried; nothing is known against it"
    return f"{found[0]} is older than {KNOWN[client]}, which is known to obey an answer of ours: update it"


def _seen(client: str, patient: Patient) -> str:
    """What shows that they run: a session that reported."""
    if not isinstance(patient.daemon, Daemon):
        return "whether they run is not known while the daemon is down"
    try:
        with SyncClient.connect(patient.state) as daemon:
            sessions: list[dict[str, Any]] = daemon.call("sessions.list", {"client": client})
    except BasculeError as fault:
        return f"the daemon does not say what it saw: {fault.message}"
    if not sessions:
        return "no session has reported since the daemon was started"
    for each in sessions:
        if each.get("notice"):
            return f"switched off while session {short_id(each['session'])} was open: {each['notice']}"
    calls = sum(int(each.get("calls", 0)) for each in sessions)
    quiet = min(int(each["ageMs"]) for each in sessions) // 1000
    return f"{len(sessions)} sessions reported {calls} calls, the last {quiet} s ago"


# -- switched off by a file -----------------------------------------------------------------------


def _switched_off(client: str, request: SetupRequest) -> str | None:
    """The file, of the user or of the project one stands in, that says so."""
    own = folder_of(request, client)
    here = os.path.join(os.getcwd(), os.path.basename(own) if own.startswith(request.home) else f".{client}")
    match client:
        case "claude":
            names = ("settings.json", "settings.local.json")
            for path in (os.path.join(folder, name) for folder in (own, here) for name in names):
                if _json(path).get("disableAllHooks") is True:
                    return f"{path} sets disableAllHooks"
        case "codex":
            for path in (os.path.join(folder, "config.toml") for folder in (own, here)):
                if _features(path).get("hooks") is False:
                    return f"{path} sets hooks = false in [features]"
        case _:
            for path in (os.path.join(folder, "settings.json") for folder in (own, here)):
                config = _json(path, comments=True).get("hooksConfig")
                if isinstance(config, dict) and config.get("enabled") is False:
                    return f"{path} sets hooksConfig.enabled to false"
                if isinstance(config, dict) and PROGRAM in (config.get("disabled") or ()):
                    return f"{path} names {PROGRAM} in hooksConfig.disabled"
    return None


def _json(path: str, *, comments: bool = False) -> dict[str, Any]:
    try:
        value = JsonText(_text(path), comments=comments).get()
    except (BadJson, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _features(path: str) -> dict[str, Any]:
    try:
        return toml_text.table(_text(path), ("features",)) or {}
    except toml_text.BadToml:
        return {}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_SETTINGS_BYTES)
    except OSError:
        return ""


CHECKS: tuple[Check, ...] = tuple(Check(f"own tools of {client}", check_of(client)) for client in KNOWN)
