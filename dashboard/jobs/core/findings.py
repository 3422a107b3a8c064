"""Findings about a job, in sentences with their evidence: from its minutes alone. Each is a rule of
the shipped pack too, with the same thresholds. Pure."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from gpudeck.measures.metrics import IDLE_AT_MOST_PCT
from gpudeck.measures.waste import LOADS, is_unused

from . import signs
from .job_minutes import JobMinutes, Mask, Matrix

Kind = Literal["stuck", "slow_rank", "crashed_rank", "starved", "unused", "memory_unused"]

UNUSED_FOR_S = 1_800
PARTIAL_SHARE = 0.9  # of the power at work; a shorter pause hardly changes how far a rank lags
CRASHED_FOR_S = 180
MEMORY_SHARE = 0.05
MEMORY_CLEAR_SHARE = 0.1
MEMORY_FOR_S = 240
LINKS = "nvlink_tx_bytes_per_s"  # where the boards have them


class FindingEvidence(Struct, frozen=True):
    """A number of some ranks and what it is compared with."""

    metric: str
    value: float | None
    against: float | None
    against_is: str  # the meaning of `against`, in words


class JobFinding(Struct, frozen=True):
    kind: Kind
    sentence: str
    since: float | None
    ranks: list[int]  # rows of the job's ranks
    evidence: list[FindingEvidence] = []


def findings_of(job: JobMinutes, is_running: bool) -> list[JobFinding]:
    """Return the findings at the end of these minutes; for a job that has ended, as it was before
    it did."""
    if not len(job.ranks) or not job.steps:
        return []
    results = (finder(job) for finder in FINDERS if is_running or finder is not _crashed)
    return [finding for finding in results if finding is not None]


def _lasting(mask: Mask, seconds: float, step: int) -> npt.NDArray[np.intp]:
    """Return, for each row, for how many steps up to the last the mask holds without a break; 0
    where that is too short."""
    broken = ~mask[:, ::-1]
    steps = np.where(broken.any(axis=1), broken.argmax(axis=1), mask.shape[1])
    return np.where(steps * step >= seconds, steps, 0)


def _kept(is_met: Mask, stays: Mask, is_held: Mask, seconds: float, step: int,
          pauses: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.intp]:
    """Return, for each row, for how many steps up to the last its rule fires; 0 where it does not.
    It begins where `is_met` has held for `seconds`, and is over when `stays` has not held for
    signs.KEPT_S, or the rank has gone: a job that pauses to write a checkpoint does not end it. A
    step of `pauses` counts neither for nor against the beginning."""
    many, steps = is_met.shape
    is_pause = np.zeros(steps, bool) if pauses is None else pauses
    began = np.full(many, steps, np.intp)  # the step it began with; `steps`: none
    streak, at_rest, first = np.zeros((3, many), np.intp)  # steps; the first of the streak
    for at in range(steps):
        streak = np.where(is_met[:, at], streak + 1, np.where(is_pause[at], streak, 0))
        at_rest = np.where(stays[:, at], 0, at_rest + 1)
        is_over = (at_rest * step > signs.KEPT_S) | ~is_held[:, at]
        streak[is_over] = 0
        first = np.where(is_met[:, at] & (streak == 1), at, first)
        began = np.where((began == steps) & (streak * step >= seconds), first, began)
        began[is_over] = steps
    lasting: npt.NDArray[np.intp] = steps - began
    return lasting


def _at_rest(job: JobMinutes, is_met: Mask, rows: Sequence[int]) -> str:
    """Say for how long none of these rows has met the condition; empty: one does."""
    steps = int(is_met[list(rows), ::-1].any(axis=0).argmax())
    minutes = steps * job.step // 60
    return f" Not in the last {minutes} min; after 10 it counts as over." if steps else ""


def _rows(lasting: npt.NDArray[np.intp]) -> tuple[list[int], int]:
    """Return the rows that last, and for how many steps all of them do."""
    rows = np.flatnonzero(lasting).tolist()
    return rows, int(lasting[rows].min()) if rows else 0


def _which(job: JobMinutes, rows: Sequence[int], whole: str) -> str:
    return whole if len(rows) == len(job.ranks) else f"{len(rows)} of its {len(job.ranks)} GPUs"


def _since(job: JobMinutes, steps: int) -> float:
    return float(job.t0 + (job.steps - steps) * job.step)


def _mean(matrix: Matrix, rows: Sequence[int], steps: int) -> float | None:
    part = matrix[list(rows), -steps:]
    return float(np.nanmean(part)) if part.size and not np.isnan(part).all() else None


def _means(job: JobMinutes, is_met: Mask, rows: Sequence[int], steps: int
           ) -> Callable[[Matrix, Sequence[int]], float | None]:
    """Return a function that takes the mean of other rows over the last steps, of those in which
    one of these rows met the condition."""
    columns = np.flatnonzero(is_met[list(rows), -steps:].any(axis=0)) + job.steps - steps
    return lambda matrix, of: _mean(matrix[:, columns], of, len(columns))


def _names(job: JobMinutes, rows: Sequence[int]) -> str:
    names = [_name(job, row) for row in rows[:4]]
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    return ", ".join(names) + more


def _name(job: JobMinutes, row: int) -> str:
    rank = job.ranks[row]
    prefix = "" if rank.number is None else f"rank {rank.number} on "
    return f"{prefix}{rank.host}:{rank.place}"


def _stuck(job: JobMinutes) -> JobFinding | None:
    numbers = job.numbers
    mask = signs.stuck(numbers["util_pct"], numbers["mem_util_pct"], numbers["power_w"],
                       job.of_ranks("power_limit_w")) & job.is_held
    lasting = _lasting(mask, signs.STUCK_FOR_S, job.step)
    rows, steps = _rows(lasting)
    if not rows:
        return None
    which = _which(job, rows, "All its GPUs")
    limit = np.nanmean(job.of_ranks("power_limit_w")[rows])
    missing = _missing_rank(job, rows, steps)
    whose = ("" if missing is None else f" {_capital(_name(job, missing))} is the only one at 0 %: "
             "the others wait for it.")
    return JobFinding(
        "stuck", f"{which} look stuck: full utilization, but power and memory traffic as if idle. "
        f"Kernels spin and wait, as in a collective that one rank has not joined.{whose}",
        _since(job, steps), rows, [
            FindingEvidence("util_pct", _mean(numbers["util_pct"], rows, steps),
                            signs.STUCK_UTIL_PCT, "at least"),
            FindingEvidence("power_w", _mean(numbers["power_w"], rows, steps),
                            float(limit * signs.STUCK_POWER_SHARE), "below 35 % of the limit"),
            FindingEvidence("mem_util_pct", _mean(numbers["mem_util_pct"], rows, steps),
                            signs.STUCK_MEM_UTIL_PCT, "at most"),
            FindingEvidence(LINKS, _mean(numbers[LINKS], rows, steps), None, "on average")])


def _missing_rank(job: JobMinutes, stuck: Sequence[int], steps: int) -> int | None:
    """Return the one rank whose GPU rests while all others of the job are stuck; None: there is
    none, or which one it is is not known."""
    with np.errstate(invalid="ignore"):
        rests = job.is_held & (job.numbers["util_pct"] <= signs.REST_UTIL_PCT)
    idle = np.flatnonzero(rests[:, -steps:].all(axis=1)).tolist()
    there = np.flatnonzero(job.is_held[:, -1]).tolist()
    return idle[0] if len(idle) == 1 and {*stuck, *idle} == {*there} and len(there) >= 3 else None


def lags(job: JobMinutes) -> tuple[Matrix, npt.NDArray[np.bool_]]:
    """Return the lag, ranks x steps, where peers are the job's GPUs on the same node; and the steps
    in which the whole job rests."""
    nodes = {node: at for at, node in enumerate(dict.fromkeys(rank.node for rank in job.ranks))}
    node = np.array([nodes[rank.node] for rank in job.ranks], np.intp).reshape(-1, 1)
    step = np.arange(job.steps).reshape(1, -1)
    group = (node * job.steps + step).astype(np.intp)
    is_held = job.is_held.reshape(-1)
    limit = np.broadcast_to(job.of_ranks("power_limit_w"), group.shape).reshape(-1)
    lag = signs.rank_lag(
        job.numbers["util_pct"].reshape(-1)[is_held], job.numbers["power_w"].reshape(-1)[is_held],
        limit[is_held], group.reshape(-1)[is_held])
    pct: Matrix = np.full(group.shape, np.nan)
    is_compared, rests = np.zeros(group.shape, bool), np.zeros(group.shape, bool)
    pct[job.is_held], is_compared[job.is_held], rests[job.is_held] = lag
    return pct, np.asarray(rests.any(axis=0) & ~is_compared.any(axis=0))


def _pauses(job: JobMinutes, rests: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the steps in which a job pauses: for all of it, or for a part of the one before and
    the one after, which shows in the power of all ranks. A whole step at work is no pause."""
    power = np.fmax.reduce(np.where(job.is_held, job.numbers["power_w"], np.nan), axis=0)
    at_work = np.fmax.reduce(power[~rests], initial=np.nan)
    with np.errstate(invalid="ignore"):
        is_partial = power < PARTIAL_SHARE * at_work
    wide = np.concatenate(([False], rests, [False]))
    return np.asarray(rests | ((wide[:-2] | wide[2:]) & is_partial))


