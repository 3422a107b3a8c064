"""One reading process as the agent holds it: its pipes, its messages, and how it is ended."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, cast

from gpudeck.child_processes import importable, without_tokens
from gpudeck.wire import ReaderState

from .messages import ReaderMessage, ReaderMessageDecoder

PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class ReaderTimeouts:
    start_s: float = 30.0  # a first nvmlInit without persistence mode takes seconds per board
    answer_s: float = 5.0  # beyond the due time
    stuck_s: float = 60.0  # before a hung child may be killed, and between two replacements
    stuck_max: int = 3
    back_off_s: tuple[float, float] = (1.0, 30.0)


@dataclass(slots=True, eq=False)
class ReaderChild:
    process: "subprocess.Popen[bytes]"
    started_at: float
    answered_at: float | None = None
    hung_at: float | None = None
    killed: bool = False
    leaves: bool = False  # it was told to let go of the driver
    open_pipes: int = 2  # stdout and stderr
    silent_at: float = 0.0  # when one of them was closed
    told: ReaderState | None = None  # the last state it reported itself
    asked: int = 0  # for a Fresh list
    fresh: ReaderMessage | None = None  # the newest
    answers: ReaderMessageDecoder = field(default_factory=ReaderMessageDecoder)
    last_words: str = ""

    def due_at(self, patience: ReaderTimeouts) -> float:
        if self.answered_at is None:
            return self.started_at + patience.start_s
        return self.answered_at + PERIOD_S + patience.answer_s

    def ask(self) -> bool:
        """For a Fresh list."""
        try:
            is_asked = self.stdin.write(b"f") == 1
        except (OSError, ValueError):  # it has just ended
            return False
        self.asked += is_asked
        return is_asked

    def let_go(self) -> None:
        """It leaves by itself."""
        self.stdin.close()

    @property
    def stdin(self) -> IO[bytes]:
        return cast(IO[bytes], self.process.stdin)


class ReaderStartup:
    """A process that is being started, on a thread: whoever starts one waits until its program is
    read, and the disk that it is on may hang."""

    def __init__(self, command: Sequence[str], call: Callable[[], None]) -> None:
        """`call`: when it is done."""
        self.process: subprocess.Popen[bytes] | None = None
        self.why = ""
        self.done = threading.Event()
        self._command, self._call = command, call
        threading.Thread(target=self._start, name="reader-start", daemon=True).start()

    def _start(self) -> None:
        try:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env=child_environment(os.environ), start_new_session=True,
                bufsize=0)
            assert self.process.stdin is not None
            # One that hangs must not hang who asks.
            os.set_blocking(self.process.stdin.fileno(), False)
        except OSError as error:
            self.why = error.strerror or str(error)
        self.done.set()
        self._call()


def child_environment(env: "os._Environ[str]") -> dict[str, str]:
    return importable(__package__, without_tokens(env))
