"""Advice on the use of the fleet, from what was measured of it: each with reason, GPU-hours and
risk. Pure."""

import hashlib
import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .mig_fit import mig_fits
from .power_caps import BOUND_SHARE, kilowatt_hours, power_cap_chances
from .sharing import (
    BANDWIDTH_PCT,
    BUSY_PCT,
    DUTY_MOST,
    MEMORY_MARGIN,
    LoadProfile,
    choose,
    kept_speed,
    profile,
)
from .week import WEEK_H, MeasuredWeek

Profiles = Sequence[LoadProfile | None]  # of each GPU
Kind = Literal["idle", "share", "mig", "size", "lease", "fragmentation", "imbalance", "power"]
GIB = 2**30
LEAST_HOURS = 4.0  # a week: less is not worth the effort
IDLE_SHARE = 0.2
LEASE_IDLE_S = 2 * 3_600.0
MANY = 8  # GPUs of one node that large jobs ask for
FULL, EMPTY = 0.95, 0.5
SIZE_MOST = 0.5  # of the board's memory, to call it too large
SIZE_LOAD_PCT = 50.0
HALF_LIFE_DAYS = 1.0
QUOTA_NAME = re.compile(r"[a-z0-9-]{1,40}")
# What `gpu_hours` counts.
UNITS: dict[Kind, str] = {"power": "GPU-hours of energy"}
UNIT = "GPU-hours"
LABELS: dict[Kind, str] = {
    "idle": "idle holder", "share": "sharing", "mig": "MIG", "size": "right-sizing",
    "lease": "unused lease", "fragmentation": "fragmentation", "imbalance": "imbalance",
    "power": "power cap"}


@dataclass(frozen=True, slots=True)
class UnusedLease:
    id: str
    owner: str
    host: str
    node: str
    gpus: tuple[str, ...]
    idle_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice. `gpu_hours`: a week, had it been followed; of energy, as hours of such a
    GPU at its limit. `past`: its effect on the
    measured time. `gpus`: indices of the GPUs concerned; empty: it is about an owner or the whole
    fleet. `undo` "": nothing is to be undone."""

    kind: Kind
    subject: str
    title: str
    reason: str
    gpu_hours: float
    risk: str
    past: str
    command: str
    undo: str
    owner: str | None = None
    gpus: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Identifier: the same for the same advice, tomorrow too."""
        return hashlib.sha256(f"{self.kind}\0{self.subject}".encode()).hexdigest()[:12]


def advise(week: MeasuredWeek, leases: Collection[UnusedLease], free: Mapping[str, int],
           strategy: str, least_h: float = WEEK_H) -> list[Advice]:
    """Return advice, the most GPU-hours first. Empty where less than `least_h` were measured.
    `free`: GPUs by model, now; `strategy`: of the pool."""
    if week.hours < least_h:
        return []
    profiles = [profile(week, at) for at in range(len(week.gpus))]
    shared = [*_share(week, profiles)]
    items = [*_idle(week), *shared, *_mig(week, profiles, shared), *_size(week, free, profiles),
             *_leases(week, leases), *_fragmentation(week, strategy), *_imbalance(week),
             *_power(week)]
    return sorted((advice for advice in items if advice.gpu_hours >= LEAST_HOURS),
                  key=lambda advice: (-advice.gpu_hours, advice.kind, advice.subject))


def _span(week: MeasuredWeek) -> str:
    return f"{week.hours} h" if week.hours < 48 else f"{week.hours / 24:.0f} days"


def hours_words(hours: float) -> str:
    """Format GPU-hours: half an hour is not none."""
    return f"{hours:.1f}".removesuffix(".0") if hours < 10 else f"{hours:.0f}"


def _idle(week: MeasuredWeek) -> Iterator[Advice]:
    for at, owner in enumerate(week.owners):
        held, used = week.owner_held[:, at], week.owner_used[:, at]
        idle = float((held - used).sum())
        if not held.sum() or idle < IDLE_SHARE * held.sum():
            continue
        cap = idle_cap(week, at)
        saved = float(np.maximum(held - cap, 0).sum())
        delayed = float((used - np.minimum(used, cap)).sum())
        name = _quota_name(owner)
        yield Advice(
            "idle", owner, f"{owner} holds idle GPUs",
            f"{idle / week.weeks:.0f} of {held.sum() / week.weeks:.0f} GPU-hours a week were idle "
            f"with memory held; {cap} at a time would have covered 95 % of the hours",
            saved / week.weeks,
            "none in mode observe: nothing is enforced until you set the mode to warn or act",
            f"over {_span(week)}, {hours_words(saved)} more GPU-hours would have been free, and "
            f"{hours_words(delayed)} GPU-hours of work would have had to wait",
            f"gpudeck quota set {name} --subject {shlex.quote(f'user:{owner}')} --gpus {cap} "
            "--mode observe", f"gpudeck quota remove {name}", owner)


