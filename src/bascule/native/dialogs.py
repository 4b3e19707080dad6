"""A client's own dialog and the same question at the desk: the first answer wins, and the other one is closed."""

import msgspec

from bascule.kernel.call import DAEMON, Principal
from bascule.kernel.consent.desk import Desk
from bascule.kernel.journal import Journal, Transaction
from bascule.native import rows
from bascule.native.hooks import Hook
from bascule.native.ports import Machine
from bascule.native.protocol import HookAnswer, Mode, QuestionParams
from bascule.native.sessions import MAX_SESSIONS, Session
from bascule.native.texts import cut

# A dialog is raced for as long as a question at the desk lives; the client's own stays open without us.
DIALOG_MS = 15 * 60_000
# Nobody sits at a client that answers one prompt and ends, and Codex shows no dialog until its hook has spoken.
HEADLESS_MS = 25_000
CODEX_DIALOG_MS = 15_000
# Dialogs of one session: a person answers one after the other, and subagents have a few more.
MAX_DIALOGS = 32


class Dialogs:
    def __init__(self, desk: Desk, journal: Journal, machine: Machine) -> None:
        self._desk = desk
        self._journal = journal
        self._machine = machine
        # By client and session: what its open dialogs are about, and whose question at the desk is the same.
        self._open: dict[tuple[str, str], dict[str, tuple[Principal, str]]] = {}

    def answer(self, hook: Hook, session: Session, mode: Mode) -> HookAnswer:
        """The client shows a dialog: where hooks decide, the desk shows the same question."""
        if mode != "enforce" or hook.kind == "other" or hook.client == "gemini":
            return HookAnswer(record="observed")
        question = msgspec.structs.replace(question_of(hook, hook.cwd or "/"), dialog=hook.session)
        if hook.client == "codex":
            wait_ms = CODEX_DIALOG_MS
        else:
            seated = session.pid is not None and self._machine.has_terminal(session.pid)
            wait_ms = DIALOG_MS if seated else HEADLESS_MS
        return HookAnswer(record="observed", question=question, wait_ms=wait_ms)

    def opened(self, client: str, session: str, about: str, asked: tuple[Principal, str]) -> None:
        dialogs = self._open.pop((client, session), {})
        self._open[client, session] = dialogs
        dialogs[about] = asked
        if len(self._open) > MAX_SESSIONS:
            self._open.pop(next(iter(self._open)))
        if len(dialogs) > MAX_DIALOGS:
            dialogs.pop(next(iter(dialogs)))

    def close(self, client: str, session: str, about: str | None = None) -> None:
        """The client went on: its dialog was answered there, and the same question leaves the desk."""
        key = (client, session)
        if key not in self._open:
            return
        dialogs = self._open[key]
        closed = [dialogs.pop(about, None)] if about is not None else list(dialogs.values())
        if about is None or not dialogs:
            del self._open[key]
        tx = Transaction()
        for principal, digest in filter(None, closed):
            self._desk.withdraw_asked(tx, principal, rows.NATIVE_QUESTION.name, digest)
        if tx.puts:
            tx.subject = session
            tx.details = {"client": client, "record": "answered", "where": "its own dialog"}
            self._journal.commit(tx, DAEMON, rows.NATIVE_QUESTION.name, "withdrawn")


def question_of(hook: Hook, root: str) -> QuestionParams:
    assert hook.kind != "other", "no rule speaks of it"
    edits, whole = cut(hook.edits)
    return QuestionParams(
        client=hook.client,
        kind=hook.kind,
        cwd=hook.cwd or root,
        command=hook.command,
        paths=list(hook.paths),
        url=hook.url,
        unsandboxed=hook.unsandboxed,
        edits=edits,
        whole=whole,
    )


def hook_of(question: QuestionParams) -> Hook:
    """The call that a question is about, as far as its answer depends on it."""
    return Hook(
        client=question.client,
        name="question",
        moment="question",
        session="",
        cwd=question.cwd,
        kind=question.kind,
        command=question.command,
        paths=tuple(question.paths),
        url=question.url,
        unsandboxed=question.unsandboxed,
    )
