"""Limits on what one node's key may make the hub keep; and it speaks for its own node alone."""

import random

import numpy as np
import pytest

from dashboard.errors import NotFoundError
from dashboard.fleet import views
from dashboard.fleet.effects import Effect, LogMessage, RateExceeded, RevokeNode, StreamRecord
from dashboard.fleet.fleet import (
    FORGOTTEN_AFTER_S,
    MAX_INVENTORIES,
    Fleet,
    GpuStatus,
    Node,
)
from dashboard.fleet.gpu_table import MODELS_KEPT, OWNERS_KEPT
from dashboard.fleet.node_budget import (
    DAY_S,
    HELLOS,
    HOUR_S,
    NEW_NAMES,
    NEW_USES,
    PAST,
    POOL_BYTES,
    POOL_ENTRIES,
    NodeBudget,
)
from dashboard.fleet.node_parts import NodeRefusalView
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.task_targets import AmbiguousTaskError, task_on_node
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.history.columns.rows import BACKFILL_MOST_S
from gpudeck.contract.pool_link import NodeClaim, PoolReport
from gpudeck.contract.wire import (
    MAX_BACKFILL,
    MAX_GPUS,
    MAX_TASKS,
    Ack,
    Backfill,
    Event,
    Frame,
    GpuFacts,
    Inventory,
    Probe,
    Refused,
    encode,
)
from gpudeck.measures.metrics import Absence
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.fleet.test_state_machine import AgentLink, ack_messages
from tests.unit.fleets import MONO, NOW, add_node, frame, hello, tasks


def new_inventory(generation: int, model: str = "NVIDIA H100") -> Inventory:
    return Inventory(generation, tuple(
        GpuFacts(f"U{generation}-{at}", at, model) for at in range(MAX_GPUS)))


def refusal_in(agent: AgentLink, effects: list[Effect]) -> Refused | None:
    refusals = agent.messages(Refused, effects)
    return refusals[0] if refusals else None  # type: ignore[return-value]


def test_gpus_that_are_made_up_end_in_a_quarantine_that_is_said() -> None:
    machine = FleetStateMachine("hub", 1)
    agent, honest = AgentLink(machine), AgentLink(machine, "b", "n2")
    generation, end = 1, None
    while end is None:
        generation += 1
        agent.mono += 1 / 19
        effects = agent.send(new_inventory(generation))
        end = refusal_in(agent, effects)
        assert generation < 100
    assert len(machine.fleet) <= 4 + NEW_NAMES[0][1]
    assert "new GPUs" in end.reason
    assert end.retry_after_s > 0
    assert any(isinstance(effect, LogMessage) and effect.what == "agent quarantined"
               for effect in effects)
    assert not any(isinstance(effect, StreamRecord) and isinstance(effect.message, Inventory)
                   for effect in effects), "nor is it kept on disk"
    assert honest.tick(1), "nobody else notices"
    size = len(machine.fleet)
    for attempt in range(30):  # whatever it does next within the day
        agent = AgentLink(machine, f"c{attempt}")
        agent.mono = MONO + (attempt + 1) * 1_800.0
        agent.send(hello("n1"))
        agent.send(new_inventory(1_000 + attempt))
    assert len(machine.fleet) - size <= NEW_NAMES[1][1]


def test_what_is_made_up_for_weeks_stays_within_bounds() -> None:
    """GPUs of each day have the slots of those before; what honest nodes have keeps its own."""
    fleet = FleetStateMachine("hub", 1).fleet
    honest, thief = add_node(fleet, "n0"), add_node(fleet)
    fleet.frame(honest, frame([{"util_pct": 41.0}, {}], tasks=tasks(("t", 0, "alice"))), NOW, MONO)
    sizes, mono = [], MONO
    for generation in range(2, 300):
        mono += HOUR_S / 4
        thief.hear(NOW, mono)
        fleet.inventory(thief, new_inventory(generation, f"model {generation}"))
        sizes.append(len(fleet))
    assert sizes[-1] == sizes[40] <= 2 + 22 * MAX_GPUS
    assert len(fleet.models) <= 2 * MODELS_KEPT
    assert fleet.uuids[:2] == ["GPU-n0-0", "GPU-n0-1"]
    assert fleet.models[fleet.model_at[0]] == "NVIDIA H100"
    assert fleet.column("util_pct", MONO).values[0] == 41.0
    assert len({*fleet.uuids}) == len(fleet)
    for slot, uuid in enumerate(fleet.uuids):
        assert fleet.slots_of_uuid(uuid) == [slot]
    assert thief.listing is not None
    assert [fleet.uuids[slot] for slot in thief.listing.order] == [
        gpu.uuid for gpu in new_inventory(299).gpus]