def idle_cap(week: MeasuredWeek, owner: int) -> int:
    """Return the GPUs at a time that were enough in 95 % of the hours; 0 for an owner who used
    none."""
    return math.ceil(float(np.percentile(week.owner_used[:, owner], 95)) - 1e-6)


def _quota_name(owner: str) -> str:
    if QUOTA_NAME.fullmatch(owner):
        return f"idle-{owner}"
    return f"idle-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"


def _share(week: MeasuredWeek, all_profiles: Profiles) -> Iterator[Advice]:
    """Yield pairs of one owner on one node, the least loaded with the most loaded that fits; each
    GPU once."""
    groups: dict[tuple[str, str, str | None], dict[int, LoadProfile]] = {}
    for at, gpu in enumerate(week.gpus):
        if gpu.is_mig or gpu.owner is None or gpu.mem_bytes is None:
            continue
        gpu_profile = all_profiles[at]
        if gpu_profile and choose(gpu_profile, gpu.model, gpu.mem_bytes, False).method != "alone":
            groups.setdefault((gpu.node, gpu.model, gpu.owner), {})[at] = gpu_profile
    for profiles in groups.values():
        remaining = sorted(profiles, key=lambda at: profiles[at].load)
        while remaining:
            one = remaining.pop(0)
            other = next((at for at in reversed(remaining) if _fit(week, one, at)), None)
            if other is not None:
                remaining.remove(other)
                yield _pair(week, one, other, profiles)


def _fit(week: MeasuredWeek, one: int, other: int) -> bool:
    """Return whether two fit, by their sums in each hour, not by the sums of their percentiles."""
    has_sm = week.is_measured(one, "sm") and week.is_measured(other, "sm")
    load = week.joint("sm" if has_sm else "util", one, other)
    return bool(
        week.joint("memory", one, other).max() * MEMORY_MARGIN <= (
            week.gpus[one].mem_bytes or 0.0)
        and np.percentile(load, 95) <= BUSY_PCT
        and np.percentile(week.joint("bandwidth", one, other), 95) <= BANDWIDTH_PCT)


def _pair(week: MeasuredWeek, one: int, other: int, profiles: Mapping[int, LoadProfile]) -> Advice:
    first, second = week.gpus[one], week.gpus[other]
    # Work that ran on both at the same time would have run on one.
    saved = float(np.minimum(week.held[:, one], week.held[:, other]).sum())
    util = week.joint("util", one, other)
    share, speed = kept_speed(float(np.percentile(util, 95)))
    has_gaps = max(profiles[one].duty, profiles[other].duty) < DUTY_MOST
    mem = math.ceil(max(week.high("memory", one), week.high("memory", other)) * MEMORY_MARGIN / GIB)
    suffix = f"--model {shlex.quote(first.model)} -- COMMAND"
    return Advice(
        "share", f"{first.uuid}+{second.uuid}",
        f"{first.owner}'s jobs on GPU {first.place} and {second.place} of {first.host} fit one GPU",
        f"{'time slices' if has_gaps else 'MPS'}: combined utilization up to "
        f"{np.percentile(util, 95):.0f} % (95th percentile of the hours), memory up to "
        f"{week.joint('memory', one, other).max() / GIB:.0f} GiB",
        saved / week.weeks,
        f"of measured pairs with such a load, both kept 90 % of their speed in {share} %, and the "
        f"slower one {speed:.0%} at the 10th percentile; a fault of one takes the other down",
        f"over {_span(week)}, {hours_words(saved)} GPU-hours freed; combined load above 80 % in "
        f"{int((util > 80).sum())} hours",
        f"gpudeck run --share 50 --mem {mem}G {suffix}", f"gpudeck run --gpus 1 {suffix}",
        first.owner, (one, other))


def _mig(week: MeasuredWeek, profiles: Profiles, shared: Iterable[Advice]) -> Iterator[Advice]:
    for fit in mig_fits(week, profiles, {at for advice in shared for at in advice.gpus}):
        first, held = week.gpus[fit.gpus[0]], week.held[:, fit.gpus]
        # Work that ran on all of them at the same time would have run on one.
        saved = float((held.sum(axis=1) - held.max(axis=1)).sum())
        owners = sorted({week.gpus[at].owner or "" for at in fit.gpus})
        on = f"--gpu {first.place} --node {shlex.quote(first.host)} --reason"
        yield Advice(
            "mig", "+".join(week.gpus[at].uuid for at in fit.gpus),
            f"{len(fit.gpus)} small jobs on {first.host} fit one {first.model} split by MIG",
            f"GPUs {', '.join(week.gpus[at].place for at in fit.gpus)} ({', '.join(owners)}) "
            f"need no more than {fit.layout}: load and memory of each, at the 95th percentile of "
            "the hours, memory with 15 % to spare",
            saved / week.weeks,
            "instances are isolated in memory and faults, but share power; load peaks shorter than "
            "an hour have no more than their slice. The board has to be empty, out of service "
            f"(gpudeck node cordon --gpu {first.place}) and in MIG mode",
            f"over {_span(week)}, {hours_words(saved)} GPU-hours freed",
            f"gpudeck mig apply {shlex.quote(fit.layout)} {on} 'small jobs fit slices'",
            f"gpudeck mig remove {on} 'whole again'", None, fit.gpus)


