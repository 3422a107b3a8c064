"""The QoS page: nothing promised, all kept, something broken, and who may change it."""

from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.access.policy import Role
from dashboard.pages.qos import NOBODY, NOT_CHECKED, NOT_FOR_ALL, PAGE, answer, qos_parts
from dashboard.pages.reading import View

from .read_parts import elements, forms, wire_parts, words

NOW = 1_795_960_800.0  # 29 Nov 2026, 14:00 UTC


def tenant(name: str = "user:ada", **changes: Any) -> dict[str, Any]:
    policy = {"tenant": name, "gpus": 4, "wait_s": 600.0, "throttled_pct": 5.0, "memory_gib": 40.0}
    week = [{"kind": kind, "violations": count, "seconds": 90.0 * count}
            for kind, count in (("gpus", 1), ("memory", 0), ("wait", 0), ("throttling", 3))]
    return {"policy": policy, "gpus": 1, "memory_gib": 79.5, "waiting": 2, "longest_wait_s": 500.0,
            "throttled_pct": 0.25, "unkept": [], "pending": [], "week": week} | changes


def page(*items: dict[str, Any], violations: Any = (), is_admin: bool = False,
         zone: str = "UTC") -> dict[str, Any]:
    report = {"items": [*items], "violations": [*violations]}
    return wire_parts(PAGE, qos_parts(report, zone, is_admin))


def lines(parts: dict[str, Any]) -> list[str]:
    return [words(inside) for tag, _, inside in elements(parts["qos-place"]) if tag == "dd"]


def test_nothing_is_promised_to_anybody() -> None:
    parts = page()
    assert (words(parts["qos-none"]), words(parts["qos-words"])) == (NOBODY, "")
    assert (parts["qos-place"], parts["qos-past"]) == ([], False)
    assert forms(parts["qos-acts"]) == []


def test_a_tenant_has_what_was_promised_and_what_it_gets() -> None:
    parts = page(tenant())
    assert words(parts["qos-words"]) == "All promises are kept now."
    assert lines(parts) == [
        "at least 4 GPUs while it asks for more; has 1 GPU, 2 claims waiting. Broken once in 7 "
        "days, for 90 s in total.",
        "at least 40.0 GiB while it asks for more; has 79.5 GiB, 2 claims waiting. No violation "
        "seen in 7 days.",
        "maximum 10 min; the longest waits for 8 min. No violation seen in 7 days.",
        "maximum 5.0 % of the time, over 10 min; 0.3 % of the time now. Broken 3 times in 7 "
        "days, for 5 min in total."]
    assert words(parts["qos-place"]).startswith("4violations in 7 daysuser ada")


def test_what_is_not_known_is_said_so_and_what_was_not_promised_is_left_out() -> None:
    unknown = tenant(gpus=None, memory_gib=None, waiting=None, longest_wait_s=None,
                     throttled_pct=None)
    assert words(page(tenant(), unknown)["qos-words"]) == NOT_CHECKED
    assert [line.partition(". ")[0].rpartition("; ")[2] for line in lines(page(unknown))] == [
        "not known"] * 4
    idle = tenant(gpus=0, waiting=0, longest_wait_s=None,
                  policy={"tenant": "team:ml", "gpus": None, "wait_s": 60.0,
                          "throttled_pct": None, "memory_gib": None})
    assert lines(page(idle)) == ["maximum 60 s; nothing waits. No violation seen in 7 days."]


@pytest.mark.parametrize(("count", "text"), [
    (1, "1 tenant does not get what was promised now."),
    (2, "2 tenants do not get what was promised now.")])
def test_a_broken_promise_comes_first(count: int, text: str) -> None:
    items = [tenant(f"user:{at}", unkept=["wait"]) for at in range(count)]
    parts = page(*items, tenant())
    assert words(parts["qos-words"]) == text
    assert words(parts["qos-place"]).count("Waited too long") == count


def test_what_is_broken_for_less_than_a_minute_is_said_and_called_no_violation() -> None:
    """Found by visitors: "the longest waits for 6 min", "maximum 5 min", and "No violation"."""
    late = tenant(longest_wait_s=700.0, unkept=["throttling", "wait"],
                  pending=["throttling", "wait"])
    parts = page(late)
    assert words(parts["qos-words"]) == "1 tenant does not get what was promised now."
    assert "Waited too long" in words(parts["qos-place"])
    [_, _, wait, throttling] = lines(parts)
    now = "Not kept now, and a violation once that has lasted for 60 s."
    assert wait == f"maximum 10 min; the longest waits for 12 min. {now}"
    assert throttling.endswith(f"{now} Broken 3 times in 7 days, for 5 min in total.")


def test_violations_are_told_in_the_viewers_zone() -> None:
    violation = {"tenant": "team:a:b", "kind": "gpus", "began_at": NOW, "ended_at": NOW + 300,
                 "worst": 1.0, "promised": 4.0}
    parts = page(violations=[violation, violation | {"ended_at": None}], zone="Europe/Berlin")
    assert parts["qos-past"] is True
    assert words(parts["qos-violations"]) == (
        "29 Nov 2026, 15:00 team a:b: Too few GPUs: 1 GPU, promised 4 GPUs; for 5 min"
        "29 Nov 2026, 15:00 team a:b: Too few GPUs: 1 GPU, promised 4 GPUs; continues")


def test_an_admin_promises_changes_and_removes_one_at_a_time() -> None:
    parts = page(tenant("user:a/b"), is_admin=True)
    [promise] = forms(parts["qos-acts"])
    [(_, traits, _)] = elements(parts["qos-acts"])
    assert traits["class"] == "button"  # as large as those at the head of other pages
    assert (promise["method"], promise["path"]) == ("PUT", "qos/$tenant")
    assert [field["name"] for field in promise["fields"]] == [
        "tenant", "gpus", "memory", "wait", "throttled"]
    change, remove = forms(parts["qos-place"])
    assert (change["method"], change["path"]) == ("PUT", "qos/user%3Aa%2Fb")
    assert [(field["name"], field["value"]) for field in change["fields"]] == [
        ("gpus", 4), ("memory", 40.0), ("wait", 10.0), ("throttled", 5.0)]
    assert change["body"] == {"gpus": "$gpus", "memory_gib": "$memory", "wait_s": "$wait",
                              "throttled_pct": "$throttled"}
    assert (remove["method"], remove["path"], remove["tone"]) == (
        "DELETE", "qos/user%3Aa%2Fb", "bad")
    assert remove["title"]
    assert forms(page(tenant())["qos-place"]) == []


def test_who_is_no_operator_sees_none() -> None:
    for role in (Role.VIEWER, Role.USER):
        client: Any = SimpleNamespace(hub=SimpleNamespace(
            get=lambda path, role=role: {"me": {"role": role, "unix_names": []}}[path]))
        assert answer(client, View(), 0.0) == {"qos-none": NOT_FOR_ALL}
