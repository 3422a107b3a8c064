"""Owner of a process beyond its user: what manages it, which launch and notebook it is of. Pure.

All of it was said by others and is cut to what the wire takes; nothing here decides an act.

Ranks of one launch share a text, on all its Nodes. Only what a launcher itself sets is believed,
and an address that means another machine on each Node never joins two of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..readings import Owner
from .managers import IN_POD, POD_NAMES, SCHEDULER_VARIABLES, CgroupMembership
from .redact import redact
from .wire_text import TEXT_MAX, cut

SESSION = "JPY_SESSION_NAME"  # set by Jupyter Server since 2.0: the file, as the server sees it
# `python -m ipykernel_launcher -f .../kernel-UUID.json`; VS Code writes --f=.../kernel-v2-….json.
KERNEL_FILE = re.compile(r"(?:^|/|=)kernel-([\w.-]{1,64}?)\.json$")
KERNELS = ("ipykernel", "colab_kernel", "xpython", "xeus", "IRkernel", "bash_kernel", "julia",
           "evcxr", "almond")


def notebook_of(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return its file, or the kernel's id where that is not known; None: it is no kernel. A child
    of a kernel has the kernel's environment, and is none itself."""
    kernel = _kernel(words)
    if kernel is None:
        return None
    return env.get(SESSION, "").strip() or f"kernel {kernel}"


def _kernel(words: Sequence[str]) -> str | None:
    if not any(name in word for word in words[:6] for name in KERNELS):
        return None
    matches = (KERNEL_FILE.search(word) for word in words[1:])
    return next((match[1] for match in matches if match), None)


LAUNCH_VARIABLES = (
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
        launch = find(env, machine, namespace)
        if launch.rank is not None:
            return launch
    return Launch()


def _torch(env: Mapping[str, str], machine: str, namespace: str | None) -> Launch:
    """torchrun and other launchers that set the variables of torch.distributed:
    accelerate, deepspeed,
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
    """Return the rank alone: MPICH and Intel MPI set no more."""
    return Launch(None, _number(env, "PMI_RANK") if (_number(env, "PMI_SIZE") or 0) > 1 else None)


def _is_loopback(address: str) -> bool:
    return (address.lower() in ("localhost", "::1", "ip6-localhost", "0.0.0.0")
            or address.startswith(("127.", "localhost.")))


def _number(env: Mapping[str, str], name: str, most: int = RANK_MAX) -> int | None:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        return None
    return int(text) if int(text) <= most else None


# The only variables that are read of a process; only these names are sent as they are.
VARIABLES = frozenset((*LAUNCH_VARIABLES, *(name for _, name, _ in SCHEDULER_VARIABLES), SESSION,
                       IN_POD, *POD_NAMES, "POD_NAMESPACE"))


@dataclass(frozen=True, slots=True)
class WorkloadNames:
    """Names of a container and a pod, as far as this machine has them; see containers.py."""

    container: str | None = None
    pod: str | None = None
    namespace: str | None = None


NO_NAMES = WorkloadNames()


def owner_of(
    place: CgroupMembership, words: Sequence[str], env: Mapping[str, str], machine: str,
    names: WorkloadNames = NO_NAMES,
) -> Owner:
    """`words` of its command line; `machine` tells this one from all others."""
    pod, namespace = names.pod, names.namespace
    if place.pod_uid is not None or IN_POD in env:
        pod = pod or env.get("POD_NAME") or (env.get("HOSTNAME") if IN_POD in env else None)
        namespace = namespace or env.get("POD_NAMESPACE")
    if place.container is not None:  # it has addresses of its own
        machine = f"{machine}/{place.container[:12]}"
    launch = launch_of(env, machine, namespace)
    notebook = notebook_of(words, env)
    return Owner(
        manager=place.manager, container=cut(place.container),
        container_name=cut(names.container), pod=cut(pod or place.pod_uid),
        namespace=cut(namespace), slurm_job=cut(place.slurm_job or _job(env)),
        unit=cut(place.unit or place.user_unit),
        notebook=cut(None if notebook is None else redact(notebook), TEXT_MAX),
        launch=cut(launch.name, TEXT_MAX), rank=launch.rank,
    )


def _job(env: Mapping[str, str]) -> str | None:
    """Return the job by its variable, for a Slurm that makes no cgroups."""
    job = env.get("SLURM_JOB_ID", "")
    return job if job.isascii() and job.isdigit() and len(job) < 19 else None
