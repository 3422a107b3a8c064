"""Leases and claims in the words of the pages Pool, My work and Job. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from ..pool.views import ClaimView, LeaseView, ModelView, PoolNodeView, PoolView
from .reports_table import natural
from .words import age, amount, plural, sentence, until_words, when

WHOLE_PCT = 100.0
TOGETHER = "\N{EN DASH}"
UTC_MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d) UTC\b")


class GpuName(Protocol):
    """A GPU as a lease names it: its number on its node, and its model."""

    @property
    def place(self) -> str: ...

    @property
    def model(self) -> str: ...


Gpus = Mapping[str, GpuName]  # by UUID


def gpus_of(nodes: Iterable[PoolNodeView]) -> Gpus:
    return {gpu.uuid: gpu for node in nodes for gpu in node.gpus}


def places_words(places: Iterable[str]) -> str:
    """Format places of GPUs as `0-3, 6`, with a dash as it is set in print."""
    runs: list[list[str]] = []
    for place in sorted(places, key=natural):
        last = runs[-1][-1] if runs else ""
        if place.isdecimal() and last.isdecimal() and int(place) == int(last) + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(f"{run[0]}{TOGETHER}{run[-1]}" if len(run) > 2 else ", ".join(run)
                     for run in runs)


def leased_words(lease: LeaseView, gpus: Gpus) -> str:
    """Name the GPUs of a lease: `GPU 0-3`, or of a part `30 % of GPU 2`."""
    facts = [gpus[uuid].place for uuid in lease.gpus if uuid in gpus]
    words = (f"GPU {places_words(facts)}" if len(facts) == len(lease.gpus) else
             plural(len(lease.gpus), "GPU"))
    return words if lease.share_pct >= WHOLE_PCT else f"{amount(lease.share_pct)} % of {words}"


def where_words(lease: LeaseView, gpus: Gpus) -> str:
    return f"{lease.host} · {leased_words(lease, gpus)}"


def model_of(lease: LeaseView, gpus: Gpus) -> str:
    return next((gpus[uuid].model for uuid in lease.gpus[:1] if uuid in gpus), "")


def command_words(lease: LeaseView) -> str:
    return lease.command or ("a command" if lease.is_run else "without a command")


def use_words(lease: LeaseView, now: float) -> str:
    if lease.state == "offered":
        return "begins"
    return "in use" if lease.idle_since is None else f"idle for {age(now - lease.idle_since)}"


def is_match(lease: LeaseView, gpus: Gpus, wanted: str) -> bool:
    """Check whether a lease is found by its owner, node, command or model."""
    if wanted == "":
        return True
    text = "\n".join((lease.owner, lease.host, lease.command, model_of(lease, gpus)))
    return wanted.strip().lower() in text.lower()


def is_reserved(claim: ClaimView, now: float) -> bool:
    return claim.starts_at is not None and claim.starts_at > now


def why_words(claim: ClaimView, now: float, zone: str) -> str:
    """Return why a claim waits, with its moments in the viewer's zone, without what it asks for:
    that stands above it already."""
    def local(moment: re.Match[str]) -> str:
        return until_words(datetime.fromisoformat(f"{moment[1]}+00:00").timestamp(), now, zone)

    return sentence(UTC_MOMENT.sub(local, claim.why.removeprefix(f"it asks for {claim.asks}; ")))


def since_words(claim: ClaimView, now: float) -> str:
    team = "" if claim.team is None else f"{claim.team}, "
    return f"{team}asked {when(claim.asked_at, now)}"


def waits_words(pool: PoolView) -> str:
    if pool.waiting == 0:
        return "no one waiting"
    return (f"{plural(pool.waiting, 'claim')} {'waits' if pool.waiting == 1 else 'wait'} for "
            f"{plural(pool.waiting_gpus, 'GPU')}")


def free_of(models: Iterable[ModelView]) -> int:
    return sum(model.free for model in models)


def summary(pool: PoolView, reservations: int) -> str:
    gpus = sum(model.gpus for model in pool.models)
    return " · ".join(filter(None, (
        f"{amount(free_of(pool.models))} of {plural(gpus, 'GPU')} free", waits_words(pool),
        plural(reservations, "reservation") if reservations else "")))
