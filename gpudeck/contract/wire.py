"""Messages between agent and hub, both ways: the whole contract in one file.

Transport: Socket.IO, namespace `/agent`, one event `wire` with one argument, `encode(message)`.
Socket.IO delivers at most once and forgets on a break, so what must not be lost (Frame, Event)
carries a `seq`, numbered from 1 within a `stream` (the agent's journal). The hub acks a seq when
it is on disk; the agent keeps and resends what is not acked; the hub drops duplicates.

    agent                                hub
      Call ->                              at once; neither side is authenticated yet
                             <- Challenge  the hub proves its key, fresh by the Call's nonce
      Hello ->                             the agent proves its own, within AUTH_WITHIN_S of the
                                           connect, fresh by the Challenge's nonce
                             <- Welcome    or Refused, then the connection closes
      Inventory ->                         each generation that a pending Frame refers to
      Frame, Event -> ...                  as they arise
      Backfill -> ...                      what was not acked, oldest first, where there is room
                             <- Ack        these are on disk, and these archived
      Beat ->                              every BEAT_EVERY_S, whatever the reader does
                             <- Probe      time sync
      Echo ->
      Clock ->                             and the other way round: commands expire by hub time
                             <- Time
                             <- Look       what would this action hit?
      Preview ->
                             <- SignedCommand
      Reply -> ...                         each until it is Noted
                             <- Noted
      LimitsNow, RepairsNow, SlurmNow, KubernetesNow, PodGpusNow ->   at each connection and change
                             <- Inquire    what became of these? A command is never sent twice
      Reply ->
                             <- Anchor     the head of the hub's Audit; Beat carries the agent's
                             <- SignedDesired   state to hold, also without the hub
      InForce ->                           which of it the node has, and what is in force
      PoolReport ->                        leases, claims, free GPUs of a pool; when it changes
                             <- PoolPlan   claims and their GPUs, or why they wait; the node decides
                             <- Ignored    once per type that this hub does not know

A peer may be newer. Anything beyond this contract is ignored: fields that are not known here,
and messages of a type that is not, which decode to UnknownMessage. A number called `seq` in one of
those is one of the stream, now and later: the hub acks it, and keeps nothing of it.
Commands and their Replies are not part of a stream: a Reply must not wait behind a backlog.
Decoding is strict and happens once, at the edge. A bad message raises WireError and nothing else.
"""

import contextlib
import math
from typing import Annotated, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import ActionParams, AskerKind, Command, Preview, Recall, Reply
from gpudeck.contract.desired_state import InForce, SignedDesired
from gpudeck.contract.gpu_facts import GpuFacts as GpuFacts
from gpudeck.contract.hosts import HostSample
from gpudeck.contract.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.message_limits import (
    Actions,
    Amount,
    CommandLine,
    Finite,
    Nonce,
    Number,
    Pid,
    PublicKey,
    Seconds,
    Signature,
    Text,
    TypeName,
    Word,
)
from gpudeck.contract.packed_arrays import pack as pack
from gpudeck.contract.packed_arrays import unpack as unpack
from gpudeck.contract.pool_link import PoolPlan, PoolReport, report_flaw
from gpudeck.contract.repairs import RepairsNow
from gpudeck.contract.rungs import RulesCeiling
from gpudeck.contract.self_report import Cost as Cost
from gpudeck.contract.self_report import JournalCopies as JournalCopies
from gpudeck.contract.sequence_spans import MAX_SPANS as MAX_SPANS
from gpudeck.contract.sequence_spans import ArchivedSpans as ArchivedSpans
from gpudeck.contract.sequence_spans import Span as Span
from gpudeck.contract.sequence_spans import Spans
from gpudeck.contract.slurm import SlurmNow
from gpudeck.measures.metrics import SLOW_WIDTH, WIDTH, Absence

WIRE_VERSION = 1
SPOKEN_VERSIONS = (1,)
NAMESPACE = "/agent"
EVENT = "wire"

