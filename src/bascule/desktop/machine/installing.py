"""What is common to everything that a person has put into their desktop for our host."""


class CannotInstall(Exception):
    """What is missing, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