def node_with_swapped_gpus(fleet: Fleet, node_id: str, after_s: float) -> Node:
    """Return a node whose two GPUs went, and to which two others came `after_s` later; what it may
    still tell of has passed."""
    node = add_node(fleet, node_id)
    fleet.frame(node, frame([{"util_pct": 99.0}, {}], tasks=tasks(("t", 0, "alice"))), NOW, MONO)
    for generation in range(2, MAX_INVENTORIES + 2):
        fleet.inventory(node, Inventory(generation, (GpuFacts("X", 0, "H100"),)))
    node.hear(NOW, MONO + after_s)
    fleet.inventory(node, Inventory(100, (GpuFacts("A", 0, "H100"), GpuFacts("B", 1, "H100"))))
    return node


def test_a_slot_of_another_inherits_nothing_and_is_another_layout() -> None:
    fleet = Fleet(1)
    before = focus(fleet, EVERYTHING_SEEN).epoch
    node_with_swapped_gpus(fleet, "n1", FORGOTTEN_AFTER_S + 1)
    assert fleet.uuids == ["A", "B", "X"]
    assert fleet.find("GPU-n1-0") is None
    column = fleet.column("util_pct", MONO)
    assert np.isnan(column.values[0])
    assert column.absent[0] == Absence.UNKNOWN
    assert (fleet.users[0], int(fleet.task_count[0])) == (None, 0)
    assert focus(fleet, EVERYTHING_SEEN).epoch > before


@pytest.mark.parametrize("after_s", [0.0, FORGOTTEN_AFTER_S - 1])
def test_who_left_a_short_time_ago_keeps_its_slot(after_s: float) -> None:
    fleet = Fleet(1)
    node_with_swapped_gpus(fleet, "n1", after_s)
    assert fleet.uuids == ["GPU-n1-0", "GPU-n1-1", "X", "A", "B"]


def test_what_a_late_frame_may_tell_of_keeps_its_slot() -> None:
    fleet = Fleet(1)
    node = add_node(fleet)
    fleet.inventory(node, Inventory(2, (GpuFacts("X", 0, "H100"),)))
    node.hear(NOW, MONO + 2 * FORGOTTEN_AFTER_S)
    fleet.inventory(node, Inventory(3, (GpuFacts("Y", 0, "H100"),)))
    fleet.frame(node, frame([{"util_pct": 7.0}, {}]), NOW, MONO)
    assert fleet.column("util_pct", MONO).values[fleet.slot_on("n1", "GPU-n1-0") or 0] == 7.0
    assert np.isnan(fleet.column("util_pct", MONO).values[fleet.slot_on("n1", "Y")])


def test_of_a_revoked_node_nothing_is_there_and_its_slots_go_on() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    agent.tick(1)
    machine.handle(RevokeNode("n1"), NOW, MONO)
    machine.handle(RevokeNode("never there"), NOW, MONO)
    fleet = machine.fleet
    assert fleet.statuses(MONO).tolist() == [GpuStatus.RETIRED] * 2
    assert fleet.nodes["n1"].tasks == {}
    visible = focus(fleet, EVERYTHING_SEEN)
    assert views.totals(fleet, visible, NOW, MONO)["nodes"] == {
        "live": 0, "suspect": 0, "silent": 0}
    other = fleet.hello(hello("n2"), NOW, MONO + FORGOTTEN_AFTER_S + 1)
    fleet.inventory(other, Inventory(1, (GpuFacts("A", 0, "H100"), GpuFacts("B", 1, "H100"))))
    assert fleet.uuids == ["A", "B"]
    assert [fleet.node_of(slot) for slot in (0, 1)] == [other, other]
    assert views.node_view(machine, "n1", None, MONO).gpus == 0


