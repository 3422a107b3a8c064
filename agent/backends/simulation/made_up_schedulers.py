"""Slurm and Kubernetes of a simulated fleet: the jobs that its nodes show, some that hold GPUs
without a process, and some that wait. Pure; nothing can be asked of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpudeck.contract.kubernetes import KubernetesNode, KubernetesNow, KubernetesPod
from gpudeck.contract.slurm import SlurmJob, SlurmNode, SlurmNow, SlurmShare

from .chance import roll, seed_of
from .job_owners import owner_of
from .jobs import USERS, JobLane, SimulatedJob, jobs_at, lanes_of, node_number
from .world import SimulationOptions

CLUSTER = "simulated"
VERSION = "made up"
PARTITION = "gpu"
TURN_S = 8 * 3_600.0  # of those that hold GPUs without a process
WITHOUT_PROCESS_SHARE = 0.3  # of the GPUs on which nobody runs
LIMIT_S = 7 * 86_400.0
WAITING = (("Resources", 8), ("Priority", 4), ("JobHeldUser", 16))
_DRAINED = 8  # of each so many nodes one, with the reason that its operators gave

SimulatedNode = tuple[str, tuple[JobLane, ...], tuple[SimulatedJob, ...]]


def _nodes(of: SimulationOptions, at: float) -> Iterator[SimulatedNode]:
    places = tuple(map(str, range(of.gpus)))
    for name in of.cluster:
        yield name, lanes_of(of.seed, name, of.gpus), jobs_at(of.seed, name, places, at)


def slurm_now(of: SimulationOptions, at: float) -> SlurmNow:
    shares: dict[str, list[SlurmShare]] = defaultdict(list)
    first: dict[str, SimulatedJob] = {}
    idle: list[SlurmJob] = []
    nodes: list[SlurmNode] = []
    for name, lanes, jobs in _nodes(of, at):
        here = [(number, job) for job in jobs if (number := owner_of(name, job).slurm_job)]
        for number, job in here:
            first.setdefault(number, job)
            shares[number].append(SlurmShare(name, len(job.gpus)))
        without = [_without_process(name, lane, at)
                   for lane in _occupied_lanes(name, lanes, not idle)]
        idle += without
        allocated = sum(len(job.gpus) for _, job in here) + len(without)
        state = "ALLOCATED" if allocated == of.gpus else "MIXED" if allocated else "IDLE"
        is_out = node_number(name) % _DRAINED == 0
        nodes.append(SlurmNode(name, name, (state, "DRAIN") if is_out else (state,), of.gpus,
                               allocated, PARTITION, "fan 3 is loud" if is_out else ""))
    running = [_running(number, job, tuple(shares[number])) for number, job in first.items()]
    return SlurmNow(at, cluster=CLUSTER, version=VERSION, account="gpudeck", nodes=tuple(nodes),
                    jobs=(*running, *idle, *_waiting(of.seed, at)))


def _occupied_lanes(node: str, lanes: Sequence[JobLane], is_first: bool) -> Iterator[JobLane]:
    """Yield lanes that are held without a process. Of a small fleet one at least; the first node is
    left for people who look for a free GPU."""
    for lane in lanes:
        if lane.kind is None and node_number(node) != 1 and (
                is_first or roll(lane.seed, 71) < WITHOUT_PROCESS_SHARE):
            is_first = False
            yield lane


def _running(number: str, job: SimulatedJob, shares: tuple[SlurmShare, ...]) -> SlurmJob:
    words = job.command.split()
    name = next((word for word in words if word.endswith(".py")), words[0])
    return SlurmJob(int(number), number, "RUNNING", float(int(job.started_at) - 60), job.user,
                    name, "", PARTITION, job.started_at, LIMIT_S,
                    sum(share.gpus or 0 for share in shares), shares)


def _without_process(node: str, lane: JobLane, at: float) -> SlurmJob:
    began = at - (at + roll(lane.seed, 72) * TURN_S) % TURN_S
    seed = seed_of(lane.seed, "held", int(began))
    number = 100_000 + seed % 900_000
    return SlurmJob(number, str(number), "RUNNING", float(int(began) - 5), _user(seed),
                    "interactive", "", PARTITION, began, LIMIT_S, lane.width,
                    (SlurmShare(node, lane.width),))


def _waiting(home: int, at: float) -> Iterator[SlurmJob]:
    for place, (reason, gpus) in enumerate(WAITING):
        turn = int(at // TURN_S)
        seed = seed_of(home, "waits", place, turn)
        number = 100_000 + seed % 900_000
        yield SlurmJob(number, str(number), "PENDING", turn * TURN_S, _user(seed), "train.py",
                       reason, PARTITION, None, LIMIT_S, gpus)


def _user(seed: int) -> str:
    return USERS[int(roll(seed, 73) * (len(USERS) - 2))]


def kubernetes_now(of: SimulationOptions, at: float) -> KubernetesNow:
    pods: list[KubernetesPod] = []
    nodes: list[KubernetesNode] = []
    for name, _, jobs in _nodes(of, at):
        here = [pod for job in jobs if (pod := _pod(name, job)) is not None]
        pods += here
        if here:
            allocated = sum(pod.gpus or 0 for pod in here)
            nodes.append(KubernetesNode(name, of.gpus, allocated))
    waits = KubernetesPod(f"{seed_of(of.seed, 'pod'):016x}", "inference", "vllm-canary-0",
                          "Pending", 4, controller="StatefulSet/vllm-canary",
                          reason="Unschedulable")
    return KubernetesNow(at, server=f"{CLUSTER} ({VERSION})", version=VERSION,
                         pods=(*pods, waits), nodes=tuple(nodes))


def _pod(node: str, job: SimulatedJob) -> KubernetesPod | None:
    owner = owner_of(node, job)
    if owner.pod is None or owner.namespace is None:
        return None
    made_by = owner.pod.rpartition("-")[0]
    return KubernetesPod(
        f"{job.seed % 2**64:016x}", owner.namespace, owner.pod, "Running", len(job.gpus),
        node=node, controller=f"ReplicaSet/{made_by}" if job.kind == "serve" else "",
        started_at=job.started_at)
