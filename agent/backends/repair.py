"""Repairs that a backend can make of a board that is out of service, and what came of them."""

from typing import Literal, Protocol

from msgspec import Struct

from gpudeck.contract.wire import GpuFacts


class ResetAnswer(Struct, frozen=True):
    """Answer to a reset. `message`: of the vendor's program, which is no proof: a reset is judged
    by reading again. `is_refused`: it says that nothing was done."""

    message: str
    is_refused: bool


class DiagnosisAnswer(Struct, frozen=True):
    """Answer to a diagnosis. `not_judged`: nothing ran, or only what says nothing about the
    board."""

    verdict: Literal["passed", "failed", "not_judged"]
    message: str


class RepairModule(Protocol):
    """Functions that block, and raise nothing: what goes wrong is an answer."""

    def reset_trouble(self, facts: GpuFacts) -> str:
        """Return why this board cannot be reset from here; "": perhaps it can."""

    def diagnosis_trouble(self) -> str: ...

    def holders(self, facts: GpuFacts) -> tuple[str, ...] | None:
        """Return the programs of others that have this board open, by name and pid; None: not to be
        known with our rights."""

    def reset(self, facts: GpuFacts) -> ResetAnswer: ...

    def diagnose(self, facts: GpuFacts, level: int) -> DiagnosisAnswer: ...
