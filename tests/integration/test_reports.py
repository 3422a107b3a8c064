"""Reports and files of the past over REST: their numbers are those of the raw files, and nobody
sees more than their scope."""

import csv
import io
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest

from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_program
from tests.pasts import BAD, HOUR_S, MINUTE_S, OWNERS, TEXT, Past

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports") / "data"


@pytest.fixture(name="past", scope="module")
def _past(folder: Path) -> Past:
    now = int(time.time())
    begin = now - now % HOUR_S - 2 * HOUR_S
    return Past(begin, now - now % HOUR_S).write(folder)


@pytest.fixture(name="hub", scope="module")
def _hub(folder: Path, past: Past) -> Iterator[HubProcess]:
    with HubProcess(folder) as hub:
        for agent in past.agents:
            agent.connect(hub)
        change = json.dumps({"group": "lab"}).encode()
        assert hub.ask(f"/api/v1/nodes/{past.agents[1].node_id}", "PATCH", body=change,
                       Content_Type="application/json").status == 200
        yield hub
        assert hub.stop() == 0
        assert "Traceback" not in hub.log.read_text()


def of_files(hub: HubProcess, by: str) -> pd.DataFrame:
    """GPU-seconds, idle ones and joules, from the seconds and the tasks themselves."""
    folder = hub.folder / "history"
    raw, tasks = pd.read_parquet(folder / "raw"), pd.read_parquet(folder / "tasks")
    for frame in (raw, tasks):
        frame[["gpu", "node"]] = frame[["gpu", "node"]].astype(str)
    tasks["user"] = tasks["user"].astype(str)
    raw["minute"] = raw["t"] - raw["t"] % MINUTE_S
    did = raw.groupby(["gpu", "minute"]).agg(top=("util_max_pct", "max"), util=("util_pct", "mean"),
                                             power=("power_w", "mean")).reset_index()
    usage = tasks.groupby(["gpu", "node", "t", "user"])["seconds"].max().reset_index()
    usage["sharing"] = usage.groupby(["gpu", "t"])["user"].transform("count")
    usage = usage.merge(did, left_on=["gpu", "t"], right_on=["gpu", "minute"])
    usage["idle"] = usage["seconds"].where(usage["top"] <= 5, 0)
    usage["joules"] = usage["power"] * usage["seconds"] / usage["sharing"]
    usage["util_s"] = usage["util"] * usage["seconds"]
    return usage.groupby(by)[["seconds", "idle", "joules", "util_s"]].sum()


@pytest.mark.parametrize("by", ["user", "node"])
def test_a_report_is_the_sum_of_the_raw_files(hub: HubProcess, past: Past, by: str) -> None:
    per_hour, per_kwh = random.uniform(1, 9), random.uniform(0.1, 0.9)
    report = hub.get(f"/api/v1/reports?by={by}&start={past.begin}&end={past.end}"
                     f"&price_gpu_hour={per_hour:.3f}&price_kwh={per_kwh:.3f}")
    sums = of_files(hub, by)
    assert {item["of"] for item in report["items"]} == set(sums.index)
    for item in report["items"]:
        row = sums.loc[item["of"]]
        assert item["gpu_hours"] == pytest.approx(row["seconds"] / HOUR_S)
        assert item["idle_hours"] == pytest.approx(row["idle"] / HOUR_S)
        assert 0 < item["idle_share"] < 1
        assert item["util_pct"] == pytest.approx(row["util_s"] / row["seconds"], rel=0.01)
        assert item["energy_kwh"] == pytest.approx(row["joules"] / 3.6e6, rel=0.01)
        assert item["cost"] == pytest.approx(round(per_hour, 3) * item["gpu_hours"]
                                             + round(per_kwh, 3) * item["energy_kwh"])
    hours = [item["gpu_hours"] for item in report["items"]]
    assert hours == sorted(hours, reverse=True)
    assert report["total"]["gpu_hours"] == pytest.approx(sums["seconds"].sum() / HOUR_S)
    assert report["total"]["cost"] == pytest.approx(sum(item["cost"] for item in report["items"]))
    assert report["since"] == past.begin


