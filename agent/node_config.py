"""Configuration of one node's agent, and the part of it that each capability is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .actions.hold_files import hold_files
from .actions.kinds.execution import ActionTimeouts
from .actions.wiring import ActionOptions
from .backends import Backend
from .conversation.wiring import ConversationOptions
from .journal.store import ActionStore
from .link.admission import ConnectLimiter
from .link.identity import NodeIdentity
from .link.socket import TlsOf
from .pool.lock import UNUSED_TELL_S
from .pool.wiring import PoolOptions
from .reader.recording import RecordingWriter
from .schedulers import Schedulers
from .telemetry.prometheus import MetricsPage


@dataclass(frozen=True, slots=True)
class NodeConfig:
    hubs: Sequence[str]  # URLs of one hub, in the order in which they are tried; (): alone
    tls_of: TlsOf
    identity: NodeIdentity
    host: str
    backend: Backend
    boot_id: str
    data: Path
    acts: ActionStore
    platform: str = ""
    options: str = ""  # of the backend
    ceiling: Path | None = None
    is_made_up: bool = False  # one of a simulator's many
    recording: RecordingWriter | None = None
    metrics: MetricsPage | None = None
    connect_limiter: ConnectLimiter | None = None  # of the nodes of one process
    # Called at each turn of the loop, with the state of the connection.
    alive: Callable[[float, str], None] = lambda now, status: None
    timeouts: ActionTimeouts = field(default_factory=ActionTimeouts)
    pool_socket: Path | None = None
    managed_by: str = ""  # a scheduler
    local_claims: bool = False
    exclusive_leases: bool = False
    limits_memory: bool = False  # by the driver, for control groups
    asks_serving: bool = False  # engines that serve models for their metrics
    asks_nccl: bool = False  # about jobs that look stuck
    schedulers: Schedulers = field(default_factory=Schedulers)
    pool_unused_s: float = UNUSED_TELL_S
    own_hold_files: tuple[Path, ...] | None = None  # a test's, not those of its machine
    hub_file: Path | None = None  # where the hub's hold is told to users of the machine

    @property
    def store_name(self) -> str:
        return self.host if self.is_made_up else ""

    @property
    def action_options(self) -> ActionOptions:
        files = hold_files(self.data) if self.own_hold_files is None else self.own_hold_files
        return ActionOptions(ceiling=self.ceiling, hold_files=files,
                             hub_file=self.hub_file, timeouts=self.timeouts,
                             schedulers=self.schedulers)

    @property
    def pool_options(self) -> PoolOptions | None:
        """Return the options of the pool; None: this node is in none."""
        return None if self.pool_socket is None else PoolOptions(
            self.pool_socket, self.managed_by, self.local_claims, self.exclusive_leases,
            self.pool_unused_s)

    @property
    def conversation_options(self) -> ConversationOptions:
        return ConversationOptions(hubs=self.hubs, tls_of=self.tls_of, platform=self.platform,
                                   limiter=self.connect_limiter)
