"""A mirror sends what history has, each sample at its time, whatever its receiver answers."""

import random
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import gevent
import numpy as np
import pytest

from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.mirror.formats import FORMATS, MirrorFormat
from dashboard.mirror.samples import GpuSeconds, MirrorBatch, SeriesPlace
from dashboard.mirror.service import MirrorService
from dashboard.mirror.transport import MirrorRefusedError, ReceiverAwayError
from tests.mirrors import Samples, mirror_to, truth_of
from tests.remote_write import samples_in
from tests.unit.histories import START, Source

MIB = 2**20


@dataclass
class FakeReceiver:
    """Takes what it is sent, and refuses as it is told."""

    bodies: list[bytes] = field(default_factory=list)
    process: float | None = 1.0
    error: Exception | None = None
    poison: str | None = None  # a GPU whose samples are refused, with all that came with them

    @property
    def format(self) -> MirrorFormat:
        return FORMATS["remote-write"]

    def post(self, body: bytes) -> int:
        if self.error is not None:
            raise self.error
        if self.poison is not None and any(gpu == self.poison
                                           for _, gpu, _, _ in samples_in(body)):
            raise MirrorRefusedError("400 out of order", True)
        self.bodies.append(body)
        return 0

    def started(self) -> float | None:
        return self.process

    def samples(self) -> Samples:
        return sum((samples_in(body) for body in self.bodies), Counter())


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Source(random.randrange(10**6))
        self.history = EmbeddedHistory(folder / "history", cluster="c1")
        self.history.open()
        self.history.append(self.source.greetings(), 1)
        self.receiver = FakeReceiver()
        self.mirror = self.new_mirror(START)

    def new_mirror(self, now: int) -> MirrorService:
        return mirror_to(self.receiver, self.history, self.folder / "mirror", now)

    def minutes(self, first: int, last: int) -> None:
        for minute in range(first, last):
            t0 = START + 60 * minute
            self.history.append(self.source.span(t0, t0 + 60), 1)

    def step(self, minutes: int) -> None:
        """Step the mirror ten seconds after this many minutes."""
        now = START + 60.0 * minutes + 10
        self.mirror.step(now, now)

    def truth(self, first: int, last: int) -> Samples:
        return truth_of(self.source, START + 60 * first, START + 60 * last)


@pytest.fixture(name="scene")
def _scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_each_sample_at_its_time_whether_in_memory_or_in_files(scene: Scene) -> None:
    scene.minutes(0, 7)
    scene.history.maintain(START + 7 * 60, 0.0)  # the first five minutes are a file
    scene.step(7)
    assert scene.receiver.samples() == scene.truth(0, 7)


def test_a_minute_waits_ten_seconds_and_later_samples_go_apart(scene: Scene) -> None:
    scene.minutes(0, 1)
    scene.mirror.step(START + 69.0, 0.0)
    assert not scene.receiver.bodies
    late = scene.source.node_second("n0", START + 61)
    scene.minutes(2, 3)
    scene.step(3)
    before = len(scene.receiver.bodies)
    scene.history.append(late, 1)
    scene.step(3)
    assert samples_in(scene.receiver.bodies[before]) == truth_of(scene.source, START + 61,
                                                                 START + 62)
    scene.step(3)
    assert len(scene.receiver.bodies) == before + 1


def test_after_an_outage_all_is_there_and_nothing_twice(scene: Scene) -> None:
    scene.minutes(0, 1)
    scene.step(1)
    scene.receiver.error = ReceiverAwayError("503", 30.0)
    scene.minutes(1, 8)
    scene.step(4)
    scene.history.maintain(START + 8 * 60, 0.0)
    assert (scene.mirror.info().error, scene.mirror.info().behind_s) == ("503", 190.0)
    scene.receiver.error = None
    scene.mirror.step(START + 8 * 60, START + 4 * 60 + 39.0)
    assert scene.mirror.info().error == "503"  # it had asked to wait
    scene.step(8)
    assert scene.receiver.samples() == scene.truth(0, 8)
    assert scene.mirror.info().error is None