def rows_of(body: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body.decode())))


def test_a_report_as_a_file_says_the_same_and_runs_nothing(hub: HubProcess, past: Past) -> None:
    path = f"/api/v1/reports?start={past.begin}&end={past.end}"
    items = hub.get(path)["items"]
    answer = hub.ask(path, Accept=CSV)
    assert answer.headers["Content-Type"].startswith(CSV)
    assert ".csv" in answer.headers["Content-Disposition"]
    rows = rows_of(answer.body)
    evil = OWNERS[-1]
    assert [row["user"] for row in rows] == [
        f"'{item['of']}" if item["of"] == evil else item["of"] for item in items]
    assert [float(row["gpu_hours"]) for row in rows] == [item["gpu_hours"] for item in items]
    assert {row["cost"] for row in rows} == {""}
    answer = hub.ask(f"{path}&format=parquet")
    assert answer.headers["Content-Type"] == PARQUET
    frame = pd.read_parquet(io.BytesIO(answer.body))
    assert frame["user"].tolist() == [item["of"] for item in items]
    assert frame["energy_kwh"].tolist() == [item["energy_kwh"] for item in items]
    assert set(frame["cluster"]) == {socket.gethostname()}
    assert frame["host"].isna().all()  # an owner may be on several


@pytest.mark.parametrize("what", ["usage", "reports"])
def test_a_file_by_node_or_gpu_names_cluster_and_host(hub: HubProcess, past: Past, what: str
                                                      ) -> None:
    host_of = {agent.node_id: agent.caller.said.host for agent in past.agents}
    host_of |= {facts.uuid: agent.caller.said.host
                for agent in past.agents for facts in agent.facts}
    for by in ("node", "gpu"):
        rows = rows_of(hub.ask(f"/api/v1/{what}?by={by}&start={past.begin}&end={past.end}",
                               Accept=CSV).body)
        assert rows
        assert [row["host"] for row in rows] == [host_of[row[by]] for row in rows]
        assert {row["cluster"] for row in rows} == {socket.gethostname()}


def test_who_has_a_scope_sees_the_nodes_in_it_alone(hub: HubProcess, past: Past) -> None:
    token = add_program(hub, "viewer", ("lab",))
    span = f"start={past.begin}&end={past.end}"
    mine, other = past.agents[1].node_id, past.agents[0]
    report = hub.ask(f"/api/v1/reports?by=node&{span}", token=token).json
    assert [item["of"] for item in report["items"]] == [mine]
    by_user = hub.ask(f"/api/v1/reports?{span}", token=token).json
    assert by_user["total"]["gpu_hours"] == pytest.approx(report["total"]["gpu_hours"])
    events = hub.ask(f"/api/v1/events?{span}", token=token).json["items"]
    assert {event["node"] for event in events} == {mine}
    texts = {event["kind"]: event["text"] for event in events}
    assert texts == {kind: "" if kind == "task_ended" else TEXT for kind in texts}
    whole = hub.get(f"/api/v1/events?{span}&kind=task_ended")["items"]
    assert {event["text"] for event in whole} == {TEXT}
    assert not hub.ask(f"/api/v1/events?{span}&node={other.node_id}", token=token).json["items"]
    fine = hub.ask(f"/api/v1/usage?of=alice&bucket=60&{span}", token=token).json["items"]
    every = hub.get(f"/api/v1/usage?of=alice&bucket=60&{span}")["items"]
    assert 0 < sum(item["gpu_s"] for item in fine) < sum(item["gpu_s"] for item in every)
    answer = hub.ask(f"/api/v1/series?gpu={other.facts[0].uuid}&metric=util_pct&{span}"
                     f"&beside={past.uuid(1)}&format=csv", token=token)
    gpus = {row["gpu"] for row in rows_of(answer.body) if row["util_pct_mean"] != ""}
    assert gpus == {past.uuid(1)}


