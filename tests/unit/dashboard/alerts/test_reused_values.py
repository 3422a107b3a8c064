"""Values that rules make once for as long as nobody comes, goes or moves."""

import random

import numpy as np
import pytest

from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.fleet import effects, sites
from gpudeck.contract.gpu_facts import GpuFacts
from tests.unit import fleets
from tests.unit.dashboard.alerts.test_targets import World, of, task


def test_what_is_reused_between_looks_is_what_a_new_collector_counts() -> None:
    """Tasks come, go and move, nodes without any join, and a viewed site grows, in some steps and
    not in others."""
    world = World(nodes=4, gpus=3)
    sites.open_sites(world.fleet, effects.SitesViewed("here", (("lyon", "https://lyon"),)), 0.0)
    names = {"task": ("gpus", "sm_pct", "util_pct"), "job": ("gpus", "tasks", "nodes", "util_pct"),
             "owner": ("gpus", "tasks", "jobs", "util_pct"), "gpu": ("jobs", "owners")}
    for step in range(40):
        node_id = f"n{random.randrange(4)}"
        world.rows[node_id][0] = {"util_pct": float(random.randrange(100))}
        on = world.on[node_id]
        match random.choice(("stay", "come", "go", "move", "join", "view")):
            case "come":
                user, job = random.choice(("ann", "bob", None)), random.choice(("j1", "j2", None))
                on.append((task(user, job_id=job), random.randrange(3), 1e9, 50.0))
            case "go" if on:
                on.pop(random.randrange(len(on)))
            case "move" if on:
                on[0] = (on[0][0], (on[0][1] + 1) % 3, *on[0][2:])
            case "join":
                newcomer = f"joined{step}"
                fleets.add_node(world.fleet, newcomer, 3, mono=world.mono)
                world.rows[newcomer], world.on[newcomer] = [{}, {}, {}], []
            case "view":
                sites.apply_news(world.fleet, effects.SiteHeard("lyon", effects.SiteLayout(
                    (effects.SiteNode("n1", "n1", "nvml", None, "0.1"),),
                    tuple(GpuFacts(f"GPU-{at}", at, "H100") for at in range(step + 1)),
                    np.zeros(step + 1, np.intp)), None, None), world.now, world.mono)
        targets = world.next_look()
        fresh = RuleTargetCollector(world.fleet, world.events).look(world.now, world.mono, 0.0)
        for kind, of_kind in names.items():
            for name in of_kind:
                assert of(targets[kind], name) == pytest.approx(  # type: ignore[index]
                    of(fresh[kind], name), nan_ok=True), (kind, name)  # type: ignore[index]