# Limits are part of the contract: a message beyond them is refused, never cut.
MAX_MESSAGE_BYTES = 1_000_000
MAX_GPUS = 256
MAX_TASKS = 4_096
MAX_LINKS = 1_024
MAX_BACKFILL = 512  # messages in one Backfill
MAX_UNKNOWN_TYPES = 16  # remembered per connection: a peer may invent any number
AUTH_WITHIN_S = 5.0
BEAT_EVERY_S = 2.0

# error: the driver lists the board, and every call for it fails.
GpuState = Literal["ok", "stale", "lost", "error"]
GPU_STATES: tuple[GpuState, ...] = ("ok", "stale", "lost", "error")
# "released": on request, no process of the agent has the driver open.
ReaderState = Literal[
    "starting", "ok", "hung", "failed", "no_library", "no_driver", "no_gpus", "released"]


class WireError(ValueError):
    """The other side sent something that is not in the contract."""


class GpuLink(Struct, frozen=True, array_like=True):
    """Path between two GPUs of a Node."""

    a: Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
    b: Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
    path: Literal["board", "one switch", "switches", "host bridge", "numa node", "system"]
    nvlinks: Number | None = None


class Task(Struct, frozen=True, gc=False):
    """A process using a GPU. `id` is (boot id, pid, start ticks): never reused."""

    id: Word
    pid: Pid
    start_ticks: Number
    started_at: Seconds | None
    user: Word | None
    command: CommandLine | None
    kind: Literal["compute", "graphics", "mps_server", "mps_client"] = "compute"
    manager: Text | None = None  # "slurm job 12", "pod ns/name", "container 3fa…", "unit x.service"
    job_id: Word | None = None  # Tasks with the same one stand or fall together
    uid: Number | None = None
    parent_pid: Number | None = None
    container: Word | None = None  # its id
    container_name: Word | None = None
    pod: Word | None = None
    namespace: Word | None = None  # of the pod
    slurm_job: Word | None = None
    unit: Word | None = None  # of systemd
    notebook: Text | None = None  # the file of the kernel, or the kernel's id where it is not known
    # Ranks of one launch share it, across Nodes too: "torchrun 10.0.0.1:29500/default", "slurm 12"
    launch: Text | None = None
    rank: Number | None = None
    groups: Annotated[tuple[Word, ...], Meta(max_length=32)] = ()  # of Unix, of the process


class Use(Struct, frozen=True, array_like=True, gc=False):
    """Use of one GPU by one Task, at one moment."""

    task_id: Word
    gpu: Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
    mem_used_bytes: Amount | None
    sm_pct: Annotated[float, Meta(ge=0, le=100)] | None
    state: Literal["running", "paused", "uninterruptible", "zombie"] | None = None


class Tasks(Struct, frozen=True, gc=False):
    """The Tasks of a Node now. `began` holds those not described since the last snapshot; with
    `snapshot`, all of them. A Task without a Use has ended."""

    snapshot: bool
    began: Annotated[tuple[Task, ...], Meta(max_length=MAX_TASKS)]
    uses: Annotated[tuple[Use, ...], Meta(max_length=MAX_TASKS)]
    suspended: Annotated[tuple[Word, ...], Meta(max_length=MAX_TASKS)] | UnsetType = UNSET  # ids


# agent -> hub


class Call(Struct, frozen=True, tag="call"):
    nonce: Nonce


class Enrolment(Struct, frozen=True):
    """Proof of a node that is new to the hub: its token is a key, and signs enrolment_statement."""

    token_id: Word
    signature: Signature


class Hello(Struct, frozen=True, tag="hello"):
    wire_versions: Annotated[tuple[int, ...], Meta(min_length=1, max_length=16)]
    key: PublicKey
    signature: Signature  # of node_statement
    node_id: Word  # the fingerprint of the key
    host: Word
    boot_id: Word
    stream: Word
    last_seq: Number  # highest given out so far
    agent_version: Word
    backend: Word
    platform: Text = ""
    driver_version: Text | None = None
    epoch_seen: Number = 0  # the highest of this hub's so far; Commands of a lower one are refused
    actions: Actions = ()  # that the ceiling here allows
    enrolment: Enrolment | None = None
    anchor_seq: Number = 0  # the last Anchor that this hub gave: proof against a hub that forgets
    anchor_head: Text = ""
    rules: RulesCeiling | UnsetType = UNSET  # unset by older agents
    cuda_version: Text | UnsetType = UNSET  # the newest that its driver runs
    more_actions: Actions | UnsetType = UNSET  # than `actions` holds, the newest last


