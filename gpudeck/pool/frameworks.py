"""Settings of frameworks for a leased GPU, by the version that is installed. Pure.

PyTorch ends at a key that it does not know, so nothing is guessed (CUDAAllocatorConfig)."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpudeck.contract.pool_messages import Leased
from gpudeck.pool.core.claims import WHOLE_MILLI

Framework = Literal["pytorch", "tensorflow", "jax"]
DISTRIBUTIONS: Mapping[Framework, str] = {
    "pytorch": "torch", "tensorflow": "tensorflow", "jax": "jax"}
# The header CUDAAllocatorConfig.h of the wheels has it from this version on.
TORCH_FRACTION = 2, 10
TORCH_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the second is the older one


class FrameworkKeys(NamedTuple):
    """Variables for a framework. `note`: what its user has to do or know; "": nothing."""

    set: Mapping[str, str]
    note: str = ""


def framework_keys(framework: Framework, version: str, lease: Leased, env: Mapping[str, str]
                   ) -> FrameworkKeys:
    """Return the variables for a framework. `env`: as it would be without them. What somebody has
    set there stays."""
    part = memory_part(lease)
    match framework:
        case "pytorch":
            return _pytorch(version, part, env)
        case "tensorflow":
            return FrameworkKeys({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, "" if part is None else (
                "TensorFlow reads no limit of memory from its environment; in the program, before "
                "anything uses a GPU: tf.config.set_logical_device_configuration("
                "tf.config.list_physical_devices('GPU')[0], "
                "[tf.config.LogicalDeviceConfiguration(memory_limit="
                f"{memory_mib(lease, part) or 'MIB'})])"))
        case "jax":
            # It was renamed in 2026, and each version reads one of the two.
            return FrameworkKeys({} if part is None else dict.fromkeys(
                ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"), f"{part:.4g}"))


def _pytorch(version: str, part: float | None, env: Mapping[str, str]) -> FrameworkKeys:
    if part is None:
        return FrameworkKeys({})
    by_code = f"torch.cuda.set_per_process_memory_fraction({part:.4g})"
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < TORCH_FRACTION:
        return FrameworkKeys({}, f"torch {version} reads no limit of memory from its environment; "
                                 f"in the program: {by_code}")
    if (variable := next((name for name in TORCH_NAMES if name in env), None)) is not None:
        return FrameworkKeys({}, f"{variable} is set already and stays; in the program: {by_code}")
    return FrameworkKeys({TORCH_NAMES[0]: f"per_process_memory_fraction:{part:.4g}"})


def memory_part(lease: Leased) -> float | None:
    """Return the part of the board's memory that is meant for a lease; None: all of it."""
    if lease.share_milli == WHOLE_MILLI:
        return None
    board = lease.gpus[0].mem_bytes
    return lease.mem_bytes / board if lease.mem_bytes and board else (
        lease.share_milli / WHOLE_MILLI)


def memory_mib(lease: Leased, part: float) -> int | None:
    """Return that part in MiB; None: the size of its board is not known."""
    board = lease.gpus[0].mem_bytes
    size = lease.mem_bytes or (None if board is None else board * part)
    return None if size is None else round(size / 2**20)
