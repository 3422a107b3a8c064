"""NCCL's own word on a job that stands still, in sentences. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from gpudeck.words.actions import age

from ...fleet.host_views import CollectiveRankView, CollectivesView
from .findings import JobFinding


def largest_standstill(reports: Iterable[CollectivesView]) -> CollectivesView | None:
    """Return the report on the largest communicator; None: none stands still. Each node of a launch
    reports on the same ones."""
    readable = [report for report in reports if not report.trouble]
    return max(readable, key=lambda report: (report.size, report.still_s), default=None)


def with_collectives(findings: Sequence[JobFinding], reports: Sequence[CollectivesView]
                     ) -> list[JobFinding]:
    """Return the findings, with which rank the others wait for where NCCL says that."""
    report = largest_standstill(reports)
    return [structs.replace(finding, sentence=f"{finding.sentence} {collective_words(report)}")
            if report is not None and finding.kind == "stuck" else finding for finding in findings]


def collective_words(report: CollectivesView) -> str:
    if report.trouble:
        return f"NCCL was not read: {report.trouble}."
    since = f"None has launched another one for {age(report.still_s)}."
    parts = []
    if report.behind_count:
        verb = "have" if report.behind_count > 1 else "has"
        parts.append(f"{_names(report.behind, report.behind_count)} {verb} launched "
                     f"{report.least} collectives, {report.ahead} of {report.size} ranks up to "
                     f"{report.most}")
    if report.is_mixed:
        parts.append(f"its {report.size} ranks have launched {report.least} collectives each, but "
                     "not the same ones")
    if report.missing_count:
        verb = "do" if report.missing_count > 1 else "does"
        parts.append(f"{_names(report.missing, report.missing_count)} {verb} not answer")
    return f"NCCL: {'; '.join(parts)}. {since}"


def _names(ranks: Sequence[CollectiveRankView], count: int) -> str:
    names = ", ".join(_name(rank) for rank in ranks)
    return names + (f" and {count - len(ranks)} more" if count > len(ranks) else "")


def _name(rank: CollectiveRankView) -> str:
    pid = [] if rank.pid is None else [f"process {rank.pid}"]
    gpu = [] if rank.gpu is None else [f"GPU {rank.gpu}"]
    return f"rank {rank.rank} ({', '.join([*pid, *gpu, f'host {rank.host}'])})"
