"""What a leased process finds in its environment. Pure.

facts/pool.md 5 has the traps: an invalid entry of CUDA_VISIBLE_DEVICES cuts the list, indices
follow speed unless CUDA_DEVICE_ORDER says otherwise, and many programs cannot read UUIDs there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudeck.pool.core.claims import WHOLE_MILLI
from gpudeck.pool.messages import LEASE_ENV, Leased, LeasedGpu

Ids = Literal["auto", "uuid", "index"]


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    set: Mapping[str, str]
    unset: tuple[str, ...] = ()


def environment(lease: Leased, ids: Ids, seen: Collection[str]) -> EnvironmentChange:
    """`seen`: UUIDs of the boards that the asker sees by itself; empty: it cannot say."""
    found = {
        LEASE_ENV: lease.lease_id,
        "GPUDECK_GPU_UUIDS": ",".join(gpu.uuid for gpu in lease.gpus),
        "CUDA_VISIBLE_DEVICES": ",".join(_ids(lease, ids, seen)),
    }
    if not any(gpu.is_mig for gpu in lease.gpus):
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if lease.share_milli < WHOLE_MILLI:
        found |= _share(lease)
    return EnvironmentChange(found)


def _ids(lease: Leased, ids: Ids, seen: Collection[str]) -> Sequence[str]:
    if any(gpu.is_mig for gpu in lease.gpus) or ids == "uuid":
        return [gpu.uuid for gpu in lease.gpus]
    # Both count the same boards, so both number them alike.
    if ids == "index" or (seen and set(seen) == set(lease.node_uuids)):
        return [str(gpu.index) for gpu in sorted(lease.gpus, key=_address)]
    return [gpu.uuid for gpu in lease.gpus]


def _address(gpu: LeasedGpu) -> tuple[str, int]:
    return gpu.pci_bus_id or "", gpu.index


def _share(lease: Leased) -> dict[str, str]:
    """New MPS clients alone heed these."""
    found = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{lease.share_milli / 10:g}"}
    if lease.mps_pipes:
        found["CUDA_MPS_PIPE_DIRECTORY"] = lease.mps_pipes
    if lease.mem_bytes is not None:
        # The daemon's parser takes whole numbers of M and G only.
        mib = int(lease.mem_bytes) // 2**20
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(
            f"{place}={mib}M" for place in range(len(lease.gpus)))
    return found
