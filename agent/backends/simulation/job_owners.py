"""Owners of simulated jobs: Slurm, pods, containers, notebooks and launches, as a real cluster has
them. Pure, from the job's seed."""

from functools import lru_cache
from uuid import UUID

from ...readings import Owner
from .chance import roll, seed_of
from .jobs import SYNTHETIC_PID_FROM, USERS, SimulatedJob, twin_of

BOOKS = ("explore", "tokenizer", "eval-llama3", "attention-maps", "sdxl-prompts", "scratch",
         "data-cleaning", "protein-folds")
DEPLOYMENTS = ("vllm-llama3", "vllm-mistral", "triton-rerank", "tei-embed")


@lru_cache(maxsize=20_000)
def owner_of(node: str, job: SimulatedJob) -> Owner:
    uid = 1_000 + USERS.index(job.user) if job.user in USERS else None
    if job.is_leased:
        return Owner(uid=uid)
    part = roll(job.seed, 61)
    if job.kind == "serve":
        return _pod(job, uid)
    if job.kind == "notebook":
        book = BOOKS[int(roll(job.seed, 62) * len(BOOKS))]
        return Owner(uid=uid, notebook=f"/home/{job.user}/notebooks/{book}.ipynb",
                     pod=f"jupyter-{job.user.replace('.', '-')}" if part < 0.4 else None,
                     namespace="jupyterhub" if part < 0.4 else None)
    if job.kind == "train" and (len(job.gpus) > 1 or _is_rank(job)):
        return _launch(node, job, uid)
    if part < 0.5:
        return _slurm(job, uid)
    if part < 0.75:
        container = _hexadecimal(job.seed, 64)
        return Owner(uid=uid, container=container, container_name=f"{job.user}-dev",
                     manager=_managed(job, f"container {container[:12]}"))
    return Owner(uid=uid)


def _pod(job: SimulatedJob, uid: int | None) -> Owner:
    name = DEPLOYMENTS[int(roll(job.seed, 62) * len(DEPLOYMENTS))]
    digits = _hexadecimal(job.seed, 32)
    return Owner(uid=uid, pod=f"{name}-{digits[:10]}-{digits[10:15]}", namespace="inference",
                 container=_hexadecimal(job.seed + 1, 64), container_name=name.partition("-")[0],
                 manager=_managed(job, f"pod {UUID(digits)}"))


def _launch(node: str, job: SimulatedJob, uid: int | None) -> Owner:
    """Return the owner in a launch. The ranks of a twin go on where the other's end."""
    run, at = f"{seed_of(job.seed, 'run') % 16**8:08x}", twin_of(node)
    port = 29_500 + seed_of(job.seed, "port") % 100
    head = f"10.0.{seed_of(job.seed, 'head') % 250}.11" if at is not None else "127.0.0.1"
    where = "" if at is not None else f" on {node}"
    owner = _slurm(job, uid) if at is not None or roll(job.seed, 63) < 0.6 else Owner(uid=uid)
    return Owner(uid=uid, slurm_job=owner.slurm_job, manager=owner.manager,
                 launch=f"torchrun {head}:{port}/{run}{where}",
                 rank=job.rank + (at or 0) * 8 if _is_rank(job) else None)


def _is_rank(job: SimulatedJob) -> bool:
    """Return whether its job's first process is another one, the launcher."""
    return job.job_id is not None and f"-{job.pid}-" not in job.job_id


def _slurm(job: SimulatedJob, uid: int | None) -> Owner:
    number = str(100_000 + seed_of(job.seed, "slurm") % 900_000)
    return Owner(uid=uid, slurm_job=number, manager=_managed(job, f"slurm job {number}"))


def _managed(job: SimulatedJob, manager: str) -> str | None:
    """Return the manager of a made-up job. No workload manager owns the real processes of a demo,
    so actions on them are possible."""
    return manager if job.pid >= SYNTHETIC_PID_FROM else None


def _hexadecimal(seed: int, digits: int) -> str:
    return "".join(f"{seed_of(seed, 'hex', at):016x}" for at in range(digits // 16))
