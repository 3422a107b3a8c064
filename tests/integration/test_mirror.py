"""History is mirrored to real servers: each value at its time, once, whatever ends meanwhile."""

import random
import re
import time
from pathlib import Path

import pytest

from dashboard.history.reads.embedded import EmbeddedHistory
from tests.integration.hubs import HubProcess, WireAgent, wait_for
from tests.mirrors import metrics_server, mirror_to, truth_of
from tests.unit.histories import Source

KINDS = ("prometheus", "victoria-metrics")


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_receiver_that_is_killed_has_all_and_nothing_twice(kind: str, tmp_path: Path
                                                                  ) -> None:
    start = int(time.time()) // 60 * 60 - 600
    source = Source(start)
    history = EmbeddedHistory(tmp_path / "history", cluster="c1")
    history.open()
    history.append(source.greetings(), 1)
    with metrics_server(kind, tmp_path) as server:
        mirror = mirror_to(server.receiver, history, tmp_path / "mirror", start + 1.0)
        late = source.node_second("n0", start + 7)  # it comes after its minute was sent
        for minute in range(5):
            t0 = start + 60 * minute
            messages = [one for t in range(t0, t0 + 60) for node in source.uuids
                        if (node, t) != ("n0", start + 7) and (t + len(node) * minute) % 11
                        for one in source.node_second(node, t)]
            history.append(messages, 1)
            if minute == 1:
                history.append(late, 1)
            if minute == 3:  # just after it took a minute
                # It tells the second in which it began, which must not be the same again.
                wait_for(lambda: time.time() > (server.receiver.started() or 0) + 1)
                server.kill()
            mirror.step(t0 + 71.0, t0)
            if minute == 3:
                assert mirror.info().error is not None
                server.start()
        mirror.step(start + 600.0, start + 1_000)
        assert mirror.info().error is None
        assert mirror.info().counts["refused"] == 0
        history.close()
        truth = truth_of(source, start, start + 300)
        assert len(truth) > 10_000
        # VictoriaMetrics shows what it has taken a second or two later.
        wait_for(lambda: not truth - server.samples(start, start + 300), why="all of it")
        samples = server.samples(start, start + 300)
        assert (truth - samples, samples - truth) == ({}, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_that_says_nothing_has_no_value(kind: str, tmp_path: Path) -> None:
    """Else the last one would be passed off as live for five minutes."""
    start = int(time.time()) // 60 * 60 - 600
    source = Source(start)
    history = EmbeddedHistory(tmp_path / "history", cluster="c1")
    history.open()
    history.append([*source.greetings(), *(one for t in range(start, start + 30)
                                           for one in source.node_second("n0", t))], 1)
    history.append([one for t in range(start, start + 120)
                    for one in source.node_second("n1", t)], 1)
    with metrics_server(kind, tmp_path) as server:
        mirror = mirror_to(server.receiver, history, tmp_path / "mirror", start + 1.0)
        mirror.step(start + 131.0, 0.0)
        query = 'count by (node) ({__name__=~"gpudeck_gpu_.+"})'

        def nodes(at: int) -> set[str]:
            return {row["metric"]["node"] for row in server.value(query, at)}

        wait_for(lambda: nodes(start + 25) == {"n0", "n1"}, why="both are there")
        assert nodes(start + 45) == {"n1"}
        history.close()


def test_a_hub_mirrors_what_its_agents_say_and_tells_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    with metrics_server("victoria-metrics", tmp_path / "vm") as server, HubProcess(
            tmp_path / "hub", 0, "--mirror", f"remote-write+{server.url}/api/v1/write",
            constants={"dashboard.mirror.service.MINUTE_S": 5,
                       "dashboard.mirror.service.GRACE_S": 1,
                       "dashboard.mirror.service.EVERY_S": 0.5}) as hub:
        agent = WireAgent(f"m{random.randrange(10**6)}")
        agent.connect(hub)

        def sample_labels() -> list[dict[str, str]]:
            agent.tick()
            time.sleep(0.2)
            return [row["metric"] for row in
                    server.value("last_over_time(gpudeck_gpu_temp_c[1m])", time.time())]

        assert {row["gpu"] for row in wait_for(sample_labels, why="samples at the receiver")} == {
            gpu.uuid for gpu in agent.facts}
        text = hub.ask("/metrics").body.decode()
        assert "gpudeck_mirror_failed 0" in text
        assert re.search(r'gpudeck_mirror_samples_total{what="sent"} [1-9]', text)
        assert re.search(r"gpudeck_mirror_behind_seconds \d", text)
