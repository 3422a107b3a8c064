"""The My work page: one's own jobs, what was done to them, leases, queue and quotas."""

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dashboard.access.policy import Role
from dashboard.fleet.task_list import TaskGroup, TaskList
from dashboard.jobs.views import FindingList, FindingView
from dashboard.pages.my_work import (
    PAGE,
    Minute,
    MyWorkView,
    WorkNow,
    answer,
    minute_of,
    parts_of,
    summary,
)
from dashboard.pages.my_work_jobs import whole_command
from dashboard.pages.reading import Viewer
from gpudeck.contract.action_views import CommandView, RequesterView

from .read_parts import elements, wire_parts, words
from .test_pool_page import claim, lease, node, pool

NOW = 1_795_000_000.0
ANN = Viewer(Role.USER, ["ann"], "ann")


def job(**fields: Any) -> TaskGroup:
    facts: dict[str, Any] = {
        "key": "j1", "user": "ann", "host": "n1", "command": "/usr/bin/python3 -u train.py",
        "job_id": None, "tasks": 2, "nodes": 1, "gpus": 2, "mem_used_bytes": 2.0**31,
        "sm_pct": None, "started_at": NOW - 7_200, "first_job": "boot:1/a", "util_pct": 87.0,
        "mem_total_bytes": 2.0**32, "act_on": ["t1", "t2"]}
    return TaskGroup(**facts | fields)


def minute(**fields: Any) -> Minute:
    facts: dict[str, Any] = {"at": NOW, "held_s": 7_200.0, "idle_s": 1_800.0, "findings": [],
                             "unchecked": 0, "commands": [], "quotas": []}
    return Minute(**facts | fields)


def command(**fields: Any) -> CommandView:
    facts: dict[str, Any] = {
        "id": "x", "action": "pause", "node": "id-n1", "host": "n1",
        "state": "done", "sentence": "", "task_ids": ("t2",),
        "by": RequesterView(name="olga"), "requested_at": NOW - 600}
    return CommandView(**facts | fields)


def work(person: Viewer = ANN, **fields: Any) -> WorkNow:
    facts: dict[str, Any] = {"jobs": [job()], "pool": pool(), "nodes": [node()], "leases": [],
                             "claims": [], "commands": [], "quotas": []}
    return WorkNow(person, **facts | fields)


def page_of(there: WorkNow, of: Minute | None = None) -> dict[str, Any]:
    return wire_parts(PAGE, parts_of(there, of or minute(), "UTC", NOW))


def test_a_job_has_what_it_uses_what_is_wrong_with_it_and_its_actions() -> None:
    finding = FindingView(["boot:1/a"], "stuck", "both ranks look stuck.", None)
    other = FindingView(["elsewhere"], "starved", "not of this job.", None)
    parts = page_of(work(), minute(findings=[finding, other], unchecked=3))
    text = words(parts["my-work-jobs"])
    assert "train.py" in text
    assert "87 %" in text
    assert "Stuck. both ranks look stuck." in text
    assert "not of this job" not in text
    assert words(parts["my-work-words"]) == (
        "1 job on 2 GPUs · the oldest for 2 h · 2 findings · 3 jobs not checked for findings")
    table = [*elements(parts["my-work-jobs"])]
    assert [traits["href"] for tag, traits, _ in table if tag == "a"] == ["/job/boot%3A1%2Fa"]
    assert [(traits["data-act"], traits["data-targets"]) for tag, traits, _ in table
            if tag == "button"] == [("pause", '["t1","t2"]'), ("end", '["t1","t2"]')]
    assert [traits["style"] for _, traits, _ in table if traits.get("class") == "t-bar"] == [
        "--share: 87%", "--share: 50%"]
    assert "25 %" in words(parts["my-work-figures"])
    assert "2.0 GPU-hours" in words(parts["my-work-figures"])


def test_a_viewer_acts_on_nothing() -> None:
    parts = page_of(work(Viewer(Role.VIEWER, ["ann"], "ann"), leases=[lease()], claims=[claim()]))
    assert parts["my-work-ask"] is False
    assert not any(tag == "button" for part in parts.values() if isinstance(part, list)
                   for tag, _, _ in elements(part))