class Inventory(Struct, frozen=True, tag="inventory"):
    """The GPUs of this Node, in the order in which Frames of this generation list them."""

    generation: Number
    gpus: Annotated[tuple[GpuFacts, ...], Meta(max_length=MAX_GPUS)]
    links: Annotated[tuple[GpuLink, ...], Meta(max_length=MAX_LINKS)] = ()


class Slow(Struct, frozen=True, array_like=True, gc=False):
    """Metrics that change seldom: like Frame.values and .absent, over metrics.SLOW."""

    values: Annotated[bytes, Meta(max_length=MAX_GPUS * SLOW_WIDTH * 8)]
    absent: Annotated[bytes, Meta(max_length=MAX_GPUS * SLOW_WIDTH)]


class Frame(Struct, frozen=True, tag="frame", gc=False):
    """Report of a Node for one tick. `values`: float64 little-endian, GPUs x metrics.COLUMNS, row
    by row. `absent`: one Absence byte each; where it is not PRESENT the value is 0 and means
    nothing. `states`: indexes of GPU_STATES."""

    seq: Annotated[int, Meta(ge=1, le=2**53)]
    taken_at: Seconds
    interval_s: Annotated[float, Meta(gt=0, le=86_400)]
    generation: Number
    values: Annotated[bytes, Meta(max_length=MAX_GPUS * WIDTH * 8)]
    absent: Annotated[bytes, Meta(max_length=MAX_GPUS * WIDTH)]
    states: Annotated[bytes, Meta(max_length=MAX_GPUS)]
    tasks: Tasks | None = None  # None: unchanged since the last Frame
    slow: Slow | None = None  # None: unchanged since the last Frame that had it
    host: HostSample | UnsetType = UNSET  # every 5 s; unset by older agents


class Event(Struct, frozen=True, tag="event"):
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    taken_at: Seconds
    kind: Word  # of events.KINDS; a newer agent may send one that this hub does not know
    gpu_uuid: Word | None = None
    task_id: Word | None = None
    text: Text = ""  # what happened and what to do
    numbers: Annotated[dict[Word, Finite], Meta(max_length=16)] = {}


class Beat(Struct, frozen=True, tag="beat", gc=False):
    """Sign of life of the agent, whatever its reader does."""

    reader: ReaderState
    reading_age_s: Amount | None  # None: nothing read yet
    pending: Number  # messages not acked
    dropped: Number  # messages that outgrew the outbox, ever
    detail: Text = ""  # what is wrong and what to do, for people
    # Who stopped all actions here, and why; the hub's begin with actions.HELD_BY_HUB.
    holds: Annotated[tuple[Text, ...], Meta(max_length=8)] = ()
    audit_seq: Number = 0
    audit_head: Text = ""
    cost: Cost | None = None
    # Unacked messages below it are gone for good: the hub waits for none of them. 0: not known.
    first_seq: Number = 0
    is_in_memory: bool | UnsetType = UNSET  # the outbox, as the disk takes nothing
    copies: JournalCopies | UnsetType = UNSET  # unset where the hub has no archive of seconds


class Backfill(Struct, frozen=True, tag="backfill"):
    """Frames and Events of a time without the hub, in the order of their seq: history, on which
    nothing acts. Live messages go first and do not wait for them."""

    messages: Annotated[tuple[Annotated[bytes, Meta(max_length=MAX_MESSAGE_BYTES)], ...],
                        Meta(min_length=1, max_length=MAX_BACKFILL)]


class Clock(Struct, frozen=True, tag="clock"):
    clock_id: Number


