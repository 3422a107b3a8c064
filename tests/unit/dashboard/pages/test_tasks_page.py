"""The Tasks page: its columns, and the task at the side."""

import json
import random
from types import SimpleNamespace
from typing import Any, get_args
from urllib.parse import parse_qs, quote

import msgspec
import pytest

from dashboard.access.policy import Role
from dashboard.fleet.owner_views import OwnerView
from dashboard.fleet.task_list import GROUP_BYS, ORDERS, SORTS
from dashboard.fleet.views import TaskGpuUseView, TaskView
from dashboard.pages.reading import Viewer, parts_on_wire, view_from
from dashboard.pages.task_details import TaskNow, facts_of, task_parts
from dashboard.pages.tasks import COLUMNS, PAGE, TasksView, answer
from dashboard.quotas.views import TaskQuotaView
from gpudeck.client.hub import NotThere
from gpudeck.contract.action_views import CommandView, KeepView, RequesterView
from gpudeck.contract.message_limits import PID_MAX
from tests.hostile import strings

from .read_parts import elements, forms, wire_parts, words

NOW = 1_796_000_000.0
ANN = Viewer(Role.USER, ["ann"])
FREE: dict[str, Any] = {"fleet": None, "nodes": []}


def task(ident: str = "boot-1:40:7", **fields: Any) -> TaskView:
    facts: dict[str, Any] = {
        "id": ident, "node": "id-n1", "host": "n1", "pid": 40, "started_at": NOW - 7_300,
        "user": "ann", "command": "python3 train.py --lr 3", "command_is": "whole",
        "gpus": [TaskGpuUseView("GPU-1", 2.0**30, 37.0)], "mem_used_bytes": 2.0**30, "sm_pct": 37.0,
        "state": "running", "manager": None, "kind": "compute", "job_id": "j"}
    return TaskView(**facts | fields)


def command(**fields: Any) -> CommandView:
    facts: dict[str, Any] = {
        "id": "c1", "action": "pause", "node": "id-n1", "host": "n1", "state": "done",
        "sentence": "Paused.", "reason": "too hot", "by": RequesterView(name="bob"),
        "requested_at": NOW - 300}
    return CommandView(**facts | fields)


def drawer(of: TaskView, person: Viewer = ANN, **fields: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"others": [], "quotas": [], "commands": [], "hold": FREE}
    return wire_parts(PAGE, task_parts(TaskNow(of, **facts | fields), person, "UTC", NOW))


def actions(parts: dict[str, Any]) -> list[str]:
    return [traits["data-act"] for _, traits, _ in elements(parts["task-acts"])]


def test_columns_are_sorted_as_the_hub_can_and_as_an_address_may_say() -> None:
    kinds = TasksView.__annotations__
    assert {*get_args(kinds["sort"])} == {column.sort for column in COLUMNS} <= {*SORTS}
    assert {column.first for column in COLUMNS} == {*get_args(kinds["order"])} == {*ORDERS}
    assert {*get_args(kinds["group"])} == {"none", *GROUP_BYS}
    assert len({column.key for column in COLUMNS}) == len(COLUMNS)


def test_a_task_says_what_it_is_and_holds() -> None:
    parts = drawer(task(owner=OwnerView(namespace="ns", pod="p", container="c" * 64, rank=0)))
    assert words(parts["task-title"]) == "Task 40 · ann"
    assert words(parts["task-subtitle"]) == "n1"
    assert words(parts["task-state"]) == "Running, 2 h old"
    assert words(parts["task-gpus"]) == "GPUsGPU-11.0 GiB  ·  SM 37 %"
    by_place = drawer(task(gpus=[TaskGpuUseView("GPU-1", 2.0**30, 37.0, "1/9")]))
    assert words(by_place["task-gpus"]) == "GPUsGPU 1/91.0 GiB  ·  SM 37 %"
    facts = dict(facts_of(task(owner=OwnerView(namespace="ns", pod="p", container="c" * 64,
                                               container_name="box", rank=0)), "UTC"))
    assert (facts["Pod"], facts["Container"], facts["Rank"]) == ("ns/p", f"box ({'c' * 12})", "0")
    assert "Launch" not in facts
    [link] = [traits["href"] for tag, traits, _ in elements(parts["task-facts"]) if tag == "a"]
    assert link == "/history?owner=user%3Aann&last=24h"


def test_what_is_not_known_is_said_and_no_zero() -> None:
    of = task(user=None, state=None, started_at=None, command=None, job_id=None, kind=None,
              mem_used_bytes=None, gpus=[TaskGpuUseView("GPU-1", None, None)])
    parts = drawer(of)
    assert words(parts["task-title"]) == "Task 40 · owner unknown"
    assert words(parts["task-state"]) == "State unknown"
    assert words(parts["task-command"]) == "command unknown"
    assert words(parts["task-gpus"]) == "GPUsGPU-1memory unknown  ·  SM unknown"
    facts = dict(facts_of(of, "UTC"))
    assert [facts[name] for name in ("Started", "Memory", "Manager", "Kind", "Job")] == [
        "not known", "memory unknown", "none", "not known", "not known"]
    assert "Owner" not in facts


