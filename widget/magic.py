"""`%%gpu`: the cost of this cell."""

from typing import Any

from .agent_source import source_of
from .measurement import Measure


class CellFailedError(Exception):
    """The cell failed: its own error is shown already; this one keeps the next cells from
    running."""

    def _render_traceback_(self) -> list[str]:
        return ["%%gpu: the cell failed, see above"]


def load(shell: Any) -> None:
    shell.register_magic_function(_gpu_of(shell), "cell", "gpu")
    source_of(None)  # it starts now, which takes a second, rather than in the first cell


def unload(shell: Any) -> None:
    shell.magics_manager.magics["cell"].pop("gpu", None)


def _gpu_of(shell: Any) -> Any:
    def gpu(line: str, cell: str) -> None:
        """%%gpu [name]: runs the cell and says what it cost; `name` holds the measure after it."""
        name = line.strip()
        if name and not name.isidentifier():
            raise ValueError(f"%%gpu {name}: a name for the measure is needed, or nothing")
        with Measure() as measured:
            outcome = shell.run_cell(cell)
        if name:
            shell.push({name: measured})
        from IPython.display import display

        display(measured)
        if not outcome.success:
            raise CellFailedError

    return gpu