class Echo(Struct, frozen=True, tag="echo"):
    probe_id: Number
    agent_at: Seconds


# hub -> agent


class Challenge(Struct, frozen=True, tag="challenge"):
    nonce: Nonce
    hub_id: Word
    hub_key: PublicKey
    epoch: Number
    signature: Signature  # of hub_statement


class Welcome(Struct, frozen=True, tag="welcome"):
    wire_version: Annotated[int, Meta(ge=1, le=65_535)]
    hub_id: Word
    epoch: Number  # one more at each start of the hub
    hub_at: Seconds
    acked_seq: Number  # of the stream named in Hello; 0: none
    spans: Spans = ()  # acked beyond acked_seq
    archived: ArchivedSpans = UNSET  # as in Ack


class Refused(Struct, frozen=True, tag="refused"):
    reason: Text
    retry_after_s: Annotated[float, Meta(ge=0, le=86_400)]


class Ack(Struct, frozen=True, tag="ack", gc=False):
    seq: Number  # all up to it, itself included
    spans: Spans = ()  # and these beyond it
    # Of them, those safe without the hub's disk; the agent has copies of others. Unset: needs none.
    archived: ArchivedSpans = UNSET


class Probe(Struct, frozen=True, tag="probe"):
    probe_id: Number
    hub_at: Seconds


class Time(Struct, frozen=True, tag="time"):
    clock_id: Number
    hub_at: Seconds


class Look(Struct, frozen=True, tag="look", omit_defaults=True):
    ask_id: Word
    nonce: Nonce  # the signer's; it signs what was previewed with it, once
    action: ShownAction
    params: ActionParams
    task_id: Word
    asker: AskerKind | None = None  # who would order it; a Rule may do less than a person


class SignedCommand(Struct, frozen=True, tag="command"):
    body: Annotated[bytes, Meta(max_length=MAX_MESSAGE_BYTES)]  # encode_command
    signature: Signature  # of command_statement, by the key that the node has pinned


class Inquire(Struct, frozen=True, tag="inquire"):
    command_ids: Annotated[tuple[Word, ...], Meta(max_length=1_024)]


class Noted(Struct, frozen=True, tag="noted"):
    command_id: Word
    number: Number


class Anchor(Struct, frozen=True, tag="anchor"):
    audit_seq: Number
    audit_head: Text


class Ignored(Struct, frozen=True, tag="ignored"):
    what: TypeName


class UnknownMessage(Struct, frozen=True):
    """Message of a newer peer: well formed, and of a type that is not in this contract."""

    type: TypeName
    seq: Annotated[int, Meta(ge=1, le=2**53)] | None = None


T = TypeVar("T")
Sequenced = Frame | Event
KnownFromAgent = (Call | Hello | Inventory | Frame | Event | Backfill | Beat | Echo | Clock
                  | Preview | Reply | LimitsNow | InForce | PoolReport | RepairsNow
                  | SlurmNow | KubernetesNow | PodGpusNow)
KnownFromHub = (Challenge | Welcome | Refused | Ack | Probe | Time | Look | SignedCommand | Recall
                | Inquire | Noted | Anchor | SignedDesired | Ignored | PoolPlan)
FromAgent = KnownFromAgent | UnknownMessage
FromHub = KnownFromHub | UnknownMessage
# The other direction's are known too: a peer that sends those is not newer, but wrong.
_KNOWN_TYPES = {message.__struct_config__.tag
                for message in (*get_args(KnownFromAgent), *get_args(KnownFromHub))}

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[KnownFromAgent] = msgspec.msgpack.Decoder(KnownFromAgent)
_from_hub: msgspec.msgpack.Decoder[KnownFromHub] = msgspec.msgpack.Decoder(KnownFromHub)
_unknown: msgspec.msgpack.Decoder[UnknownMessage] = msgspec.msgpack.Decoder(UnknownMessage)
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode(message: FromAgent | FromHub) -> bytes:
    return _encoder.encode(message)