def _slow(job: JobMinutes) -> JobFinding | None:
    behind, rests = lags(job)
    with np.errstate(invalid="ignore"):
        is_met, stays = behind >= signs.LAG_PCT, behind >= signs.LAG_CLEAR_PCT
    rows, steps = _rows(_kept(is_met, stays, job.is_held, signs.LAG_FOR_S, job.step,
                              _pauses(job, rests)))
    if not rows or 2 * len(rows) > len(job.ranks):
        return None
    mean = _means(job, is_met, rows, steps)
    node = job.ranks[rows[0]].node
    peers = [at for at, rank in enumerate(job.ranks) if rank.node == node and at not in rows]
    verb = "lag" if len(rows) > 1 else "lags"
    return JobFinding(
        "slow_rank", f"{_capital(_names(job, rows))} {verb} the other ranks of its node by "
        f"{mean(behind, rows):.0f} %. A job over several GPUs is as slow as its slowest rank."
        f"{_at_rest(job, is_met, rows)}", _since(job, steps), rows, [
            FindingEvidence(name, mean(job.numbers[name], rows), mean(job.numbers[name], peers),
                            "its peers")
            for name in ("util_pct", "power_w", "sm_clock_mhz", "temp_c", LINKS)])


def _crashed(job: JobMinutes) -> JobFinding | None:
    """Find GPUs that the job had and has no more, while the others go on for minutes."""
    is_held = job.is_held
    is_gone = is_held.any(axis=1) & ~is_held[:, -1]
    if not is_gone.any() or is_gone.all():
        return None
    missing_steps = _lasting(~is_held, CRASHED_FOR_S, job.step)
    rows = np.flatnonzero(is_gone & (missing_steps > 0)).tolist()
    still = np.flatnonzero(is_held[:, -1]).tolist()
    # A GPU that another task of the job has taken over is not one that is missing.
    remaining = {job.ranks[at].gpu for at in still}
    rows = [row for row in rows if job.ranks[row].gpu not in remaining]
    if not rows or not still:
        return None
    steps = int(missing_steps[rows].min())
    return JobFinding(
        "crashed_rank", f"{_capital(_names(job, rows))} ended, while the job still holds "
        f"{len(remaining)} {'GPU' if len(remaining) == 1 else 'GPUs'}.", _since(job, steps), rows, [
            FindingEvidence("util_pct", _mean(job.numbers["util_pct"], still, steps), None,
                            "of the ranks that are left"),
            FindingEvidence("power_w", _mean(job.numbers["power_w"], still, steps), None,
                            "of the ranks that are left")])


