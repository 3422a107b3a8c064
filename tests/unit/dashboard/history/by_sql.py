"""The slow way to read history's files, kept beside the fast one: DuckDB looks at every row."""

from collections.abc import Sequence

import pandas as pd

from dashboard.history.columns.instants import MomentSamples, instant_frame, seen_in
from dashboard.history.columns.layout import MASKS
from dashboard.history.reads.database import on, texts
from dashboard.history.reads.embedded import EmbeddedHistory, _tiers
from dashboard.history.reads.frames import add_up, sums_in
from dashboard.history.reads.protocol import AGGS, Agg, Nodes


def series(history: EmbeddedHistory, gpus: Sequence[str], metrics: Sequence[str], t0: float,
           t1: float, step: int, aggs: Sequence[Agg] = AGGS, nodes: Nodes = None) -> pd.DataFrame:
    """Answer as `EmbeddedHistory.series` does, of live metrics."""
    names = sorted(set(gpus))
    number = {gpu: at for at, gpu in enumerate(names)}
    span = int(t0 // step) * step, -int(-t1 // step) * step
    with history.store.reading(lambda: history._memory.series(number, metrics, span, nodes)) as (
            files, parts):
        for kind, (first, last) in _tiers(files, span, step):
            sums = ", ".join(sums_of(metric, kind) for metric in metrics)
            frame = history._db.ask(files, kind, first, last,
                                    f"select gpu, t - t % {step} as t, {sums} from {{files}} "
                                    f"where gpu in ({texts(names)}){on(nodes)} and t >= {first} "
                                    f"and t < {last} group by all") if first < last else None
            if frame is not None:
                parts.append(sums_in(frame, number, metrics))
    return add_up(parts, names, aggs, step)


def sums_of(metric: str, kind: str) -> str:
    low, high = ("bit_and", "bit_or") if metric in MASKS else ("min", "max")
    if kind == "raw":
        return (f"{low}({metric}) as {metric}_min, {high}({metric}) as {metric}_max, "
                f"sum({metric}) as {metric}_sum, count({metric}) as {metric}_n")
    return (f"{low}({metric}_min) as {metric}_min, {high}({metric}_max) as {metric}_max, "
            f"sum({metric}_mean::double * {metric}_n) as {metric}_sum, "
            f"sum({metric}_n) as {metric}_n")


def minute(history: EmbeddedHistory, metric: str, t: int, nodes: Nodes = None) -> pd.DataFrame:
    """Answer as `EmbeddedHistory.instant` does, of a minute whose seconds have been given up."""
    t -= t % 60
    with history.store.reading(lambda: history._memory.samples_at(metric, [t], 60, nodes)) as (
            files, memory):
        frame = history._db.ask(
            files, "minutes", t - 59, t + 1,
            f"select gpu, node, max(t) as t, arg_max_null({metric}_mean, t) as value, "
            f"'' as missing from {{files}} where t >= {t - 59} and t <= {t}{on(nodes)} "
            "group by gpu, node")
    parts: list[MomentSamples] = [] if frame is None else [seen_in(frame, metric)]
    return instant_frame([*parts, memory])
