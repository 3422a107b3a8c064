"""Rules that a real hub watches: what fires, what is said of it, and who sees it."""

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.alerts.rules_file import PACK, dump, parse
from dashboard.cli.rules import rules
from gpudeck.contract.wire import Task, Tasks, Use
from gpudeck.errors import CommandError
from gpudeck.measures.metrics import Absence
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, RawSocket
from tests.integration.visitors import add_program
from tests.patience import GIVE_UP_S


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("alerts") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def new_teller(hub: HubProcess, gpus: int = 2) -> Teller:
    teller = Teller(f"node-{secrets.token_hex(3)}", gpus)
    teller.connect(hub)
    for slow in teller.slow:
        slow["temp_margin_c"] = float(random.randint(20, 40))
    teller.tell()
    return teller


def telling(teller: Teller, condition: Callable[[], Any], why: str, within_s: float = GIVE_UP_S,
            **report: Any) -> Any:
    """Keep telling until `condition()` is true, and return its value."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        teller.tell(**report)
        if value := condition():
            return value
        time.sleep(0.25)
    raise AssertionError(f"not within {within_s:.0f} s: {why}")


def host_of(teller: Teller) -> str:
    return teller.caller.said.host


def ask(hub: HubProcess, method: str, path: str, body: Any = None, token: str = "api") -> Any:
    return hub.ask(f"/api/v1/{path}", method, token,
                   None if body is None else json.dumps(body).encode(),
                   Content_Type="application/json")


def alerts(hub: HubProcess, teller: Teller, state: str = "open") -> list[Any]:
    """Return alerts of this node; none while a hub that has just started does not know yet."""
    answer = hub.ask(f"/api/v1/alerts?state={state}")
    if answer.status == 503:
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json["type"] == "urn:gpudeck:problem:recovering"
        return []
    assert answer.status == 200, answer.body
    return [alert for alert in answer.json["items"] if alert["node"] == teller.node_id]


def hot(**more: Any) -> dict[str, Any]:
    return {"id": f"hot-{secrets.token_hex(3)}", "title": "Hot", "signal": "temp_margin_c",
            "scope": "*", "fire": "<= 5", "clear": ">= 10", "for": "2s"} | more


def put(hub: HubProcess, rule: dict[str, Any]) -> str:
    answer = ask(hub, "PUT", f"rules/{rule['id']}", rule)
    assert answer.status == 200, answer.body
    return str(rule["id"])


def test_a_new_hub_has_the_rules_that_come_along_and_none_acts(hub: HubProcess) -> None:
    entries = {item["rule"]["id"]: item for item in hub.get("/api/v1/rules")["items"]}
    assert set(parse(PACK.read_text()).rules) <= set(entries)
    assert all(item["mode"] == "observe" and item["is_watched"] for item in entries.values())


def test_it_fires_when_it_has_held_and_ends_when_it_is_clear(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot())
    viewer = RawSocket(hub, "/live", hub.api_token)
    margin = float(random.randint(-3, 5))
    teller.slow[1]["temp_margin_c"] = margin
    [alert] = telling(teller, lambda: [alert for alert in alerts(hub, teller)
                                       if alert["rule"] == rule], "it fires")
    assert (alert["target"], alert["place"]) == (teller.facts[1].uuid, "1")
    assert (alert["host"], alert["value"]) == (host_of(teller), margin)
    assert alert["state"] == "firing"
    assert alert["fired_at"] - alert["since"] >= 2.0
    while (event := viewer.event("alert"))["id"] != alert["id"]:
        pass
    assert event["state"] == "firing"
    entry = next(item for item in hub.get("/api/v1/rules")["items"] if item["rule"]["id"] == rule)
    assert (entry["firing"], entry["number"]) == (1, 1)
    teller.slow[1]["temp_margin_c"] = 25.0
    [later] = telling(teller, lambda: [alert for alert in alerts(hub, teller, "ended")
                                       if alert["rule"] == rule], "it ends")
    assert (later["id"], later["why"]) == (alert["id"], "the condition is not met any more")
    assert alerts(hub, teller) == []


def test_between_the_two_limits_nothing_changes(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot())
    teller.slow[0]["temp_margin_c"] = 3.0
    telling(teller, lambda: any(alert["rule"] == rule for alert in alerts(hub, teller)), "it fires")
    teller.slow[0]["temp_margin_c"] = 8.0
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        teller.tell()
        time.sleep(0.2)
    assert [alert["state"] for alert in alerts(hub, teller) if alert["rule"] == rule] == ["firing"]


def test_a_gpu_that_is_lost_is_told_by_the_pack(hub: HubProcess) -> None:
    teller = new_teller(hub)
    [alert] = telling(teller, lambda: [alert for alert in alerts(hub, teller)
                                       if alert["rule"] == "gpu-lost"], "gpu-lost",
                      states=("lost", "ok"))
    assert (alert["place"], alert["severity"]) == ("0", "crit")


def test_what_a_board_never_reports_is_said_to_be_beyond_telling(hub: HubProcess) -> None:
    teller = new_teller(hub)
    teller.slow[0]["temp_margin_c"] = Absence.UNSUPPORTED
    rule = put(hub, hot(scope=f"node:{host_of(teller)}"))
    telling(teller, lambda: (view := hub.get(f"/api/v1/rules/{rule}"))["targets"] == 2
            and view["cannot"] == 1, "one of two")


def test_a_silence_is_said_at_the_alert_and_ends(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot())
    teller.slow[0]["temp_margin_c"] = 1.0
    telling(teller, lambda: any(alert["rule"] == rule for alert in alerts(hub, teller)), "it fires")
    because = f"moving racks {secrets.token_hex(3)}"
    silence = ask(hub, "POST", "silences", {"until": time.time() + 600, "because": because,
                                            "node": teller.node_id}).json
    [alert] = [alert for alert in alerts(hub, teller) if alert["rule"] == rule]
    assert because in alert["holds"][0]
    assert ask(hub, "DELETE", f"silences/{silence['id']}").status == 204
    [alert] = [alert for alert in alerts(hub, teller) if alert["rule"] == rule]
    assert alert["holds"] == []
    assert ask(hub, "DELETE", f"silences/{silence['id']}").status == 404


@pytest.mark.parametrize(("body", "says"), [
    ({"until": 0, "because": "x", "node": "n"}, "must end"),
    ({"until": "later", "because": "x", "node": "n"}, "until"),
    ({"because": "x", "node": "n"}, "until"),
    ({"until": 4e9, "because": "x", "node": "n"}, "30 days"),
])
def test_a_silence_has_an_end(hub: HubProcess, body: Any, says: str) -> None:
    answer = ask(hub, "POST", "silences", body)
    assert answer.status in (400, 409)
    assert says in answer.json["detail"]


def test_a_silence_of_everything_is_none(hub: HubProcess) -> None:
    answer = ask(hub, "POST", "silences", {"until": time.time() + 60, "because": "quiet"})
    assert answer.status == 409
    assert "name what to silence" in answer.json["detail"]


def test_a_rule_is_tried_out_before_it_is_kept(hub: HubProcess) -> None:
    teller = new_teller(hub)
    teller.slow[1]["temp_margin_c"] = -2.0
    here = hot(scope=f"node:{host_of(teller)}")

    def rule_check() -> Any:
        reply = ask(hub, "POST", "rule-checks", {"rule": here}).json
        return reply if reply["matches"] else None

    check = telling(teller, rule_check, "it matches")
    assert check["matches"] == [teller.facts[1].uuid]
    assert (check["problems"], check["targets"], check["matching"]) == ([], 2, 1)
    assert check["basis"] == "now"
    over_time = here | {"signal": "min(temp_margin_c, 30m) + 0", "for": "2h",
                        "where": ["avg(util_pct, 1h) >= 0"]}
    spanned = ask(hub, "POST", "rule-checks", {"rule": over_time}).json
    assert (spanned["matches"], spanned["basis"]) == (check["matches"], "newest")
    assert spanned["rule"]["signal"] == over_time["signal"], "it is the rule that is kept"
    counter = here | {"signal": "rate(ecc_corrected, 1h)", "fire": ">= 0", "clear": ""}
    grows = ask(hub, "POST", "rule-checks", {"rule": counter}).json
    assert (grows["targets"], grows["matches"], grows["basis"]) == (2, [], "grows"), grows
    wrong = ask(hub, "POST", "rule-checks", {"rule": hot(signal="temp_marg")}).json
    assert [problem["field"] for problem in wrong["problems"]] == ["signal"]
    assert "did you mean 'temp_margin_c'" in wrong["problems"][0]["message"]


def test_a_bad_rule_changes_nothing(hub: HubProcess) -> None:
    rule = put(hub, hot())
    before = hub.get(f"/api/v1/rules/{rule}")["rule"]
    for change, status, says in (({"fire": "> banana"}, 400, "not a comparison"),
                                 ({"scope": ""}, 400, "whole fleet"),
                                 ({"id": "other"}, 400, "in the URL"),
                                 ({"unknown": 1}, 400, "unknown"),
                                 ({"mode": "auto"}, 400, "nothing to do")):
        answer = ask(hub, "PUT", f"rules/{rule}", hot(id=rule) | change)
        assert answer.status == status, answer.body
        assert says in answer.json["detail"]
    assert hub.get(f"/api/v1/rules/{rule}")["rule"] == before


def test_who_sees_not_the_node_sees_not_its_alerts(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot())
    teller.slow[0]["temp_margin_c"] = 0.0
    telling(teller, lambda: any(alert["rule"] == rule for alert in alerts(hub, teller)), "it fires")
    stranger = add_program(hub, "operator", groups=("elsewhere",))
    assert ask(hub, "GET", "alerts", token=stranger).json["items"] == []
    check = ask(hub, "POST", "rule-checks", {"rule": hot()}, token=stranger).json
    assert (check["targets"], check["matches"]) == (0, [])


def test_an_edit_ends_its_alerts_and_words_do_not(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = hot()
    put(hub, rule)
    teller.slow[0]["temp_margin_c"] = 0.0
    telling(teller, lambda: any(alert["rule"] == rule["id"] for alert in alerts(hub, teller)),
            "it fires")
    put(hub, rule | {"title": "Very hot"})
    assert [alert["rule"] for alert in alerts(hub, teller)].count(rule["id"]) == 1
    put(hub, rule | {"fire": "<= 4"})
    past = [alert for alert in alerts(hub, teller, "ended") if alert["rule"] == rule["id"]]
    assert [alert["why"] for alert in past] == ["its rule was changed"]
    assert ask(hub, "DELETE", f"rules/{rule['id']}").status == 204
    assert ask(hub, "GET", f"rules/{rule['id']}").status == 404


def test_after_a_restart_rules_are_kept_and_what_is_still_so_is_the_same_alert(tmp_path: Path
                                                                               ) -> None:
    with HubProcess(tmp_path / "data") as hub:
        teller = new_teller(hub)
        tells, acts = put(hub, hot()), put(hub, hot(**{"for": "30s", "ladder": [{"do": "tell"}]}))
        assert ask(hub, "DELETE", "rules/memory-hot").status == 204
        teller.slow[0]["temp_margin_c"] = 0.0
        [alert] = telling(teller, lambda: [alert for alert in alerts(hub, teller)
                                           if alert["rule"] == tells], "it fires")
        teller.close()
        hub.kill()
        hub.start()
        teller.connect(hub)
        [same] = telling(teller, lambda: [alert for alert in alerts(hub, teller)
                                          if alert["rule"] == tells], "it goes on")
        assert (same["id"], same["fired_at"]) == (alert["id"], alert["fired_at"])
        teller.slow[0]["temp_margin_c"] = 25.0
        [later] = telling(teller, lambda: [alert for alert in alerts(hub, teller, "ended")
                                           if alert["rule"] == tells], "it ends")
        assert (later["id"], later["why"]) == (alert["id"], "the condition is not met any more")
        ids = {item["rule"]["id"] for item in hub.get("/api/v1/rules")["items"]}
        assert {tells, acts} <= ids
        assert "memory-hot" not in ids, "what was removed does not come back"


def test_rules_of_tasks_owners_and_nodes(hub: HubProcess) -> None:
    teller, user = new_teller(hub), f"u{secrets.token_hex(3)}"
    task = Task(f"boot:{random.randrange(10**6)}:{secrets.token_hex(4)}", 7, 1, time.time(), user,
                "python train.py", job_id="j1")
    teller.tell(Tasks(True, (task,), (Use(task.id, 1, 3e9, 0.0),)))
    rules = {of: put(hub, hot(of=of, signal=signal, fire=fire, clear="", scope=scope))
             for of, signal, fire, scope in (
                 ("task", "mem_used_bytes", "> 2GiB", f"user:{user}"),
                 ("job", "tasks", "= 1", f"user:{user}"),
                 ("owner", "gpus", ">= 1", f"user:{user}"),
                 ("node", "gpus", "= 2", f"node:{host_of(teller)}"))}

    def open_alerts() -> Any:
        by_kind = {alert["of"]: alert for alert in hub.get("/api/v1/alerts")["items"]
                   if alert["rule"] in rules.values()}
        return by_kind if set(by_kind) == set(rules) else None

    by_kind = telling(teller, open_alerts, "all four fire")
    assert by_kind["task"]["target"] == task.id
    assert (by_kind["task"]["node"], by_kind["task"]["users"]) == (teller.node_id, [user])
    assert by_kind["task"]["value"] == 3e9
    assert (by_kind["owner"]["target"], by_kind["node"]["target"]) == (user, teller.node_id)
    first, second = (gpu.uuid for gpu in teller.facts)
    assert {of: alert["gpus"] for of, alert in by_kind.items()} == {
        "task": [second], "job": [second], "owner": [second], "node": []}

    def kinds_of(query: str) -> set[str]:
        items = hub.get(f"/api/v1/alerts?{query}")["items"]
        return {alert["of"] for alert in items if alert["rule"] in rules.values()}

    def of_gpu(uuid: str, state: str) -> set[str]:
        return kinds_of(f"gpus={uuid}&state={state}")

    assert (of_gpu(first, "open"), of_gpu(second, "open")) == ({"node"}, set(rules))
    assert kinds_of(f"users={user},nobody") == {"task", "job", "owner"}
    assert kinds_of(f"model={teller.facts[1].name.replace(' ', '%20')}") == set(rules)
    assert not kinds_of("users=nobody") | kinds_of("group=nowhere")
    assert hub.ask(f"/api/v1/alerts?users={','.join(map(str, range(201)))}").status == 400
    stranger = add_program(hub, "viewer", groups=("elsewhere",))
    assert ask(hub, "GET", "alerts", token=stranger).json["items"] == []
    teller.tell(Tasks(True, (), ()))
    later = telling(teller, lambda: [alert for alert in alerts(hub, teller, "ended")
                                     if alert["id"] == by_kind["task"]["id"]], "the task is gone")
    assert later[0]["why"] == "the target is gone"
    telling(teller, lambda: of_gpu(second, "ended") == {"task", "job", "owner"}, "in the past too")
    assert of_gpu(first, "ended") == set()


def test_of_a_job_only_the_gpus_that_one_may_see_are_named(hub: HubProcess) -> None:
    near, far = new_teller(hub), new_teller(hub)
    user = f"u{secrets.token_hex(3)}"
    launch = f"torchrun {secrets.token_hex(3)}:29500"
    on = {teller: Task(f"boot:{at}:{secrets.token_hex(4)}", 7 + at, 1, time.time(), user,
                       "python train.py", launch=launch, rank=at)
          for at, teller in enumerate((near, far))}
    for teller in on:
        moved = ask(hub, "PATCH", f"nodes/{teller.node_id}", {"group": host_of(teller)})
        assert moved.status == 200, moved.body
    some = add_program(hub, "viewer", groups=(host_of(near),))
    viewers = [RawSocket(hub, "/live", token) for token in (hub.api_token, some)]
    rule = put(hub, hot(of="job", signal="nodes", fire="= 2", clear="", scope=f"user:{user}"))

    def fires() -> Any:
        for teller, task in on.items():
            teller.tell(Tasks(True, (task,), (Use(task.id, 0, 3e9, 0.0),)))
        return [alert for alert in hub.get("/api/v1/alerts")["items"] if alert["rule"] == rule]

    [alert] = telling(near, fires, "it fires", tasks=Tasks(True, (on[near],), (
        Use(on[near].id, 0, 3e9, 0.0),)))
    uuids = {near.facts[0].uuid, far.facts[0].uuid}
    assert (alert["node"], set(alert["gpus"])) == (near.node_id, uuids)
    [scoped] = [alert for alert in ask(hub, "GET", "alerts", token=some).json["items"]
                if alert["rule"] == rule]
    assert scoped["gpus"] == [near.facts[0].uuid]
    for viewer, visible in zip(viewers, (uuids, {near.facts[0].uuid}), strict=True):
        while (event := viewer.event("alert"))["rule"] != rule:
            pass
        assert set(event["gpus"]) == visible


def run_backtest(hub: HubProcess, rule: dict[str, Any], start: float, end: float) -> Any:
    answer = ask(hub, "POST", "rules/backtests", {"rule": rule, "start": start, "end": end})
    assert answer.status == 202, answer.body
    until = time.monotonic() + 30
    while (run := hub.get(f"/api/v1/rules/backtests/{answer.json['id']}"))["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert run["state"] == "done", run["why"]
    return run


def test_a_rehearsal_and_its_approval(hub: HubProcess) -> None:
    teller, begin = new_teller(hub), time.time()
    rule = hot(signal="temp_margin_c", scope=f"node:{host_of(teller)}")
    teller.slow[1]["temp_margin_c"] = 2.0
    put(hub, rule)
    telling(teller, lambda: any(alert["rule"] == rule["id"] for alert in alerts(hub, teller)),
            "it fires")
    # What was told a moment ago may not be in history yet.
    backtest = telling(teller, lambda: run if (run := run_backtest(
        hub, rule, begin - 60, time.time()))["alerts_count"] else None, "history has it")
    assert (backtest["grain_s"], backtest["targets"]) == (1, 2)
    [alert] = backtest["alerts"]
    assert (alert["target"], alert["value"]) == (teller.facts[1].uuid, 2.0)
    short = ask(hub, "GET", f"rules/backtests?rule={rule['id']}").json["items"][0]
    assert (short["id"], short["alerts_count"], short["alerts"]) == (backtest["id"], 1, [])
    admin = add_program(hub, "admin")
    approved = ask(hub, "POST", f"rules/backtests/{backtest['id']}/approve", {}, admin)
    assert approved.status == 200, approved.body
    assert approved.json["approved_by"] == "the tests", "who made the token, not its name"
    part = add_program(hub, "operator", groups=("elsewhere",))
    for path in ("rules/backtests", f"rules/backtests/{backtest['id']}"):
        assert ask(hub, "GET", path, token=part).status == 403


def test_a_rule_of_the_fleet_is_rehearsed(hub: HubProcess, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    teller, begin = new_teller(hub), time.time()
    fleet = hot(of="fleet", signal="gpus - gpus_lost", fire=">= 2", clear="")
    span = {"rule": fleet, "start": begin - 60, "end": begin + 60}
    telling(teller, lambda: ask(hub, "POST", "rules/backtests", span).status == 202,
            "history has something")
    [alert] = telling(teller, lambda: run_backtest(hub, fleet, begin - 60, time.time())["alerts"],
                      "history has it")
    assert (alert["target"], alert["users"]) == ("fleet", [])
    file, token = tmp_path / "mine.yaml", tmp_path / "token"
    file.write_text(dump([ready.rule for ready in parse(
        f"rules: {json.dumps([fleet])}").rules.values()]))
    token.touch(0o600)
    token.write_text(hub.api_token)
    assert rules(["backtest", str(file), "--start", "1h", "--hub", hub.url,
                  "--token-file", str(token)]) == 0
    assert f"{fleet['id']}: 1 alert of 1 target" in capsys.readouterr().out


@pytest.mark.parametrize(("rule", "start", "end", "says"), [
    ({}, 0, 60, "history"),
    ({"of": "fleet", "signal": "rules_failing", "fire": ">= 1", "clear": ""}, 0, 4e9,
     "data about the hub itself, such as rules_failing"),
    ({"of": "owner", "signal": "mem_used_bytes", "fire": "> 1GiB", "clear": ""}, 0, 4e9,
     "history keeps owners by the minute: a rule that holds less than 1m"),
    ({"of": "owner", "signal": "mem_used_bytes", "fire": "> 1GiB", "clear": "", "for": "1m"}, 0,
     60, "history"),
    ({"signal": "sample_age_s"}, 0, 4e9, "history does not keep sample_age_s"),
    ({"of": "node", "signal": "silent_s"}, 0, 4e9, "can only be watched live"),
    ({"signal": "nothing"}, 0, 4e9, "unknown metric 'nothing'"),
])
def test_what_cannot_be_rehearsed_is_said(hub: HubProcess, rule: Any, start: float, end: float,
                                          says: str) -> None:
    new_teller(hub)
    answer = ask(hub, "POST", "rules/backtests", {"rule": hot(**rule), "start": start, "end": end})
    assert answer.status in (400, 409)
    assert says in answer.json["detail"]


def test_rules_go_out_as_a_file_and_come_in_again(hub: HubProcess, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    put(hub, mine := hot())
    token = tmp_path / "token"
    token.write_text(hub.api_token)
    token.chmod(0o600)
    reach = ["--hub", hub.url, "--token-file", str(token)]
    assert rules(["export", *reach]) == 0
    file = tmp_path / "rules.yaml"
    file.write_text(capsys.readouterr().out)
    assert mine["id"] in parse(file.read_text()).rules
    assert rules(["import", str(file), *reach, "--json"]) == 0
    assert {change["what"] for change in json.loads(capsys.readouterr().out)} == {"unchanged"}
    new = f"new-{secrets.token_hex(3)}"
    file.write_text(file.read_text().replace(mine["id"], new))
    assert rules(["import", str(file), *reach]) == 0
    assert f"new       {new}" in capsys.readouterr().out
    assert hub.get(f"/api/v1/rules/{new}")["rule"]["signal"] == mine["signal"]
    file.write_text("rules: [{id: x}]")
    assert rules(["import", str(file), *reach]) == 1
    assert "nothing of this file would be accepted" in capsys.readouterr().out


def test_a_file_is_rehearsed_from_the_terminal(hub: HubProcess, tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    teller = new_teller(hub)
    teller.slow[0]["temp_margin_c"] = 1.0
    until = time.monotonic() + 6
    while time.monotonic() < until:
        teller.tell()
        time.sleep(0.3)
    good = parse(f"rules: {json.dumps([hot(scope='node:' + host_of(teller))])}").rules
    file = tmp_path / "mine.yaml"
    file.write_text(dump([ready.rule for ready in good.values()]))
    token = tmp_path / "token"
    token.write_text(hub.api_token)
    token.chmod(0o600)
    reach = ["--hub", hub.url, "--token-file", str(token)]
    assert rules(["backtest", str(file), "--start", "1h", *reach]) == 0
    output = capsys.readouterr().out
    assert "1 alert of 2 targets" in output
    assert f"{host_of(teller)} GPU 0" in output
    file.write_text(file.read_text().replace("temp_margin_c", "sample_age_s"))
    assert rules(["backtest", str(file), *reach]) == 1
    assert "history does not keep sample_age_s" in capsys.readouterr().out
    with pytest.raises(CommandError, match="is not a time"):
        rules(["backtest", str(file), "--start", "yesterday", *reach])


@pytest.mark.soak
def test_a_minute_that_history_closed_is_looked_at_live(hub: HubProcess) -> None:
    """The short form, on a fake clock, is tests/unit/dashboard/alerts/test_engine.py."""
    teller = new_teller(hub)
    rule = put(hub, hot(signal="temp_c", fire="> -30", clear="< -35",
                        scope=f"node:{host_of(teller)}",
                        **{"for": "5m"}))

    def pending() -> Any:
        view = hub.get(f"/api/v1/rules/{rule}")
        return view if view["pending"] == 2 else None

    telling(teller, pending, "two GPUs wait", 150.0)
    assert "rules_without_minute" not in hub.log.read_text()
