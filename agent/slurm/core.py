"""What Slurm's programs print, as jobs and nodes. Pure.

Jobs come from `squeue --json`, whose names and lists have several shapes: a number is an integer or
null in 22.05 and {set, infinite, number} since 23.02, a state a word or a list of words. A job's
name is its user's, so no text with such names in it is taken apart. Nodes come from `scontrol -o`,
where nothing but Slurm's administrators writes.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gpudeck.slurm import (
    HOLDING,
    MAX_JOBS,
    MAX_NODES,
    MAX_SHARES,
    MAX_STATES,
    OVER,
    SlurmJob,
    SlurmNode,
    SlurmNow,
    SlurmShare,
)

MOST_NUMBER = 10**12
MOST_HOSTS = 4_096  # that one list may name
REPORT_BYTES = 900_000  # of the 1 MB of a message
_GPUS = re.compile(r"(?:gres[:/])?gpu(?::[^:=,()]+)?[:=](\d{1,7})(?=[,(]|\Z)")
_FIELD = re.compile(r"(?:\A|\s)([A-Za-z_]\w*)=")
_USER = re.compile(r"[^\s()]{1,64}\((\d{1,10})\)")
_SAFE_LIST = re.compile(r"[0-9,:-]{1,100}")


class SlurmTextError(ValueError):
    """What a program of Slurm prints is not what is known of it."""


class _Job(Struct):
    job_id: int
    job_state: Any
    submit_time: Any
    array_job_id: Any = None
    array_task_id: Any = None
    array_task_string: Any = None
    user_name: str = ""
    name: str = ""
    state_reason: str = ""
    partition: str = ""
    start_time: Any = None
    time_limit: Any = None
    nodes: str = ""
    node_count: Any = None
    gres_detail: list[str] = []
    tres_per_node: str = ""
    tres_per_job: str = ""
    het_job_id: Any = None


class _Queue(Struct):
    jobs: list[_Job]


_queue = msgspec.json.Decoder(_Queue)


def number_of(value: Any) -> int | None:
    """None: not set, without a limit, or nothing that is known."""
    if isinstance(value, dict):
        if value.get("set") is not True or value.get("infinite") is True:
            return None
        value = value.get("number")
    is_known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_NUMBER
    return value if is_known else None


def gpus_in(gres: str) -> int | None:
    """`gpu:h100:2(IDX:0-1)`, `gres:gpu:2`, `gpu:a:1,gpu:b:1`. None: it speaks of no GPUs."""
    # Indexes hold commas too, and a part of them must not read like another resource.
    counts = [int(each) for each in _GPUS.findall(re.sub(r"\([^)]*\)", "", gres))]
    return sum(counts) if counts else None


def hosts_of(listed: str) -> tuple[str, ...]:
    """`gpu[01-03,7]-ib,login` -> its names. Raises SlurmTextError where it names too many."""
    found: list[str] = []
    for part in _parts(listed):
        found += _expanded(part, MOST_HOSTS - len(found))
    return tuple(found)


def _parts(listed: str) -> list[str]:
    """At commas, but for those in brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", listed) if part]


def _expanded(part: str, room: int) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return _fitting([part], room)
    inside, closing, after = rest.partition("]")
    if not closing:
        raise SlurmTextError(f"a list of nodes is not understood: {part[:64]!r}")
    ends = _expanded(after, room) if after else [""]
    names: list[str] = []
    for span in inside.split(","):
        first, dash, last = span.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise SlurmTextError(f"a list of nodes is not understood: {part[:64]!r}")
        low, high = int(first[:9]), int((last or first)[:9])
        if (high - low + 1) * len(ends) + len(names) > room:
            raise SlurmTextError(f"a list names more than {MOST_HOSTS} nodes")
        names += [f"{before}{number:0{len(first)}d}{end}"
                  for number in range(low, high + 1) for end in ends]
    return names


def _fitting(names: list[str], room: int) -> list[str]:
    if len(names) > room:
        raise SlurmTextError(f"a list names more than {MOST_HOSTS} nodes")
    return names


def jobs_of(text: bytes) -> tuple[SlurmJob, ...]:
    """Those that hold something or wait: what is over stays in Slurm's memory for a while."""
    try:
        # A name may hold bytes that are no text: nobody's shall hide all others' jobs.
        found = _queue.decode(text.decode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SlurmTextError(f"squeue prints what is not understood: {error}"[:512]) from error
    return tuple(_job(each) for each in found.jobs if 0 <= each.job_id <= 2**32)


def _job(raw: _Job) -> SlurmJob:
    state, limit_min = _state(raw.job_state), number_of(raw.time_limit)
    shares = _shares(raw) if state in HOLDING else ()
    started = number_of(raw.start_time)
    return SlurmJob(
        number=raw.job_id, id=_id(raw), state=state, user=raw.user_name[:128] or None,
        submitted_at=float(number_of(raw.submit_time) or 0), name=_one_line(raw.name),
        reason="" if raw.state_reason == "None" else _one_line(raw.state_reason),
        partition=raw.partition[:128] or None,
        # Of one that waits it is a guess of the scheduler.
        started_at=float(started) if started and state in HOLDING else None,
        limit_s=None if limit_min is None else limit_min * 60.0,
        gpus=_held(raw) if state in HOLDING else _asked(raw), nodes=shares[:MAX_SHARES],
        is_het=bool(number_of(raw.het_job_id)))


def _state(said: Any) -> str:
    """Of several the first that says whether it holds its GPUs: `CANCELLED`, `COMPLETING`."""
    words = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str)]
    for word in words:
        if word in HOLDING and word != "RUNNING":
            return word
    return words[0][:128] if words and words[0] else "UNKNOWN"


