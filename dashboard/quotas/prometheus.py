"""Quotas as Prometheus text: what each gives, who holds how much of it, and where it is in force.
Pure."""

from collections.abc import Iterator, Sequence

from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import QuotaBalance
from gpudeck.prometheus.text import family, labels

from .evaluate import QuotaDeployment, counts

NAN = float("nan")
ABOUT = ("quota", "subject", "scope", "limit")


# With those of its nodes and holders that the reader may see.
QuotaSeen = tuple[Quota, list[QuotaDeployment], list[QuotaBalance]]


def quota_families(quotas: Sequence[QuotaSeen]) -> Iterator[str]:
    limits = [(quota, limit) for quota, _, _ in quotas for limit in quota.limits]
    yield family("gpudeck_quota_limit", "gauge", "Limit of a quota, in the unit of its "
                 "label `limit`.", [
                     labels(_about(quota, limit) | {"mode": quota.mode, "count": quota.count})
                     for quota, limit in limits],
                 [quota.limit(limit) or 0.0 for quota, limit in limits])
    held_balances = [balance for _, _, balances in quotas for balance in balances]
    of = [labels(_about(balance.quota, balance.limit) | {"holder": balance.holder})
          for balance in held_balances]
    yield family("gpudeck_quota_used", "gauge", "A holder's usage of a quota, if fully "
                 "known.", of, [balance.used if balance.is_whole else NAN
                                for balance in held_balances])
    yield family("gpudeck_quota_over", "gauge", "1: a holder exceeds a quota; absent "
                 "if not known.", of, map(_over, held_balances))
    yield family("gpudeck_quota_nodes", "gauge", "Nodes on which a quota is wanted, "
                 "applied and in force.", [
                     labels({"quota": quota.id, "state": state})
                     for quota, _, _ in quotas for state in ("wanted", "applied", "in_force")],
                 [float(count) for _, deployed, _ in quotas for count in counts(deployed)])


def _about(quota: Quota, limit: str) -> dict[str, str | None]:
    return dict(zip(ABOUT, (quota.id, quota.subject, quota.scope, limit), strict=True))


def _over(balance: QuotaBalance) -> float:
    """Return 1 for a holder who is over. If what is known exceeds the limit, that is over; less may
    be, with what is not known."""
    return 1.0 if balance.is_over else 0.0 if balance.is_whole else NAN
