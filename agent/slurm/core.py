"""Jobs and nodes in the output of Slurm's programs. Pure.

Jobs come from `squeue --json`, whose names and lists have several shapes: a number is an integer or
null in 22.05 and {set, infinite, number} since 23.02, a state a word or a list of words. A job's
name is chosen by its user, so no text with such names in it is parsed. Nodes come from `scontrol
-o`, where nobody but Slurm's administrators writes.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gpudeck.contract.slurm import (
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
from gpudeck.language.printable import printable

MOST_NUMBER = 10**12
MOST_HOSTS = 4_096  # in one list
REPORT_BYTES = 900_000  # of the 1 MB of a message
_GPUS = re.compile(r"(?:gres[:/])?gpu(?::[^:=,()]+)?[:=](\d{1,7})(?=[,(]|\Z)")
_FIELD = re.compile(r"(?:\A|\s)([A-Za-z_]\w*)=")
_USER = re.compile(r"[^\s()]{1,64}\((\d{1,10})\)")
_SAFE_LIST = re.compile(r"[0-9,:-]{1,100}")


class SlurmTextError(ValueError):
    """Output of a Slurm program in a form that is not known."""


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
    """Return the number. None: not set, unlimited, or not understood."""
    if isinstance(value, dict):
        if value.get("set") is not True or value.get("infinite") is True:
            return None
        value = value.get("number")
    is_known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_NUMBER
    return value if is_known else None


def gpus_in(gres: str) -> int | None:
    """Return the GPUs in `gpu:h100:2(IDX:0-1)`, `gres:gpu:2` or `gpu:a:1,gpu:b:1`. None: it names
    no GPUs."""
    # Indexes hold commas too, and a part of them must not read like another resource.
    counts = [int(digits) for digits in _GPUS.findall(re.sub(r"\([^)]*\)", "", gres))]
    return sum(counts) if counts else None


def hosts_of(hostlist: str) -> tuple[str, ...]:
    """Return the names in a list such as `gpu[01-03,7]-ib,login`. Raises SlurmTextError where it
    names too many."""
    names: list[str] = []
    for part in _parts(hostlist):
        names += _expand(part, MOST_HOSTS - len(names))
    return tuple(names)


def _parts(hostlist: str) -> list[str]:
    """Split at commas, but not within brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", hostlist) if part]


