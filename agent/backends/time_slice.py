"""Length of the time slices that tasks on one GPU take in turn."""

from typing import Protocol

from gpudeck.contract.limits import SliceLength


class TimeSliceModule(Protocol):
    """Functions that block, and raise nothing: what goes wrong is an answer."""

    def trouble(self) -> str:
        """Return why it cannot be set here; "": perhaps it can."""

    def read(self, uuid: str) -> SliceLength | None:
        """Return the length in force; None: it cannot be read."""

    def set_length(self, uuid: str, length: SliceLength) -> str:
        """Set the length; return why not. "" proves nothing."""
