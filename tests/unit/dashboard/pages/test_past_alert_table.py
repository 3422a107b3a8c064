"""Show the resolved alerts on the Alerts page as a list of rules that open."""

import json
import random
from typing import Any

import pytest

from dashboard.alerts.core.measure import Measure
from dashboard.pages.alert_cells import group_words, place_address
from dashboard.pages.past_alert_table import past_alert_table
from dashboard.pages.words import NONE
from tests.unit.dashboard.pages.test_audit_page import HOSTILE, elements, text_of

NOW = 1_700_000_000.0


def alert(id: str, rule: str = "hot", **fields: Any) -> Any:
    return {"id": id, "rule": rule, "title": "Too hot", "severity": "crit", "of": "gpu",
            "target": f"GPU-{id}", "node": "k1", "host": "n1", "place": "3", "users": [],
            "gpus": [], "state": "ended", "since": NOW - 900, "fired_at": NOW - 600,
            "ended_at": NOW - 120, "value": 91.0, "comebacks": 0, "why": "it is cool again",
            "holds": [], "silenced_by": [], "inhibited_by": [], "ladder": None} | fields


def rows(alerts: list[Any], *opened: str) -> list[Any]:
    table = past_alert_table(alerts, {"hot": Measure("°C")}, {*opened}, NOW, "UTC")
    return elements(table, "tr")[1:]


def test_one_alert_stands_alone_with_its_value_its_times_and_its_reason() -> None:
    [row] = rows([alert("a", users=["ann", "bo", "cy", "di"], comebacks=2)])
    assert [text_of(cell) for cell in row[2]] == [
        "critical Too hot hot · fired again 2 times", "n1 · GPU 3 ann, bo, cy and 1 more", "91 °C",
        "10 min ago", "2 min ago", "it is cool again"]
    assert row[2][3][1]["title"] == "14 Nov 2023, 22:03"
    assert [link[1]["href"] for link in elements(past_alert_table(
        [alert("a")], {}, set(), NOW, "UTC"), "a")] == ["/gpu/GPU-a"]


def test_alerts_of_one_rule_are_a_line_that_opens() -> None:
    count = random.randint(2, 9)
    alerts = [*(alert(f"a{at}", host=f"n{at}", fired_at=NOW - 60 * at) for at in range(count)),
              alert("b", "cold", title="Cold", of="node", place="")]
    closed = rows(alerts)
    assert [row[1]["data-key"] for row in closed] == ["rule hot", "b"]
    words = f"Too hot: {count} GPUs on {count} nodes"
    assert words in text_of(closed[0])
    opened = rows(alerts, "hot")
    assert [row[1]["data-key"] for row in opened] == [
        "rule hot", *(f"a{at}" for at in range(count)), "b"]
    for table_parts, rules in ((closed, []), (opened, ["hot"])):
        [button] = [node for node in table_parts[0][2][0][2][0][2] if node[0] == "button"]
        assert button[1]["aria-expanded"] == str(bool(rules)).lower()
        assert json.loads(button[1]["data-set"]) == {"opened": [] if rules else ["hot"]}


def test_the_first_hosts_of_a_line_are_named_and_owners_have_no_nodes() -> None:
    alerts = [alert(f"a{at}", host=f"n{at}") for at in range(5)]
    assert "n0, n1, n2 and 2 more" in text_of(rows(alerts)[0])
    assert group_words([alert("a", of="owner", host=""), alert("b", of="owner", host="")]) == (
        "Too hot: 2 owners")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_a_row(text: str) -> None:
    hostile = alert("a", title=text, host=text, place=text, users=[text], why=text, target=text)
    [row] = rows([hostile])
    cells = [text_of(cell) for cell in row[2]]
    assert text in cells[0]
    assert f"{text} · GPU {text}" in cells[1]
    assert cells[5] == text
    [link] = elements(past_alert_table([hostile], {}, set(), NOW, "UTC"), "a")
    assert link[1]["href"].startswith("/gpu/")
    assert not {"<", '"', " ", ":"} & set(link[1]["href"])


def test_an_address_is_of_the_gpu_or_its_node_or_of_nothing() -> None:
    assert place_address(alert("a", target="G 1/x")) == "/gpu/G%201%2Fx"
    assert place_address(alert("a", of="task")) == "/node/k1"
    assert place_address(alert("a", of="fleet", node="")) is None


def test_an_unknown_rule_and_an_unknown_value_are_shown_all_the_same() -> None:
    [row, other] = rows([alert("a", "gone", value=3.0), alert("b", value=None)])
    assert [text_of(row[2][2]), text_of(other[2][2])] == ["3", NONE]
