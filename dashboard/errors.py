"""Errors that more than one capability raises or handles."""

import errno


class InvalidChangeError(Exception):
    """A condition of the change does not hold; the sentence says which."""


class NotFoundError(InvalidChangeError):
    """The named object does not exist."""


class AlreadyExistsError(InvalidChangeError):
    """An object with this name exists already."""


class ArchiveAwayError(OSError):
    """A file of history is in the archive, which cannot be reached. That does not make the file
    damaged."""

    def __init__(self, words: str) -> None:
        super().__init__(errno.EAGAIN, words)

    def __str__(self) -> str:
        return str(self.strerror)


class ResultTooLargeError(Exception):
    """The answer would be too large to read; the message says what to ask instead."""


class UnknownMetricError(Exception):
    """History keeps no metric of that name."""


class RecoveringError(Exception):
    """The hub does not know the answer yet after a restart; `retry_s`: when to ask again."""

    def __init__(self, sentence: str, retry_s: float) -> None:
        super().__init__(sentence)
        self.retry_s = retry_s


class SignerUnavailableError(Exception):
    """The signer does not answer and is being restarted."""


class AuditWriteError(Exception):
    """The audit log cannot be written, so the action to be recorded must not happen."""
