"""The rung `limit`, whole: a real hub, a real agent, a real child, and a board whose power limit is
read by another reader."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.actions import guard
from agent.backends import SIMULATED
from agent.backends.simulation.reader import SimulatedReader, parse_options
from agent.journal.store import ActionStore
from agent.limits.apply import LimitApplier
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import ReadingSource
from agent.runtime.wake import ThreadWakeSignal
from agent.tasks.boot_id import boot_id
from tests.fakes.children import a_ceiling
from tests.fakes.mps_control import FakeMps
from tests.integration.hubs import wait_for
from tests.integration.test_actions_crash import write_world
from tests.integration.test_rules_act import Bed, Hurried, Sampled


class HurriedReturns(Hurried):
    constants: Mapping[str, object] = {
        **Hurried.constants, "dashboard.automation.limit_returns.RETURN_WITHIN_S": 0.0,
        "dashboard.automation.limit_returns.EVERY_S": 0.3}


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    control = FakeMps(tmp_path / "mps")
    for name, value in control.env().items():
        monkeypatch.setenv(name, value)
    control.start()
    yield control
    control.close()


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    data = tmp_path / "agent"
    data.mkdir(mode=0o700)
    a_ceiling(data, rules_may_act=True)
    write_world(tmp_path, [])
    options = f"node=n1,gpus=1,world={tmp_path}"
    [facts] = SimulatedReader(parse_options(options), None).read().facts
    source, stop = Sampled(gpu=facts), threading.Event()
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    with HurriedReturns(tmp_path / "hub", 0) as hub:
        token = hub.token()
        journal = OutboxFile(data / "journal.db")
        config = NodeConfig((hub.url,), lambda _: None, NodeIdentity(
            node_key(data), token.hub, token), "host", SIMULATED, boot_id(), data,
            ActionStore(data / "acts.db"), options=options, ceiling=data / "ceiling.toml")
        listed: ReadingSource = source
        thread = threading.Thread(target=run_node, args=(
            config, listed, Outbox(journal), stop, ThreadWakeSignal()))
        thread.start()
        try:
            yield Bed(hub, source, data, source.start(listed=False))
        finally:
            stop.set()
            thread.join(timeout=5)
            journal.close()
            config.acts.close()
            source.close()


def test_a_rule_limits_a_task_and_takes_it_back_when_its_alert_clears(
        bed: Bed, tmp_path: Path) -> None:
    applier = LimitApplier(SIMULATED, f"node=n1,gpus=1,world={tmp_path}", lambda _: "")
    gpu = bed.source.gpu.uuid

    def power_w() -> float | None:
        return applier.read([gpu])[gpu].power_w

    before = power_w()
    assert before is not None
    hog = bed.hog()
    rule = bed.put("auto", ladder=[{"do": "tell"}, {"do": "limit"}])
    wait_for(lambda: power_w() == round(before * 0.7), why="it is limited")
    limited = wait_for(lambda: [row for row in bed.commands(hog) if row["action"] == "limit"
                                and row["state"] == "done"],
                       why="and that was read back")
    assert limited[0]["by"]["name"].startswith(rule)
    assert limited[0]["verified"]["in_force"] is True
    assert hog.is_alive()
    bed.source.sm[hog.pid] = 90.0
    wait_for(lambda: power_w() == before, why="it is as before")
    back = wait_for(lambda: [row for row in bed.hub.get("/api/v1/commands")["items"]
                             if row["action"] == "release_limit" and row["state"] == "done"],
                    why="and that was read back")
    assert back[0]["by"]["name"] == limited[0]["by"]["name"], "by whom it was set"
    assert not [row for row in bed.commands(hog) if row["action"] == "end"]
    assert hog.is_alive()
    bed.check()


def test_a_rule_limits_next_clients_of_mps_and_takes_it_back_when_its_alert_clears(
        mps: FakeMps, bed: Bed) -> None:
    hog = bed.hog("mps_client")
    server = bed.source.start(listed=False)
    mps.server(server.pid, hog.pid)

    def shares() -> list[str]:
        return [line.split()[-1] for line in mps.changed()
                if line.startswith(f"set_active_thread_percentage {server.pid} ")]

    rule = bed.put("auto", ladder=[{"do": "tell"}, {"do": "limit"}])
    wait_for(lambda: shares() == ["50"], why="next clients get half")
    limited = wait_for(lambda: [row for row in bed.commands(hog) if row["action"] == "limit"
                                and row["state"] == "done"], why="and that was read back")
    assert limited[0]["by"]["name"].startswith(rule)
    bed.source.sm[hog.pid] = 90.0
    wait_for(lambda: shares() == ["50", "100"], why="it is as before")
    assert hog.is_alive()
    bed.check()