def _expand(part: str, room: int) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return _fitting([part], room)
    inside, closing, after = rest.partition("]")
    if not closing:
        raise SlurmTextError(f"a list of nodes is not understood: {part[:64]!r}")
    ends = _expand(after, room) if after else [""]
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
    """Return the jobs that squeue lists. Slurm remembers those that are over for a while: `report`
    leaves them out."""
    try:
        # A job's name may have invalid bytes: they must not hide all other jobs.
        queue = _queue.decode(text.decode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SlurmTextError(f"squeue prints what is not understood: {error}"[:512]) from error
    return tuple(_job(raw) for raw in queue.jobs if 0 <= raw.job_id <= 2**32)


def _job(raw: _Job) -> SlurmJob:
    state, limit_min = _state(raw.job_state), number_of(raw.time_limit)
    shares = _shares(raw) if state in HOLDING else ()
    started = number_of(raw.start_time)
    return SlurmJob(
        number=raw.job_id, id=_id(raw), state=state, user=raw.user_name[:128] or None,
        submitted_at=float(number_of(raw.submit_time) or 0), name=_one_line(raw.name),
        reason="" if raw.state_reason == "None" else _one_line(raw.state_reason),
        partition=raw.partition[:128] or None,
        # For a waiting job it is the scheduler's guess.
        started_at=float(started) if started and state in HOLDING else None,
        limit_s=None if limit_min is None else limit_min * 60.0,
        gpus=_held_gpus(raw) if state in HOLDING else _requested_gpus(raw),
        nodes=shares[:MAX_SHARES],
        is_het=bool(number_of(raw.het_job_id)))


def _state(raw: Any) -> str:
    """Return the state; of several, the first that says whether the job holds its GPUs:
    `CANCELLED`, `COMPLETING`."""
    words = [word for word in (raw if isinstance(raw, list) else [raw]) if isinstance(word, str)]
    for word in words:
        if word in HOLDING and word != "RUNNING":
            return word
    return words[0][:128] if words and words[0] else "UNKNOWN"


def _id(raw: _Job) -> str:
    array, task = number_of(raw.array_job_id), number_of(raw.array_task_id)
    waiting = raw.array_task_string
    waiting = waiting.partition("%")[0] if isinstance(waiting, str) else ""
    if array and waiting:
        # A list that Slurm has cut short could name other tasks.
        return f"{array}_[{waiting}]" if _SAFE_LIST.fullmatch(waiting) else f"{array}_[...]"
    return f"{array}_{task}" if array and task is not None else str(raw.job_id)


def _held_gpus(raw: _Job) -> int | None:
    """Return the GPUs that a job holds, by `gres_detail` alone: allocated TRES show no GPUs where
    accounting does not count them. None: not known."""
    if not raw.gres_detail:
        return 0 if _requested_gpus(raw) == 0 else None
    return sum(gpus_in(detail) or 0 for detail in raw.gres_detail)


def _requested_gpus(raw: _Job) -> int | None:
    """Return the GPUs that a job requests: 0 if none. None: not known."""
    whole = gpus_in(raw.tres_per_job)
    if whole is not None:
        return whole
    per_node, nodes = gpus_in(raw.tres_per_node), number_of(raw.node_count)
    if per_node is None:
        return 0
    return None if nodes is None else per_node * nodes


def _shares(raw: _Job) -> tuple[SlurmShare, ...]:
    names = hosts_of(raw.nodes)
    counts = [gpus_in(detail) or 0 for detail in raw.gres_detail]
    if len(counts) != len(names):
        return tuple(SlurmShare(name[:128], None) for name in names)
    return tuple(SlurmShare(name[:128], count) for name, count in zip(names, counts, strict=True))


def _one_line(text: str) -> str:
    return printable(text[:256], " ")


def nodes_of(text: str) -> tuple[SlurmNode, ...]:
    return tuple(_node(line) for line in text.splitlines() if line.startswith("NodeName="))


def _node(line: str) -> SlurmNode:
    fields = _fields(line)
    states = fields.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")
    reason = line.rpartition(" Reason=")[2] if " Reason=" in line else ""
    return SlurmNode(
        name=fields["NodeName"][:128], host=fields.get("NodeHostName", fields["NodeName"])[:128],
        states=tuple(state[:128] for state in states if state)[:MAX_STATES] or ("UNKNOWN",),
        gpus=gpus_in(fields.get("Gres", "")), allocated=gpus_in(fields.get("GresUsed", "")),
        partitions=fields.get("Partitions", "")[:256],
        reason=_one_line(re.sub(r" \[[^\[\]]*\]\s*\Z", "", reason)))


def _fields(line: str) -> dict[str, str]:
    """Return the first value of each name: text that people write comes after Slurm's own."""
    fields: dict[str, str] = {}
    marks = [*_FIELD.finditer(line)]
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        end = len(line) if after is None else after.start()
        fields.setdefault(mark[1], line[mark.end():end].strip())
    return fields


def config_of(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def slurm_uid(config: dict[str, str]) -> int | None:
    match = _USER.fullmatch(config.get("SlurmUser", ""))
    return None if match is None else int(match[1])


def report(jobs: Iterable[SlurmJob], nodes: Sequence[SlurmNode], now: SlurmNow) -> SlurmNow:
    """Return as much as a message holds: first the jobs that hold GPUs, then those that wait for
    some."""
    of_gpus = sorted((job for job in jobs if job.state not in OVER and job.gpus != 0),
                     key=lambda job: (not job.holds_gpus, job.submitted_at, job.number))
    most = MAX_JOBS
    while True:
        message = msgspec.structs.replace(
            now, jobs=tuple(of_gpus[:most]), nodes=tuple(nodes[:MAX_NODES]),
            left_out=max(len(of_gpus) - most, 0))
        encoded = msgspec.msgpack.encode(message)
        if most == 0 or len(encoded) <= REPORT_BYTES:
            return _check(encoded)
        most = min(most, len(of_gpus)) // 2


def _check(encoded: bytes) -> SlurmNow:
    """Check the report by decoding it: a report that the hub refuses would end the connection."""
    try:
        return msgspec.msgpack.decode(encoded, type=SlurmNow)
    except msgspec.MsgspecError as error:
        raise SlurmTextError(f"Slurm says what cannot be passed on: {error}"[:512]) from error
