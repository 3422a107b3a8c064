"""Pace of acknowledgements: fewer of them where agents are many, and none too late."""

from dashboard.fleet.ack_pace import ACK_EVERY_S, PACED_FROM
from dashboard.fleet.effects import Effect, LinkClosed, RecordsStored, Tick
from dashboard.fleet.state_machine import FleetStateMachine
from gpudeck.contract.wire import Backfill, encode
from tests.unit.dashboard.fleet.test_state_machine import AgentLink, acks, records
from tests.unit.fleets import MONO, NOW, frame


def crowd(agents: int) -> tuple[FleetStateMachine, AgentLink]:
    """Return a hub with so many agents, and the last of them, whose first Frame is acknowledged."""
    machine = FleetStateMachine("hub", 1)
    links = [AgentLink(machine, f"link{at}", f"n{at}") for at in range(agents)]
    assert acks(stored(links[-1], links[-1].tick(1), 0.0)) == [1]
    return machine, links[-1]


def stored(agent: AgentLink, effects: list[Effect], after_s: float) -> list[Effect]:
    return agent.machine.handle(RecordsStored(records(effects)), NOW, MONO + after_s)


def test_of_many_agents_each_has_an_ack_every_other_second() -> None:
    _, agent = crowd(PACED_FROM)
    assert [acks(stored(agent, agent.tick(seq), seq - 1.0)) for seq in range(2, 8)] == [
        [], [3], [], [5], [], [7]]


def test_few_agents_have_one_each_second() -> None:
    _, agent = crowd(PACED_FROM - 1)
    assert [acks(stored(agent, agent.tick(seq), seq - 1.0)) for seq in range(2, 5)] == [
        [2], [3], [4]]


def test_an_ack_that_waits_is_sent_though_nothing_more_comes() -> None:
    machine, agent = crowd(PACED_FROM)
    assert stored(agent, agent.tick(2), 1.0) == []
    ticks = [acks(machine.handle(Tick(), NOW, MONO + at)) for at in (1.2, ACK_EVERY_S, 2.5)]
    assert ticks == [[], [2], []]


def test_what_an_agent_waits_for_is_acknowledged_at_once() -> None:
    _, agent = crowd(PACED_FROM)
    assert stored(agent, agent.tick(2), 0.5) == []
    past = agent.send(Backfill((encode(frame([{}] * 2, seq=3, taken_at=NOW - 60)),)))
    assert acks(stored(agent, past, 0.6)) == [3]


def test_a_connection_that_ended_has_none() -> None:
    machine, agent = crowd(PACED_FROM)
    assert stored(agent, agent.tick(2), 1.0) == []
    machine.handle(LinkClosed(agent.link), NOW, MONO + 1.1)
    assert acks(machine.handle(Tick(), NOW, MONO + 3.0)) == []
