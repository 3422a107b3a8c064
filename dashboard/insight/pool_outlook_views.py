"""Run times of leases and waits of claims as the API and the page show them. Pure."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from gpudeck.pool.core.prediction import RunTime, RunTimeProof

from .core.pool_outlook import LeaseOutlook, PoolOutlook, WaitOutlook

SHOWN_MOST = 500


class SpanView(Struct):
    """Percentiles of a span, from `runs` earlier ones."""

    p25_s: float
    p50_s: float
    p75_s: float
    p90_s: float
    runs: int
    of: str


class RunTimeTestView(Struct):
    """Test on earlier ones, each predicted from those before it. `off_by`: on average, as a factor
    (2: twice as long, or half); `inside_pct`: how many lay between p25 and p75, where 50 are
    expected."""

    runs: int
    off_by: float
    naive_off_by: dict[str, float]
    inside_pct: float


class LeaseRunTimeView(Struct):
    """A lease. `left`: how much longer it lasts, by earlier runs that lasted longer than this one
    has by now."""

    lease: str
    owner: str
    node: str
    host: str
    gpus: int
    since: float
    left: SpanView


class RunTimeList(Struct):
    """Leases, the first to end in front, 500 at most. `why`: in words, where nothing is shown."""

    items: list[LeaseRunTimeView]
    test: RunTimeTestView | None
    why: str


class WaitView(Struct):
    """Wait of claims for so many GPUs. `wait` null: too few waits are known, or they differ by more
    than a factor of eight."""

    size: str
    waits: int
    wait: SpanView | None


class WaitList(Struct):
    items: list[WaitView]
    test: RunTimeTestView | None
    why: str


def run_time_view(leases: Iterable[LeaseOutlook], proof: RunTimeProof,
                  seen_host: Callable[[str], str | None], now: float) -> RunTimeList:
    """Show run times of leases. `seen_host`: the host of a node, if it is visible."""
    why = proof.why_not()
    items = [] if why else [
        LeaseRunTimeView(lease.id, lease.claim.owner, grant.node, host, len(grant.uuids),
                         lease.since, _span(outlook.took, now - lease.since))
        for outlook in leases for lease in (outlook.lease,) for grant in lease.grants
        if (host := seen_host(grant.node)) is not None]
    return RunTimeList(items[:SHOWN_MOST], _test(proof), why)


def wait_view(pool: PoolOutlook, is_whole: bool) -> WaitList:
    """Show the waits of the whole fleet, only to a user who sees all of it."""
    if not is_whole:
        return WaitList([], None, "waits are those of the whole fleet, and you see a part of it")
    why = pool.waits_proof.why_not()
    return WaitList([] if why else [_wait(wait) for wait in pool.waits],
                    _test(pool.waits_proof), why)


def _wait(of: WaitOutlook) -> WaitView:
    return WaitView(of.size, of.waits, None if of.predicted is None else _span(of.predicted, 0.0))


def _span(of: RunTime, lasted_s: float) -> SpanView:
    p25_s, p50_s, p75_s, p90_s = (
        max(0.0, span_s - lasted_s) for span_s in (of.p25_s, of.p50_s, of.p75_s, of.p90_s))
    return SpanView(p25_s, p50_s, p75_s, p90_s, of.runs, of.of)


def _test(proof: RunTimeProof) -> RunTimeTestView | None:
    if not proof.runs:
        return None
    return RunTimeTestView(
        proof.runs, proof.off_by(proof.error),
        {name: proof.off_by(error) for name, error in proof.naive.items()},
        round(100 * proof.inside / proof.runs, 1))
