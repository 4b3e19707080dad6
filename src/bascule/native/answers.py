"""What a hook prints for its client; no I/O.

Claude Code   allow, deny, ask and context. Without a person at a terminal `ask` is denied by the client itself.
Codex         deny and context. A bare `allow` or `ask` is "hook failed" there, and the call runs.
Gemini CLI    deny. `ask` without a terminal hung until the client was killed: it is never sent.
"""

from typing import Any

from bascule.kernel.policy.decision import Decision, Verdict
from bascule.native.protocol import Client, Mode


def answer(client: Client, mode: Mode, verdict: Verdict | None, notes: list[str]) -> tuple[dict[str, Any], bool]:
    """The output, and whether it decides."""
    if mode == "observe" or verdict is None:
        return {}, False
    if verdict.decision is Decision.ALLOW:
        return (_context(client, notes), False) if notes else ({}, False)
    words = _words(verdict)
    if mode == "warn":
        return _context(client, [f"Bascule would {_would(verdict)} this: {words}", *notes]), False
    if client == "gemini":
        return {"decision": "deny", "reason": words}, True
    decision = "ask" if verdict.decision is Decision.ASK and client == "claude" else "deny"
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": words,
        }
    }, True


def without_undo(client: Client, output: dict[str, Any], note: str) -> dict[str, Any]:
    """The same answer, and what of the call cannot be undone: for the model, and where that is shown for the person.

    In every mode: who works without an undo should know it before the call, and it decides nothing.
    """
    words = f"Bascule: {note}"
    decided = output.get("hookSpecificOutput", {})
    if decided.get("permissionDecision") == "ask":
        # The person who is asked should know.
        asked = {**decided, "permissionDecisionReason": f"{decided['permissionDecisionReason']} {words}"}
        return {**output, "hookSpecificOutput": asked}
    if "permissionDecision" in decided or "decision" in output:
        return output
    before = [decided["additionalContext"]] if "additionalContext" in decided else []
    shown = {"systemMessage": words} if client == "claude" else {}
    return {**output, **_context(client, [*before, words]), **shown}


def needs_desk(client: Client, verdict: Verdict | None) -> bool:
    """A rule asks, and the client has no dialog that a hook can open."""
    return client != "claude" and verdict is not None and verdict.decision is Decision.ASK


def refusal(client: Client, reason: str) -> dict[str, Any]:
    """A deny that no rule said: everything is stopped."""
    return answer(client, "enforce", Verdict(Decision.DENY, "stopped", reason), [])[0]


def kept(reason: str) -> dict[str, Any]:
    """For Claude Code's ConfigChange: the session that is open goes on with the hooks it has."""
    words = (
        f"Bascule: {reason}. This session keeps its hooks, new ones have none. `bascule off` takes them out for good."
    )
    return {"decision": "block", "reason": words}


def dialog(*, allow: bool, why: str = "") -> dict[str, Any]:
    """Closes the client's own dialog; Claude Code and Codex take the same words."""
    decision = {"behavior": "allow"} if allow else {"behavior": "deny", "message": why}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def greeting(client: Client, mode: Mode, *, closed: bool) -> dict[str, Any]:
    """For the person, when a session starts: what they chose, and what happens while nobody can be asked.

    Of Claude Code alone it is known that it shows such a line and goes on.
    """
    if client != "claude" or (mode == "observe" and not closed):
        return {}
    down = "are refused" if closed else "go on"
    return {"systemMessage": f"Bascule: mode {mode}; calls {down} while the daemon cannot be asked."}


def _would(verdict: Verdict) -> str:
    return "ask a person about" if verdict.decision is Decision.ASK else "deny"


def _words(verdict: Verdict) -> str:
    asks = "a person has to agree: " if verdict.decision is Decision.ASK else ""
    advice = f" {verdict.suggestion}." if verdict.suggestion else ""
    return f"{asks}{verdict.reason} (Bascule, rule {verdict.rule}).{advice}"


def _context(client: Client, notes: list[str]) -> dict[str, Any]:
    event = "BeforeTool" if client == "gemini" else "PreToolUse"
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "\n".join(notes)}} if notes else {}
