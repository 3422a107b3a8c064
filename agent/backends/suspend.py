"""Suspension of processes by a vendor's program: memory on the GPU goes to the host, and back."""

from typing import Literal, Protocol

Step = Literal["lock", "checkpoint", "restore", "unlock"]
ProcessState = Literal["running", "locked", "checkpointed", "failed"]
# The state of a process after each step. Nothing else is a success.
AFTER: dict[Step, ProcessState] = {"lock": "locked", "checkpoint": "checkpointed",
                                   "restore": "locked", "unlock": "running"}


class SuspendModule(Protocol):
    """Functions that block, and raise nothing: what goes wrong is an answer."""

    def trouble(self, driver: str | None) -> str:
        """Return why nothing can be suspended here with this driver; "": perhaps it can."""

    def takes_several(self, driver: str | None) -> bool:
        """Return whether a job of several processes on GPUs can be suspended."""

    def state_of(self, pid: int) -> ProcessState | None:
        """Return the state of a process; None: it could not be learned."""

    def take(self, step: Step, pid: int) -> str:
        """Take a step; return what went wrong. "" proves nothing: ask for the state."""
