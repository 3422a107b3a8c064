"""An act on a task of a MIG instance, through NVML: what is shown is the instance, and what is
verified is its memory."""

import random
from pathlib import Path

import pytest

from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.standalone import StandaloneNode
from tests.fakes.children import Children, a_ceiling, wait_until_old
from tests.fakes.nvml import AfterExit, FakeNvml


@pytest.mark.parametrize(("after_exit", "state"), [
    ("goes", "done"), ("memory_stays", "not_effective")])
def test_end_on_an_instance(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_exit: AfterExit,
    state: str,
) -> None:
    """A neighbour on the same instance is shown as a bystander, one on another instance is not."""
    nvml = FakeNvml(tmp_path, gpus=1)
    monkeypatch.setenv("LD_LIBRARY_PATH", nvml.env()["LD_LIBRARY_PATH"])
    monkeypatch.setenv("FAKE_NVML", nvml.env()["FAKE_NVML"])
    # The fake's pids are those that we see, in a container too.
    monkeypatch.setattr("agent.actions.context.in_host_namespace", lambda: True)
    one, other = nvml.mig(nvml.gpus[0], "3g.40gb"), nvml.mig(nvml.gpus[0], "4g.40gb")
    victim, beside, elsewhere = (children.start() for _ in range(3))
    mem_bytes = random.randrange(2**28, 2**30)
    for device in (one, other):
        device.update(mem_adds=1, mem_used=2**20)
    one.process(victim.pid, mem_bytes, after_exit=after_exit)
    one.process(beside.pid, 2**20)
    other.process(elsewhere.pid, mem_bytes)
    nvml.save()
    data = tmp_path / "data"
    data.mkdir()
    with StandaloneNode(data, "nvml", "", a_ceiling(tmp_path), ActionTimeouts(2.0, 2.0)) as here:
        wait_until_old(elsewhere)
        preview = here.preview("end", victim.task_id)
        assert preview.refusals == ()
        [held_gpu] = [gpu for target in preview.victims for gpu in target.held]
        assert (held_gpu.gpu_uuid, held_gpu.mem_used_bytes) == (one.uuid, mem_bytes)
        assert {bystander.task_id for bystander in preview.bystanders} == {beside.task_id}
        reply = here.act(preview, "it is mine", "ada")
    assert reply.state == state
    assert reply.verified is not None
    assert reply.verified.memory_returned is (state == "done")
    assert victim.process.wait(1) is not None
    assert beside.is_alive()
    assert elsewhere.is_alive()
