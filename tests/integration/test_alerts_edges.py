"""Rules and silences that somebody writes wrong, twice, or at the same time as another."""

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.alerts.core.firing_alerts import Alert, AlertTarget
from dashboard.alerts.rules_file import dump, parse
from dashboard.alerts.store import AlertsStore
from dashboard.cli.rules import rules
from tests.integration.hubs import HubProcess
from tests.integration.test_alerts import alerts, ask, host_of, hot, new_teller, put, telling
from tests.integration.visitors import add_program, open_state


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("edges") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def test_a_silence_that_is_still_to_come_can_be_taken_back(hub: HubProcess) -> None:
    now = time.time()
    answer = ask(hub, "POST", "silences", {"until": now + 600, "begins": now + 300, "because": "x",
                                           "rule": "temp-high"})
    assert answer.status == 201, answer.body
    assert not answer.json["is_on"]
    assert ask(hub, "DELETE", f"silences/{answer.json['id']}").status == 204
    assert ask(hub, "DELETE", f"silences/{answer.json['id']}").status == 404


@pytest.mark.parametrize(("body", "says"), [
    ({"because": "x", "node": "no-such-host"}, "there is no node 'no-such-host'"),
    ({"because": "x", "rule": "temp-hihg"}, "there is no rule 'temp-hihg'"),
    ({"because": "   ", "rule": "temp-high"}, "give a reason"),
])
def test_a_silence_of_what_is_not_there_protects_nobody(hub: HubProcess, body: Any, says: str
                                                        ) -> None:
    answer = ask(hub, "POST", "silences", body | {"until": time.time() + 60})
    assert answer.status in (404, 409)
    assert says in answer.json["detail"]


def test_who_imports_again_keeps_what_a_rule_may_do(hub: HubProcess, tmp_path: Path) -> None:
    """Else nobody who imports each night would ever have seven days of dry run."""
    put(hub, mine := hot(**{"for": "30s"}, ladder=[{"do": "tell"}], mode="dry_run"))
    token = tmp_path / "token"
    token.write_text(hub.api_token)
    token.chmod(0o600)
    file = tmp_path / "rules.yaml"

    def mode_of(**change: Any) -> str:
        rule = parse(f"rules: {json.dumps([mine | change])}").rules[mine["id"]].rule
        file.write_text(dump([rule]))
        assert rules(["import", str(file), "--hub", hub.url, "--token-file", str(token)]) == 0
        return str(hub.get(f"/api/v1/rules/{mine['id']}")["rule"]["mode"])

    assert mode_of() == "dry_run"
    assert mode_of(title="In other words", mode="observe") == "dry_run"
    assert mode_of(fire="<= 4") == "observe"
    assert mode_of(fire="<= 4", mode="dry_run") == "observe"


def test_a_new_rule_does_not_take_the_place_of_another(hub: HubProcess) -> None:
    put(hub, mine := hot())
    path = f"/api/v1/rules/{mine['id']}"

    def edit(title: str, **headers: str) -> Any:
        return hub.ask(path, "PUT", body=json.dumps(mine | {"title": title}).encode(),
                       Content_Type="application/json", **headers)

    before = hub.get(path)["number"]
    assert edit("New", If_None_Match="*").status == 412
    assert edit("First", If_Match=f'"{before}"').status == 200
    late = edit("Second", If_Match=f'"{before}"')
    assert late.status == 412
    assert "changed in the meantime" in late.json["detail"]
    assert hub.get(path)["rule"]["title"] == "First"


