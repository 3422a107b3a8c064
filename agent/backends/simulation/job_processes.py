"""The processes of a simulated job, from its turn. Pure."""

from dataclasses import dataclass

from .chance import between, roll
from .jobs import JobLane, JobTurn, Kind

SAVES_S: dict[Kind, float] = {"train": 0.5, "finetune": 0.5, "hog": 0.5}
STUBBORN = 0.25  # share of the notebooks with a cell that catches everything
WORKERS = (2, 5)


@dataclass(frozen=True, slots=True)
class JobProcessLayout:
    """One process; with ranks a launcher and one process per Gpu, as torchrun makes them."""

    ranks: int = 0
    workers: int = 0  # of a DataLoader: children of the process that holds the Gpu
    saves_s: float = 0.0  # from SIGTERM to its end
    ignores_sigterm: bool = False

    @property
    def children(self) -> int:
        return self.ranks or self.workers


def form_of(turn: JobTurn, lane: JobLane) -> JobProcessLayout:
    saves_s = SAVES_S.get(turn.kind, 0.0)
    if turn.kind == "train" and lane.width > 1:
        return JobProcessLayout(ranks=lane.width, saves_s=saves_s)
    if turn.kind in ("train", "finetune", "hog"):  # a hog is a training whose DataLoader is stuck
        return JobProcessLayout(workers=int(between(*WORKERS, roll(turn.seed, 41))),
                                saves_s=saves_s)
    # Only the showcase's lanes do not pause, and it always has one of everything.
    stubborn = turn.kind == "notebook" and (not lane.pauses or roll(turn.seed, 42) < STUBBORN)
    return JobProcessLayout(saves_s=saves_s, ignores_sigterm=stubborn)
