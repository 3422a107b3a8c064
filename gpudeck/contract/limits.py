"""Settings of MPS and of GPUs: what can be requested, and what of it is in force.

A setting is an action like any other: previewed, signed, recorded, and proved by reading it back.
That the driver or MPS accepted it without an error proves nothing (pitfalls.md A.1): `applied` is
their answer, `in_force` what was read afterwards.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gpudeck.contract.action_table import SettingAction
from gpudeck.contract.kubernetes import (
    KubernetesCordon,
    KubernetesDelete,
    KubernetesEvict,
    KubernetesSetting,
    KubernetesUncordon,
)
from gpudeck.contract.message_limits import Amount, CommandLine, Number, Pid, Seconds, Text, Word
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.contract.slurm import (
    SlurmCancel,
    SlurmContinue,
    SlurmDrain,
    SlurmHold,
    SlurmRelease,
    SlurmRequeue,
    SlurmResume,
    SlurmSetting,
    SlurmSuspend,
)

MAX_DAEMONS = 16
MAX_SERVERS = 64
MAX_CLIENTS = 256  # a server takes 60 at most (NVIDIA's MPS documentation)
MAX_LEASES = 512
MAX_FINDINGS = 64
MAX_FIXES = 64  # of one finding; a node has so many GPUs at most
ORDINALS = 32  # MPS ignores settings for higher ones (C.3)

Percent = Annotated[int, Meta(ge=1, le=100)]
Ordinal = Annotated[int, Meta(ge=0, lt=ORDINALS)]
Mebibytes = Annotated[int, Meta(ge=1, le=2**24)]
Watts = Annotated[int, Meta(ge=1, le=5_000)]
Megahertz = Annotated[int, Meta(ge=1, le=20_000)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=30 * 86_400)]
# The daemon appends its socket's name; with a longer path it fails without an error.
PIPES_MAX = 107 - len("/control")
Pipes = Annotated[str, Meta(min_length=2, max_length=PIPES_MAX, pattern=r"^/[^\x00-\x1f\x7f]+$")]
Preset = Literal["high", "normal", "low"]
Mode = Literal["default", "exclusive_process"]
# Share of the threads in %, and priority of a client (0 normal, 1 below): for future clients.
PRESETS: dict[Preset, tuple[int, Literal[0, 1]]] = {
    "high": (60, 0), "normal": (30, 0), "low": (10, 1)}


class MpsPercent(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_percent"):
    """`server` None: the default, which the next server takes."""

    pipes: Pipes
    pct: Percent
    server: Pid | None = None


class MpsMemory(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_memory"):
    """`mem_mib` None: no limit."""

    pipes: Pipes
    ordinal: Ordinal
    mem_mib: Mebibytes | None
    server: Pid | None = None


class MpsPriority(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_priority"):
    pipes: Pipes
    priority: Literal[0, 1]


class MpsPreset(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_preset"):
    pipes: Pipes
    name: Preset
    server: Pid | None = None


class MpsStart(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_start"):
    pipes: Pipes


class MpsStop(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_stop"):
    pipes: Pipes


class MpsRestart(Struct, frozen=True, forbid_unknown_fields=True, tag="mps_restart"):
    pipes: Pipes


class PowerCap(Struct, frozen=True, forbid_unknown_fields=True, tag="power_cap"):
    """A power limit for a time; afterwards the previous one is set again."""

    gpu_uuid: Word
    watts: Watts
    lease_s: LeaseSeconds


class ClockLock(Struct, frozen=True, forbid_unknown_fields=True, tag="clock_lock"):
    gpu_uuid: Word
    min_mhz: Megahertz
    max_mhz: Megahertz
    lease_s: LeaseSeconds


class ComputeMode(Struct, frozen=True, forbid_unknown_fields=True, tag="compute_mode"):
    """A GPU's compute mode: whether only one process at a time may use it.

    Beside MPS that one process is MPS itself. No lease: the mode holds until `default` is set, also
    after the driver has been reloaded.
    """

    gpu_uuid: Word
    mode: Mode


SliceLength = Literal["default", "short", "medium", "long"]


class TimeSlice(Struct, frozen=True, forbid_unknown_fields=True, tag="time_slice"):
    """The length of the turns that tasks on a GPU take. Not kept: a reloaded driver begins with
    `default`."""

    gpu_uuid: Word
    length: SliceLength


class Cordon(Struct, frozen=True, forbid_unknown_fields=True, tag="cordon"):
    """Take a GPU out of service: nothing new is placed on it. WHOLE_NODE instead of a UUID, as in
    all service settings: every GPU of the node."""

    gpu_uuid: Word


class Drain(Struct, frozen=True, forbid_unknown_fields=True, tag="drain"):
    """Cordon it, notify the owners of what runs there, and wait until that has ended. Ends nothing
    itself."""

    gpu_uuid: Word
    within_s: LeaseSeconds


class ReturnToService(Struct, frozen=True, forbid_unknown_fields=True, tag="return"):
    gpu_uuid: Word


class GpuReset(Struct, frozen=True, forbid_unknown_fields=True, tag="gpu_reset"):
    """Reset one board that is out of service and empty."""

    gpu_uuid: Word


class GpuDiagnosis(Struct, frozen=True, forbid_unknown_fields=True, tag="gpu_diagnosis"):
    gpu_uuid: Word
    level: Literal[1, 2]


class MigLayout(Struct, frozen=True, forbid_unknown_fields=True, tag="mig_layout"):
    """Split a board that is out of service into this layout, such as "2x 3g.40gb"; "none": whole
    again."""

    gpu_uuid: Word
    layout: Word


# `mps_share`: share of the threads that an MPS server gives to its next clients.
LimitKind = Literal["power", "clocks", "mps_share"]


class LimitRelease(Struct, frozen=True, forbid_unknown_fields=True, tag="limit_off"):
    """Undo a timed limit: the value before the lease is set again, now."""

    gpu_uuid: Word
    what: LimitKind


MpsSetting = MpsPercent | MpsMemory | MpsPriority | MpsPreset | MpsStart | MpsStop | MpsRestart
GpuSetting = PowerCap | ClockLock | LimitRelease | ComputeMode | TimeSlice
ServiceSetting = Cordon | Drain | ReturnToService | GpuReset | GpuDiagnosis
SchedulerSetting = SlurmSetting | KubernetesSetting
Setting = MpsSetting | GpuSetting | ServiceSetting | MigLayout | SchedulerSetting

_ACTION_OF: dict[type, SettingAction] = {
    MpsPercent: "set_mps", MpsMemory: "set_mps", MpsPriority: "set_mps", MpsPreset: "set_mps",
    MpsStart: "start_mps", MpsStop: "stop_mps", MpsRestart: "restart_mps",
    PowerCap: "set_power_cap", ClockLock: "lock_clocks", LimitRelease: "release_limit",
    ComputeMode: "set_compute_mode", TimeSlice: "set_time_slice", Cordon: "cordon", Drain: "drain",
    ReturnToService: "return_to_service", GpuReset: "reset_gpu", GpuDiagnosis: "diagnose_gpu",
    SlurmCancel: "slurm_cancel", SlurmHold: "slurm_hold", SlurmRelease: "slurm_release",
    SlurmRequeue: "slurm_requeue", SlurmSuspend: "slurm_suspend",
    SlurmContinue: "slurm_continue", SlurmDrain: "slurm_drain", SlurmResume: "slurm_resume",
    KubernetesDelete: "kubernetes_delete", KubernetesEvict: "kubernetes_evict",
    KubernetesCordon: "kubernetes_cordon", KubernetesUncordon: "kubernetes_uncordon",
    MigLayout: "set_mig_layout",
}


def action_of(setting: Setting) -> SettingAction:
    return _ACTION_OF[type(setting)]


def gpu_of(setting: Setting) -> str | None:
    """Return the UUID of the GPU that the setting is for; None: a node."""
    if isinstance(setting, MpsSetting | SchedulerSetting) or (
            isinstance(setting, ServiceSetting) and setting.gpu_uuid == WHOLE_NODE):
        return None
    return setting.gpu_uuid


class SettingChange(Struct, frozen=True):
    """A value before and after, in words."""

    what: Text
    before: Text
    after: Text


# reports of a node


class MpsClient(Struct, frozen=True):
    """A process that uses MPS. `pct`: the share of the threads that its server gave when it began;
    None: unknown. What the client itself asked for at its start can only be less."""

    pid: Pid
    uid: Number | None
    user: Word | None
    command: CommandLine | None
    task_id: Word | None
    pct: Amount | None = None


class MpsLimit(Struct, frozen=True, array_like=True):
    ordinal: Ordinal
    limit: Word  # as MPS prints it: whole GiB from 1 GiB on


class MpsServer(Struct, frozen=True):
    pid: Pid
    uid: Number | None
    user: Word | None
    status: Word | None  # None: this daemon does not report it (before driver 550)
    pct: Amount | None
    memory: Annotated[tuple[MpsLimit, ...], Meta(max_length=ORDINALS)] = ()
    clients: Annotated[tuple[MpsClient, ...], Meta(max_length=MAX_CLIENTS)] = ()


class MpsDaemon(Struct, frozen=True):
    pipes: Text
    uid: Number | None
    user: Word | None
    is_alive: bool
    trouble: Text = ""  # what is wrong and what to do
    default_pct: Amount | None = None
    default_priority: Number | None = None
    default_memory: Annotated[tuple[MpsLimit, ...], Meta(max_length=ORDINALS)] = ()
    servers: Annotated[tuple[MpsServer, ...], Meta(max_length=MAX_SERVERS)] = ()

    @property
    def clients(self) -> tuple[MpsClient, ...]:
        return tuple(client for server in self.servers for client in server.clients)


class MpsFinding(Struct, frozen=True):
    """A finding of the MPS doctor. `fixes`: settings that mend it, each an action like any other.
    `advice`: it works, and could be safer."""

    code: Word
    weight: Literal["fault", "advice"]
    cause: Text
    remedy: Text
    fixes: Annotated[tuple[Setting, ...], Meta(max_length=MAX_FIXES)] = ()


LeaseState = Literal["beginning", "in_force", "not_in_force", "drifted", "unknown"]


class TimedLimit(Struct, frozen=True):
    """A limit of a GPU for a time. `wanted` and `before` are watts, MHz from and to, or % of the
    threads; an empty `before` is the driver's own choice."""

    lease_id: Word  # of the command that began it
    gpu_uuid: Word
    what: LimitKind
    wanted: tuple[Amount, ...]
    before: tuple[Amount, ...]
    by: Word
    reason: Text
    began_at: Seconds
    ends_at: Seconds
    boot_id: Word
    ends_boottime_s: Amount  # on that boot's CLOCK_BOOTTIME
    state: LeaseState = "unknown"
    seen: Amount | None = None  # the limit that was read back, or the SM clock
    seen_at: Seconds | None = None
    words: Text = ""  # the proof, or what is wrong
    # Of `mps_share`: the daemon, and its server.
    pipes: Text | UnsetType = UNSET
    server: Pid | UnsetType = UNSET