def needed_memory(week: MeasuredWeek, gpu: int) -> float:
    """Return the 90th percentile of the daily peaks, the newer ones with more weight, and a
    margin."""
    days = week.hours // 24
    if not days:
        return float(np.nanmax(week.memory[:, gpu])) * MEMORY_MARGIN
    values = np.nan_to_num(week.memory[-24 * days:, gpu]).reshape(days, 24).max(axis=1)
    weights = 0.5 ** (np.arange(days)[::-1] / HALF_LIFE_DAYS)
    order = np.argsort(values)
    enough = np.cumsum(weights[order]) >= 0.9 * weights.sum()
    return float(values[order][int(np.argmax(enough))]) * MEMORY_MARGIN


def _size(week: MeasuredWeek, free: Mapping[str, int], profiles: Profiles) -> Iterator[Advice]:
    """Yield, for each owner and model, the GPUs whose work a smaller board of this fleet would
    hold."""
    sizes = {gpu.model: gpu.mem_bytes for gpu in week.gpus if gpu.mem_bytes and not gpu.is_mig}
    for (owner, model), gpus in _by_owner(week).items():
        size = sizes[model]
        fitting = [at for at in gpus if (gpu_profile := profiles[at]) is not None
                   and gpu_profile.load <= SIZE_LOAD_PCT
                   and needed_memory(week, at) <= SIZE_MOST * size]
        if not fitting:
            continue
        need = max(needed_memory(week, at) for at in fitting)
        smaller = min(((mem, name) for name, mem in sizes.items()
                       if need <= mem <= 0.75 * size and free.get(name, 0) > 0), default=None)
        if smaller is None:
            continue
        moved = float(week.held[:, fitting].sum())
        request = f"--gpus 1 --mem {math.ceil(need / GIB)}G"
        yield Advice(
            "size", f"{owner}@{model}", f"{owner} needs less than {model}",
            f"on {len(fitting)} of them at most {need / GIB:.0f} GiB of {size / GIB:.0f}, with a "
            f"margin of 15 %, and a load up to {SIZE_LOAD_PCT:.0f} %; {smaller[1]} has "
            f"{smaller[0] / GIB:.0f}",
            moved / week.weeks,
            "allocators cache memory, so the need is an upper bound; the smaller board is slower "
            "during load peaks shorter than an hour",
            f"{moved:.0f} GPU-hours of the larger board free in {_span(week)}",
            f"gpudeck run {request} --model {shlex.quote(smaller[1])} -- COMMAND",
            f"gpudeck run {request} --model {shlex.quote(model)} -- COMMAND", owner,
            tuple(fitting))


def _by_owner(week: MeasuredWeek) -> dict[tuple[str, str], list[int]]:
    by_owner: dict[tuple[str, str], list[int]] = {}
    for at, gpu in enumerate(week.gpus):
        if gpu.owner is not None and gpu.mem_bytes and not gpu.is_mig:
            by_owner.setdefault((gpu.owner, gpu.model), []).append(at)
    return by_owner


def _leases(week: MeasuredWeek, leases: Iterable[UnusedLease]) -> Iterator[Advice]:
    at = {gpu.uuid: number for number, gpu in enumerate(week.gpus)}
    for lease in leases:
        if lease.idle_s < LEASE_IDLE_S:
            continue
        hours = min(lease.idle_s / 3_600, WEEK_H) * len(lease.gpus)
        lease_id = shlex.quote(lease.id)
        yield Advice(
            "lease", lease.id,
            f"{lease.owner} leases {len(lease.gpus)} GPUs of {lease.host} unused",
            f"no process has used them for {lease.idle_s / 3_600:.0f} hours", hours,
            "its owner may be about to start; nothing that runs is ended",
            f"{hours:.0f} GPU-hours were leased and not used since then",
            f"gpudeck claim --give-back {lease_id}",
            f"gpudeck claim --gpus {len(lease.gpus)}", lease.owner,
            tuple(at[uuid] for uuid in lease.gpus if uuid in at))


