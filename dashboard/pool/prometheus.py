"""The pool as Prometheus text. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpudeck.pool.core.claims import Claim
from gpudeck.prometheus.text import family, histogram, labels

from .plan import PoolNode
from .views import model_views
from .watch import WAIT_BOUNDS_S, PoolWatch

ANY_MODEL = "any"


def pool_families(nodes: Iterable[PoolNode], waiting: Iterable[Claim]) -> Iterator[str]:
    models = model_views(nodes)
    yield family("gpudeck_pool_gpus", "gauge", "GPUs of the pool, by state.", [
                 labels({"state": state, "model": view.model})
                  for view in models for state in ("free", "leased", "unavailable")], [
                 float(count) for view in models
                  for count in (view.free, view.leased, view.unavailable)])
    counts: Counter[str] = Counter()
    for claim in waiting:
        counts["|".join(claim.models) or ANY_MODEL] += claim.gpus * claim.nodes
    yield family("gpudeck_pool_waiting_gpus", "gauge", "GPUs that waiting claims ask for, by the "
                 "model they name.", [labels({"model": model}) for model in counts],
                 map(float, counts.values()))


def wait_family(watch: PoolWatch) -> str:
    return histogram("gpudeck_pool_wait_seconds", "Waiting time of claims that got their "
                     "GPUs since the hub started.", WAIT_BOUNDS_S, watch.waited,
                     watch.waited_s)