def test_that_a_node_is_refused_and_why_is_told_of_it() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    agent.send(new_inventory(2))
    assert views.node_view(machine, "n1", None, agent.mono).refused is None
    effects = machine.handle(RateExceeded("a", "messages", "20 messages a second"), NOW, agent.mono)
    refusal = views.node_view(machine, "n1", None, agent.mono + 29).refused
    assert refusal == NodeRefusalView(NOW + 30, "it sent more than 20 messages a second")
    assert views.node_view(machine, "n1", None, agent.mono + 30).refused is None
    # In the node's log, on disk, and there again after a restart.
    [event] = machine.events
    assert (event.event.kind, event.severity) == ("node_refused", "warning")
    assert event.event.text == "refused for 30 s: it sent more than 20 messages a second"
    [record] = [effect for effect in effects if isinstance(effect, StreamRecord)]
    restarted = FleetStateMachine("hub", 2)
    restarted.fleet.hello(hello("n1"), NOW, MONO)
    restarted.recover(record)
    assert [stored.id for stored in restarted.events] == [event.id]


def test_models_and_owners_that_are_made_up_count_too() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    for generation in range(2, 3_000):
        effects = agent.send(Inventory(generation, (GpuFacts("GPU", 0, f"model {generation}"),)))
        if refusal_in(agent, effects):
            break
    assert len(machine.fleet.models) <= NEW_NAMES[0][1] + 2
    agent = AgentLink(machine, "b", "n2")
    for seq in range(1, 100):
        named_tasks = tasks(*((f"t{seq}-{at}", 0, f"u{seq}-{at}") for at in range(200)))
        effects = agent.send(frame([{}, {}], seq, tasks=named_tasks))
        if refusal_in(agent, effects):
            break
    assert len(machine.fleet.owners) <= NEW_NAMES[0][1]