def _power(week: MeasuredWeek) -> Iterator[Advice]:
    """Yield a cap to try on one GPU of an owner's; the others follow if it cost as little."""
    for chance in power_cap_chances(week):
        first = week.gpus[chance.gpus[0]]
        limit_w, count = first.power_default_w or math.inf, len(chance.gpus)
        on = "that GPU" if count == 1 else f"these {count} GPUs"
        uuid = shlex.quote(first.uuid)
        yield Advice(
            "power", f"{first.owner}@{first.model}",
            f"{first.owner}'s work on {count} {first.model} is bound by memory, at full power",
            f"at work it mostly drew {BOUND_SHARE:.0%} of {limit_w:.0f} W and more, and read "
            "or wrote memory half of the time and more; in hours with a lower SM clock it did so "
            "as much",
            sum(chance.saved_wh) / limit_w / week.weeks,
            f"up to {chance.loss:.1%} slower, by its own hours at lower clocks (95 %); other ranks "
            "of its job wait for it. It is a trial of a day on one GPU: compare the length of its "
            f"steps before and after. Then cap {on}, or take it back",
            f"over {_span(week)}, {kilowatt_hours(chance.saved_wh):.1f} kWh less on {on}, which "
            f"drew more than {chance.watts} W in {chance.capped_hours} GPU-hours",
            f"gpudeck gpu cap {uuid} {chance.watts} --for 1d --reason 'trial of a power cap'",
            f"gpudeck gpu release {uuid} power --reason 'the trial is over'", first.owner,
            chance.gpus)


def _models(week: MeasuredWeek) -> dict[str, dict[str, list[int]]]:
    """Return GPUs by model and node."""
    by_model: dict[str, dict[str, list[int]]] = {}
    for at, gpu in enumerate(week.gpus):
        if not gpu.is_mig:
            by_model.setdefault(gpu.model, {}).setdefault(gpu.node, []).append(at)
    return by_model


def _fragmentation(week: MeasuredWeek, strategy: str) -> Iterator[Advice]:
    """Find hours in which eight GPUs were free, and no node had them together."""
    if strategy == "pack":
        return
    for model, nodes in _models(week).items():
        free = np.stack([(week.held[:, gpus] == 0).sum(axis=1) for gpus in nodes.values()], axis=1)
        free[~week.is_seen([at for gpus in nodes.values() for at in gpus])] = 0
        if max(map(len, nodes.values())) < MANY:
            continue
        split = (free.sum(axis=1) >= MANY) & (free.max(axis=1) < MANY)
        hours = float(split.sum())
        yield Advice(
            "fragmentation", model, f"free {model} are spread over nodes",
            f"in {hours / week.weeks:.0f} hours a week {MANY} were free, and no node had {MANY}: a "
            "job of a whole node waits for nothing", MANY * hours / week.weeks,
            "small jobs then share nodes, their heat and their PCIe",
            f"{MANY * hours:.0f} GPU-hours in {_span(week)} could not be given to "
            "such a job",
            'PUT /api/v1/pool/policy {"strategy": "pack"}',
            f'PUT /api/v1/pool/policy {{"strategy": "{strategy}"}}')


def _imbalance(week: MeasuredWeek) -> Iterator[Advice]:
    """Find hours in which a node was full while another one of the same kind was half empty."""
    for model, nodes in _models(week).items():
        if len(nodes) < 2:
            continue
        fill = np.stack([(week.held[:, gpus] > 0).mean(axis=1) for gpus in nodes.values()], axis=1)
        sizes = np.array([len(gpus) for gpus in nodes.values()])
        is_uneven = (fill.max(axis=1) >= FULL) & (fill.min(axis=1) <= EMPTY) & week.is_seen(
            [at for gpus in nodes.values() for at in gpus])
        idle = ((1 - fill) * sizes).max(axis=1)
        hours = float(idle[is_uneven].sum())
        hosts = {node: week.gpus[gpus[0]].host for node, gpus in nodes.items()}
        fullest = hosts[[*nodes][int(fill.mean(axis=0).argmax())]]
        emptiest = hosts[[*nodes][int(fill.mean(axis=0).argmin())]]
        yield Advice(
            "imbalance", model, f"{fullest} is full while {emptiest} is half empty",
            f"in {is_uneven.sum() / week.weeks:.0f} hours a week a node with {model} was full and "
            "another one at most half taken", hours / week.weeks,
            "data and environments must be on the other node as well",
            f"{hours:.0f} GPU-hours were free elsewhere in those hours of {_span(week)}",
            f"gpudeck run --ssh --gpus 1 --model {shlex.quote(model)} -- COMMAND",
            f"gpudeck run --gpus 1 --model {shlex.quote(model)} -- COMMAND", None,
            tuple(at for gpus in nodes.values() for at in gpus))


