"""Run times of leases and waits of claims as the API and the page show them. Pure."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from gpudeck.pool.core.prediction import RunTime, RunTimeProof

from .core.pool_outlook import LeaseOutlook, PoolOutlook, WaitOutlook

SHOWN_MOST = 500


class SpanView(Struct):
    """Of `runs` earlier ones."""

    p25_s: float
    p50_s: float
    p75_s: float
    p90_s: float
    runs: int
    of: str


class RunTimeTestView(Struct):
    """Of earlier ones, each predicted from those before it. `off_by`: on average, as a factor (2:
    twice as long, or half); `inside_pct`: how many lay between p25 and p75, where 50 are
    expected."""

    runs: int
    off_by: float
    naive_off_by: dict[str, float]
    inside_pct: float


class LeaseRunTimeView(Struct):
    """`left`: how much longer, by earlier runs that lasted longer than this one has by now."""

    lease: str
    owner: str
    node: str
    host: str
    gpus: int
    since: float
    left: SpanView


class RunTimeList(Struct):
    """The first to end first, 500 at most. `why`: in words, where nothing is shown."""

    items: list[LeaseRunTimeView]
    test: RunTimeTestView | None
    why: str


class WaitView(Struct):
    """Of claims for so many GPUs. `wait` null: too few waits are known, or they differ by more than
    a factor of eight."""

    size: str
    waits: int
    wait: SpanView | None


class WaitList(Struct):
    items: list[WaitView]
    test: RunTimeTestView | None
    why: str


def run_time_view(leases: Iterable[LeaseOutlook], proof: RunTimeProof,
                  seen_host: Callable[[str], str | None], now: float) -> RunTimeList:
    """`seen_host`: of a node, if it is seen."""
    why = proof.why_not()
    items = [] if why else [
        LeaseRunTimeView(each.lease.id, each.lease.claim.owner, grant.node, host, len(grant.uuids),
                         each.lease.since, _span(each.took, now - each.lease.since))
        for each in leases for grant in each.lease.grants
        if (host := seen_host(grant.node)) is not None]
    return RunTimeList(items[:SHOWN_MOST], _test(proof), why)


def wait_view(found: PoolOutlook, is_whole: bool) -> WaitList:
    """Of the whole fleet: who sees a part of it is not told of the rest."""
    if not is_whole:
        return WaitList([], None, "waits are those of the whole fleet, and you see a part of it")
    why = found.waits_proof.why_not()
    return WaitList([] if why else [_wait(each) for each in found.waits],
                    _test(found.waits_proof), why)


def _wait(of: WaitOutlook) -> WaitView:
    return WaitView(of.size, of.waits, None if of.found is None else _span(of.found, 0.0))


def _span(of: RunTime, lasted_s: float) -> SpanView:
    p25_s, p50_s, p75_s, p90_s = (
        max(0.0, each - lasted_s) for each in (of.p25_s, of.p50_s, of.p75_s, of.p90_s))
    return SpanView(p25_s, p50_s, p75_s, p90_s, of.runs, of.of)


def _test(proof: RunTimeProof) -> RunTimeTestView | None:
    if not proof.runs:
        return None
    return RunTimeTestView(
        proof.runs, proof.off_by(proof.error),
        {name: proof.off_by(error) for name, error in proof.naive.items()},
        round(100 * proof.inside / proof.runs, 1))