def frame_of_new_tasks(seq: int, many: int = MAX_TASKS // 2) -> Frame:
    return frame([{}, {}], seq, tasks=tasks(*((f"{seq}-{at}", 0, "alice") for at in range(many))))


@pytest.mark.parametrize("is_past", [False, True])
def test_tasks_that_are_made_up_end_in_a_quarantine(is_past: bool) -> None:
    agent, frame_count, end = AgentLink(FleetStateMachine("hub", 1)), 0, None
    for seq in range(1, 20):
        message = frame_of_new_tasks(seq)
        effects = agent.send(Backfill((encode(message),)) if is_past else message)
        if end := refusal_in(agent, effects):
            break
        frame_count += 1
    assert end is not None
    assert "new tasks" in end.reason
    refusal = views.node_view(agent.machine, "n1", None, agent.mono).refused
    assert refusal is not None
    assert refusal.why == "it sent more than 16,384 new tasks on GPUs an hour, or 65,536 a day"
    assert frame_count == 2 * NEW_USES[0][1] // MAX_TASKS


def test_tasks_that_come_and_go_are_new_once_an_hour() -> None:
    agent = AgentLink(FleetStateMachine("hub", 1))
    for seq in range(1, 3_000, 2):  # a process that the driver lists now and then
        for effects in (agent.send(frame_of_new_tasks(seq, 0)), agent.send(frame(
                [{}, {}], seq + 1, tasks=tasks(*((f"t{at}", 0, "alice") for at in range(100)))))):
            assert refusal_in(agent, effects) is None


def test_a_past_without_end_ends_in_a_quarantine() -> None:
    machine = FleetStateMachine("hub", 1)
    agent, seq, end = AgentLink(machine), 0, None
    while end is None and seq < 2 * PAST[0][1]:
        old = encode(frame([{}, {}], 1, taken_at=NOW - BACKFILL_MOST_S - 60))
        seq += MAX_BACKFILL
        end = refusal_in(agent, agent.send(Backfill((old,) * MAX_BACKFILL)))
    assert end is not None
    assert seq - MAX_BACKFILL <= PAST[0][1] < seq
    refusal = views.node_view(machine, "n1", None, agent.mono).refused
    assert refusal is not None
    assert refusal.why == "it sent more than 200,000 messages about the past a day"


def test_who_connects_again_and_again_is_refused_and_may_knock_unheard() -> None:
    machine, mono, lines = FleetStateMachine("hub", 1), MONO, 0
    for at in range(HELLOS[0][1] + 200):
        mono += 0.1
        agent = AgentLink(machine, f"c{at}", mono=mono)
        lines += sum(isinstance(effect, LogMessage) for effect in agent.effects)
    assert agent.messages(Refused)
    assert machine.counts["refused"] == 199
    assert lines <= 3 * HELLOS[0][1] + 2


def test_a_budget_comes_back_with_time() -> None:
    budget = NodeBudget(((HOUR_S, 10), (DAY_S, 25)))
    at = random.uniform(0, 1e6)
    assert [budget.take("n", 5, at + second) for second in (0, 1, 2)] == [True, True, False]
    assert budget.take("other", 10, at)
    assert budget.take("n", 10, at + HOUR_S + 2)
    assert not budget.take("n", 10, at + 2 * HOUR_S + 4)
    assert budget.take("n", 5, at + 2 * HOUR_S + 4)
    assert budget.take("n", 10, at + 2 * DAY_S)


def test_a_board_that_is_split_anew_now_and_then_is_no_offence() -> None:
    """Instances of eight boards, seven each, twelve times an hour."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    for generation in range(2, 14):
        agent.mono += 300
        effects = agent.send(Inventory(generation, tuple(
            GpuFacts(f"MIG-{generation}-{at}", at, "NVIDIA H100") for at in range(56))))
        assert refusal_in(agent, effects) is None


def test_owners_who_are_on_no_gpu_are_neither_sent_nor_kept() -> None:
    fleet = Fleet(1)
    node, other = add_node(fleet), add_node(fleet, "n2")
    fleet.frame(other, frame([{}, {}], tasks=tasks(("t", 1, "alice"))), NOW, MONO)
    for seq in range(1, OWNERS_KEPT // 50 + 3):
        named_tasks = tasks(*((f"t{seq}-{at}", 0, f"u{seq}-{at}") for at in range(50)),
                            ("t", 1, "bob"))
        fleet.frame(node, frame([{}, {}], seq, tasks=named_tasks), NOW, MONO)
        owners = views.owners(fleet, focus(fleet, EVERYTHING_SEEN))
        names, owner = owners["names"], np.frombuffer(owners["owner"], "<u2").tolist()
        assert [names[number] if number < len(names) else None for number in owner] == [
            None, "bob", None, "alice"]
        assert len(names) == 2
    assert len(fleet.owners) < OWNERS_KEPT
    assert {fleet.owners[number] for number in fleet.users[3] or ()} == {"alice"}


def test_what_is_brought_of_years_ago_is_taken_and_not_kept() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    old = frame([{}, {}], 1, taken_at=NOW - BACKFILL_MOST_S - 60)
    late = frame([{}, {}], 2, taken_at=NOW - DAY_S)
    effects = agent.send(Backfill((encode(old), encode(late))))
    assert [effect.seq for effect in effects if isinstance(effect, StreamRecord)] == [2]
    assert ack_messages(effects) == [Ack(1, ())], "its agent may forget it"
    assert machine.counts["too_old"] == 1


def test_what_is_live_and_of_years_ago_is_shown_as_old_and_not_kept() -> None:
    """Found by attackers: each old day of a node was another file of history."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    agent.mono += 2.0
    old = frame([{"util_pct": 7.0}, {}], 1, taken_at=NOW - random.uniform(16, 20_000) * DAY_S)
    effects = agent.send(old)
    assert not [effect for effect in effects if isinstance(effect, StreamRecord)]
    assert ack_messages(effects) == [Ack(1, ())], "its agent may forget it"
    assert machine.counts["too_old"] == 1
    assert agent.messages(Probe, effects), "its clock may have stepped"
    assert [effect.seq for effect in agent.tick(2) if isinstance(effect, StreamRecord)] == [2]


# -- whose task is meant


def fleet_of_claimants(*boots: tuple[str, str]) -> Fleet:
    fleet = Fleet(1)
    for node_id, boot_id in boots:
        node = fleet.hello(hello(node_id, boot_id=boot_id), NOW, MONO)
        fleet.inventory(node, Inventory(1, (GpuFacts(f"GPU-{node_id}", 0, "H100"),)))
        fleet.frame(node, frame([{}], tasks=tasks(("deadbeef-42-7", 0, node_id))), NOW, MONO)
    return fleet


@pytest.mark.parametrize("liar_first", [True, False])
def test_who_did_not_boot_so_claims_it_in_vain(liar_first: bool) -> None:
    boots = [("n1", "deadbeef-1234"), ("liar", "cafe0000-1234")]
    fleet = fleet_of_claimants(*(reversed(boots) if liar_first else boots))
    node, task = task_on_node(fleet.nodes.values(), "deadbeef-42-7")
    assert (node.hello.node_id, task.user) == ("n1", "n1")


def test_where_nothing_tells_them_apart_the_node_is_asked_for() -> None:
    fleet = fleet_of_claimants(("liar", "deadbeef-1234"), ("n1", "deadbeef-1234"))
    nodes = list(fleet.nodes.values())
    with pytest.raises(AmbiguousTaskError, match=r"liar.* and n1.* both claim"):
        task_on_node(nodes, "deadbeef-42-7")
    for name in ("n1", "n1.example"):
        node, _ = task_on_node(nodes, f"{name}/deadbeef-42-7")
        assert node.hello.node_id == "n1"
    for unknown in ("n3/deadbeef-42-7", "deadbeef-42-8", "n1/"):
        with pytest.raises(NotFoundError):
            task_on_node(nodes, unknown)


def a_pool(number: int, claims: int, shape: str = "") -> PoolReport:
    return PoolReport((), tuple(NodeClaim(Claim(
        id=f"{number}-{at}", owner="ann", gpus=1, submitted_at=0.0, shape=shape), True)
        for at in range(claims)), ())


def test_claims_that_are_made_up_end_in_a_quarantine() -> None:
    machine = FleetStateMachine("hub", 1)
    agent, honest = AgentLink(machine), AgentLink(machine, "b", "n2")
    for _ in range(100):
        assert refusal_in(agent, agent.send(a_pool(0, 1_024))) is None, "the same are not new"
    for number in range(1, POOL_ENTRIES[0][1] // 1_024):
        assert refusal_in(agent, agent.send(a_pool(number, 1_024))) is None
    end = refusal_in(agent, agent.send(a_pool(99, 1_024)))
    assert end is not None
    assert "new claims and leases" in end.reason
    assert machine.fleet.nodes["n1"].refusal is not None
    assert "8,192 new claims and leases an hour" in machine.fleet.nodes["n1"].refusal.why
    assert refusal_in(honest, honest.send(a_pool(0, 1_024))) is None


def test_the_hubs_time_and_bytes_are_bounded_too() -> None:
    for spend, what in ((True, "240 s of the hub's time"), (False, "bytes about its pool")):
        machine = FleetStateMachine("hub", 1)
        agent = AgentLink(machine)
        end, reports = None, 0
        while end is None:
            reports += 1
            assert reports < 2_000
            if spend:
                machine.allowances.spend_pool("n1", 1.0, agent.mono)
            end = refusal_in(agent, agent.send(a_pool(0, 1_024, "x" * 256)))
        refusal = machine.fleet.nodes["n1"].refusal
        assert refusal is not None
        assert what in refusal.why
        assert (reports > 200) if spend else (reports > POOL_BYTES[0][1] // 1_000_000)


def test_only_the_node_that_has_a_gpu_tells_its_events() -> None:
    """Found by examiners: any node's key wrote critical events into the pages of others' GPUs."""
    machine = FleetStateMachine("hub", 1)
    owner, liar = AgentLink(machine, "a", "n1"), AgentLink(machine, "b", "n2")
    owners_gpu = f"GPU-n1-{random.randint(0, 1)}"
    code = random.randint(1, 160)

    def xid(seq: int, uuid: str | None) -> Event:
        return Event(seq, NOW, "xid", uuid, numbers={"xid": code})

    lie = liar.send(xid(10, owners_gpu))
    assert not any(isinstance(effect, StreamRecord)
                   for effect in lie), "nor does history hear of it"
    assert ack_messages(lie), "it is not sent again"
    late = liar.send(Backfill((encode(xid(11, owners_gpu)),)))
    assert not any(isinstance(effect, StreamRecord) for effect in late)
    assert machine.counts["of_others"] == 2
    for agent, uuid in ((owner, owners_gpu), (liar, None),
                        (liar, "GPU-that-nobody-has-listed-yet")):
        agent.send(xid(20 + len([*machine.events]), uuid))
    xids = [(event.node_id, event.event.gpu_uuid) for event in machine.events
            if event.event.kind == "xid"]
    assert sorted(xids, key=str) == sorted(
        [("n1", owners_gpu), ("n2", None), ("n2", "GPU-that-nobody-has-listed-yet")], key=str)
