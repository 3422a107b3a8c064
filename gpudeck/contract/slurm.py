"""Slurm's jobs and nodes as one agent reads them, and requests to Slurm. Pure.

A job number comes back one day, so a job is identified by its number and when it was submitted.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Amount, Number, Seconds, Text, Word

MAX_JOBS = 2_000
MAX_NODES = 2_000
MAX_SHARES = 256  # nodes of one job
MAX_STATES = 16
# As the programs of Slurm take a job: "12", "12_3" of an array, "12_[4-9]" what still waits of it.
JobName = Annotated[str, Meta(pattern=r"^[0-9]{1,10}(_([0-9]{1,10}|\[[0-9,:-]{1,100}\]))?$")]
NodeName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$")]
ShortText = Annotated[str, Meta(max_length=256)]

OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "REVOKED", "TIMEOUT")
HOLDING = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "CONFIGURING")
HELD = ("JobHeldUser", "JobHeldAdmin")

# Which jobs the agent's account may act on, as far as Slurm says: all, or only its own.
SlurmRights = Literal["all", "own", "unknown"]


class SlurmShare(Struct, frozen=True, array_like=True):
    """GPUs of one job on one node. `gpus` None: not known."""

    node: Word
    gpus: Number | None


class SlurmJob(Struct, frozen=True, omit_defaults=True):
    """A job of Slurm. `number` is SLURM_JOB_ID. `gpus`: allocated, or requested while it waits;
    None: not known. `name` empty: Slurm gives one that its own programs would not take."""

    number: Number
    id: Word
    state: Word
    submitted_at: Seconds
    user: Word | None = None
    name: ShortText = ""
    reason: ShortText = ""
    partition: Word | None = None
    started_at: Seconds | None = None
    limit_s: Amount | None = None
    gpus: Number | None = None
    nodes: Annotated[tuple[SlurmShare, ...], Meta(max_length=MAX_SHARES)] = ()
    is_het: bool = False  # part of a heterogeneous job, which stands or falls as a whole

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def holds_gpus(self) -> bool:
        return self.state in HOLDING

    @property
    def is_held(self) -> bool:
        return self.state == "PENDING" and self.reason in HELD


class SlurmNode(Struct, frozen=True, omit_defaults=True):
    """A node of Slurm. `host`: the machine's own name. GPUs None: Slurm does not say, as where it
    has none."""

    name: Word
    host: Word
    states: Annotated[tuple[Word, ...], Meta(max_length=MAX_STATES)]
    gpus: Number | None = None
    allocated: Number | None = None
    partitions: ShortText = ""
    reason: ShortText = ""

    @property
    def is_draining(self) -> bool:
        return "DRAIN" in self.states or "DRAINED" in self.states or "DRAINING" in self.states


class SlurmNow(Struct, frozen=True, tag="slurm_now"):
    """Slurm as an agent reads it. `trouble`: why nothing can be read; "": everything that the
    agent's account may see was read. `hidden`: what it may not see, in words. `left_out`: jobs
    beyond what one message holds."""

    taken_at: Seconds
    trouble: Text = ""
    cluster: ShortText = ""
    version: ShortText = ""
    account: ShortText = ""  # as which the agent asks
    rights: SlurmRights = "unknown"
    hidden: Text = ""
    jobs: Annotated[tuple[SlurmJob, ...], Meta(max_length=MAX_JOBS)] = ()
    nodes: Annotated[tuple[SlurmNode, ...], Meta(max_length=MAX_NODES)] = ()
    left_out: Number = 0


# Requests to Slurm: settings as in gpudeck/contract/limits.py, whose target is the agent that
# speaks for Slurm.


class SlurmJobRequest(Struct, frozen=True, forbid_unknown_fields=True):
    job: JobName
    submitted_at: Number  # a number is reused; never with the same moment


class SlurmCancel(SlurmJobRequest, frozen=True, tag="slurm_cancel"):
    pass


class SlurmHold(SlurmJobRequest, frozen=True, tag="slurm_hold"):
    pass


class SlurmRelease(SlurmJobRequest, frozen=True, tag="slurm_release"):
    pass


class SlurmRequeue(SlurmJobRequest, frozen=True, tag="slurm_requeue"):
    pass


class SlurmSuspend(SlurmJobRequest, frozen=True, tag="slurm_suspend"):
    pass


class SlurmContinue(SlurmJobRequest, frozen=True, tag="slurm_continue"):
    """Continue a suspended job, which Slurm calls to resume; here only nodes are resumed."""


class SlurmDrain(Struct, frozen=True, forbid_unknown_fields=True, tag="slurm_drain"):
    node: NodeName


class SlurmResume(Struct, frozen=True, forbid_unknown_fields=True, tag="slurm_resume"):
    node: NodeName


# Owners may do these to their own jobs, without an operator. Holds and suspensions are not theirs
# to change: the agent's account could release what an administrator of Slurm holds.
OWNERS_MAY = (SlurmCancel, SlurmRequeue)

SlurmSetting = (SlurmCancel | SlurmHold | SlurmRelease | SlurmRequeue | SlurmSuspend | SlurmContinue
                | SlurmDrain | SlurmResume)