def _starved(job: JobMinutes) -> JobFinding | None:
    """Find GPUs that work and pause, while processes on their hosts wait for a processor or a
    disk."""
    numbers = job.numbers
    pressure = np.fmax(numbers["io_pressure_pct"], numbers["cpu_pressure_pct"])
    busiest = np.fmax(numbers["util_max_pct"], numbers["util_pct"])
    idle_pct = signs.starved_pct(numbers["util_pct"], pressure)
    with np.errstate(invalid="ignore"):
        works = busiest >= signs.HOST_WORK_PCT
        is_met = works & (idle_pct >= signs.STARVED_PCT)
        stays = works & (idle_pct >= signs.STARVED_CLEAR_PCT)
    rows, steps = _rows(_kept(is_met, stays, job.is_held, signs.STARVED_FOR_S, job.step))
    if not rows:
        return None
    mean = _means(job, is_met, rows, steps)
    disks, processors = (mean(numbers[name], rows) for name in (
        "io_pressure_pct", "cpu_pressure_pct"))
    short_of = "disks" if (disks or 0.0) >= (processors or 0.0) else "processors"
    which = _which(job, rows, "Its GPUs")
    return JobFinding(
        "starved", f"{which} wait for data: they pause while the host is short of {short_of}."
        f"{_at_rest(job, is_met, rows)}", _since(job, steps), rows, [
            FindingEvidence("util_pct", mean(numbers["util_pct"], rows),
                            100.0 - signs.STARVED_PCT, "at most"),
            FindingEvidence("io_pressure_pct", disks, signs.STARVED_PRESSURE_PCT, "much from"),
            FindingEvidence("cpu_pressure_pct", processors, signs.STARVED_PRESSURE_PCT,
                            "much from"),
            FindingEvidence("host_cpu_pct", mean(numbers["host_cpu_pct"], rows), None,
                            "of one processor, with its child processes")])


