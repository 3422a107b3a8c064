"""Questions to NVML about one GPU: what a refusal means, and whether to ask again (A.1)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pynvml

from gpudeck.measures.metrics import DENIED, UNKNOWN, UNSUPPORTED, Absence

from .errors import NEVER, NO_DRIVER, unavailable

# Somebody may give us the right meanwhile.
DENIED_ASKED_EVERY_S = 600.0
# MIG mode takes readings away from a board and gives them back.
WITHDRAWN_ASKED_EVERY_S = 60.0


class GpuLostError(Exception):
    """The driver has lost this GPU; the others still answer."""


class NvmlCall(NamedTuple):
    name: str
    arguments: tuple[Any, ...] = ()
    take: Callable[[Any], Any] = lambda answer: answer
    scale: float = 1.0


class NvmlDevice:
    """A GPU's handle, and what this driver will not answer about it. A fresh driver means a fresh
    process, which has forgotten."""

    def __init__(self, handle: Any, uuid: str) -> None:
        self.handle = handle  # None: lost before we had one, or to be asked for again
        self._is_doubted = False
        self.asleep = self.needs_reset = False
        self.uuid = uuid
        self.now = 0.0  # of the reading that is being made
        self._refusals: dict[Any, tuple[Absence, float]] = {}  # until when
        self._answered_questions: set[Any] = set()

    def ask(self, name: Any, *arguments: Any, question: Any = None) -> Any:
        """Return the answer of this pynvml function (its name, or one of our own), or an Absence.
        `question` is what a refusal is remembered by, where the arguments change from call to
        call."""
        key = question or (name, *arguments)
        refusal = self._refusals.get(key)
        if refusal is not None and self.now < refusal[1]:
            return refusal[0]
        if self.handle is None:
            self._reopen()
        try:
            call = getattr(pynvml, name) if isinstance(name, str) else name
            answer = call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            return self.refuse(key, error.value, varies=question is not None)
        except (pynvml.NVMLLibraryMismatchError, AttributeError):
            return self.refuse(key, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self._answered_questions.add(key)
        return answer

    def call(self, call: NvmlCall) -> Any:
        return map_answer(self.ask(call.name, *call.arguments), call.take)

    def first(self, *names: str, arguments: Sequence[Any] = (), varies: bool = False) -> Any:
        """Return the answer of the first of these that this driver has: newer and older names of
        one thing. `varies`: with other arguments each time."""
        answer: Any = UNSUPPORTED
        for name in names:
            answer = self.ask(name, *arguments, question=name if varies else None)
            if answer is not UNSUPPORTED:
                break
        return answer

    def standing_refusal(self, question: Any) -> Absence | None:
        """Return why there is no point in asking this now; None: it may be asked."""
        refusal = self._refusals.get(question)
        return refusal[0] if refusal is not None and self.now < refusal[1] else None

    def note_answer(self, question: Any) -> None:
        self._answered_questions.add(question)

    def refuse(self, question: Any, code: int, varies: bool = False) -> Absence:
        """Return what this error means, and remember it where it would only come again."""
        was_answered = question in self._answered_questions
        if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            # Some enum that this driver does not know; unless the argument is another each time,
            # or it was right once: then it is this one, or the handle, that is bad.
            if varies or was_answered:
                self._is_doubted |= was_answered
                return UNKNOWN
            why = UNSUPPORTED
        else:
            why = self.why(code)
        if why is DENIED:
            self._refusals[question] = why, self.now + DENIED_ASKED_EVERY_S
        elif why is UNSUPPORTED:
            until = self.now + WITHDRAWN_ASKED_EVERY_S if was_answered else math.inf
            self._refusals[question] = why, until
        return why

    def why(self, code: int) -> Absence:
        self.needs_reset |= code == pynvml.NVML_ERROR_RESET_REQUIRED
        if code == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise GpuLostError
        if code in NO_DRIVER:
            raise unavailable(code)
        return NEVER.get(code, UNKNOWN)

    def begin(self, now: float) -> None:
        """Begin a reading; with a new handle, where the old one was called a bad argument."""
        self.now, self.needs_reset = now, False
        if self._is_doubted:
            self.handle, self._is_doubted = None, False

    def doubt(self) -> None:
        """Doubt the handle: a reset makes handles worthless."""
        self._is_doubted = True

    def forget(self) -> None:
        """Forget all refusals: a reset, or MIG, may have changed what it can do."""
        self._refusals.clear()
        self._answered_questions.clear()

    def _reopen(self) -> None:
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
        except pynvml.NVMLError:
            raise GpuLostError from None


def map_answer(answer: Any, take: Callable[[Any], Any]) -> Any:
    """Return what `take` makes of an answer; an Absence stays one."""
    return answer if type(answer) is Absence else take(answer)