def test_series_of_several_gpus_are_those_of_each_also_as_files(hub: HubProcess, past: Past
                                                                ) -> None:
    first, other = past.uuid(0, 0), past.uuid(1, 1)
    path = (f"/api/v1/series?metric=util_pct&also=power_w&start={past.begin}&end={past.end}"
            "&step=60&gpu=")
    compared = hub.get(f"{path}{first}&beside={other}")
    alone = hub.get(f"{path}{other}")
    assert compared["beside"][other] == {
        "util_pct": {name: alone[name] for name in ("mean", "min", "max")}} | alone["also"]
    rows = rows_of(hub.ask(f"{path}{first}&beside={other}&format=csv").body)
    assert [int(row["t"]) for row in rows] == compared["t"] * 2
    means = [None if row["util_pct_mean"] == "" else float(row["util_pct_mean"]) for row in rows]
    assert means == compared["mean"] + alone["mean"]
    assert None in means  # the hole
    assert {row["cluster"] for row in rows} == {socket.gethostname()}
    assert {row["host"] for row in rows} == {agent.caller.said.host
                                             for agent in past.agents}
    frame = pd.read_parquet(io.BytesIO(hub.ask(f"{path}{first}", Accept=PARQUET).body))
    assert frame["power_w_max"].isna().sum() == sum(
        value is None for value in compared["also"]["power_w"]["max"])
    assert hub.ask(f"{path}{first}", Accept="image/png").status == 406
    assert hub.ask(f"{path}{first}&format=xlsx").status == 400


def test_events_of_a_span_come_from_history_page_by_page(hub: HubProcess, past: Past) -> None:
    newest_first = sorted(past.events, key=lambda event: (-event[1], event[0]))
    span = f"start={past.begin}&end={past.end}"
    listed: list[tuple[str, int, str]] = []
    cursor = ""
    while True:
        page = hub.get(f"/api/v1/events?{span}&limit=3{cursor}")
        listed += [(item["node"], int(item["at"]), item["kind"]) for item in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={quote(page['next'])}"
    assert len(listed) == len(newest_first)
    assert set(listed) == set(newest_first)
    assert [at for _, at, _ in listed] == [at for _, at, _ in newest_first]
    kind = random.choice([kind for _, _, kind in newest_first])
    some = hub.get(f"/api/v1/events?{span}&kind={kind}&node={past.agents[0].node_id}")["items"]
    assert len(some) == sum(event[2] == kind and event[0] == past.agents[0].node_id
                            for event in newest_first)
    bad = hub.get(f"/api/v1/events?{span}&severity=critical")["items"]
    assert len(bad) == sum(kind in BAD for _, _, kind in newest_first)
    live = past.agents[0]
    assert hub.get(f"/api/v1/events?start={past.end}")["items"] == hub.get(
        "/api/v1/events")["items"], live.node_id


def test_usage_of_one_owner_by_the_minute_is_that_of_the_hour(hub: HubProcess, past: Past) -> None:
    path = f"/api/v1/usage?of=alice&start={past.begin}&end={past.end}"
    fine = hub.get(f"{path}&bucket=60")["items"]
    coarse = hub.get(f"{path}&bucket=3600")["items"]
    for name in ("gpu_s", "idle_s"):
        assert sum(item[name] for item in fine) == sum(item[name] for item in coarse)
    assert sum(item["energy_j"] for item in fine) == pytest.approx(
        sum(item["energy_j"] for item in coarse), rel=0.01)
    minutes = {item["t"] for item in fine}
    assert not minutes & set(range(*past.hole, MINUTE_S))


@pytest.mark.parametrize(("path", "says"), [
    ("reports?by=shoe", "by is one of"),
    ("reports?price_kwh=-1", "a number such as"),
    ("reports?start=20&end=10", "before"),
    ("usage?bucket=60", "whole hours"),
    ("usage?bucket=60&of=alice&start=0", "by the minute"),
    ("series?gpu=a&metric=util_pct&beside=1,2,3,4,5,6,7,8", "at most 7"),
])
def test_a_wrong_question_is_told_what_to_ask(hub: HubProcess, path: str, says: str) -> None:
    answer = hub.ask(f"/api/v1/{path}")
    assert answer.status == 400, answer.body
    assert says in answer.json["detail"]
