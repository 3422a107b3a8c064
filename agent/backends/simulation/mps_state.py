"""MPS of one simulated node: what its control daemon remembers, and whom it has as clients.

    DIR/world/NODE.mps     as it is now; a node without this file has no MPS
    DIR/world/NODE-mps/    its pipe directory
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from .chance import seed_of
from .folder import WatchedFile, node_path
from .jobs import SYNTHETIC_PID_FROM, SimulatedJob
from .mps_answers import SimulatedMpsSettings

LOST_MOST = 256
Client = tuple[int, int]  # pid and start: a pid alone may live on in another


class SimulatedMpsRecord(msgspec.Struct):
    """Record of the daemon. `is_killed`: control.json says so, and it was obeyed. `lost`: clients
    whose contexts MPS has taken away; their programs end of it."""

    is_up: bool = True
    is_killed: bool = False
    began_at: float = 0.0
    server: int | None = None
    servers: int = 0  # there were so far
    default: SimulatedMpsSettings = msgspec.field(default_factory=SimulatedMpsSettings)
    of: dict[int, SimulatedMpsSettings] = msgspec.field(default_factory=dict)
    lost: tuple[Client, ...] = ()

    def begin(self, at: float) -> None:
        """Begin: a restarted daemon has forgotten all settings and has no clients yet."""
        self.is_up, self.began_at, self.server = True, at, None
        self.default, self.of = SimulatedMpsSettings(), {}

    def lose(self, clients: Iterable[Client]) -> None:
        self.lost = (*self.lost, *clients)[-LOST_MOST:]


_KEPT = msgspec.json.Decoder(SimulatedMpsRecord)


def pipes_path(folder: Path, node: str) -> Path:
    return folder / "world" / f"{node}-mps"


def mps_file(world: Path | None, node: str) -> WatchedFile[SimulatedMpsRecord]:
    """Return the record's file; without a file this node has no MPS."""
    return WatchedFile(node_path(world, node, "mps"), lambda path: _KEPT.decode(path.read_bytes()))


def clients_of(record: SimulatedMpsRecord, jobs: Iterable[SimulatedJob]) -> list[SimulatedJob]:
    """Return all jobs on whole boards that began under this daemon."""
    return [job for job in jobs if job.started_at >= record.began_at
            and client(job) not in record.lost and is_on_whole_boards(job)]


def is_on_whole_boards(job: SimulatedJob) -> bool:
    return not any(uuid.startswith("MIG-") for uuid in job.gpus)


def client(job: SimulatedJob) -> Client:
    return job.pid, job.start_ticks


def new_server(record: SimulatedMpsRecord, seed: int, node: str) -> int:
    """Count a new server; return its pid, which no kernel gives out."""
    record.servers += 1
    return SYNTHETIC_PID_FROM + seed_of(seed, node, "mps server", record.servers) % 5_000_000
