"""Request and answer of `POST imports`."""

from typing import Annotated

from msgspec import Meta, Struct

from ..fleet.views import AbsenceWord

MOST_SAMPLES = 50_000

HostName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
GpuKey = Annotated[str, Meta(min_length=1, max_length=90)]
Cell = float | AbsenceWord | None


class ImportedGpu(Struct, forbid_unknown_fields=True):
    """A GPU of a recording. `key` is unique within its node: a UUID, a bus id, an index."""

    key: GpuKey
    index: Annotated[int, Meta(ge=0, le=65_535)]
    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    serial: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    pci_bus_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    mem_total_bytes: Annotated[float, Meta(ge=0, le=2**42)] | None = None


class ImportBatch(Struct, forbid_unknown_fields=True):
    """Seconds of a node, as columns. `gpu`: each sample's index in `gpus`; `t`: its second, UTC.
    `values`: by metric; null: not in the recording. `lost`: indexes of samples at which the GPU was
    lost."""

    node: HostName
    gpus: Annotated[list[ImportedGpu], Meta(min_length=1, max_length=256)]
    gpu: Annotated[list[Annotated[int, Meta(ge=0, le=255)]],
                   Meta(min_length=1, max_length=MOST_SAMPLES)]
    t: Annotated[list[int], Meta(min_length=1, max_length=MOST_SAMPLES)]
    values: dict[str, list[Cell]]
    lost: list[int] = []
    source: Annotated[str, Meta(max_length=256)] = ""  # for the audit log


class ImportView(Struct):
    """The imported batch. `uuids`: UUIDs in history of the GPUs, in the order of `gpus`. `step_s`:
    the finest step in which its oldest data is kept here: 1, 60 or 3600."""

    node: str
    host: str
    uuids: list[str]
    samples: int
    step_s: int