def _id(raw: _Job) -> str:
    array, task = number_of(raw.array_job_id), number_of(raw.array_task_id)
    waiting = raw.array_task_string
    waiting = waiting.partition("%")[0] if isinstance(waiting, str) else ""
    if array and waiting:
        # One that Slurm has cut short names others than it is of.
        return f"{array}_[{waiting}]" if _SAFE_LIST.fullmatch(waiting) else f"{array}_[...]"
    return f"{array}_{task}" if array and task is not None else str(raw.job_id)


def _held(raw: _Job) -> int | None:
    """`gres_detail` alone: what is allocated shows no GPUs where accounting does not count them."""
    if not raw.gres_detail:
        return 0 if _asked(raw) == 0 else None
    return sum(gpus_in(each) or 0 for each in raw.gres_detail)


def _asked(raw: _Job) -> int | None:
    """0: it asks for none."""
    whole = gpus_in(raw.tres_per_job)
    if whole is not None:
        return whole
    each, nodes = gpus_in(raw.tres_per_node), number_of(raw.node_count)
    if each is None:
        return 0
    return None if nodes is None else each * nodes


def _shares(raw: _Job) -> tuple[SlurmShare, ...]:
    names = hosts_of(raw.nodes)
    counts = [gpus_in(each) or 0 for each in raw.gres_detail]
    if len(counts) != len(names):
        return tuple(SlurmShare(name[:128], None) for name in names)
    return tuple(SlurmShare(name[:128], count) for name, count in zip(names, counts, strict=True))


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:256])


def nodes_of(text: str) -> tuple[SlurmNode, ...]:
    return tuple(_node(line) for line in text.splitlines() if line.startswith("NodeName="))


def _node(line: str) -> SlurmNode:
    fields = _fields(line)
    states = fields.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")
    reason = line.rpartition(" Reason=")[2] if " Reason=" in line else ""
    return SlurmNode(
        name=fields["NodeName"][:128], host=fields.get("NodeHostName", fields["NodeName"])[:128],
        states=tuple(each[:128] for each in states if each)[:MAX_STATES] or ("UNKNOWN",),
        gpus=gpus_in(fields.get("Gres", "")), allocated=gpus_in(fields.get("GresUsed", "")),
        partitions=fields.get("Partitions", "")[:256],
        reason=_one_line(re.sub(r" \[[^\[\]]*\]\s*\Z", "", reason)))


def _fields(line: str) -> dict[str, str]:
    """The first of each name: what people write stands behind what Slurm does."""
    found: dict[str, str] = {}
    marks = [*_FIELD.finditer(line)]
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        end = len(line) if after is None else after.start()
        found.setdefault(mark[1], line[mark.end():end].strip())
    return found


def config_of(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def slurm_uid(config: dict[str, str]) -> int | None:
    found = _USER.fullmatch(config.get("SlurmUser", ""))
    return None if found is None else int(found[1])


def report(jobs: Iterable[SlurmJob], nodes: Sequence[SlurmNode], now: SlurmNow) -> SlurmNow:
    """As much as a message holds: first what holds GPUs, then what waits for some."""
    of_gpus = sorted((job for job in jobs if job.state not in OVER and job.gpus != 0),
                     key=lambda job: (not job.holds_gpus, job.submitted_at, job.number))
    most = MAX_JOBS
    while True:
        made = msgspec.structs.replace(
            now, jobs=tuple(of_gpus[:most]), nodes=tuple(nodes[:MAX_NODES]),
            left_out=max(len(of_gpus) - most, 0))
        encoded = msgspec.msgpack.encode(made)
        if most == 0 or len(encoded) <= REPORT_BYTES:
            return _checked(encoded)
        most = min(most, len(of_gpus)) // 2


def _checked(encoded: bytes) -> SlurmNow:
    """What the hub would refuse would end the connection."""
    try:
        return msgspec.msgpack.decode(encoded, type=SlurmNow)
    except msgspec.MsgspecError as error:
        raise SlurmTextError(f"Slurm says what cannot be passed on: {error}"[:512]) from error
