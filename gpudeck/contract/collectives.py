"""Collectives of a job that do not advance, as NCCL's own RAS service describes them."""

from typing import Annotated

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Amount, Number, Word

MOST_JOBS = 16
MOST_NAMED = 8  # ranks of one kind


class CollectiveRank(Struct, frozen=True, array_like=True):
    """A rank of a communicator. `pid`: within its own container, as NCCL knows it; `gpu`: NVML's
    number of its GPU there. None: NCCL does not say."""

    rank: Number
    host: Word  # an address
    pid: Number | None
    gpu: Number | None


Ranks = Annotated[tuple[CollectiveRank, ...], Meta(max_length=MOST_NAMED)]


class CollectiveSample(Struct, frozen=True):
    """The largest communicator of a job whose ranks have stood still. `task_id`: a task of the job.
    `trouble`: why NCCL could not be asked, and nothing else is known; "": it could.

    `behind` have launched the fewest collectives, `least`; `ahead` is how many ranks have launched
    more, `most` at the most. `missing` do not answer. Both lists name the first ranks of
    `behind_count` and `missing_count`."""

    task_id: Word
    trouble: Annotated[str, Meta(max_length=256)] = ""
    communicator: Annotated[str, Meta(max_length=64)] = ""  # as NCCL's own log has it
    size: Number = 0
    still_s: Amount = 0.0  # for how long no rank has launched another one
    ahead: Number = 0
    least: Number = 0
    most: Number = 0
    behind: Ranks = ()
    behind_count: Number = 0
    missing: Ranks = ()
    missing_count: Number = 0
    is_mixed: bool = False  # its ranks have launched different collectives
