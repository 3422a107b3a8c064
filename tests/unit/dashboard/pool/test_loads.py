"""Load of nodes in the last minutes, for strategies that go by it."""

import random

import pytest

from dashboard.fleet.fleet import Fleet
from dashboard.pool.loads import EVERY_S, SPAN_S, NodeLoads
from dashboard.pool.plan import PoolNode
from gpudeck.contract.pool_link import OfferedGpu, PoolReport
from gpudeck.measures.metrics import Absence
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from tests.unit.dashboard.pool.passes import scheduled
from tests.unit.fleets import MONO, NOW, add_node, frame, tasks

NODES = ("a", "b", "c")


class MeasuredNodes:
    """Three nodes of two GPUs; `report`: what their GPUs do from then on."""

    def __init__(self) -> None:
        self.fleet = Fleet(1)
        self.nodes = {name: add_node(self.fleet, name) for name in NODES}
        self.loads = NodeLoads(self.fleet)
        self._seq = 0

    def report(self, after_s: float, **utils: tuple[float | Absence, float | Absence]) -> None:
        self._seq += 1
        for name, values in utils.items():
            node, rows = self.nodes[name], [{"util_pct": util} for util in values]
            node.heard_mono = MONO + after_s
            self.fleet.frame(node, frame(rows, self._seq, NOW + after_s), NOW + after_s,
                             MONO + after_s)

    def load_pcts(self, after_s: float, strategy: str = "least_loaded") -> dict[str, float | None]:
        return {name: load.load_pct for name, load in
                self.loads.of(strategy, NODES, MONO + after_s).items()}


def test_it_is_the_mean_of_ten_minutes_and_of_what_is_known() -> None:
    scene = MeasuredNodes()
    first, then = random.randint(0, 40), random.randint(41, 99)
    scene.report(0.0, a=(first, first), b=(10, Absence.UNKNOWN))
    assert scene.load_pcts(0.0) == {"a": first, "b": 10.0, "c": None}
    scene.report(1.0, a=(then, then))
    assert scene.load_pcts(1.0)["a"] == first, "it looks every 20 s"
    scene.report(EVERY_S, a=(then, then))
    assert scene.load_pcts(EVERY_S)["a"] == pytest.approx((first + then) / 2, abs=0.5)
    scene.report(SPAN_S, a=(then, then))
    assert scene.load_pcts(SPAN_S + 1.0)["a"] == then
    assert scene.load_pcts(SPAN_S + 2.0, "pack") == {}
    scene.report(SPAN_S + 3.0, a=(0, 0))
    assert scene.load_pcts(SPAN_S + 3.0)["a"] == 0.0, "nothing was looked at meanwhile"


def test_the_hub_places_by_it() -> None:
    scene = MeasuredNodes()
    scene.report(0.0, a=(90, 80), b=(30, 20), c=(5, 0))
    busiest = scene.nodes["c"]
    scene.fleet.frame(busiest, frame([{"util_pct": 5.0}] * 2, 2, NOW, tasks=tasks(
        ("t1", 0, "ann"), ("t2", 1, "bob"))), NOW, MONO)
    nodes = [PoolNode(name, name, PoolReport((OfferedGpu(f"G-{name}", "H100", 0),), (), ()))
             for name in NODES]
    claims = [Claim(id=f"c{at}", owner="ann", gpus=1, submitted_at=float(at)) for at in range(3)]
    for strategy, order in (("least_loaded", ["c", "b", "a"]), ("least_tasks", ["a", "b", "c"]),
                            ("best_fit", ["a", "b", "c"])):
        plan = scheduled(nodes, claims, {}, (), None, (), NoOwnerLimits(), {}, {},
                         PoolPolicy(strategy=strategy), scene.loads.of(strategy, NODES, MONO), NOW)
        assert [offer.grants[0].node for offer in plan.offers] == order, strategy
