"""Jobs of a node at any moment, from the seed alone: who runs what where.

A node's GPUs are divided into lanes. Wall time is divided, lane by lane, into turns; a turn holds
one job, with a pause before it. So the jobs of any moment are found without walking through the
past, and a restart at the same time finds the same jobs.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from .chance import between, roll, seed_of

Kind = Literal["train", "finetune", "serve", "notebook", "hog"]

# A pid the kernel can never give: pid_max is at most 2^22. Nobody can signal a stranger by it.
SYNTHETIC_PID_FROM = 4_200_000
TICKS_PER_S = 100

USERS = ("alice", "bohdan", "chen.wei", "dilara", "emeka", "fatima", "giulia", "hiro", "ines",
         "jonas", "kavya", "lucia", "svc-inference", "svc-nightly")


class SimulatedJob(Struct, frozen=True):
    """A process on one or more GPUs of a node; of a job with ranks, one of them."""

    pid: int
    start_ticks: int
    kind: Kind
    seed: int
    gpus: tuple[str, ...]  # UUIDs
    mem_share: float  # of each of its GPUs
    user: str
    command: str
    started_at: float  # of its process
    working_since: float  # what its epochs count from; a job found running is well under way
    rank: int = 0
    job_id: str | None = None  # the id of the first process of its tree; None: made up
    workers: tuple[int, ...] = ()  # pids of its children, which hold no GPU
    ignores_sigterm: bool = False
    is_leased: bool = False  # started by `gpudeck run`, so by no scheduler and in no container


@dataclass(frozen=True, slots=True)
class JobLane:
    seed: int
    first: int
    width: int
    kind: Kind | None  # None: nobody runs here
    pauses: bool = True  # between one job and the next


@dataclass(frozen=True, slots=True)
class JobTurn:
    """Turn of a lane, with what it holds from `begins_at` to `ends_at`."""

    seed: int
    kind: Kind
    begins_at: float
    ends_at: float


# How long a turn lasts, how much of it is the pause before the job.
TURN_S: dict[Kind, tuple[float, float]] = {
    "train": (6 * 3600, 0.03),
    "finetune": (70 * 60, 0.10),
    "serve": (48 * 3600, 0.002),
    "notebook": (3 * 3600, 0.15),
    "hog": (20 * 3600, 0.01),
}
MEM_SHARE: dict[Kind, tuple[float, float]] = {
    "train": (0.72, 0.95), "finetune": (0.45, 0.9), "serve": (0.86, 0.92),
    "notebook": (0.06, 0.45), "hog": (0.55, 0.93),
}
# Of the hogs elsewhere: waste, but not worth an alert each in a large fleet.
SMALL_HOG = 0.12, 0.45
CONFIGS = ("llama3-8b", "llama3-70b-lora", "mixtral-8x7b", "vit-huge", "whisper-large-v3",
           "sdxl-base", "esm2-3b", "gemma2-27b")
MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mistral-7B-v0.3", "Qwen/Qwen2.5-32B",
          "google/gemma-2-9b-it")

# Widths and kinds of the lanes. The first node always shows one of everything.
SHOWCASE: tuple[tuple[int, Kind | None], ...] = (
    (4, "train"), (1, "serve"), (1, "hog"), (1, "notebook"), (1, None),
)
# The second and third node share one job, as a launch over several nodes does.
TWINS: tuple[tuple[int, Kind | None], ...] = ((8, "train"),)
LAYOUTS: tuple[tuple[tuple[int, Kind | None], ...], ...] = (
    ((8, "train"),),
    ((8, "train"),),
    ((4, "train"), (4, "train")),
    ((4, "train"), (2, "serve"), (1, "finetune"), (1, None)),
    ((2, "serve"), (2, "serve"), (2, "serve"), (1, "serve"), (1, None)),
    ((2, "train"), (1, "finetune"), (1, "finetune"), (1, "notebook"), (1, "notebook"), (1, "hog"),
     (1, None)),
    ((1, "finetune"), (1, "finetune"), (2, "train"), (1, "notebook"), (1, None), (1, None),
     (1, "serve")),
    ((1, "notebook"), (1, "notebook"), (1, "hog"), (1, "finetune"), (1, None), (1, None),
     (1, "finetune"), (1, None)),
)


def node_number(node: str) -> int:
    """Return the number at the end of the name; 0 where there is none."""
    digits = node[len(node.rstrip("0123456789")):]
    return int(digits) if digits else 0


def twin_of(node: str) -> int | None:
    """Return which part of the launch over two nodes it runs; None: its jobs are not part of it."""
    return {2: 0, 3: 1}.get(node_number(node))


# Of a MIG instance, which holds no job of several GPUs.
INSTANCE_KINDS: tuple[Kind | None, ...] = (
    "notebook", "serve", None, "finetune", "notebook", "hog", "notebook", None, "finetune")


@lru_cache(maxsize=4096)
def lanes_of(seed: int, node: str, gpus: int, instances: int = 0) -> tuple[JobLane, ...]:
    """Return the lanes, over the whole GPUs first, and then over the MIG instances."""
    home = seed_of(seed, "twins" if twin_of(node) is not None else node, "lanes")
    lanes: list[JobLane] = []
    at = 0
    while at < gpus:
        for width, kind in _layout(home, node, at // 8):
            width = min(width, gpus - at)
            if width > 0:
                pauses = not _is_showcase(node, at // 8)
                lanes.append(JobLane(seed_of(home, at), at, width, kind, pauses))
                at += width
    own = seed_of(seed, node, "instances")  # no launch over two nodes reaches these
    lanes += (_instance_lane(own, node, gpus, number) for number in range(instances))
    return tuple(lanes)


def _instance_lane(home: int, node: str, gpus: int, number: int) -> JobLane:
    first = 0 if _is_showcase(node, 0) else int(roll(home, -3) * len(INSTANCE_KINDS))
    kind = INSTANCE_KINDS[(first + number) % len(INSTANCE_KINDS)]
    return JobLane(seed_of(home, number), gpus + number, 1, kind, not _is_showcase(node, 0))


def _layout(home: int, node: str, shelf: int) -> tuple[tuple[int, Kind | None], ...]:
    if _is_showcase(node, shelf):
        return SHOWCASE
    if shelf == 0 and twin_of(node) is not None:
        return TWINS
    return LAYOUTS[int(roll(home, shelf) * len(LAYOUTS))]


def _is_showcase(node: str, shelf: int) -> bool:
    return node_number(node) == 1 and shelf == 0


def turn_of(lane: JobLane, at: float) -> JobTurn | None:
    """Return the turn of this moment, which may still be in its pause; None where nobody runs."""
    if lane.kind is None:
        return None
    length_s, pause = TURN_S[lane.kind]
    length_s *= between(0.8, 1.25, roll(lane.seed, -1))
    first_s = roll(lane.seed, -2) * length_s
    number = int((at - first_s) // length_s)
    if at >= first_s + (number + 1) * length_s:  # at the very end, division may round down
        number += 1
    seed = seed_of(lane.seed, number)
    begins_at = first_s + number * length_s
    if lane.pauses:
        begins_at += length_s * pause * between(0.3, 1.7, roll(seed, 0))
    return JobTurn(seed, lane.kind, begins_at, first_s + (number + 1) * length_s)


def job_of(lane: JobLane, turn: JobTurn, uuids: tuple[str, ...]) -> SimulatedJob:
    """Return the synthetic job of a turn: nothing on this machine runs for it."""
    low, high = SMALL_HOG if turn.kind == "hog" and lane.pauses else MEM_SHARE[turn.kind]
    gpus = uuids[lane.first : lane.first + lane.width]
    return SimulatedJob(
        pid=SYNTHETIC_PID_FROM + seed_of(turn.seed, "pid", *gpus[:1]) % 5_000_000,
        start_ticks=int(turn.begins_at * TICKS_PER_S) % 2**40,
        kind=turn.kind, seed=turn.seed, gpus=gpus, mem_share=between(low, high, roll(turn.seed, 1)),
        user=user_of(turn), command=command_of(turn, lane),
        started_at=turn.begins_at, working_since=turn.begins_at,
    )


def turns_at(
    seed: int, node: str, gpus: int, at: float, instances: int = 0
) -> list[tuple[JobLane, JobTurn]]:
    turns = ((lane, turn_of(lane, at)) for lane in lanes_of(seed, node, gpus, instances))
    return [(lane, turn) for lane, turn in turns if turn is not None]


def jobs_at(
    seed: int, node: str, uuids: tuple[str, ...], at: float, instances: int = 0
) -> tuple[SimulatedJob, ...]:
    """Return the jobs; the last `instances` of the UUIDs are MIG instances."""
    turns = turns_at(seed, node, len(uuids) - instances, at, instances)
    return tuple(job_of(lane, turn, uuids) for lane, turn in turns if turn.begins_at <= at)


def next_change_at(seed: int, node: str, gpus: int, at: float, instances: int = 0) -> float:
    """Return the moment before which no job of the node begins or ends."""
    turns = turns_at(seed, node, gpus, at, instances)
    return min((turn.ends_at if turn.begins_at <= at else turn.begins_at for _, turn in turns),
               default=at + 3600)


def user_of(turn: JobTurn) -> str:
    if turn.kind == "serve":
        return "svc-inference"
    return USERS[int(roll(turn.seed, 2) * (len(USERS) - 2))]


def words_of(turn: JobTurn, lane: JobLane) -> list[str]:
    """Return words for the command line of a real process that stands in for it."""
    config = CONFIGS[int(roll(turn.seed, 3) * len(CONFIGS))]
    model = MODELS[int(roll(turn.seed, 3) * len(MODELS))]
    return {
        "serve": ["--model", model, "--tensor-parallel-size", str(lane.width)],
        "notebook": ["--kernel", f"{turn.seed % 16**8:08x}"],
    }.get(turn.kind, ["--config", f"{config}.yaml", "--devices", str(lane.width)])


def command_of(turn: JobTurn, lane: JobLane) -> str:
    config = CONFIGS[int(roll(turn.seed, 3) * len(CONFIGS))]
    if turn.kind == "train" and lane.width > 1:
        return (f"torchrun --standalone --nproc-per-node {lane.width} "
                f"train.py --config configs/{config}.yaml")
    if turn.kind == "serve":
        model = MODELS[int(roll(turn.seed, 3) * len(MODELS))]
        return (f"vllm serve {model} --tensor-parallel-size {lane.width} "
                f"--gpu-memory-utilization 0.90")
    if turn.kind == "notebook":
        return f"python -m ipykernel_launcher -f /run/user/kernel-{turn.seed % 16**8:08x}.json"
    script = "finetune.py" if turn.kind == "finetune" else "train.py"
    return f"python {script} --config configs/{config}.yaml --batch-size {2 ** (turn.seed % 6 + 1)}"