ModeState = Literal["in_force", "not_in_force", "drifted", "unknown"]


class ManagedComputeMode(Struct, frozen=True):
    """A compute mode that gpudeck has set and maintains: a driver forgets it each time that it is
    loaded. Setting `default` ends it."""

    gpu_uuid: Word
    mode: Mode
    by: Word
    reason: Text
    set_at: Seconds
    state: ModeState = "unknown"
    words: Text = ""  # the proof, or what is wrong


# `applying`: an action is working on it. `half_made`: one that failed or was cut short left it.
MigLayoutState = Literal["applying", "in_force", "half_made", "not_in_force", "drifted", "unknown"]
MigPlaces = Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=16)]  # profile id, start


class ManagedMigLayout(Struct, frozen=True):
    """A MIG layout that gpudeck has made and maintains: a reset removes every instance. Setting
    "none" ends it."""

    gpu_uuid: Word
    layout: Word
    wanted: MigPlaces
    before: Word  # as `layout`, to go back to
    by: Word
    reason: Text
    set_at: Seconds
    state: MigLayoutState = "unknown"
    words: Text = ""  # the proof, or what is wrong and what to do


MemoryLimitState = Literal["beginning", "in_force", "not_in_force", "drifted", "unknown"]


class GroupMemoryLimit(Struct, frozen=True):
    """A limit of the memory of one GPU for one control group, which the driver enforces. `group`:
    its path below the root of cgroup v2; `group_id`: another group of that name has another one.
    `set_bytes`: the limit that the driver reported when it had been set; None: it is not set."""

    gpu_uuid: Word
    group: Text
    group_id: Word
    limit_bytes: Amount
    holder: Text  # the lease or the quota that it is for
    boot_id: Word
    began_at: Seconds
    set_bytes: Amount | None = None
    state: MemoryLimitState = "beginning"
    words: Text = ""  # the proof, or what is wrong


