"""Lines of Python that make a framework keep to a lease. Pure.

A fraction caps PyTorch's own allocator alone; TensorFlow takes limits in MiB, and none
together with growth.
"""

from collections.abc import Mapping

from gpudeck.contract.pool_messages import Leased


def tensorflow_code(lease: Leased, environment: Mapping[str, str], fraction: float | None,
                    is_distributed: bool, is_mixed: bool) -> list[str]:
    """Return code that sets TensorFlow up. `fraction`: of each board's memory; None: as much as it
    comes to need."""
    lines = [*_environment(environment, "TensorFlow"), "import tensorflow as tf",
             'gpus = tf.config.list_physical_devices("GPU")']
    sizes = [gpu.mem_bytes for gpu in lease.gpus]
    if fraction is None or None in sizes:
        lines += ["for gpu in gpus:", "    tf.config.experimental.set_memory_growth(gpu, True)"]
    else:
        limits = [int(size * fraction / 2**20) for size in sizes if size is not None]
        lines += [
            f"for gpu, limit in zip(gpus, {limits}):  # MiB",
            "    tf.config.set_logical_device_configuration(",
            "        gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])"]
    if is_mixed:
        lines.append('tf.keras.mixed_precision.set_global_policy("mixed_float16")')
    if is_distributed:
        lines.append("strategy = tf.distribute.MirroredStrategy()")
    return lines


def pytorch_code(lease: Leased, environment: Mapping[str, str], fraction: float | None,
                 is_distributed: bool, is_mixed: bool) -> list[str]:
    lines = [*_environment(environment, "PyTorch"), "import torch"]
    if fraction is not None:
        lines += ["for device in range(torch.cuda.device_count()):",
                  f"    torch.cuda.set_per_process_memory_fraction({fraction}, device)"]
    if is_distributed:
        lines += [f"# start this with: torchrun --nproc-per-node={len(lease.gpus)} train.py",
                  'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
                  'torch.distributed.init_process_group("nccl")']
    if is_mixed:
        lines += ['scaler = torch.amp.GradScaler("cuda")',
                  'mixed = torch.autocast("cuda", dtype=torch.float16)']
    return lines


def _environment(environment: Mapping[str, str], framework: str) -> list[str]:
    return ["import os", f"# before {framework} is imported",
            f"os.environ.update({dict(environment)!r})"]
