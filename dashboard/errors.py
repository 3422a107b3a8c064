"""Errors that more than one capability raises or handles."""



class InvalidChangeError(Exception):
    """A condition of the change does not hold; the sentence says which."""


class NotFoundError(InvalidChangeError):
    """There is none of that name."""


class AlreadyExistsError(InvalidChangeError):
    """There is one of that name already."""


class ResultTooLargeError(Exception):
    """The answer would be larger than anyone can read; says what to ask instead."""


class UnknownMetricError(Exception):
    """History keeps no metric of that name."""


class SignerUnavailableError(Exception):
    """The signer does not answer and is being restarted."""


class AuditWriteError(Exception):
    """The Audit cannot be written, so what was to be recorded must not happen."""