class LimitsNow(Struct, frozen=True, tag="limits_now"):
    """Limits of a Node, sent when they change and at each connection."""

    taken_at: Seconds
    daemons: Annotated[tuple[MpsDaemon, ...], Meta(max_length=MAX_DAEMONS)] = ()
    leases: Annotated[tuple[TimedLimit, ...], Meta(max_length=MAX_LEASES)] = ()
    # Why MPS, or limits of GPUs, cannot be set here; "": they can be.
    mps_trouble: Text = ""
    limits_trouble: Text = ""
    findings: Annotated[tuple[MpsFinding, ...], Meta(max_length=MAX_FINDINGS)] = ()
    modes: Annotated[tuple[ManagedComputeMode, ...], Meta(max_length=MAX_LEASES)] = ()
    layouts: Annotated[tuple[ManagedMigLayout, ...], Meta(max_length=MAX_LEASES)] = ()
    unread: Text = ""  # why the node cannot understand limits it has stored
    # UNSET: the node has set none.
    memory: Annotated[tuple[GroupMemoryLimit, ...],
                      Meta(max_length=MAX_LEASES)] | UnsetType = UNSET
    # Why no task can be suspended here, whatever its ceiling permits; UNSET: nothing is in the way.
    suspend_trouble: Text | UnsetType = UNSET
