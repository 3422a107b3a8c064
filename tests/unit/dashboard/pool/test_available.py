"""Availability of a GPU in each state that it can be in: all that gives out, counts or shows free
GPUs says the same: page, filter, REST, pools of node and hub, its facade, Prometheus, `free`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agent.cli.available_here import with_availability
from agent.pool import views as node_views
from agent.pool.gpus import PoolSnapshot, pool_gpus, with_reasons
from agent.pool.queue import WaitingClaims, WaitingWithdrawals
from agent.pool.uses import lease_uses
from agent.readings import GpuReading, ProcessReading, Reading
from agent.tasks.seen import GpuTask
from agent.telemetry.status_table import gpu_items
from dashboard.fleet import views
from dashboard.fleet.available_gpus import reasons
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import Fleet, GpuStatus, Node
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.pool.doubts import in_doubt
from dashboard.pool.plan import PoolNode
from dashboard.pool.prometheus import pool_families
from dashboard.pool.source_views import LiveNumbers, available_nodes, live_gpus
from dashboard.pool.views import model_views
from dashboard.prometheus.families import pages, snapshot
from gpudeck.contract.pool_link import NodeMaintenance
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair, RepairsNow
from gpudeck.contract.wire import (
    GPU_STATES,
    Frame,
    GpuFacts,
    Inventory,
    Slow,
    Task,
    Tasks,
    Use,
    pack,
)
from gpudeck.measures.availability import REASONS
from gpudeck.measures.metrics import Absence
from gpudeck.pool.core.host_resources import NOT_COUNTED
from tests.unit.agent.pool.test_lock import lease
from tests.unit.fleets import MONO, NOW, hello
from tests.unit.readings import gpu_reading

GIB = 2.0**30
GPU, BOARD = "G0", "B1"
ANN, BOB = 1_000, 2_000
UNKNOWN, UNSUPPORTED = Absence.UNKNOWN, Absence.UNSUPPORTED
IN_MAINTENANCE = NodeMaintenance("this node is in maintenance by ada: new fans", NOW + 60)


def task(mem: float | None, sm: float = 0.0, uid: int = BOB, state: str = "running",
         kind: str = "compute") -> GpuTask:
    return GpuTask(Task("t1", 77, 1, NOW, "ann" if uid == ANN else "bob", "python train.py",
                        kind=kind, uid=uid), GPU, mem, sm, state)  # type: ignore[arg-type]


def repair(uuid: str) -> GpuRepair:
    return GpuRepair(uuid, "draining", "ada", "fan noise", 0.0, 0.0, "boot")


EMPTY = gpu_reading(GPU)


@dataclass(frozen=True)
class GpuScene:
    """`on` None: its node has not listed its tasks. `is_part`: it is an instance of a split
    board."""

    gpu: GpuReading = EMPTY
    on: tuple[GpuTask, ...] | None = ()
    is_leased: bool = False
    repairs: tuple[GpuRepair, ...] = ()
    in_maintenance: bool = False
    managed_by: str = ""
    is_part: bool = False


def holding(gib: float, **more: float | Absence) -> GpuReading:
    return gpu_reading(GPU, "ok", mem_used_bytes=gib * GIB, **more)


HELD = holding(40)
SCENES: Sequence[tuple[str, GpuScene, str | None]] = (
    ("idle and empty", GpuScene(), None),
    ("a context that nobody lists", GpuScene(holding(0.6)), None),
    ("a forgotten process", GpuScene(holding(0.7), (task(0.6 * GIB),)), None),
    ("an MPS server", GpuScene(holding(0.1), (task(None, kind="mps_server"),)), None),
    ("memory that is the host's", GpuScene(gpu_reading(GPU, mem_used_bytes=UNSUPPORTED)), None),
    ("a MIG instance", GpuScene(gpu_reading(GPU, util_pct=UNSUPPORTED), is_part=True), None),
    ("an idle task", GpuScene(HELD, (task(39 * GIB),)), "task"),
    ("a small task at work", GpuScene(holding(0.6, util_pct=30.0), (task(0.5 * GIB, 30.0),)),
     "task"),
    ("a task of unknown memory", GpuScene(holding(0.6), (task(None),)), "task"),
    ("a paused task", GpuScene(HELD, (task(39 * GIB, state="paused"),)), "paused"),
    ("memory that nobody claims", GpuScene(HELD), "memory"),
    ("an instance with memory that nobody claims",
     GpuScene(holding(20, util_pct=UNSUPPORTED), is_part=True), "memory"),
    ("busy without a task", GpuScene(gpu_reading(GPU, util_pct=97.0)), "busy"),
    ("bursts without a task", GpuScene(gpu_reading(GPU, util_pct=3.0, util_max_pct=60.0)), "busy"),
    ("both, without a task", GpuScene(holding(70, util_pct=97.0)), "memory"),
    ("leased and unused", GpuScene(is_leased=True), "leased"),
    ("leased and used", GpuScene(HELD, (task(39 * GIB, 90.0, ANN),), True), "leased"),
    ("leased, and used by another", GpuScene(HELD, (task(39 * GIB, 90.0),), True), "task"),
    ("lost", GpuScene(gpu_reading(GPU, "lost")), "lost"),
    ("failing", GpuScene(gpu_reading(GPU, "error")), "error"),
    ("not read", GpuScene(gpu_reading(GPU, "stale")), "stale"),
    ("in maintenance", GpuScene(in_maintenance=True), "maintenance"),
    ("out of service", GpuScene(repairs=(repair(GPU),)), "out_of_service"),
    ("of a node that is drained", GpuScene(repairs=(repair(WHOLE_NODE),)), "out_of_service"),
    ("a row remap pending", GpuScene(gpu_reading(GPU, rows_pending=1.0)), "row_remap"),
    ("a scheduler's", GpuScene(managed_by="Slurm"), "managed"),
    ("tasks not listed", GpuScene(on=None), "unknown"),
    ("memory not read", GpuScene(gpu_reading(GPU, mem_used_bytes=UNKNOWN)), "unknown"),
    ("utilization not read", GpuScene(gpu_reading(GPU, util_pct=UNKNOWN)), "unknown"),
)


class SceneNode:
    """The node of a scene, as its agent sees it."""

    def __init__(self, scene: GpuScene) -> None:
        board = gpu_reading(BOARD, util_pct=UNSUPPORTED)
        gpus = (board, scene.gpu) if scene.is_part else (scene.gpu,)
        facts = tuple(GpuFacts(gpu.uuid, 0, "H100", mem_total_bytes=80 * GIB,
                               parent_uuid=BOARD if scene.is_part and gpu.uuid == GPU else None)
                      for gpu in gpus)
        processes = tuple(ProcessReading(
            gpu_task.task.pid, GPU, gpu_task.mem_used_bytes, gpu_task.sm_pct, gpu_task.task.kind,
            state=gpu_task.state) for gpu_task in scene.on or ())  # type: ignore[arg-type]
        self.reading = Reading(NOW, 1.0, gpus, facts, None if scene.on is None else processes)
        self.leases = [lease("a", GPU)] if scene.is_leased else []
        uses = lease_uses(scene.on or (), self.leases, {})
        pending = {gpu.uuid for gpu in gpus if gpu.value("rows_pending")}
        self.gpus = with_reasons(
            PoolSnapshot(pool_gpus(facts, (), gpus, pending), scene.on, scene.managed_by),
            scene.repairs, IN_MAINTENANCE.why if scene.in_maintenance else "", uses,
            {uuid for held_lease in self.leases for uuid in held_lease.uuids}, "")
        self.report = node_views.report(
            self.gpus.values(), WaitingClaims(), (), self.leases, uses, (), WaitingWithdrawals(),
            lambda uid: (), scene.managed_by, NOT_COUNTED, "", lambda own: own)

    def free(self, has_pool: bool) -> dict[str, Any]:
        """Return the GPU as `gpudeck free` and `gpudeck top` on this node have it."""
        pool = node_views.pool_view(
            "n1", self.gpus, self.leases, WaitingClaims(), {}, (), (), NOT_COUNTED, 0.0,
            lambda own: own) if has_pool else None
        return next(item for item in with_availability(
            gpu_items(self.reading, "n1"), self.reading, self.reading.processes or (), pool)
            if item["uuid"] == GPU)


def picture(scene: GpuScene, agent: SceneNode, has_pool: bool) -> tuple[Fleet, Node]:
    """Return the fleet and the node of that agent as the hub has them."""
    fleet = Fleet(1)
    node = fleet.hello(hello("n1"), NOW, MONO)
    fleet.inventory(node, Inventory(1, agent.reading.facts))
    gpus = agent.reading.gpus
    on = None if scene.on is None else Tasks(
        True, tuple(item.task for item in scene.on), tuple(
            Use(item.task.id, len(gpus) - 1, item.mem_used_bytes, item.sm_pct, item.state)  # type: ignore[arg-type]
            for item in scene.on))
    fleet.frame(node, Frame(
        1, NOW, 1.0, 1, pack([value for gpu in gpus for value in gpu.values]),
        b"".join(gpu.absent for gpu in gpus),
        bytes(GPU_STATES.index(gpu.state) for gpu in gpus), on,
        Slow(pack([value for gpu in gpus for value in gpu.slow]),
             b"".join(gpu.slow_absent for gpu in gpus))), NOW, MONO)
    fleet.take_repairs(node, RepairsNow(NOW, scene.repairs))
    if scene.in_maintenance:
        fleet.maintenance["n1"] = IN_MAINTENANCE, MONO + 60
    if has_pool:
        fleet.take_pool(node, agent.report)
    return fleet, node


@pytest.mark.parametrize(("scene", "reason"), [
    pytest.param(scene, reason, id=name) for name, scene, reason in SCENES])
def test_all_say_the_same_of_a_gpu_of_the_pool(scene: GpuScene, reason: str | None) -> None:
    agent = SceneNode(scene)
    fleet, _ = picture(scene, agent, has_pool=True)
    assert (agent.gpus[GPU].reason or ("leased" if scene.is_leased else None)) == reason
    assert bool(agent.gpus[GPU].trouble) == (reason not in (None, "leased"))
    assert_agreed(fleet, agent.free(has_pool=True), reason)
    plain = PoolNode("n1", "n1", agent.report)
    [pool] = in_doubt([plain], fleet, MONO) or [plain]
    assert_pool(pool, is_free=reason is None)
    # What the hub knows first keeps a GPU back, even before its node says so.
    if reason in ("maintenance", "out_of_service", "row_remap"):
        early = SceneNode(GpuScene())
        fleet.take_pool(fleet.nodes["n1"], early.report)
        [pool] = in_doubt([PoolNode("n1", "n1", early.report)], fleet, MONO)
        assert pool.well.uuids == ()
        assert_pool(pool, is_free=False)


@pytest.mark.parametrize(("scene", "reason"), [
    pytest.param(scene, reason, id=name) for name, scene, reason in SCENES
    if not scene.is_leased and not scene.managed_by])
def test_all_say_the_same_of_a_gpu_without_a_pool(scene: GpuScene, reason: str | None) -> None:
    agent = SceneNode(scene)
    fleet, _ = picture(scene, agent, has_pool=False)
    # A terminal on the node without an agent to ask knows what the driver says.
    here = agent.free(has_pool=False)
    is_known = reason not in ("maintenance", "out_of_service") and scene.on is not None
    assert_agreed(fleet, here if is_known else None, reason)


def assert_agreed(fleet: Fleet, here: dict[str, Any] | None, reason: str | None) -> None:
    [slot] = fleet.slots_of_uuid(GPU)
    show = fleet.statuses(MONO)
    code = int(reasons(fleet, show, MONO)[slot])
    assert (None if code == 0 else REASONS[code - 1]) == reason
    visible = focus(fleet, EVERYTHING_SEEN)
    totals = views.totals(fleet, visible, NOW, MONO)
    bits = np.unpackbits(np.frombuffer(totals["free"], np.uint8), bitorder="little")
    assert bool(bits[slot]) == (reason is None)
    assert totals["gpus"]["free"] == (reason is None)
    picked = parse("state:free")
    assert picked is not None
    assert bool(picked.matches(fleet, MONO)[slot]) == (reason is None)
    rest = views.gpu_view(fleet, slot, GpuStatus(show[slot]), code, [], MONO)
    assert rest.is_free == (reason is None)
    assert (None if rest.why_not_free is None else rest.why_not_free.reason) == reason
    assert rest.why_not_free is None or rest.why_not_free.why
    text = "".join(pages(snapshot(fleet, visible, {}, MONO)))
    [line] = [line for line in text.splitlines() if line.startswith("gpudeck_gpu_available{")
              and (f'UUID="{GPU}"' in line or f'mig_uuid="{GPU}"' in line)]
    assert float(line.rpartition(" ")[2]) == (reason is None)
    if here is not None:
        assert here["is_free"] == (reason is None)
        assert (here["why_not_free"] or {}).get("reason") == reason


def assert_pool(pool: PoolNode, is_free: bool) -> None:
    assert sum(model.free for model in model_views([pool])) == is_free
    text = "".join(pool_families([pool], ()))
    assert f'gpudeck_pool_gpus{{state="free",model="H100"}} {int(is_free)}\n' in text
    facade = available_nodes(live_gpus([pool], (), LiveNumbers(
        lambda node, uuid: None, lambda node, uuid: None)))
    assert sum(node.available_gpus for node in facade) == is_free
    assert any(gpu.free_milli for gpu in pool.unleased.gpus) == is_free, "placement"


def test_a_split_board_is_not_given_out_itself() -> None:
    scene = GpuScene(is_part=True)
    fleet, _ = picture(scene, SceneNode(scene), has_pool=False)
    [slot] = fleet.slots_of_uuid(BOARD)
    assert REASONS[reasons(fleet, fleet.statuses(MONO), MONO)[slot] - 1] == "split"


@pytest.mark.parametrize("has_pool", [False, True])
def test_a_gpu_that_no_frame_has_told_of_yet_has_no_old_readings(has_pool: bool) -> None:
    fleet = Fleet(1)
    node = fleet.hello(hello("n1"), NOW, MONO)
    agent = SceneNode(GpuScene())
    fleet.inventory(node, Inventory(1, agent.reading.facts))
    if has_pool:
        fleet.take_pool(node, agent.report)
        [pool] = in_doubt([PoolNode("n1", "n1", agent.report)], fleet, MONO)
        assert pool.troubles == {GPU: "no reading of it has come yet"}
        assert pool.well.uuids == ()
        assert pool.unread == {GPU}
        assert_pool(pool, is_free=False)
    assert_agreed(fleet, None, "no_reading")
    fleet, _ = picture(GpuScene(), agent, has_pool)
    later = MONO + 60
    assert REASONS[reasons(fleet, fleet.statuses(later), later)[0] - 1] == "stale"


def test_maintenance_ends_by_itself() -> None:
    scene = GpuScene(in_maintenance=True)
    fleet, _ = picture(scene, SceneNode(scene), has_pool=False)
    fleet.maintenance["n1"] = IN_MAINTENANCE, MONO + 2
    codes = [int(reasons(fleet, fleet.statuses(at), at)[0]) for at in (MONO + 1, MONO + 2)]
    assert [code == 0 for code in codes] == [False, True]


