"""Which launch a process is a rank of, from its environment. Pure.

Ranks of one launch share a text, on all its Nodes. Only what a launcher itself sets is believed,
and an address that means another machine on each Node never joins two of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NAMES = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE",
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME",
)
RANK_MAX = 2**31 - 1
# A step above it is none: the batch script itself, or what sees to the step.
STEP_MAX = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Launch:
    name: str | None = None
    rank: int | None = None


def launch_of(env: Mapping[str, str], machine: str, namespace: str | None = None) -> Launch:
    """`machine`: where the process's own addresses mean something, and nowhere else; `namespace`:
    of its pod, within which a name that is no address does."""
    for find in (_torch, _open_mpi, _slurm, _hydra):
        found = find(env, machine, namespace)
        if found.rank is not None:
            return found
    return Launch()


def _torch(env: Mapping[str, str], machine: str, namespace: str | None) -> Launch:
    """torchrun, and whoever else sets what torch.distributed reads: accelerate, deepspeed,
    PyTorchJob."""
    address, port = env.get("MASTER_ADDR", ""), _number(env, "MASTER_PORT")
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if not address or port is None or rank is None or size is None or size < 2:
        return Launch()
    run = env.get("TORCHELASTIC_RUN_ID", "")
    tail = f":{port}/{run}" if run else f":{port}"
    if _is_loopback(address) or _number(env, "LOCAL_WORLD_SIZE") == size:
        return Launch(f"torchrun {address}{tail} on {machine}", rank)
    where = address if "." in address or namespace is None else f"{namespace}/{address}"
    return Launch(f"torchrun {where}{tail}", rank)


def _open_mpi(env: Mapping[str, str], machine: str, namespace: str | None) -> Launch:
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    job = env.get("PMIX_NAMESPACE", "")
    return Launch(f"mpirun {job}" if job and (size or 0) > 1 else None, rank)


def _slurm(env: Mapping[str, str], machine: str, namespace: str | None) -> Launch:
    """A step of srun; in the batch script the same variables speak of the script."""
    rank, tasks = _number(env, "SLURM_PROCID"), _number(env, "SLURM_NTASKS")
    job, step = _number(env, "SLURM_JOB_ID"), _number(env, "SLURM_STEP_ID", STEP_MAX)
    if rank is None or job is None or step is None or (tasks or 0) < 2:
        return Launch()
    cluster = env.get("SLURM_CLUSTER_NAME", "")
    return Launch(f"slurm {cluster + ' ' if cluster else ''}{job}.{step}", rank)


def _hydra(env: Mapping[str, str], machine: str, namespace: str | None) -> Launch:
    """MPICH and Intel MPI tell the rank alone."""
    return Launch(None, _number(env, "PMI_RANK") if (_number(env, "PMI_SIZE") or 0) > 1 else None)


def _is_loopback(address: str) -> bool:
    return (address.lower() in ("localhost", "::1", "ip6-localhost", "0.0.0.0")
            or address.startswith(("127.", "localhost.")))


def _number(env: Mapping[str, str], name: str, most: int = RANK_MAX) -> int | None:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        return None
    return int(text) if int(text) <= most else None
