"""Pictures of what is asked: each is there for as long as its question is open, and no longer."""

from collections.abc import Iterable

import msgspec

from bascule.kernel.consent.ports import Pictures
from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.journal_ports import Log


class QuestionPictures:
    def __init__(self, files: Pictures | None, log: Log) -> None:
        # Without a place for them questions have none: the words of a preview are complete.
        self._files = files
        self._log = log

    def added(self, approval_id: str, question: Question, png: bytes) -> Question:
        if self._files is None:
            return question
        try:
            path = self._files.save(approval_id, png)
        except OSError as error:
            # A full disk must not keep a person from being asked; its commit shows whether the question fits.
            self._log("picture_not_kept", level="warning", approval=approval_id, error=error.strerror)
            return question
        return msgspec.structs.replace(question, picture=path)

    def read(self, question: Question) -> bytes | None:
        """Blocking."""
        return self._files.read(question.picture) if self._files is not None and question.picture is not None else None

    def follow(self, old: Approval | None, new: Approval | None) -> None:
        """A picture goes with the last question that names it."""
        path = old.question.picture if old is not None else None
        if self._files is not None and path is not None and (new is None or new.question.picture != path):
            self._files.remove(path)

    def keep_only(self, approvals: Iterable[Approval]) -> None:
        """At start: what a life that ended badly left behind is removed."""
        if self._files is not None:
            self._files.keep_only({each.question.picture for each in approvals if each.question.picture is not None})