def decode_from_agent(data: bytes) -> FromAgent:
    message = _decode_message(_from_agent, data)
    if isinstance(message, Frame):
        check_frame(message)
    if isinstance(message, PoolReport) and (wrong := report_flaw(message)):
        raise WireError(f"a claim is out of bounds: {wrong}")
    return message


def decode_passed(data: bytes) -> FromAgent:
    """Decode a message that another process of this hub has decoded and checked."""
    try:
        return _from_agent.decode(data)
    except msgspec.MsgspecError:  # it is of a newer agent
        return decode_from_agent(data)


def decode_from_hub(data: bytes) -> FromHub:
    return _decode_message(_from_hub, data)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(command)


def decode_command(body: bytes) -> Command:
    """Decode a command whose signature was checked."""
    return _decode(_command, body)


# Signed texts. Each kind begins with its own words, so that no signature serves another purpose,
# and MessagePack gives every part its length, so that no two statements read alike.


def hub_statement(call: Call, challenge: Challenge) -> bytes:
    return _statement("hub", call.nonce, challenge.nonce, challenge.hub_id, challenge.hub_key,
                      challenge.epoch)


def node_statement(challenge: Challenge, hello: Hello) -> bytes:
    return _statement("node", *_greeting(challenge, hello))


def enrolment_statement(challenge: Challenge, hello: Hello) -> bytes:
    return _statement("enrolment", *_greeting(challenge, hello))


def preview_statement(preview: Preview) -> bytes:
    return _statement("preview", _encoder.encode(msgspec.structs.replace(preview, signature=b"")))


def command_statement(body: bytes) -> bytes:
    return _statement("command", body)


def _greeting(challenge: Challenge, hello: Hello) -> tuple[bytes | str, ...]:
    return (challenge.nonce, challenge.hub_key, hello.key, hello.node_id, hello.host,
            hello.boot_id, hello.stream)


def _statement(what: str, *parts: bytes | str | int) -> bytes:
    return msgspec.msgpack.encode((f"gpudeck wire {WIRE_VERSION} {what}", *parts))


def _decode_message(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T | UnknownMessage:
    try:
        return _decode(decoder, data)
    except WireError:
        with contextlib.suppress(WireError):
            unknown = _decode(_unknown, data)
            if unknown.type not in _KNOWN_TYPES:
                return unknown
        raise


def _decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T:
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise WireError(f"not a message of wire version {WIRE_VERSION}: {error}") from error


# All valid bytes: what `strip` leaves begins with one that is not.
_STATES, _ABSENCES = bytes(range(len(GPU_STATES))), bytes(Absence)


def check_frame(frame: Frame) -> None:
    """Check the shape that types cannot express: all arrays agree, every number is finite."""
    gpus = len(frame.states)
    if len(frame.absent) != gpus * WIDTH or len(frame.values) != gpus * WIDTH * 8:
        raise WireError(f"frame arrays disagree: {gpus} states, {len(frame.absent)} absences, "
                        f"{len(frame.values)} value bytes; {WIDTH} columns expected")
    slow = frame.slow
    if slow is not None and (len(slow.absent) != gpus * SLOW_WIDTH
                             or len(slow.values) != gpus * SLOW_WIDTH * 8):
        raise WireError(f"slow arrays disagree: {gpus} states, {len(slow.absent)} absences, "
                        f"{len(slow.values)} value bytes; {SLOW_WIDTH} columns expected")
    if slow is not None and slow.absent.strip(_ABSENCES):
        raise WireError("frame holds an absence code that is not in the contract")
    if slow is not None and not math.isfinite(sum(unpack(slow.values))):
        raise WireError("frame holds a number that is not finite")
    if frame.states.strip(_STATES) or frame.absent.strip(_ABSENCES):
        raise WireError("frame holds a state or absence code that is not in the contract")
    if not math.isfinite(sum(unpack(frame.values))):  # inf - inf is none either
        raise WireError("frame holds a number that is not finite")
    if frame.tasks is not None and any(use.gpu >= gpus for use in frame.tasks.uses):
        raise WireError(f"a task uses a GPU beyond the {gpus} of its frame")
