"""Answers of a hub as DataFrames: for notebooks, and for a site's own pages."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpudeck.client.hub import Client
from gpudeck.measures.metrics import COLUMNS, SLOW

Moment = float | str | datetime
Item = dict[str, Any]

LEASE_COLUMNS = ("owner", "host", "gpus", "share_pct", "state", "since", "until", "idle_since",
                 "command", "id", "node")
METRIC_COLUMNS = tuple(metric.key for metric in (*COLUMNS, *SLOW))
CLAIM_COLUMNS = ("place", "owner", "gpus", "asks", "why", "wait_s", "priority", "asked_at",
                 "starts_at", "term_s", "kept", "team", "id")


class HubFrames:
    """Requests to the hub that return pandas DataFrames. Filters are those of the Fleet page; times
    are datetimes, UTC seconds or RFC 3339."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def gpus(self, filter: str = "") -> Any:
        """Return one row per GPU, one column per metric; `missing` says why a value is missing."""
        rows = [
            {"host": gpu["host"], "gpu": gpu["place"], "name": gpu["name"], "state": gpu["state"],
             "sampled_at": gpu["sampled_at"], **dict.fromkeys(METRIC_COLUMNS), **gpu["values"],
             "mem_total_bytes": gpu["facts"].get("mem_total_bytes"), "tasks": len(gpu["tasks"]),
             "missing": gpu["missing"], "uuid": gpu["uuid"], "node": gpu["node"]}
            for gpu in self.client.gpus(filter)]
        return _frame(rows, ("host", "gpu", "name", "state", "sampled_at", *METRIC_COLUMNS,
                             "mem_total_bytes", "tasks", "missing", "uuid", "node"),
                      ["sampled_at"], (*METRIC_COLUMNS, "mem_total_bytes"))

    def tasks(self, filter: str = "") -> Any:
        """Return one row per task that the token may see."""
        rows = [
            {"host": task["host"], "pid": task["pid"], "user": task["user"],
             "command": task["command"], "gpus": [use["uuid"] for use in task["gpus"]],
             "mem_used_bytes": task["mem_used_bytes"], "sm_pct": task["sm_pct"],
             "state": task["state"], "started_at": task["started_at"],
             "manager": task["manager"], "job_id": task["job_id"], "id": task["id"]}
            for task in self.client.tasks(filter)]
        return _frame(rows, ("host", "pid", "user", "command", "gpus", "id"), ["started_at"])

    def series(self, gpus: str | Iterable[str], metric: str = "util_pct",
               start: Moment | None = None, end: Moment | None = None,
               step: int | None = None) -> Any:
        """Return `t gpu mean min max` of these UUIDs; a hole is NaN. Without `start` 15 minutes."""
        parameters = _times(start, end) | ({} if step is None else {"step": str(step)})
        rows: list[Item] = []
        for gpu in [gpus] if isinstance(gpus, str) else gpus:
            points = self.client.series(gpu=gpu, metric=metric, **parameters)
            rows += [{"t": t, "gpu": gpu, "mean": mean, "min": low, "max": high}
                     for t, mean, low, high in zip(points["t"], points["mean"], points["min"],
                                                   points["max"], strict=True)]
        return _frame(rows, ("t", "gpu", "mean", "min", "max"), ["t"], ("mean", "min", "max"))

    def usage(self, by: str = "user", bucket: int = 86_400, start: Moment | None = None,
              end: Moment | None = None) -> Any:
        """Return GPU usage by `user`, `team`, `job`, `launch`, `slurm_job`, `container`, `pod`,
        `namespace`, `unit`, `node`, `model` or `gpu`, in buckets of whole hours."""
        rows = self.client.usage(by=by, bucket=str(bucket), **_times(start, end))
        return _frame(rows, ("t", "of", "gpu_s", "idle_s"), ["t"])

    def quotas(self) -> Any:
        """Return a row per quota, owner and limit: the usage, and on how many of its nodes the
        quota is in force. An empty frame: nothing is limited, or nobody holds anything of it."""
        rows = [{"quota": entry["quota"]["id"], "mode": entry["quota"]["mode"],
                 "in_force": entry["in_force"], "wanted": entry["wanted"]} | {
                     name: balance[name] for name in ("holder", "limit", "used", "most", "is_over",
                                                      "tasks", "sentence")}
                for entry in self.client.quotas() for balance in entry["balances"]]
        return _frame(rows, ("quota", "holder", "limit", "used", "most", "is_over", "mode",
                             "in_force", "wanted", "tasks", "sentence"), [])

    def leases(self) -> Any:
        """Return a row per lease of the pool: whose it is, where, and until when."""
        return _frame(_rows(self.client.leases(), LEASE_COLUMNS), LEASE_COLUMNS,
                      ["since", "until", "idle_since"])

    def claims(self) -> Any:
        """Return the queue of the pool in order, and what is reserved."""
        return _frame(_rows(self.client.claims(), CLAIM_COLUMNS), CLAIM_COLUMNS,
                      ["asked_at", "starts_at"])

    def events(self, **query: str) -> Any:
        """Return the newest events first; parameters are those of `GET /api/v1/events`."""
        return _frame(self.client.events(**query), ("at", "host", "kind", "severity", "text"),
                      ["at"])


def _rows(items: Iterable[Item], columns: tuple[str, ...]) -> list[Item]:
    return [{name: item[name] for name in columns} for item in items]


def _times(start: Moment | None, end: Moment | None) -> dict[str, str]:
    return {name: _query_time(at) for name, at in (("start", start), ("end", end))
            if at is not None}


def _query_time(at: Moment) -> str:
    if not isinstance(at, datetime):
        return str(at)
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; say datetime.now(UTC), for example")
    return str(at.timestamp())


def _frame(rows: list[Item], columns: tuple[str, ...], moments: Iterable[str],
           numbers: Iterable[str] = ()) -> Any:
    """Build a frame that has its columns even where there are no rows. `numbers`: a column of
    these is numbers and NaN also where nothing of it is known."""
    import pandas as pd

    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*columns])
    for name in moments:
        frame[name] = pd.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
    for name in numbers:
        frame[name] = frame[name].astype("float64")
    return frame