def test_the_record_says_which_rule_and_what_was_silenced(hub: HubProcess) -> None:
    rule = put(hub, hot(**{"for": "30s"}, ladder=[{"do": "tell"}]))
    assert ask(hub, "POST", f"rules/{rule}/mode", {"mode": "dry_run"}).status == 200
    silence = ask(hub, "POST", "silences", {"until": time.time() + 60, "because": "moving racks",
                                            "rule": rule, "user": "alice"}).json
    assert ask(hub, "DELETE", f"silences/{silence['id']}").status == 204
    assert ask(hub, "DELETE", f"rules/{rule}").status == 204
    sentences = [item["sentence"].partition(" ")[2] for item in hub.get("/api/v1/audit")["items"]
                 if rule in item["sentence"]]
    assert sentences == [
        f"removed the rule {rule}", f"ended the silence of rule {rule}, user alice",
        f"silenced rule {rule}, user alice: moving racks",
        f"moved the rule {rule} from observe to dry_run", f"saved the rule {rule}, in observe"]


@pytest.mark.parametrize(("path", "body", "says"), [
    ("receivers", {"name": "ops", "kind": "telegram"}, "one of webhook, mail, owners, heartbeat"),
    ("receivers", {"name": "ops", "kind": "mail", "least": "fatal"}, "one of info, warn, crit"),
    ("rules/temp-high/mode", {"mode": "kill"}, "one of observe, dry_run, confirm, auto"),
    ("receivers", {"name": "ops", "kind": 3}, "Expected `str`"),
])
def test_a_word_that_is_none_of_a_few_is_answered_with_those(
    hub: HubProcess, path: str, body: Any, says: str
) -> None:
    answer = ask(hub, "POST", path, body)
    assert answer.status == 400
    assert says in answer.json["detail"]


def _fired(rule: str, node: str, gpu: str, at: float, number: int) -> Alert:
    return Alert(f"{rule}-{number:05d}", rule, "1", "Hot", "warn", "gpu",
                 AlertTarget(gpu, node, "h", "0", (), (gpu,)), "ended", at, at, at, 1.0,
                 ended_at=at + 1, why="the condition is not met any more")


def _pages(hub: HubProcess, query: str, token: str = "api") -> list[list[str]]:
    path, pages = f"alerts?{query}", []
    while True:
        page = ask(hub, "GET", path, token=token).json
        pages.append([alert["id"] for alert in page["items"]])
        if page["next"] is None:
            return pages
        path = f"alerts?{query}&cursor={page['next']}"