def test_what_its_gpus_refuse_is_shown_with_the_reason_and_cannot_be_pressed() -> None:
    refuses = {"suspend": "the memory of a MIG instance cannot be moved"}
    buttons = {traits["data-act"]: traits for _, traits, _ in elements(drawer(
        task(permits=["suspend"], refuses=refuses))["task-acts"])}
    assert buttons["suspend"]["disabled"] == ""
    assert buttons["suspend"]["title"] == "The memory of a MIG instance cannot be moved."
    assert not any("disabled" in traits or "title" in traits
                   for action, traits in buttons.items() if action != "suspend")


def test_actions_are_those_that_fit_and_for_who_may() -> None:
    running = actions(drawer(task()))
    assert "pause" in running
    assert "end" in running
    assert "resume" not in running
    paused = actions(drawer(task(state="paused")))
    assert "resume" in paused
    assert "pause" not in paused
    assert not {"suspend", "restore"} & {*running, *paused}
    both = ["suspend", "restore"]
    assert "suspend" in actions(drawer(task(permits=both)))
    suspended = actions(drawer(task(state="suspended", permits=both)))
    assert {"restore", "end"} <= {*suspended}
    assert not {"suspend", "pause", "resume"} & {*suspended}
    assert drawer(task(), Viewer(Role.USER, ["bob"]))["task-acts"] is None
    assert drawer(task(), Viewer(Role.VIEWER, ["ann"]))["task-acts"] is None
    assert actions(drawer(task(), Viewer(Role.OPERATOR))) == running
    targets = {traits["data-targets"] for _, traits, _ in elements(drawer(task())["task-acts"])}
    assert targets == {json.dumps([task().id])}
    made_up = drawer(task(pid=PID_MAX + 1))["task-acts"]
    assert words(made_up) == "Simulated: it has no process, so it cannot be paused or ended."
    assert [*elements(made_up)] == []


def test_its_owner_keeps_it_changes_that_and_stops_it() -> None:
    [ask] = forms(drawer(task())["task-keep"])
    assert (ask["method"], ask["path"]) == ("PUT", "tasks/boot-1%3A40%3A7/keep")
    assert ask["body"] == {"until": "$until", "because": "$because"}
    drawn_keep = drawer(task(keep=KeepView(NOW + 60, "paper", "ann")))["task-keep"]
    assert "Keep until" in words(drawn_keep)
    assert "(ann): paper" in words(drawn_keep)
    change, stop = forms(drawn_keep)
    assert change["fields"][1]["value"] == "paper"
    assert (stop["method"], stop["path"]) == ("DELETE", "tasks/boot-1%3A40%3A7/keep")
    of_bob = drawer(task(keep=KeepView(NOW + 60, "paper")), Viewer(Role.USER, ["bob"]))
    assert "paper" in words(of_bob["task-keep"])
    assert forms(of_bob["task-keep"]) == []
    assert drawer(task(), Viewer(Role.VIEWER))["task-keep"] is None


def test_processes_of_the_job_and_ranks_elsewhere_are_told_apart() -> None:
    own = task("boot-1:41:7", pid=41)
    rank = task("boot-2:50:7", pid=50, node="id-n2", host="n2", job_id="k")
    parts = drawer(task(), others=[own, rank])
    text = words(parts["task-members"])
    assert "Processes of the same job (1 task)" in text
    assert "Other ranks of its launch (1 task): actions on this task do not affect them" in text
    assert "50 on n2" in text
    assert [traits["data-set"] for tag, traits, _ in elements(parts["task-members"])
            if tag == "button"] == ['{"task":"boot-1:41:7"}', '{"task":"boot-2:50:7"}']
    assert drawer(task())["task-members"] is None


def test_of_a_large_job_the_first_are_listed_and_that_is_said() -> None:
    ranks = [task(f"boot-1:{pid}:7", pid=pid, owner=OwnerView(launch="l")) for pid in range(70)]
    hub = Hub(ranks, [])
    client: Any = SimpleNamespace(hub=hub, commands=lambda **_: [])
    parts = answer(client, view_from(TasksView, {"task": ranks[3].id}), NOW)
    text = words(wire_parts(PAGE, parts)["task-members"])
    assert "Processes of the same job (first 50 tasks)" in text
    del hub.tasks[51:]
    parts = answer(client, view_from(TasksView, {"task": ranks[3].id}), NOW)
    assert "(50 tasks)" in words(wire_parts(PAGE, parts)["task-members"])


def test_a_group_with_the_longest_key_stays_open() -> None:
    key = f"{'u' * 128}/{'l' * 1_024}"
    assert view_from(TasksView, {"open": [key]}).open == (key,)


@pytest.mark.parametrize(("mode", "goes", "pill"), [
    ("act", True, "over: this task will be ended"),
    ("warn", True, "over: this task would be ended"), ("act", False, "over")])
