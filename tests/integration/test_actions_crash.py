"""kill -9 of the agent at each entry of its journal: done once, or said to be unknown."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.backends.simulation.folder import write_jobs
from agent.backends.simulation.jobs import SimulatedJob
from agent.backends.simulation.world import uuid_of
from agent.journal.store import ActionJournal, ActionStore
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import CommandState
from gpudeck.contract.wire import Inquire
from tests.fakes.children import COUNTS, Child, Children, a_ceiling, wait_until_old
from tests.fakes.hub import FakeHub, wait_for

ROOT = Path(__file__).parents[2]
NEVER_BEGUN: tuple[CommandState, ...] = ("expired", "refused")
# Where it is killed, what may be said of the command afterwards, how often SIGTERM was sent.
STEPS: tuple[tuple[str, str, tuple[CommandState, ...], int], ...] = (
    ("before", "record_first", NEVER_BEGUN, 0),
    ("after", "record_first", NEVER_BEGUN, 0),
    ("before", "record_intent", NEVER_BEGUN, 0),
    ("after", "record_intent", ("unknown",), 0),
    ("before", "record_step", ("unknown",), 1),
    ("after", "record_step", ("unknown",), 1),
    ("before", "record_result", ("unknown",), 1),
    ("after", "record_result", ("done",), 1),
)


def write_world(folder: Path, children: list[Child]) -> None:
    uuid = uuid_of(1, "n1", 0)
    now = time.time()
    write_jobs(folder, "n1", tuple(
        SimulatedJob(pid=child.pid, start_ticks=child.start_ticks, kind="hog", seed=number,
                     gpus=(uuid,),
                     mem_share=0.1, user=random.choice(("alice", "bohdan")),
                     command="python train.py",
                     started_at=now, working_since=now - 1_000)
        for number, child in enumerate(children)))


@contextmanager
def an_agent(folder: Path, hub: FakeHub, *program: str) -> Iterator["subprocess.Popen[bytes]"]:
    token = folder / "token"
    if not token.exists():
        token.write_text(hub.token().text)
    hellos, beats = len(hub.hellos), len(hub.beats)
    agent = subprocess.Popen(
        [sys.executable, *program, "--hub", hub.url, "--token-file", str(token), "--data",
         str(folder / "data"), "--backend", "simulated", "--simulate",
         f"node=n1,gpus=1,world={folder}", "--ceiling", str(folder / "ceiling.toml")],
        cwd=ROOT, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        wait_for(lambda: len(hub.hellos) > hellos and [
            1 for _, beat in hub.beats[beats:] if beat.reader == "ok"])
        yield agent
    finally:
        agent.terminate()
        agent.wait(10)


@pytest.mark.parametrize(("when", "entry", "outcomes", "signals"), STEPS)
def test_once_or_unknown(
    when: str, entry: str, outcomes: tuple[CommandState, ...], signals: int, hub: FakeHub,
    children: Children, tmp_path: Path,
) -> None:
    a_ceiling(tmp_path)
    log = tmp_path / "told"
    log.touch()
    # What ends by itself shows a RESULT; what counts and stays shows a second SIGTERM.
    victim = children.start() if entry == "record_result" else children.start(COUNTS, str(log))
    neighbour = children.start()
    write_world(tmp_path, [victim, neighbour])
    wait_until_old(neighbour)
    with an_agent(tmp_path, hub, "-m", "tests.fakes.crashing_agent", when, entry) as agent:
        preview = hub.look(victim.task_id, grace_s=60.0)
        assert preview.refusals == ()
        assert [bystander.task_id for bystander in preview.bystanders] == [neighbour.task_id]
        command = hub.order(preview)
        hub.send(command)
        assert agent.wait(20) == -9
    hub.replies.clear()
    with an_agent(tmp_path, hub, "-m", "agent"):
        hub.tell(Inquire((command.command_id,)))
        assert hub.reply(command.command_id).state in outcomes
        hub.send(command)  # a hub that forgot, or a network that doubles
        second_preview = hub.look(victim.task_id)
        assert hub.reply(command.command_id).state in outcomes
        if entry == "record_result":
            assert victim.process.wait(5) == -15
        else:
            assert second_preview.refusals == ()
            assert len(log.read_text()) == signals
            assert victim.is_alive()
    assert neighbour.is_alive()
    assert hub.broken == []
    journal = ActionJournal(ActionStore(tmp_path / "data" / "acts.db"))
    assert verify(journal.audit.links()) is None
    assert sum('"intent":true' in link.body for link in journal.audit.links()) <= 1
