"""Time slices of a GPU, with a fake of `nvidia-smi compute-policy`: applied is one thing, read back
another, and what is not understood is not known."""

import random
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.actions.standalone import StandaloneNode
from agent.backends.nvml import time_slice
from gpudeck.contract.actions import Reply
from gpudeck.contract.limits import Cordon, PowerCap, SliceLength, TimeSlice
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Children
from tests.fakes.nvml import FakeNvml
from tests.fakes.vendor_tools import VendorTools
from tests.integration.limits_bench import Bench, codes, done, shown


class SliceBench(Bench):
    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder, children)
        self.nvml = FakeNvml(folder, gpus=2)
        self.nvml.save()
        self.gpu = self.nvml.gpus[0].uuid
        self.tools = VendorTools(folder, self.nvml)
        self.actions = ["set_time_slice", "cordon"]
        self.parts: list[GpuFacts] = []

    def node(self) -> AbstractContextManager[StandaloneNode]:
        return self.opened(self.actions, [
            *(GpuFacts(gpu.uuid, index, "H100") for index, gpu in enumerate(self.nvml.gpus)),
            *self.parts])

    def set(self, length: SliceLength) -> Reply:
        with self.node() as here:
            return done(here, TimeSlice(self.gpu, length))


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> SliceBench:
    children.start(gpu="GPU-elsewhere")
    new_bench = SliceBench(tmp_path, children)
    new_bench.nvml.use_in_children(monkeypatch)
    monkeypatch.setenv("PATH", new_bench.tools.path)
    return new_bench


LENGTHS: list[SliceLength] = ["short", "medium", "long"]


def test_it_is_set_and_read_back(bench: SliceBench) -> None:
    length = random.choice(LENGTHS)
    with bench.node() as here:
        preview = shown(here, TimeSlice(bench.gpu, length))
    [change] = preview.changes
    assert (change.before, change.after) == ("default", length)
    assert any("Not verified on hardware" in words for words in preview.warnings)
    reply = bench.set(length)
    assert (reply.state, length in reply.step) == ("done", True), reply.step
    assert reply.verified is not None
    assert (reply.verified.applied, reply.verified.in_force) == (True, True)
    number = time_slice.NUMBERS[length]
    assert f"compute-policy -i {bench.gpu} --set-timeslice={number}" in bench.tools.calls
    assert bench.set("default").state == "done"


def test_a_success_that_changed_nothing_is_none(bench: SliceBench) -> None:
    bench.tools.slices("lie")
    reply = bench.set("long")
    assert (reply.state, "not in force" in reply.step) == ("not_effective", True)


def test_a_list_that_is_not_understood_is_not_known(bench: SliceBench) -> None:
    bench.tools.slices("mute")
    reply = bench.set("long")
    assert reply.verified is not None
    assert (reply.state, reply.verified.in_force) == ("done", None)
    assert "does not report" in reply.step


def test_a_refusal_changes_nothing(bench: SliceBench) -> None:
    bench.tools.slices("refuse")
    reply = bench.set("long")
    assert reply.state == "refused"
    assert reply.refusal is not None
    assert "not supported" in reply.refusal.sentence


def test_what_forbids_it(bench: SliceBench, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = TimeSlice(bench.gpu, "long")
    bench.actions = ["cordon"]
    with bench.node() as here:
        assert codes(here, setting) == ["type"], "off until the ceiling names it"
    bench.actions = ["set_time_slice"]
    bench.parts = [GpuFacts("MIG-1", 2, "H100", parent_uuid=bench.gpu)]
    with bench.node() as here:
        assert codes(here, setting) == ["setting"]
    assert bench.set("long").state == "refused"
    bench.parts = []
    monkeypatch.setenv("PATH", str(bench.folder))
    with bench.node() as here:
        assert codes(here, setting) == ["setting"]
    assert not any("--set" in call for call in bench.tools.calls)


def test_beside_another_setting(bench: SliceBench) -> None:
    bench.actions = ["set_time_slice", "set_power_cap", "cordon"]
    with bench.node() as here:
        assert done(here, Cordon(bench.gpu)).state in ("done", "refused")
        assert shown(here, PowerCap(bench.gpu, 300, 60)).refusals == ()
        assert done(here, TimeSlice(bench.gpu, "short")).state == "done"


@pytest.mark.parametrize(("text", "length"), [
    ("| GPU 0 | TimeSlice | Default |", "default"), ("time slice = LONG", "long"),
    ("Timeslice: default or long", None), ("nothing", None), ("", None)])
def test_reading_of_the_list(text: str, length: str | None, tmp_path: Path,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert time_slice.read("GPU-1") == length