def test_a_suspended_job_is_called_so_and_can_be_restored_not_paused() -> None:
    away = job(suspended=2, idle_s=7_200.0)
    parts = page_of(work(jobs=[away], commands=[command(action="suspend")]))
    acts = [(traits["data-act"], traits["data-targets"]) for place in (
        "my-work-done", "my-work-jobs") for tag, traits, _ in elements(parts[place])
        if tag == "button"]
    assert acts == [("restore", '["t1","t2"]'), ("restore", '["t1","t2"]'), ("end", '["t1","t2"]')]
    assert "suspended" in words(parts["my-work-jobs"])
    assert "idle" not in words(parts["my-work-words"]), "its memory is not on the GPU"
    assert "2 h" not in words(parts["my-work-jobs"]).replace("for 2 h", "")
    mix = page_of(work(jobs=[job(suspended=1, tasks=3, paused=1)]))
    assert all(pill in words(mix["my-work-jobs"])
               for pill in ("1 of 3 paused", "1 of 3 suspended"))


def test_what_others_did_is_listed_and_what_is_still_paused_can_go_on() -> None:
    paused, ended = command(), command(id="y", action="end", task_ids=("gone",), reason="night")
    parts = page_of(work(jobs=[job(paused=1)], commands=[paused, ended]))
    text = words(parts["my-work-done"])
    assert "Pause: done by olga on n1, 10 min ago" in text
    assert "“night”" in text
    assert [(traits["data-act"], traits["data-targets"])
            for tag, traits, _ in elements(parts["my-work-done"]) if tag == "button"] == [
        ("resume", '["t1","t2"]')]
    assert "1 of 2 paused" in words(parts["my-work-jobs"])
    assert page_of(work())["my-work-done"] is None


def test_leases_and_claims_have_their_place_only_where_there_is_a_pool() -> None:
    off = pool(0, is_on=False)
    parts = page_of(work(pool=off, nodes=[]))
    assert (parts["my-work-leases-section"], parts["my-work-ask"]) == (False, False)
    parts = page_of(work(pool=off, leases=[lease()]))
    assert parts["my-work-leases-section"] is True
    assert "You are not waiting for GPUs." in words(page_of(work())["my-work-claims"])


def test_nothing_is_made_up_of_what_is_not_known() -> None:
    parts = page_of(work(jobs=[job(util_pct=None, mem_used_bytes=None, started_at=None,
                                   idle_s=None, host=None, command=None)]), minute(held_s=0.0))
    assert words(parts["my-work-jobs"]).count("not known") == 2
    assert "of them idle" not in words(parts["my-work-figures"])
    assert summary([], minute(), NOW) == "No job of yours runs"


def test_what_was_asked_within_a_minute_is_not_asked_again() -> None:
    of = minute(at=NOW - random.uniform(0, 59))
    assert minute_of(msgspec.json.encode(of).decode(), NOW) == of
    for text in ("", "{}", "null", "\ud800", msgspec.json.encode(minute(at=NOW - 61)).decode(),
                 msgspec.json.encode(minute(at=NOW + 9)).decode()):
        assert minute_of(text, NOW) is None, text


def test_the_minutes_part_is_asked_once_a_minute() -> None:
    asks: list[str] = []

    def get(path: str, **_: str) -> Any:
        asks.append(path)
        return msgspec.to_builtins({
            "me": ANN, "tasks": TaskList([], None, 0, groups=[job()]), "pool": pool(),
            "findings": FindingList([], 0), "owners/ann/quotas": {"items": []}}[path])

    def commands(**_: str) -> Any:
        asks.append("commands")
        return [command()]

    client: Any = SimpleNamespace(
        hub=SimpleNamespace(get=get, all=lambda _: []), leases=list, claims=list,
        usage=lambda **_: [], commands=commands)
    view = MyWorkView()
    for at in (NOW, NOW + 59, NOW + 61):
        assert "Pause: done by olga" in words(
            wire_parts(PAGE, answer(client, view, at))["my-work-done"])
    for dear in ("commands", "owners/ann/quotas", "findings"):
        assert asks.count(dear) == 2
    assert asks.count("tasks") == 3


def test_of_who_has_no_name_nothing_is_asked() -> None:
    """A filter for no name would be everybody's jobs."""
    asks: list[str] = []

    def get(path: str, **_: str) -> Any:
        asks.append(path)
        return {"role": "user", "unix_names": [], "name": "new<b>"}

    client: Any = SimpleNamespace(hub=SimpleNamespace(get=get))
    parts = wire_parts(PAGE, answer(client, MyWorkView(), NOW))
    assert asks == ["me"]
    assert parts["my-work-there"] is False
    assert "gpudeck user set new<b> --unix-name NAME" in words(parts["my-work-none"])


@pytest.mark.parametrize(("line", "text"), [
    (None, None), ("./run", "run\n\nStarted as: ./run"), ("run", "run"),
    ("/usr/bin/python3 a.py", "a.py\n\nStarted as: /usr/bin/python3 a.py")])
def test_a_command_says_how_it_was_started(line: str | None, text: str | None) -> None:
    assert whole_command(line) == text
