"""The hub away: nothing lost, nothing twice, in order, and what is live goes first. By a virtual
clock (tests/faults/outage.py); `-m soak` runs the long forms."""

import random
import time
from pathlib import Path

import pytest

from tests.faults.outage import World

MINUTE_S = 60.0


def assert_whole(world: World) -> None:
    for agent in world.agents:
        assert agent.outbox.pending == 0
        assert world.read_back(agent.name) == agent.made, agent.name


def away(world: World, seconds: float) -> None:
    world.run(20.0)
    world.hub.kill()
    world.run(seconds)
    world.hub.start()
    world.hub.live_lag_s = 0.0


def test_ten_minutes_away_twenty_agents(tmp_path: Path) -> None:
    """reliability 5.1: drained within 120 s of an agent's return, live within 2 s meanwhile."""
    world = World(tmp_path, 20, random.randrange(10**6))
    away(world, 10 * MINUTE_S)
    took_s = world.settle()
    assert_whole(world)
    assert took_s < MINUTE_S + 120  # full jitter: the last calls within a minute
    assert world.hub.live_lag_s <= 2.0
    made = sum(len(agent.made) for agent in world.agents)
    print(f"\n{made} messages of 20 agents, drained {took_s:.0f} s after the hub was back")
