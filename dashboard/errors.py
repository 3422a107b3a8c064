"""Errors that more than one capability raises or handles."""

import errno


class InvalidChangeError(Exception):
    """A condition of the change does not hold; the sentence says which."""


class NotFoundError(InvalidChangeError):
    """There is none of that name."""


class AlreadyExistsError(InvalidChangeError):
    """There is one of that name already."""


class ArchiveAwayError(OSError):
    """A file of history is elsewhere, and cannot be had now. That says nothing of the file."""

    def __init__(self, words: str) -> None:
        super().__init__(errno.EAGAIN, words)

    def __str__(self) -> str:
        return str(self.strerror)


class ResultTooLargeError(Exception):
    """The answer would be larger than anyone can read; says what to ask instead."""


class UnknownMetricError(Exception):
    """History keeps no metric of that name."""


class RecoveringError(Exception):
    """What is asked for is not known yet after a restart; `retry_s`: when to ask again."""

    def __init__(self, sentence: str, retry_s: float) -> None:
        super().__init__(sentence)
        self.retry_s = retry_s


class SignerUnavailableError(Exception):
    """The signer does not answer and is being restarted."""


class AuditWriteError(Exception):
    """The Audit cannot be written, so what was to be recorded must not happen."""
