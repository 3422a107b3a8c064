"""CPUs and host memory in a claim: what a node has left of them, and how people read it. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from gpudeck.pool.core.claims import CPU_MILLI, Claim


class HostShare(Protocol):
    @property
    def cpu_milli(self) -> int | None: ...
    @property
    def ram_bytes(self) -> float | None: ...


class FreeHost(NamedTuple):
    """Free CPUs and memory of one node. None: it is not counted there."""

    cpu_milli: int | None = None
    ram_bytes: int | None = None

    def has(self, claim: Claim) -> bool:
        return (self.cpu_milli is None or self.cpu_milli >= (claim.cpu_milli or 0)) and (
            self.ram_bytes is None or self.ram_bytes >= (claim.ram_bytes or 0))

    def after_grants(self, claims: Iterable[Claim], sign: int = 1) -> "FreeHost":
        """Return what is free after these were granted; `sign` -1: after they came back."""
        cpu_milli, ram_bytes = self
        for claim in claims:
            if cpu_milli is not None and claim.cpu_milli:
                cpu_milli -= sign * claim.cpu_milli
            if ram_bytes is not None and claim.ram_bytes:
                ram_bytes -= sign * claim.ram_bytes
        return FreeHost(cpu_milli, ram_bytes)


NOT_COUNTED = FreeHost()
GPU_MEMORY = "gpu_mem"  # of the limits of a lease: the driver holds the memory of its share


def asks_for_host(claims: Iterable[Claim]) -> bool:
    return any(claim.cpu_milli or claim.ram_bytes for claim in claims)


def lack_words(claim: Claim, whole: FreeHost, free: FreeHost) -> str:
    """Describe which of a node's CPUs and memory are too little for a claim now; "": none."""
    parts = []
    if not FreeHost(cpu_milli=free.cpu_milli).has(claim):
        parts.append(f"it needs {cpu_words(claim.cpu_milli)}, "
                     f"{_count(free.cpu_milli)} of {_count(whole.cpu_milli)} are not allocated")
    if not FreeHost(ram_bytes=free.ram_bytes).has(claim):
        parts.append(f"it needs {ram_words(claim.ram_bytes)}, {_gib(free.ram_bytes)} of "
                     f"{_gib(whole.ram_bytes)} GiB are not allocated")
    return ", ".join(parts)


def asked_words(claim: Claim) -> str:
    """Describe the CPUs and memory that a claim asks for: `8 CPUs, 64 GiB of memory`; "":
    neither."""
    return ", ".join([
        *([cpu_words(claim.cpu_milli)] if claim.cpu_milli else ()),
        *([ram_words(claim.ram_bytes)] if claim.ram_bytes else ())])


def lease_words(claim: Claim, cores: str, limits: Collection[str]) -> str:
    """Describe the CPUs and memory of a lease, and what holds it to them. `cores`: as the kernel
    writes them. `limits`: to which its command was seen to be held."""
    parts = []
    if claim.cpu_milli:
        parts.append(f"{cpu_words(claim.cpu_milli)} (" + (
            f"cores {cores}" if "cpus" in limits else "only counted") + ")")
    if claim.ram_bytes:
        parts.append(f"{ram_words(claim.ram_bytes)} (" + (
            "at most" if "ram" in limits else "only counted") + ")")
    if claim.is_share and claim.mem_bytes:
        parts.append(f"{_gib(claim.mem_bytes)} GiB of GPU memory (at most, by " + (
            "the driver" if GPU_MEMORY in limits else "MPS or HAMi-core in its processes") + ")")
    return ", ".join(parts)


def only_counted(lease: HostShare, limits: Collection[str] = ()) -> str:
    """Describe, for the owner of a lease, CPUs and memory of it that nothing enforces; "": all is
    enforced."""
    parts = []
    if lease.cpu_milli and "cpus" not in limits:
        parts.append(cpu_words(lease.cpu_milli))
    if lease.ram_bytes and "ram" not in limits:
        parts.append(ram_words(int(lease.ram_bytes)))
    return "" if not parts else (
        f"{' and '.join(parts)}: counted, so that no other lease gets them, but nothing limits "
        "what runs here to them")


def left_words(whole: FreeHost, free: FreeHost) -> str:
    """Describe a node's CPUs and memory that are not given out; "": neither is counted there."""
    parts = []
    if whole.cpu_milli is not None:
        parts.append(f"{_count(free.cpu_milli)} of {cpu_words(whole.cpu_milli)}")
    if whole.ram_bytes is not None:
        parts.append(f"{_gib(free.ram_bytes)} of {ram_words(whole.ram_bytes)}")
    return ", ".join(parts)


def cpu_words(cpu_milli: int | None) -> str:
    count = (cpu_milli or 0) / CPU_MILLI
    return f"{count:g} CPU{'s' * (count != 1)}"


def ram_words(ram_bytes: int | None) -> str:
    return f"{_gib(ram_bytes)} GiB of memory" if ram_bytes is None or ram_bytes >= 2**30 else (
        f"{ram_bytes / 2**20:.4g} MiB of memory")


def cores_text(cores: Collection[int]) -> str:
    """Write a list of CPUs as the kernel does: `0-3,8`."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and parts[-1][-1] == core - 1:
            parts[-1][1:] = [core]
        else:
            parts.append([core])
    return ",".join("-".join(map(str, part)) for part in parts)


def cores_of(text: str) -> tuple[int, ...]:
    """Read a list of CPUs. Raises ValueError where it is none."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _count(cpu_milli: int | None) -> str:
    return f"{max(cpu_milli or 0, 0) / CPU_MILLI:g}"


def _gib(ram_bytes: int | None) -> str:
    return f"{max(ram_bytes or 0, 0) / 2**30:.4g}"
