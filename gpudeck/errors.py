"""Error of a command: its sentence and its exit code."""

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # it ran and the answer is no
    USAGE = 2  # a flag, a setting or an argument is wrong
    CANNOT_START = 3  # port in use, folder not writable, extra not installed
    UNREACHABLE = 4  # no hub there
    DENIED = 5  # the hub is there and says no
    # Outcomes of an action other than done; of several actions the worst.
    REFUSED = 10  # nothing was touched
    NOT_EFFECTIVE = 11  # it was done, and did not have its effect
    UNKILLABLE = 12  # still there 60 s after SIGKILL
    EXPIRED = 13  # it came too late; nothing was touched
    UNKNOWN = 14  # no answer: whether it was done is not known yet
    WAITING = 15  # for a second person
    # Of `gpudeck run`, the same as in shells.
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


class CommandError(Exception):
    """Error with a sentence for a person: what is wrong and what to do. Never shown as a
    traceback."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code

    def _render_traceback_(self) -> list[str]:
        """Return the text that IPython prints: in a notebook too, the sentence alone."""
        return [f"gpudeck: {self}"]


def run_as_program(command: Callable[[list[str]], int]) -> NoReturn:
    """Run a module's own command as `python -m` does, with the words of the command line."""
    try:
        sys.exit(command(sys.argv[1:]))
    except CommandError as error:
        print(f"gpudeck: {error}", file=sys.stderr)
        sys.exit(error.code)
