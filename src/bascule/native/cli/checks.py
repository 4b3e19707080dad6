"""What of agents' own tools is really seen here, client by client."""

import os

from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn
from bascule.cli.setup.codex_trust import CannotAsk, untrusted
from bascule.cli.setup.native_hooks import installed
from bascule.foundation import paths

_LIMITS = {
    "claude": "daemon down: calls go on, or are refused with --closed; a project's disableAllHooks switches hooks off",
    "codex": "daemon down: calls go on; write_stdin into a running shell is not seen; hooks work only once trusted",
    "gemini": "daemon down: calls go on; it has no ids of calls",
}


def check_native(_: Patient) -> Verdict:
    found = [client for client in _LIMITS if installed(client)]
    if not found:
        return info("no client reports what its own tools do: `bascule on claude` installs hooks")
    if "codex" in found:
        try:
            if waiting := untrusted(os.environ, paths.home()):
                return warn(f"Codex does not trust {len(waiting)} of our hooks, and skips them", "bascule on codex")
        except CannotAsk as fault:
            return warn(f"whether Codex trusts our hooks is not known: {fault}", "type /hooks in Codex")
    return ok("; ".join(f"{client}: hooks are installed ({_LIMITS[client]})" for client in found))


CHECKS: tuple[Check, ...] = (Check("native tools", check_native),)
