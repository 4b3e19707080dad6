"""What of agents' own tools is really seen here, client by client."""

from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok
from bascule.cli.setup.native_hooks import installed

_LIMITS = {
    "claude": "daemon down: calls go on, or are refused with --closed; a project's disableAllHooks switches hooks off",
    "codex": "daemon down: calls go on; write_stdin into a running shell is not seen; hooks work only once trusted",
    "gemini": "daemon down: calls go on; it has no ids of calls",
}


def check_native(_: Patient) -> Verdict:
    found = [client for client in _LIMITS if installed(client)]
    if not found:
        return info("no client reports what its own tools do: `bascule native on claude` installs hooks")
    return ok("; ".join(f"{client}: hooks are installed ({_LIMITS[client]})" for client in found))


CHECKS: tuple[Check, ...] = (Check("agents' own tools", check_native),)
