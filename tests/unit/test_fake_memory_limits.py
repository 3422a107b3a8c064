"""Memory limits of control groups in the C fake, through unmodified pynvml."""

import pynvml

from agent.tasks.control_group import group_of
from tests.fakes.nvml import FakeNvml
from tests.unit.test_fake_nvml import code_of, handle, number, nvml

__all__ = ["nvml"]


def test_memory_limits_of_a_cgroup(nvml: FakeNvml) -> None:
    soft, hard = sorted((number(), number() + 2**31))
    cgroup = f"/sys/fs/cgroup/job_{number()}".encode()
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=cgroup, softLimit=soft, hardLimit=hard)
    read_back = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=cgroup)
    assert code_of(lambda: pynvml.nvmlDeviceSetMemoryLimits_v1(handle(), limits)) == 3
    nvml.gpus[0]["memory_limits"] = 1
    nvml.save()
    assert code_of(lambda: pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), read_back)) == 6
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle(), limits)
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), read_back)
    assert (read_back.softLimit, read_back.hardLimit) == (soft, hard)
    assert nvml.calls()[-1].arguments == (cgroup.decode(), str(soft), str(hard))
    nvml.gpus[0][f"used_by_{cgroup.decode()}"] = used_bytes = number()
    nvml.save()
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), read_back)
    assert read_back.currentUsed == used_bytes
    none = pynvml.c_nvmlSetMemoryLimits_v1_t(
        nameSpace=cgroup, softLimit=0, hardLimit=pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle(), none)
    assert code_of(lambda: pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), read_back)) == 6


def test_without_the_kernels_controller_a_group_answers_with_the_limit_around_it(nvml: FakeNvml
                                                                                 ) -> None:
    nvml.gpus[0].update(memory_limits=1, flat_groups=1)
    nvml.save()
    inner = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=b"/sys/fs/cgroup/a/b")
    assert code_of(lambda: pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), inner)) == 3
    outer = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=b"/sys/fs/cgroup/a", hardLimit=number())
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle(), outer)
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle(), inner)
    assert inner.hardLimit == outer.hardLimit


def test_memory_is_that_of_the_callers_control_group(nvml: FakeNvml) -> None:
    own = f"/sys/fs/cgroup{group_of('self') or ''}".rstrip("/")
    total = pynvml.nvmlDeviceGetMemoryInfo(handle(), version=pynvml.nvmlMemory_v2).total
    nvml.gpus[0].update({"memory_limits": 1, f"used_by_{own}": 2**20})
    nvml.save()
    limit = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=own.encode(), hardLimit=total // 4)
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle(), limit)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle(), version=pynvml.nvmlMemory_v2)
    assert (memory.total, memory.used) == (total // 4, 2**20)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle()).total == total, "only the second version"
