"""Seconds of a recording as the messages an agent would have sent. Pure."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.contract.wire import GPU_STATES, Frame, Hello, Inventory, Slow, pack
from gpudeck.measures.metrics import COLUMNS, SLOW, Absence, Metric

from ..fleet.fleet import IMPORTED
from .views import Cell, ImportBatch, ImportedGpu

STREAM = "import"
FIRST_WHOLE = 2**52  # first generation of full inventories, above those of partial ones
OK, LOST = (GPU_STATES.index(state) for state in ("ok", "lost"))
WHY = {absence.word: absence for absence in Absence}


def node_id_of(host: str) -> str:
    return IMPORTED + hashlib.sha256(host.encode()).hexdigest()[:24]


def uuid_of(host: str, key: str) -> str:
    """Return a UUID that no agent reports, so imported data is not mixed with a board's own."""
    plain = re.sub(r"[^A-Za-z0-9._:-]", "_", key)
    return f"imported-{hashlib.sha256(host.encode()).hexdigest()[:8]}-{plain}"


def hello_of(host: str, version: str, last_seq: int) -> Hello:
    """Return a Hello without a key, which proves nothing."""
    return Hello((1,), bytes(32), bytes(64), node_id_of(host), host, "imported", STREAM, last_seq,
                 version, "imported")


def facts_of(host: str, gpu: ImportedGpu) -> GpuFacts:
    return GpuFacts(uuid_of(host, gpu.key), gpu.index, gpu.name or "GPU of a recording",
                    serial=gpu.serial, pci_bus_id=gpu.pci_bus_id,
                    mem_total_bytes=gpu.mem_total_bytes)


def full_inventory(existing: Iterable[GpuFacts], new: Iterable[GpuFacts]) -> Inventory:
    """Return the inventory of all GPUs ever imported for the node; their number only grows."""
    gpus = {facts.uuid: facts for facts in (*existing, *new)}
    return Inventory(FIRST_WHOLE + len(gpus), tuple(gpus.values()))


def messages(batch: ImportBatch, facts: Sequence[GpuFacts], first_seq: int
             ) -> tuple[list[Inventory], list[Frame]]:
    """Return inventories and Frames. A Frame lists only the GPUs with a sample in its second,
    because a state for any other would be invented."""
    inventories: dict[tuple[int, ...], Inventory] = {}
    frames: list[Frame] = []
    lost_samples = frozenset(batch.lost)
    for t, samples in _by_second(batch):
        places = tuple(batch.gpu[at] for at in samples)
        if places not in inventories:
            inventories[places] = _listing([facts[gpu] for gpu in places])
        values, absent = _numbers(batch, samples, COLUMNS)
        slow = _numbers(batch, samples, SLOW)
        frames.append(Frame(
            first_seq + len(frames), float(t), 1.0, inventories[places].generation, values, absent,
            bytes(LOST if at in lost_samples else OK for at in samples),
            slow=Slow(*slow) if any(metric.key in batch.values for metric in SLOW) else None))
    return list(inventories.values()), frames


def _by_second(batch: ImportBatch) -> Iterator[tuple[int, list[int]]]:
    seconds: dict[int, dict[int, int]] = {}
    for at, (gpu, t) in enumerate(zip(batch.gpu, batch.t, strict=True)):
        seconds.setdefault(t, {})[gpu] = at
    for t in sorted(seconds):
        yield t, [seconds[t][gpu] for gpu in sorted(seconds[t])]


def _listing(gpus: list[GpuFacts]) -> Inventory:
    """Return a partial inventory; its generation follows from its GPUs, so that it is the same
    after any restart."""
    digest = hashlib.sha256("\0".join(facts.uuid for facts in gpus).encode()).digest()
    return Inventory(int.from_bytes(digest[:6], "big"), tuple(gpus))


def _numbers(batch: ImportBatch, samples: list[int], metrics: Sequence[Metric]
             ) -> tuple[bytes, bytes]:
    values, absent = [], bytearray()
    for at in samples:
        for metric in metrics:
            column = batch.values.get(metric.key)
            cell: Cell = None if column is None else column[at]
            is_number = isinstance(cell, float)
            values.append(cell if isinstance(cell, float) else 0.0)
            absent.append(Absence.PRESENT if is_number else WHY[str(cell)] if cell is not None
                          else Absence.UNSUPPORTED)
    return pack(values), bytes(absent)


def source_of(batch: ImportBatch) -> dict[str, object]:
    """Return the facts about a batch for the audit log."""
    return {"node": batch.node, "gpus": len(batch.gpus), "samples": len(batch.t),
            "start": min(batch.t), "end": max(batch.t) + 1, "source": batch.source or None}