def test_a_noisy_rule_hides_no_other(hub: HubProcess) -> None:
    """Found by examiners: a page of the past was cut at 1,000 before rule and reach were asked."""
    noisy, quiet = new_teller(hub), new_teller(hub)
    loud, soft, now = noisy.node_id, quiet.node_id, time.time()
    with open_state(hub) as state:
        state.store(AlertsStore).put_alerts([
            *(_fired("loud", loud, noisy.facts[0].uuid, now - 100, at) for at in range(1_500)),
            *(_fired("soft", soft, quiet.facts[0].uuid, now - 200 - at // 2, at)
              for at in range(7))])
    soft_ones = [f"soft-{at:05d}" for at in range(7)]
    assert _pages(hub, "state=ended&rule=soft") == [soft_ones]
    assert _pages(hub, "state=ended&rule=soft&limit=3") == [soft_ones[:3], soft_ones[3:6],
                                                            soft_ones[6:]]
    everything = [alert_id for page in _pages(hub, "state=ended&limit=400") for alert_id in page
                  if alert_id[:5] in ("loud-", "soft-")]
    assert everything == [f"loud-{at:05d}" for at in range(1_500)] + soft_ones
    assert ask(hub, "PATCH", f"nodes/{soft}", {"group": "calm"}).status == 200
    assert _pages(hub, "state=ended&group=calm") == [soft_ones]
    assert _pages(hub, "state=ended&model=none") == [[]]
    assert _pages(hub, "state=ended", add_program(hub, groups=("calm",))) == [soft_ones]


def test_open_alerts_come_in_pages_too(hub: HubProcess) -> None:
    teller = new_teller(hub, gpus=5)
    rule = put(hub, hot(**{"for": "0s"}))
    for slow in teller.slow:
        slow["temp_margin_c"] = 1.0
    until = time.monotonic() + 20
    while len(whole := _pages(hub, f"rule={rule}")[0]) < 5 and time.monotonic() < until:
        teller.tell()
        time.sleep(0.25)
    assert len(whole) == 5
    assert _pages(hub, f"rule={rule}&limit=2") == [whole[:2], whole[2:4], whole[4:]]


@pytest.mark.parametrize("cursor", [
    "WyJhIiwiYiJd", "WyIxIl0=", "W10=", "x" * 600, "WyJuYW4iLCJhIl0="])
@pytest.mark.parametrize("state", ["open", "pending", "ended"])
def test_a_cursor_of_something_else_is_refused(hub: HubProcess, state: str, cursor: str) -> None:
    answer = ask(hub, "GET", f"alerts?state={state}&cursor={cursor}")
    assert (answer.status, "cursor" in answer.json["detail"]) == (400, True), answer.body


def test_an_alert_of_the_past_is_silenced_if_it_was_when_it_ended(hub: HubProcess) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot())
    teller.slow[0]["temp_margin_c"] = 1.0
    telling(teller, lambda: any(alert["rule"] == rule for alert in alerts(hub, teller)), "it fires")
    body = {"until": time.time() + 600, "because": "moving racks", "rule": rule}
    silence = ask(hub, "POST", "silences", body).json
    teller.slow[0]["temp_margin_c"] = 25.0
    [first] = telling(teller, lambda: [alert for alert in alerts(hub, teller, "ended")
                                       if alert["rule"] == rule], "it ends")
    assert ask(hub, "DELETE", f"silences/{silence['id']}").status == 204
    [later] = [alert for alert in alerts(hub, teller, "ended") if alert["rule"] == rule]
    assert first["silenced_by"] == later["silenced_by"] == [silence["id"]]
    teller.slow[0]["temp_margin_c"] = 1.0
    telling(teller, lambda: any(alert["rule"] == rule for alert in alerts(hub, teller)), "it fires")
    teller.slow[0]["temp_margin_c"] = 25.0
    telling(teller, lambda: len([alert for alert in alerts(hub, teller, "ended")
                                 if alert["rule"] == rule]) == 2, "it ends again")
    ask(hub, "POST", "silences", body)
    assert {tuple(alert["silenced_by"]) for alert in alerts(hub, teller, "ended")
            if alert["rule"] == rule} == {(silence["id"],), ()}, "nobody silenced it while it fired"


def test_a_rule_that_matches_nothing_now_says_so_when_it_is_written_and_checked(
        hub: HubProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teller = new_teller(hub)
    nobody, here = f"user:u{secrets.token_hex(3)}", f"node:{host_of(teller)}"
    of_tasks = {"of": "task", "signal": "age_s", "fire": "> 1", "clear": ""}
    bad, good = hot(scope=nobody, **of_tasks), hot(scope=here)
    says = f"its scope '{nobody}' matches no task at the moment: it would never fire"
    telling(teller, lambda: ask(hub, "POST", "rule-checks", {"rule": good}).json["targets"] == 2,
            "two GPUs")
    for rule, warning in ((bad, says), (good, "")):
        assert ask(hub, "POST", "rule-checks", {"rule": rule}).json["warning"] == warning
        assert ask(hub, "PUT", f"rules/{rule['id']}", rule).json["warning"] == warning

    file, token = tmp_path / "rules.yaml", tmp_path / "token"
    file.write_text(f"rules: {json.dumps([bad, good])}")
    token.write_text(hub.api_token)
    token.chmod(0o600)
    reach = ["--hub", hub.url, "--token-file", str(token)]
    assert rules(["check", str(file), *reach]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{bad['id']}: {says}", "2 rules and 0 tests are valid"]
    assert rules(["check", str(file)]) == 0, "without a hub nobody knows"
    assert "matches no" not in capsys.readouterr().out
    for rule in (bad, good):
        assert ask(hub, "DELETE", f"rules/{rule['id']}").status == 204
    assert rules(["import", str(file), *reach]) == 0
    assert set(capsys.readouterr().out.splitlines()) == {
        f"new       {bad['id']}: {says}", f"new       {good['id']}"}