def _unused(job: JobMinutes) -> JobFinding | None:
    load = job.numbers["load_pct"]
    with np.errstate(invalid="ignore"):
        lasting = _lasting(is_unused(load) & job.is_held, UNUSED_FOR_S, job.step)
    rows, steps = _rows(lasting)
    if not rows:
        return None
    which = _which(job, rows, "its GPUs")
    witness = next(name for name in LOADS if name == LOADS[-1]
                   or _mean(job.numbers[name], rows, steps) is not None)
    return JobFinding(
        "unused", f"The job holds {which} and does not use them.", _since(job, steps), rows, [
            FindingEvidence(witness, _mean(load, rows, steps), IDLE_AT_MOST_PCT, "at most"),
            FindingEvidence("mem_used_bytes", _mean(job.numbers["mem_used_bytes"], rows, steps),
                            None, "held")])


def _memory(job: JobMinutes) -> JobFinding | None:
    """Find boards with far too much memory, if they work: `unused` reports those that do not."""
    share = job.numbers["mem_used_bytes"] / job.of_ranks("mem_total_bytes")
    with np.errstate(invalid="ignore"):
        works = job.numbers["util_pct"] > IDLE_AT_MOST_PCT
        is_met, stays = works & (share < MEMORY_SHARE), works & (share < MEMORY_CLEAR_SHARE)
    lasting = _kept(is_met, stays, job.is_held, MEMORY_FOR_S, job.step)
    if not lasting.all():
        return None
    rows = list(range(len(job.ranks)))
    steps = int(lasting.min())
    most = float(np.nanmax(job.numbers["mem_used_bytes"]))
    total = float(np.nanmean(job.of_ranks("mem_total_bytes")))
    return JobFinding(
        "memory_unused", "Its GPUs have far more memory than the job needs: a smaller GPU, a MIG "
        "instance or a shared one would do.", _since(job, steps), rows,
        [FindingEvidence("mem_used_bytes", most, total, "of the board")])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


FINDERS: tuple[Callable[[JobMinutes], JobFinding | None], ...] = (
    _stuck, _crashed, _slow, _starved, _unused, _memory)
