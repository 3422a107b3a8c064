"""`%%gpu` and measure() on the C fake: numbers of this process, beside a stranger's."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gpudeck.system.process_cost import children_of
from tests.demos import soon
from tests.fakes.children import ORPHAN, Children, is_alive
from tests.fakes.nvml import FakeNvml
from tests.machine import required
from tests.notebook.boards import Meter
from widget import load_ipython_extension, measure
from widget.agent_source import close_all
from widget.live_widget import watch_here
from widget.measurement import Measure

GIB = 2**30
DICE = random.Random(random.random())
MINE = DICE.randrange(2, 9) * GIB, DICE.randrange(10, 19) * GIB
STRANGERS = 23 * GIB
SM = DICE.randrange(20, 45)
POWER_W = DICE.uniform(200, 300), DICE.uniform(400, 600)
HALF_S = 2.2


class Bench:
    """Two boards; this process and a stranger use the first."""

    def __init__(self, folder: Path, children: Children) -> None:
        self.nvml = FakeNvml(folder, gpus=0)
        self.gpu = self.nvml.gpu(util=77, power_mw=round(POWER_W[0] * 1e3), energy_mj=10**9)
        self.other = self.nvml.gpu(util=5)
        self.stranger = a_stranger(children)
        self.gpu.process(self.stranger, STRANGERS, sm_pct=50)
        self.gpu.process(os.getpid(), MINE[0], sm_pct=SM)
        self.nvml.save()


def a_stranger(children: Children) -> int:
    """Start a process that is no child of ours, unlike all else in a test: its parent has ended."""
    launcher = children.start(ORPHAN)
    (stranger,) = launcher.workers
    assert launcher.process.stdin is not None
    launcher.process.stdin.write("x")
    launcher.process.stdin.flush()
    assert soon(lambda: stranger not in children_of(os.getpid()))
    return stranger


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    required("gcc")  # of the fake library
    children = Children()
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(tmp_path_factory.mktemp("nvml"), children)
        for name in ("LD_LIBRARY_PATH", "FAKE_NVML"):
            patch.setenv(name, bench.nvml.env()[name])
        patch.setenv("GPUDECK_DATA", str(tmp_path_factory.mktemp("data")))
        yield bench
        close_all()
    children.close()


@pytest.fixture(scope="module")
def shell(bench: Bench) -> Any:
    shell = InteractiveShell.instance()
    load_ipython_extension(shell)
    return shell


def test_a_cell_has_its_own_numbers(bench: Bench, shell: Any) -> None:
    with Meter(bench.nvml, bench.gpu) as meter:
        def change() -> None:
            time.sleep(HALF_S)
            meter.draw(POWER_W[1])
            meter.hold(os.getpid(), MINE[1], SM)
            time.sleep(HALF_S)

        shell.push({"change": change, "meter": meter})
        began = time.monotonic()
        result = shell.run_cell("%%gpu m\nfirst = meter.joules()\nchange()\nlast = meter.joules()")
        whole_s = time.monotonic() - began
    assert result.success
    cost = shell.user_ns["m"].cost
    (mine,) = cost.gpus  # the other board is none of its
    assert mine.is_mine
    truth_j = shell.user_ns["last"] - shell.user_ns["first"]
    assert mine.uuid == bench.gpu.uuid
    # Half a second before and after it may count on a machine that has much to do.
    assert mine.energy_j == pytest.approx(truth_j, rel=0.01, abs=max(POWER_W) * 0.5)
    assert mine.mem_peak_bytes == MINE[1]
    assert MINE[0] < mine.mem_mean_bytes < MINE[1]
    assert mine.sm_peak_pct == SM
    assert mine.util_mean_pct == pytest.approx(77)
    assert mine.shared_with
    assert 2 * HALF_S <= cost.wall_s <= whole_s
    assert cost.cpu_s < 0.6 * cost.wall_s
    assert is_alive(bench.stranger)


def test_a_frame_and_a_figure_of_it(shell: Any, bench: Bench) -> None:
    shell.run_cell("%%gpu m\nimport time; time.sleep(2.2)")
    m: Measure = shell.user_ns["m"]
    frame = m.frame
    assert set(frame["uuid"]) == {bench.gpu.uuid}
    assert frame["my_mem_bytes"].dropna().isin(MINE).all()
    assert not frame.duplicated(["gpu", "seconds"]).any()
    assert set(frame["seconds"]) <= set(range(4))
    merged = frame[frame["util_pct"] > 50]  # what came at different moments is in one row
    assert len(merged) >= 2
    assert merged["my_mem_bytes"].notna().all()
    assert {trace.name for trace in m.plot().data} >= {"GPU 0, the whole GPU"}
    assert "<svg" in str(m._repr_html_())
    assert "this kernel SM" in repr(m)


# A launcher that is on no GPU, and a worker below it in a session of its own.
LAUNCH = """
import subprocess, sys
launcher = subprocess.Popen([sys.executable, "-S", "-E", "-c", '''
import os, signal
worker = os.fork()
if worker == 0:
    os.setsid()
    while True:
        signal.pause()
print(worker, flush=True)
signal.pause()
'''], stdout=subprocess.PIPE, text=True)
worker = int(launcher.stdout.readline())
"""


def test_what_the_kernel_started_counts_as_the_kernels(bench: Bench, shell: Any) -> None:
    """A launcher as torchrun and mp.spawn: a row per process, and their sum."""
    assert shell.run_cell(LAUNCH).success
    worker = shell.user_ns["worker"]
    mem_bytes, sm_pct, own = DICE.randrange(20, 29) * GIB, DICE.randrange(50, 80), MINE[0]
    bench.gpu.forget(os.getpid()).process(os.getpid(), own, sm_pct=SM)
    bench.gpu.process(worker, mem_bytes, sm_pct=sm_pct)
    bench.other.process(worker, mem_bytes, sm_pct=sm_pct)
    bench.nvml.save()
    try:
        shell.run_cell("%%gpu m\nimport time; time.sleep(4.2)")
        m: Measure = shell.user_ns["m"]
        assert m.cost is not None
        first, second = m.cost.gpus
        assert {*first.processes} == {os.getpid(), worker}
        assert {*second.processes} == {worker}
        assert first.mem_peak_bytes == own + mem_bytes
        assert first.processes[worker].mem_peak_bytes == mem_bytes
        assert first.sm_peak_pct == SM + sm_pct
        assert second.is_mine
        assert second.shared_with == ()
        assert len(first.shared_with) == 1  # the stranger
        assert f"  {worker} " in repr(m)
        assert str(worker) in str(m._repr_html_())
        with closing(watch_here(None)) as widget:
            assert soon(lambda: widget.picture.get("tasks"))
            held_by = {part["who"]: part["bytes"] for part in widget.picture["gpus"][0]["held"]}
            assert held_by["this kernel"] == own + mem_bytes
            assert [task["pid"] for task in widget.picture["tasks"] if task["child"]] == [worker]
    finally:
        bench.gpu.forget(worker)
        bench.other.forget(worker)
        bench.nvml.save()
        os.kill(worker, signal.SIGKILL)
        shell.user_ns["launcher"].kill()
        shell.user_ns["launcher"].communicate()


def test_the_one_gpu_that_is_visible_counts_whole(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a short process there counts in the GPU's energy, even if it was not seen."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", bench.other.uuid)
    with measure() as m:
        pass
    assert m.cost is not None
    own, visible = m.cost.gpus
    assert (own.is_mine, visible.is_mine) == (True, False)
    assert visible.energy_j is not None
    assert visible.mem_peak_bytes is None
    assert "this kernel was not seen there" in repr(m)


def test_nested_and_failing(shell: Any, bench: Bench) -> None:
    with measure() as outer:
        result = shell.run_cell("%%gpu inner\nwith __import__('widget').measure() as block: pass\n"
                                "raise KeyError('the users own')")
    assert not result.success  # and so the next cell of "run all" does not run
    inner, block = shell.user_ns["inner"].cost, shell.user_ns["block"].cost
    around = outer.cost
    assert around is not None
    assert [cost.gpus[0].uuid for cost in (around, inner, block)] == [bench.gpu.uuid] * 3
    assert block.wall_s < inner.wall_s < around.wall_s
    with pytest.raises(ZeroDivisionError), measure() as broken:
        1 / 0  # noqa: B018
    assert broken.cost is not None


def test_a_measure_is_used_once() -> None:
    with measure() as m, pytest.raises(RuntimeError, match="not ended yet"):
        m.plot()
    with pytest.raises(RuntimeError, match="used already"):
        m.__enter__()
