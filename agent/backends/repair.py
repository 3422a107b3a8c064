"""What a backend can do about a board that is out of service, and what came of it."""

from typing import Literal, Protocol

from msgspec import Struct

from gpudeck.wire import GpuFacts


class ResetAnswer(Struct, frozen=True):
    """`said`: by the vendor's program, which is no proof: a reset is judged by reading again.
    `refused`: it says that nothing was done."""

    said: str
    is_refused: bool


class DiagnosisAnswer(Struct, frozen=True):
    """`not_judged`: nothing ran, or only what says nothing about the board."""

    verdict: Literal["passed", "failed", "not_judged"]
    said: str


class RepairModule(Protocol):
    """Its functions block, and raise nothing: what goes wrong is an answer."""

    DIAGNOSIS_LEVELS: tuple[int, ...]

    def reset_trouble(self, facts: GpuFacts) -> str:
        """Why this board cannot be reset from here; "": perhaps it can."""

    def diagnosis_trouble(self) -> str: ...

    def holders(self, facts: GpuFacts) -> tuple[str, ...] | None:
        """Programs of others that have this board open, by name and pid; None: not to be known
        with our rights."""

    def reset(self, facts: GpuFacts) -> ResetAnswer: ...

    def diagnose(self, facts: GpuFacts, level: int) -> DiagnosisAnswer: ...