def test_quotas_say_whether_it_would_go(mode: Any, goes: bool, pill: str) -> None:
    quota = TaskQuotaView("q", "gpus", mode, "at most 2 GPUs", "more specific than r", None, True,
                          goes)
    assert words(drawer(task(), quotas=[quota])["task-quotas"]) == (
        f"Quotasq{pill}at most 2 GPUs.more specific than r")


def test_actions_on_it_are_listed_with_who_and_why() -> None:
    parts = drawer(task(), commands=[command(), command(id="c2", state="acting", reason="",
                                                        by=RequesterView())])
    assert words(parts["task-past"]) == (
        "Actions on this taskPausedonePaused.bob, 5 min ago: “too hot”"
        "Pausein progressPaused.somebody, now")


@pytest.mark.parametrize(("hold", "role", "text", "button"), [
    (FREE, Role.OPERATOR, "Actions on n1 are allowed.", "POST"),
    (FREE, Role.USER, "Actions on n1 are allowed.", None),
    ({"fleet": {"by": "bob", "reason": "", "since": NOW - 600}, "nodes": []}, Role.OPERATOR,
     "Actions on n1 are stopped since 10 min ago.", None),
    ({"fleet": None, "nodes": [{"node": "id-n1", "wanted": True, "holds": [],
                                "since": NOW - 600}]},
     Role.OPERATOR, "Actions on n1 are stopped since 10 min ago.", "DELETE"),
    ({"fleet": None, "nodes": [{"node": "id-n1", "wanted": False, "holds": ["/etc/hold"],
                                "since": None}]},
     Role.OPERATOR, "Actions on n1 are stopped.", None)])
def test_a_node_is_stopped_and_resumed_here_unless_a_file_there_stops_it(
        hold: dict[str, Any], role: Role, text: str, button: str | None) -> None:
    parts = drawer(task(), Viewer(role, ["ann"]), hold=hold)
    assert text in words(parts["task-hold"])
    assert [form["method"] for form in forms(parts["task-hold"])] == (
        [] if button is None else [button])


def test_what_is_told_is_only_text() -> None:
    for text in strings():
        of = task(user=text, host=text, command=text, job_id=text, manager=text,
                  owner=OwnerView(notebook=text, pod=text), keep=KeepView(NOW, text, text),
                  gpus=[TaskGpuUseView(text, 1.0, 1.0)])
        parts = drawer(of, others=[task("o", command=text)], commands=[command(sentence=text)])
        assert text in words(parts["task-subtitle"])


class Hub:
    """A hub with these tasks. `quotas` None: it does not know those of the task."""

    def __init__(self, tasks: list[TaskView], quotas: list[TaskQuotaView] | None) -> None:
        self.tasks, self.quotas, self.paths = tasks, quotas, list[str]()

    def get(self, path: str) -> Any:
        self.paths.append(path)
        if path.endswith("/quotas") and self.quotas is None:
            raise NotThere(path)
        return {"me": {"role": "user", "unix_names": ["ann"]}, "hold": FREE}.get(
            path, {"items": msgspec.to_builtins(self.quotas)})

    def items(self, path: str, **query: str) -> Any:
        self.paths.append(path)
        most = int(parse_qs(path.partition("?")[2]).get("limit", ["1000"])[0])
        return msgspec.to_builtins([one for one in self.tasks
                                    if query.get("id", one.id) == one.id][:most])


def test_a_task_that_ends_keeps_what_the_page_says_of_it_but_its_buttons() -> None:
    of = task(owner=OwnerView(launch="l"))
    hub = Hub([of, task("boot-1:41:7", pid=41)], None)
    client: Any = SimpleNamespace(hub=hub, commands=lambda **_: [command()])
    view = view_from(TasksView, {"task": of.id})
    parts = parts_on_wire(answer(client, view, NOW))
    assert view.shown == of.id
    assert parts["task-quotas"] is None
    members: Any = parts["task-members"]
    assert "(1 task)" in words(members), "not itself"
    [listed] = [path for path in hub.paths if path.startswith("tasks?")]
    assert listed.count("open=") == 2, "the job and the launch"
    assert f"tasks/{quote(of.id)}/quotas" in hub.paths
    hub.tasks.clear()
    rest = answer(client, view, NOW)
    assert set(rest) == {"task-state", "task-acts", "task-keep", "task-quotas", "task-past"}
    assert rest["task-acts"] is rest["task-keep"] is None
    assert rest["task-quotas"] is None, "it holds nothing any more, and will not be ended"
    assert words(parts_on_wire(rest)["task-state"]) == "No node reports this task any more."
    unknown = answer(client, view_from(TasksView, {"task": "nobody"}), NOW)
    assert unknown["task-title"] == "Unknown task"
    hub.paths.clear()
    assert answer(client, TasksView(), NOW) == {}
    assert hub.paths == [], "without a task nothing is asked"


def test_an_address_that_says_nonsense_is_as_usual() -> None:
    for text in random.sample(strings(), 20):
        view = view_from(TasksView, {"sort": text, "order": text, "group": text})
        assert (view.sort, view.order, view.group) == ("idle_s", "desc", "job")
