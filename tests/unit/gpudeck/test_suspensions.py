"""Refusals of `suspend` that need no look at the machine: by a task's GPUs and its kind."""

import pytest

from gpudeck.contract.suspensions import INSTANCE, NOT_COMPUTE, suspend_refusal
from gpudeck.contract.vendors import NO_SUSPENSION

NVIDIA = "GPU-5d0a1c7e-0000-4000-8000-000000000001"


@pytest.mark.parametrize(("uuids", "kind", "why"), [
    ([NVIDIA], "compute", ""), ([NVIDIA], None, ""), ([], None, ""),
    (["GPU-946d7e1ef9b172dd"], "compute", NO_SUSPENSION),
    (["AMD-0000:03:00.0"], None, NO_SUSPENSION),
    ([NVIDIA, "GPU-946d7e1ef9b172dd"], "compute", NO_SUSPENSION),
    (["MIG-5d0a1c7e-0000-4000-8000-000000000001"], "compute", INSTANCE),
    ([NVIDIA, "MIG-5d0a1c7e-0000-4000-8000-000000000001"], None, INSTANCE),
    ([NVIDIA], "mps_client", NOT_COMPUTE), ([NVIDIA], "graphics", NOT_COMPUTE)])
def test_boards_of_others_instances_and_what_does_not_compute_alone(
        uuids: list[str], kind: str | None, why: str) -> None:
    assert suspend_refusal(uuids, kind) == why
