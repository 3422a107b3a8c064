"""Entry points of gpudeck in a notebook: `watch()`, `claim()`, `%%gpu`, `measure()`, `connect()`;
see docs/notebook.md."""

from typing import TYPE_CHECKING, Any

from .hub import connect
from .measurement import measure

if TYPE_CHECKING:
    from .claim_widget import ClaimWidget
    from .live_widget import Watch

__all__ = ["claim", "connect", "load_ipython_extension", "measure", "unload_ipython_extension",
           "watch"]


def watch(hub: str | None = None, token: str | None = None, *, simulate: str | None = None,
          ca_file: str | None = None) -> "Watch":
    """Return a live widget: this machine's GPUs, or with `hub` and `token` a fleet's. On a machine
    without a GPU, `simulate="h100x2"` shows two that are made up."""
    try:
        from .live_widget import watch_fleet, watch_here
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"watch() needs {error.name}; run: pip install 'gpudeck[notebook]'") from error
    if hub is None:
        return watch_here(simulate)
    if simulate is not None:
        raise ValueError("a hub has its own fleet; leave `simulate` out")
    return watch_fleet(hub, token, ca_file)


def claim(gpus: int = 1, *, model: str = "", mem: str | None = None, share: int | None = None,
          term: str | None = None, wait: str | None = None, priority: int | None = None,
          preemptible: bool = False, suspendable: bool = False, cpus: int | None = None,
          ram: str | None = None) -> "ClaimWidget":
    """Claim GPUs of this machine for this kernel: the cell waits until they are there, and they go
    back when the kernel ends. Call it before anything uses CUDA. With `preemptible`, claims of
    higher priority may take them back; with `suspendable` as well, the kernel is suspended for that
    instead of ended, where its node can."""
    from gpudeck.pool.claim import claim_request

    from .claim_widget import ClaimWidget

    return ClaimWidget(claim_request(gpus, model, mem, share, term, wait, priority, preemptible,
                                     suspendable, cpus, ram))


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpudeck.notebook`"""
    from .magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    from .magic import unload

    unload(shell)
