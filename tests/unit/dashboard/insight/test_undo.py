"""Advice of each kind on a played past: its command is one that the terminal or REST takes, frees
as many GPU-hours as was said, and the one that undoes it leads back to where it began."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import get_args

import msgspec
import pytest

from agent.cli import limits as limits_command
from agent.cli import mig as mig_command
from agent.cli import run as run_command
from dashboard.insight.core.advice import Advice, Kind, UnusedLease, advise
from dashboard.insight.core.week import WEEK_H
from dashboard.pool.policy import NewPolicy

from .played_weeks import A100, H100, HOURS, PlayedFleet, fleet, job

TWO_NODES = ("n1",) * 8 + ("n2",) * 8
LEASE = UnusedLease("lease-1", "ana", "host-n1", "n1", ("GPU-0", "GPU-1"), 10 * 3_600.0)


@dataclass(frozen=True)
class PlayedSite:
    """State that commands change. `asks`: GPUs of one node that a job on `n1` waits for at any
    hour; `moved`: GPUs whose job runs on a smaller board; `leased`: GPUs of unused leases."""

    past: PlayedFleet
    strategy: str = "pack"
    asks: int = 0
    reaches: bool = False
    moved: tuple[int, ...] = ()
    leased: tuple[int, ...] = ()
    free: dict[str, int] = field(default_factory=dict)
    leases: tuple[UnusedLease, ...] = ()

    def advice(self, kind: Kind) -> Advice:
        (match,) = (item for item in advise(self.past.week(), self.leases, self.free, self.strategy)
                    if item.kind == kind)
        return match

    def do(self, command: str, about: Advice) -> "PlayedSite":
        if command.startswith("PUT /api/v1/pool/policy "):
            policy = msgspec.json.decode(command.partition("policy ")[2], type=NewPolicy)
            assert policy.strategy is not None
            return replace(self, strategy=policy.strategy)
        words = shlex.split(command)
        if words[1] == "claim":
            is_over = words[2:4] == ["--give-back", "lease-1"]
            assert is_over or words[2] == "--gpus"
            return replace(self, leased=() if is_over else tuple(range(int(words[3]))))
        if words[1] == "mig":
            assert mig_command._parser().parse_args(words[2:]).gpu == str(about.gpus[0])
        if words[1] == "gpu":
            assert limits_command._gpu_parser().parse_args(words[2:]).uuid == "GPU-0"
        if words[1] in ("quota", "mig", "gpu") or about.kind == "share":
            return replace(self, past=self.past.do(command, about.gpus))
        args = run_command._parser().parse_args(words[2 : words.index("--")])
        if about.kind == "size":
            return replace(self, moved=about.gpus if args.model == A100 else ())
        return replace(self, reaches=args.ssh)

    def run_hours(self) -> float:
        """Count the hours of the job that waits, hour by hour."""
        by_node = {node: [at for at, name in enumerate(self.past.nodes) if name == node]
                   for node in dict.fromkeys(self.past.nodes)}
        hours = 0
        for hour in range(HOURS):
            taken_gpus = set[int]().union(*self.past.held_gpus(hour).values())
            if self.strategy == "pack" and self.past.nodes == TWO_NODES:
                taken_gpus = set(range(len(taken_gpus)))
            free = [len(set(gpus) - taken_gpus) for gpus in by_node.values()]
            if self.past.nodes == TWO_NODES:  # all of them on one node
                hours += self.asks * (max(free) >= self.asks)
            else:
                hours += min(self.asks, sum(free) if self.reaches else free[0])
        return float(hours)

    def large_hours(self) -> float:
        return float(sum(played.end - played.start for played in self.past.jobs
                         if self.past.models[played.gpu] == H100 and played.gpu not in self.moved))


SITES: dict[Kind, tuple[PlayedSite, Callable[[PlayedSite], float]]] = {
    "idle": (PlayedSite(fleet(*(job("ana", gpu, 60.0, 40, share, seed=gpu)
                                for gpu, share in enumerate((0.9, 0.1, 0.02, 0.02))))),
             lambda site: -site.past.gpu_hours()),
    "share": (PlayedSite(fleet(job("ana", 0, 25.0, 20, end=150), job("ana", 1, 30.0, 22, start=30),
                               job("bob", 2, 90.0, 70))),
              lambda site: -site.past.gpu_hours()),
    "mig": (PlayedSite(fleet(job("ana", 0, 40.0, 30), job("bob", 1, 12.0, 8),
                             job("eve", 2, 10.0, 7, end=100), job("zoe", 3, 60.0, 30))),
            lambda site: -site.past.gpu_hours()),
    "size": (PlayedSite(fleet(job("ana", 0, 30.0, 20), job("bob", 1, 90.0, 20),
                              models=(H100, H100, A100), nodes=("n1",) * 3), free={A100: 1}),
             lambda site: -site.large_hours()),
    # Of hours that have passed: of a lease, of which nothing is known before.
    "lease": (PlayedSite(fleet(job("bob", 2, 90.0, 70)), leases=(LEASE,), leased=(0, 1)),
              lambda site: -len(site.leased) * LEASE.idle_s / 3_600 * HOURS / WEEK_H),
    "fragmentation": (PlayedSite(fleet(
        *(job("ana", gpu, 90.0, 60, end=100) for gpu in (0, 1, 2, 8, 9, 10)),
        models=(H100,) * 16, nodes=TWO_NODES), strategy="spread", asks=8), PlayedSite.run_hours),
    "imbalance": (PlayedSite(fleet(*(job("ana", gpu, 90.0, 60, end=100) for gpu in range(2)),
                                   nodes=("n1", "n1", "n2", "n2")), asks=2), PlayedSite.run_hours),
    "power": (PlayedSite(replace(fleet(job("ana", 0, 98.0, 60, bandwidth=70.0)), watts={0: 690.0})),
              lambda site: -site.past.energy_hours()),
}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_its_command_frees_what_was_said_and_is_taken_back(kind: Kind) -> None:
    site, hours = SITES[kind]
    about = site.advice(kind)
    after = site.do(about.command, about)
    assert hours(after) - hours(site) == pytest.approx(about.gpu_hours * HOURS / WEEK_H)
    assert after != site
    assert after.do(about.undo, about) == site
