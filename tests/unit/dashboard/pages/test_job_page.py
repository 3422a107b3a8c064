"""The page of a job: what is wrong with it, its ranks, facts and events."""

import random
from types import SimpleNamespace
from typing import Any

import msgspec

from dashboard.access.policy import Role
from dashboard.fleet.host_views import CollectivesView
from dashboard.jobs.core.findings import FindingEvidence, JobFinding
from dashboard.jobs.core.phases import JobPhase
from dashboard.jobs.views import (
    JobEventView,
    JobItem,
    JobPage,
    JobRankView,
    JobTasksNow,
    JobTotals,
)
from dashboard.pages.element_tree import trees
from dashboard.pages.job import JobView, answer, parts_of
from dashboard.pages.job_words import event_lines, facts_of, together
from dashboard.pages.rank_map import METRICS, map_data, value_words
from dashboard.pages.reading import Viewer, parts_on_wire
from dashboard.pages.words import moment
from gpudeck.client.hub import NotThere
from tests.hostile import strings

from .read_parts import elements, words
from .test_pool_page import lease

NOW = 1_795_000_000.0
ANN = Viewer(Role.USER, ["ann"])


def job(**fields: Any) -> JobItem:
    facts: dict[str, Any] = {
        "id": "j", "jobs": ["j"], "user": "ann", "team": "nlp", "command": "python3 train.py",
        "launch": None, "slurm_job": None, "container": None, "pod": None, "namespace": None,
        "unit": None, "manager": None, "nodes": ["id-n1"], "hosts": ["n1"], "gpus": 2,
        "tasks": 2, "started_at": NOW - 3_600, "first_seen": NOW - 3_590, "last_seen": NOW,
        "ended_at": None}
    return JobItem(**facts | fields)


def rank(place: str, **fields: Any) -> JobRankView:
    facts: dict[str, Any] = {
        "number": int(place), "node": "id-n1", "host": "n1", "gpu": f"g{place}", "place": place,
        "task": "t", "mem_total_bytes": 80 * 2.0**30, "power_limit_w": 700.0, "is_held": True}
    return JobRankView(**facts | fields)


def page(*findings: JobFinding, **fields: Any) -> JobPage:
    rows: list[list[float | None]] = [[90.0, None], [10.0, 0.0]]
    facts: dict[str, Any] = {
        "job": job(), "is_running": True, "start": int(NOW) - 120, "end": int(NOW), "step": 60,
        "t": [int(NOW) - 120, int(NOW) - 60], "ranks": [rank("0"), rank("1")],
        "series": {key: rows if key == "util_pct" else [[None] * 2] * 2 for key in METRICS},
        "findings": [*findings], "totals": JobTotals(12.0, 50.0, None, 3.25), "events": [],
        "tasks_now": JobTasksNow(["t1", "t2"], ["t1"], 0)}
    return JobPage(**facts | fields)


def page_parts(of: JobPage, person: Viewer = ANN, view: JobView | None = None, leases: Any = ()
          ) -> dict[str, Any]:
    return parts_on_wire(parts_of(of, leases, view or JobView(), person, NOW))


def test_a_finding_comes_with_its_evidence_and_marks_its_ranks() -> None:
    finding = JobFinding("slow_rank", "rank 1 is slow.", NOW - 300, [1], [
        FindingEvidence("power_w", 210.4, 602.0, "the other ranks"),
        FindingEvidence("util_pct", None, None, "left out"),
        FindingEvidence("host_cpu_pct", 150.0, None, "of its host")])
    parts = page_parts(page(finding))
    text = words(parts["job-findings"])
    assert "Slow rank" in text
    assert "Power210 W; the other ranks 602 W" in text
    assert "Host CPU1.5 processors of its host" in text
    assert "left out" not in text
    assert "rank 1 · n1:1" in text
    assert [traits.get("class") for tag, traits, _ in elements(parts["job-names"]) if tag == "li"
            ] == [None, "marked"]
    everywhere = JobFinding("stuck", "all look stuck.", None, [0, 1])
    parts = page_parts(page(everywhere))
    assert [traits.get("class") for tag, traits, _ in elements(parts["job-names"]) if tag == "li"
            ] == [None, None], "where all are meant, none is marked"
    assert words(page_parts(page())["job-findings"]) == "No findings."


