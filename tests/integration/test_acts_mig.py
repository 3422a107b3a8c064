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
    """Its neighbour on the same instance is shown as a bystander, that on the other is not."""
    nvml = FakeNvml(tmp_path, gpus=1)
    monkeypatch.setenv("LD_LIBRARY_PATH", nvml.env()["LD_LIBRARY_PATH"])
    monkeypatch.setenv("FAKE_NVML", nvml.env()["FAKE_NVML"])
    # The fake's pids are those that we see, in a container too.
    monkeypatch.setattr("agent.actions.context.in_host_namespace", lambda: True)
    one, other = nvml.mig(nvml.gpus[0], "3g.40gb"), nvml.mig(nvml.gpus[0], "4g.40gb")
    victim, beside, elsewhere = (children.start() for _ in range(3))
    held = random.randrange(2**28, 2**30)
    for device in (one, other):
        device.update(mem_adds=1, mem_used=2**20)
    one.process(victim.pid, held, after_exit=after_exit)
    one.process(beside.pid, 2**20)
    other.process(elsewhere.pid, held)
    nvml.save()
    data = tmp_path / "data"
    data.mkdir()
    with StandaloneNode(data, "nvml", "", a_ceiling(tmp_path), ActionTimeouts(2.0, 2.0)) as here:
        wait_until_old(elsewhere)
        shown = here.preview("end", victim.task_id)
        assert shown.refusals == ()
        [held_here] = [each for one_ in shown.victims for each in one_.held]
        assert (held_here.gpu_uuid, held_here.mem_used_bytes) == (one.uuid, held)
        assert {each.task_id for each in shown.bystanders} == {beside.task_id}
        reply = here.act(shown, "it is mine", "ada")
    assert reply.state == state
    assert reply.verified is not None
    assert reply.verified.memory_returned is (state == "done")
    assert victim.process.wait(1) is not None
    assert beside.is_alive()
    assert elsewhere.is_alive()
