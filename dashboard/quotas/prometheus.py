"""Quotas as Prometheus text: what each gives, who holds how much of it, and where it is in force.
Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpudeck.prometheus_text import family, labels
from gpudeck.quota import Quota
from gpudeck.quota_usage import QuotaBalance

from .evaluate import QuotaDeployment

NAN = float("nan")
ABOUT = ("quota", "subject", "scope", "limit")


@dataclass(frozen=True, slots=True)
class QuotaMetricsSnapshot:
    """`balances`: of those holders who may be told of here."""

    quota: Quota
    balances: tuple[QuotaBalance, ...]
    wanted: int
    applied: int
    in_force: int


def snapshot(quota: Quota, deployed: Iterable[QuotaDeployment], balances: Iterable[QuotaBalance]
             ) -> QuotaMetricsSnapshot:
    nodes = list(deployed)
    return QuotaMetricsSnapshot(quota, tuple(balances), len(nodes),
                                sum(each.is_applied for each in nodes),
                                sum(each.is_in_force for each in nodes))


def quota_families(found: Iterable[QuotaMetricsSnapshot]) -> Iterator[str]:
    snapshots = list(found)
    given = [(each.quota, limit) for each in snapshots for limit in each.quota.limits]
    yield family("gpudeck_quota_limit", "gauge", "What a quota gives, in the unit that its label "
                 "`limit` names.", [
                     labels(_about(quota, limit) | {"mode": quota.mode, "count": quota.count})
                     for quota, limit in given],
                 [quota.limit(limit) or 0.0 for quota, limit in given])
    held = [balance for each in snapshots for balance in each.balances]
    of = [labels(_about(each.quota, each.limit) | {"holder": each.holder}) for each in held]
    yield family("gpudeck_quota_used", "gauge", "What a holder has of a quota, where all of it is "
                 "known.", of, [each.used if each.is_whole else NAN for each in held])
    yield family("gpudeck_quota_over", "gauge", "1: a holder has more than a quota gives; absent "
                 "where that is not known.", of, map(_over, held))
    yield family("gpudeck_quota_nodes", "gauge", "Nodes on which a quota is wanted, of these "
                 "applied, of these in force.", [
                     labels({"quota": each.quota.id, "state": state})
                     for each in snapshots for state in ("wanted", "applied", "in_force")],
                 [float(count) for each in snapshots
                  for count in (each.wanted, each.applied, each.in_force)])


def _about(quota: Quota, limit: str) -> dict[str, str | None]:
    return dict(zip(ABOUT, (quota.id, quota.subject, quota.scope, limit), strict=True))


def _over(balance: QuotaBalance) -> float:
    """Of what is known more than the limit is over; less may be, with what is not known."""
    return 1.0 if balance.is_over else 0.0 if balance.is_whole else NAN
