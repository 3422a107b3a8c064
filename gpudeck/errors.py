"""What a command says and returns when it cannot do what was asked."""

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # it ran and the answer is no
    USAGE = 2  # a flag, a setting or an argument is wrong
    CANNOT_START = 3  # port in use, folder not writable, extra not installed
    UNREACHABLE = 4  # no hub there
    DENIED = 5  # the hub is there and says no


class CommandError(Exception):
    """One sentence for a person: what is wrong and what to do. Never shown as a traceback."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code