def test_where_the_hub_was_it_goes_on_and_a_new_receiver_begins_now(scene: Scene) -> None:
    scene.minutes(0, 2)
    scene.step(1)
    scene.mirror = scene.new_mirror(START + 120)
    scene.step(2)
    assert scene.receiver.samples() == scene.truth(0, 2)
    other = mirror_to(scene.receiver, scene.history, scene.folder / "mirror", START + 130,
                      "remote-write+http://other.test")
    assert other.info().behind_s == 10.0


def test_a_receiver_that_began_again_gets_its_last_minute_again(scene: Scene) -> None:
    scene.minutes(0, 2)
    scene.step(1)
    lost_bodies, scene.receiver.bodies = scene.receiver.bodies, []
    scene.receiver.process = None  # it is on its way up
    scene.step(1)
    scene.receiver.process = 2.0
    scene.step(2)
    assert lost_bodies
    assert scene.receiver.samples() == scene.truth(0, 2)


def test_what_is_refused_is_said_once_and_not_sent_again(scene: Scene,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    scene.receiver.error = MirrorRefusedError("it answered 403 Forbidden", False)
    scene.minutes(0, 2)
    scene.step(1)
    scene.step(2)
    refused_samples = scene.mirror.info().counts["refused"]
    assert refused_samples == scene.truth(0, 2).total()
    assert [line.levelname for line in caplog.records] == ["WARNING"]
    scene.receiver.error = None
    scene.step(2)
    assert not scene.receiver.bodies


def test_one_bad_series_takes_no_good_one_along(scene: Scene) -> None:
    bad = scene.receiver.poison = random.choice(scene.source.all_uuids)
    scene.minutes(0, 1)
    scene.step(1)
    assert scene.receiver.samples() == Counter({
        key: count for key, count in scene.truth(0, 1).items() if key[1] != bad})


@pytest.mark.parametrize("form", FORMATS)
def test_a_metric_without_a_sample_is_left_out_and_the_others_are_sent(form: str) -> None:
    value, second = random.uniform(1, 99), START + random.randrange(60)
    rows = GpuSeconds(np.zeros(1, np.intp), np.array([second], np.int64),
                      {"fan_pct": np.array([np.nan]), "util_pct": np.array([value])})
    batch = MirrorBatch([SeriesPlace("c1", "GPU-1", "host", "n1")], rows, START, START + 60, False)
    body = FORMATS[form].body(batch)
    if form == "remote-write":
        assert samples_in(body) == {("util_pct", "GPU-1", second * 1_000, value): 1}
    else:
        assert b"util_pct" in body
        assert struct.pack("<d", value) in body
        assert b"fan_pct" not in body


def test_a_series_that_ends_is_marked_and_one_that_goes_on_is_not(scene: Scene) -> None:
    def second(t: int) -> None:
        scene.history.append(scene.source.node_second("n0", t, None), 1)

    for t in [*range(START, START + 20), *range(START + 40, START + 90)]:
        second(t)
    scene.step(1)
    scene.step(2)
    ends = {ms for body in scene.receiver.bodies
            for _, _, ms, _ in samples_in(body, ends=True)}
    key, gpu = "util_pct", scene.source.uuids["n0"][0]
    seconds = {t for (one, t), row in scene.source.truth.items()
               if one == gpu and isinstance(row[key], float)}
    mine = {ms for body in scene.receiver.bodies
            for metric, one, ms, _ in samples_in(body, ends=True) if (metric, one) == (key, gpu)}
    assert mine == {(t * 1_000 + 999) for t in seconds if t + 1 not in seconds and t < START + 119}
    assert (START + 19) * 1_000 + 999 in ends
    assert (START + 89) * 1_000 + 999 in ends


def test_the_loop_goes_on_while_it_sends(scene: Scene) -> None:
    """Sending runs on another thread."""
    scene.minutes(0, 4)
    thread_ids: list[int] = []
    post = scene.receiver.post
    scene.receiver.post = lambda body: thread_ids.append(threading.get_ident()) or post(body)  # type: ignore[method-assign, func-returns-value]
    gevent.spawn(scene.mirror.loop.step, START + 250.0, 0.0).join()
    assert thread_ids
    assert threading.get_ident() not in thread_ids