def test_metrics_that_no_rank_reports_have_no_button() -> None:
    def buttons(of: JobPage, view: JobView) -> list[str]:
        part = page_parts(of, view=view)["job-metric"]
        return [traits["data-value"] for _, traits, _ in elements(part)]

    assert buttons(page(), JobView()) == ["util_pct"]
    assert buttons(page(), JobView(metric="power_w")) == ["util_pct", "power_w"]
    assert buttons(page(ranks=[], t=[], series={}), JobView()) == [*METRICS], "not known yet"


def test_the_map_has_each_metric_with_what_is_full() -> None:
    data = map_data(page(), "UTC", NOW)
    assert data["names"] == ["rank 0 · n1:0", "rank 1 · n1:1"]
    assert data["metrics"]["util_pct"]["rows"] == [[90.0, None], [10.0, 0.0]]
    assert {key: one["full"] for key, one in data["metrics"].items()} == {
        "util_pct": [100, 100], "power_w": [700, 700], "mem_used_bytes": [80 * 2**30] * 2,
        "mem_util_pct": [100, 100], "sm_active_pct": [100, 100], "nvlink_tx_bytes_per_s": [1, 1],
        "temp_c": [100, 100], "host_cpu_pct": [800, 800], "io_pressure_pct": [100, 100]}
    most = random.uniform(2, 1e9)
    links = page(series=page().series | {"nvlink_tx_bytes_per_s": [[1.0, most], [None, 0.5]]})
    assert map_data(links, "UTC", NOW)["metrics"]["nvlink_tx_bytes_per_s"]["full"] == [most] * 2
    assert "a column for each minute" in data["metrics"]["util_pct"]["legend"]
    new = map_data(page(ranks=[], t=[], series={}), "UTC", NOW)
    assert new["metrics"]["power_w"]["legend"].startswith("A new job")


def test_values_are_written_in_their_unit() -> None:
    assert value_words("mem_used_bytes", 3 * 2.0**30) == "3.0 GiB"
    assert value_words("nvlink_tx_bytes_per_s", 2.0**30) == "1.0 GiB/s"
    assert value_words("temp_c", 61.2) == "61 °C"
    assert value_words("something_else", 1.25) == "1.3"


def test_events_of_a_launch_name_the_node() -> None:
    """GPU 5 of each of its nodes: two boards."""
    events = [JobEventView(60.0, "throttle", gpu, "GPU 5: hot", {}) for gpu in ("a", "b")]
    hosts = {"a": "n1", "b": "n2"}
    assert [gpus for _, _, gpus in together(events, hosts, False, "UTC")] == [["5"]]
    assert [gpus for _, _, gpus in together(events, hosts, True, "UTC")] == [["n1:5", "n2:5"]]
    own = [JobEventView(60.0, "driver_lost", None, "", {}), *events]
    assert [what for _, what, _ in together(own, hosts, True, "UTC")] == [
        "Driver lost", "Throttle: hot"]
    lines = trees(event_lines(page(events=events), "UTC"))
    assert "GPU 5: Throttle: hot" in words(lines)
    assert "No events" in words(trees(event_lines(page(), "UTC")))


def test_an_event_says_what_happened_not_only_how_long_it_took() -> None:
    events = [JobEventView(60.0, "throttle_ended", "a", "GPU 5: after 3 min of software power cap",
                           {}), JobEventView(60.0, "xid", "a", "GPU 5: Xid 79: off the bus", {})]
    assert [what for _, what, _ in together(events, {}, False, "UTC")] == [
        "Throttling ended after 3 min of software power cap", "Xid 79: off the bus"]


def test_a_job_that_somebody_holds_is_not_called_running() -> None:
    for paused, suspended, word in (
            (0, 0, "running"), (2, 0, "paused"), (1, 0, "1 of 2 paused"), (0, 2, "suspended")):
        of = page(tasks_now=JobTasksNow(["t1", "t2"], ["t1"], paused, suspended))
        assert f"·  {word}  ·" in words(page_parts(of)["job-subtitle"])


def test_facts_say_what_is_not_known() -> None:
    facts = dict(facts_of(page(), "UTC"))
    assert (facts["Idle"], facts["Energy"]) == ("not known", "3.3 kWh")
    assert facts["Held"] == "12.0 GPU-hours"
    assert facts["GPU memory"] == "80.0 GiB a GPU"
    old = page(job=job(started_at=NOW - 9_000, pod="p", namespace="ns", container="c" * 64))
    assert dict(facts_of(old, "UTC"))["Held"] == "12.0 GPU-hours, as far as recorded"
    assert dict(facts_of(old, "UTC"))["Pod"] == "ns/p"
    assert dict(facts_of(old, "UTC"))["Container"] == "c" * 12


