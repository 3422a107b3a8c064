"""Environment of a leased process. Pure.

The CUDA C Programming Guide has the traps of its environment variables: an invalid entry of
CUDA_VISIBLE_DEVICES cuts the list, indices follow speed unless CUDA_DEVICE_ORDER says otherwise,
and many programs cannot read UUIDs there."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpudeck.contract.pool_messages import LEASE_ENV, Leased, LeasedGpu
from gpudeck.contract.vendors import AMD as AMD_BOARDS
from gpudeck.contract.vendors import is_nvidia, vendor_of
from gpudeck.pool.core.claims import WHOLE_MILLI

Ids = Literal["auto", "uuid", "index"]
AMD = re.compile(r"\b(AMD|Instinct|Radeon)\b")
ROCR_ID = re.compile(r"GPU-[0-9a-f]+")
# HIP applies these on top of ROCR's, and renumbers what is left.
HIP_NAMES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
CONTAINER_PROGRAMS = ("docker", "podman")


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    set: Mapping[str, str]
    unset: tuple[str, ...] = ()

    def shell(self) -> str:
        return "\n".join((*(f"export {name}={shlex.quote(value)}"
                            for name, value in self.set.items()),
                          *(f"unset {name}" for name in self.unset)))

    def applied(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**env, **self.set}.items()
                if name not in self.unset}


def environment(lease: Leased, ids: Ids, boards: Sequence[str]) -> EnvironmentChange:
    """Return the variables of a lease. `boards`: UUIDs of the boards that the asker sees by itself,
    as CUDA numbers them; empty: it cannot say."""
    variables = {
        LEASE_ENV: lease.lease_id,
        "GPUDECK_GPU_UUIDS": ",".join(gpu.uuid for gpu in lease.gpus),
    }
    if any(AMD.search(gpu.name) for gpu in lease.gpus):
        return EnvironmentChange(variables | {"ROCR_VISIBLE_DEVICES": _rocr(lease, ids)}, HIP_NAMES)
    variables["CUDA_VISIBLE_DEVICES"] = ",".join(_ids(lease, ids, boards))
    if not any(gpu.is_mig for gpu in lease.gpus):
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if lease.share_milli < WHOLE_MILLI and lease.mps_pipes:
        variables |= _mps(lease)
    return EnvironmentChange(variables)


def counts_alike(lease: Leased, boards: Sequence[str]) -> bool:
    """Return whether both see the same boards of NVIDIA, so that both number them alike."""
    return bool(boards) and set(boards) == set(filter(is_nvidia, lease.node_uuids))


def _ids(lease: Leased, ids: Ids, boards: Sequence[str]) -> Sequence[str]:
    uuids = [gpu.uuid for gpu in lease.gpus]
    # A daemon of MPS may number devices otherwise than its clients do.
    if any(gpu.is_mig for gpu in lease.gpus) or ids == "uuid" or (
            ids == "auto" and (lease.mps_pipes or not counts_alike(lease, boards))):
        return uuids
    order = {uuid: place for place, uuid in enumerate(boards)}
    return [str(order.get(gpu.uuid, gpu.index)) for gpu in sorted(lease.gpus, key=_address)]


def _rocr(lease: Leased, ids: Ids) -> str:
    uuids = [gpu.uuid for gpu in lease.gpus]
    if ids != "index" and all(ROCR_ID.fullmatch(uuid) for uuid in uuids):
        return ",".join(uuids)
    # ROCm does not count boards of others, which a node may list first.
    order = {uuid: place for place, uuid in enumerate(
        uuid for uuid in lease.node_uuids if vendor_of(uuid) == AMD_BOARDS)}
    return ",".join(str(order.get(gpu.uuid, gpu.index)) for gpu in lease.gpus)


def _address(gpu: LeasedGpu) -> tuple[str, int]:
    return gpu.pci_bus_id or "", gpu.index


def _mps(lease: Leased) -> dict[str, str]:
    """Return the variables of MPS. New clients alone heed these."""
    variables = {"CUDA_MPS_PIPE_DIRECTORY": lease.mps_pipes,
                 "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{lease.share_milli / 10:g}"}
    if lease.mem_bytes is not None:
        # The daemon's parser takes whole numbers of M and G only. An entry for a device that the
        # client does not see would take all limits away.
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(
            f"{place}={int(lease.mem_bytes) // 2**20}M" for place in range(len(lease.gpus)))
    return variables


class RendezvousAddress(NamedTuple):
    """Address of the first rank."""

    host: str
    port: int


def rendezvous(lease: Leased, at: RendezvousAddress) -> dict[str, str]:
    """Return the variables for several ranks. Not WORLD_SIZE, RANK, LOCAL_RANK or NODE_RANK: a
    program that is not one rank waits for the others for ever (Lightning#5651)."""
    nodes = str(len(lease.hosts) or 1)
    rank = str(lease.hosts.index(lease.host) if lease.host in lease.hosts else 0)
    return {
        "MASTER_ADDR": at.host, "MASTER_PORT": str(at.port),
        "GPUDECK_NNODES": nodes, "GPUDECK_NODE_RANK": rank,
        # What torchrun takes where its flags are not given.
        "PET_NNODES": nodes, "PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": str(len(lease.gpus)),
        "PET_MASTER_ADDR": at.host, "PET_MASTER_PORT": str(at.port)}


def container_words(lease: Leased, command: Sequence[str]) -> str:
    """Return the options that `docker run` needs: a container inherits neither the environment nor
    the processes of its starter. "": it starts none, or has them already."""
    program = command[0].rpartition("/")[2] if command else ""
    if program not in CONTAINER_PROGRAMS or "run" not in command or any(
            LEASE_ENV in word for word in command):
        return ""
    uuids = [gpu.uuid for gpu in lease.gpus]
    # Podman takes CDI names; a comma inside of --gpus needs quotes.
    gpus = ([f"--device=nvidia.com/gpu={uuid}" for uuid in uuids] if program == "podman"
            else ["--gpus", f'"device={",".join(uuids)}"'])
    return shlex.join([*gpus, "--label", f"gpudeck.lease={lease.lease_id}", "-e",
                       f"{LEASE_ENV}={lease.lease_id}"])