def test_facts_tell_the_phase_and_what_nccl_says() -> None:
    assert not {"Phase", "Collectives"} & dict(facts_of(page(), "UTC")).keys()
    t0 = int(NOW) - 3_600
    phases = [JobPhase("loading", t0, t0 + 240), JobPhase("training", t0 + 240, t0 + 1_800),
              JobPhase("evaluation", t0 + 1_800, t0 + 2_100), JobPhase("training", t0 + 2_100,
                                                                      t0 + 3_600)]
    report = CollectivesView("it listens elsewhere", "", 0, 0.0, 0, 0, 0, [], 0, [], 0, False)
    facts = dict(facts_of(page(phases=phases, collectives=[report]), "UTC"))
    assert facts["Phase"].startswith("training since ")
    assert facts["Phase"].endswith("in this span training 51 min, evaluation 5 min, loading 4 min")
    assert facts["Collectives"] == "NCCL was not read: it listens elsewhere."


def test_a_phase_that_fills_the_span_began_before_it_and_one_of_the_past_is_no_more() -> None:
    start = int(NOW) - 7_200
    trains = [JobPhase("training", start, start + 7_200)]

    def words_of(of: JobItem, **more: Any) -> str:
        return str(dict(facts_of(page(job=of, start=start, phases=trains, **more), "UTC"))["Phase"])

    old = job(started_at=NOW - 86_400, first_seen=NOW - 86_400)
    young = job(started_at=start + 30.0, first_seen=start + 40.0)
    assert words_of(old).startswith("training since before ")
    assert words_of(young).startswith(f"training since {moment(start, 'UTC')}")
    assert words_of(old, is_running=False).startswith("training at its end; in this span ")


def test_actions_are_for_who_may_and_while_it_runs() -> None:
    def actions(of: JobPage, person: Viewer) -> list[str]:
        return [traits["data-act"] for _, traits, _ in elements(page_parts(of, person)["job-acts"])]

    assert actions(page(), ANN) == ["pause", "end"]
    assert actions(page(tasks_now=JobTasksNow(["t1"], ["t1"], 1)), ANN) == ["resume", "end"]
    assert actions(page(tasks_now=JobTasksNow(["t1"], ["t1"], 0, 1)), ANN) == ["restore", "end"]
    assert actions(page(), Viewer(Role.USER, ["bob"])) == []
    assert actions(page(), Viewer(Role.OPERATOR)) == ["pause", "end"]
    assert actions(page(tasks_now=None), ANN) == []


def test_what_is_told_is_only_text() -> None:
    for text in strings():
        of = page(job=job(command=text, user=text, hosts=[text]), ranks=[rank("0", host=text)],
                  events=[JobEventView(NOW, text, None, text, {})])
        assert page_parts(of, leases=[lease("a", owner=text)])["job-names"]


class Hub:
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asks = answers, list[tuple[str, dict[str, str]]]()

    def get(self, path: str, **query: str) -> Any:
        self.asks.append((path, query))
        if path not in self.answers:
            raise NotThere(path)
        return msgspec.to_builtins(self.answers[path])


def test_a_job_is_asked_for_by_its_address_and_one_that_is_not_there_is_waited_for() -> None:
    mine, foreign = lease("a", task_ids=["t2"]), lease("b", owner="bob", task_ids=["t9"])
    hub = Hub({"jobs/boot%3A1%2Fa": page(), "me": {"role": "user", "unix_names": ["ann"]}})
    client: Any = SimpleNamespace(hub=hub, leases=lambda: msgspec.to_builtins([mine, foreign]))
    view = JobView(job="boot:1/a", metric="no such", start="1795000000")
    parts = parts_on_wire(answer(client, view, NOW))
    assert hub.asks[0] == ("jobs/boot%3A1%2Fa", {"start": "1795000000"})
    assert view.metric == "util_pct"
    leases: Any = parts["job-leases"]
    assert sum(tag == "tr" for tag, _, _ in elements(leases)) == 2, "the head, and the own one"
    parts = parts_on_wire(answer(client, JobView(job="gone"), NOW))
    assert words(parts["job-title"]) == "Unknown job"
    assert parts["job-floor"] is False
    assert parts["@every"] == ["3.0"], "one that has just started comes within seconds"
