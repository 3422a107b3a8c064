"""The Advice page: what it says when there is none yet, none at all, some, and to whom."""

from types import SimpleNamespace
from typing import Any

from dashboard.access.policy import Role
from dashboard.pages.advice import MOST_IDLE, NOT_FOR_ALL, PAGE, advice_parts, answer
from dashboard.pages.reading import View

from .read_parts import elements, forms, wire_parts, words

HOSTILE = '<img src=x onerror="document.title=1">&<b>x'


def advice(ident: str = "a:1", **changes: Any) -> dict[str, Any]:
    return {"id": ident, "kind": "idle", "label": "idle", "title": "Free a GPU",
            "reason": "it is idle", "gpu_hours": 1234.4, "risk": "none", "past": "kept so far",
            "command": "gpudeck end 1", "undo": "start it again", "owner": "ana", "gpus": [],
            "dismissed": None, "unit": "GPU-hours"} | changes


def page(hours: int, *items: dict[str, Any], least: int = 168, idle: Any = ()) -> dict[str, Any]:
    return wire_parts(PAGE, advice_parts({"hours": hours, "least_hours": least, "items": [*items]},
                                   [*idle], {"u0": 0, "u3": 3}))


def task(number: int, **changes: Any) -> dict[str, Any]:
    return {"host": f"n{number}", "user": "ana", "idle_s": 900.0,
            "gpus": [{"uuid": "u0"}, {"uuid": "u3"}, {"uuid": "gone"}]} | changes


def test_before_a_week_is_measured_it_says_what_it_waits_for() -> None:
    parts = page(1)
    assert words(parts["advice-none"]) == (
        "No advice yet: 1 of 168 hours are measured. A working week must be among them.")
    assert words(page(0, least=1)["advice-none"]) == "No advice yet: 0 of 1 hour is measured."
    assert (words(parts["advice-words"]), parts["advice-now"], parts["advice-place"]) == (
        "", None, [])
    assert parts["advice-dismissed"] is False


def test_none_is_of_the_time_that_was_measured() -> None:
    """Found by visitors: an advice that spoke of no time."""
    assert "In the last hour, as far as measured" in words(page(1, least=1)["advice-none"])
    parts = page(30, least=1)
    assert "In the last 30 hours, as far as measured" in words(parts["advice-none"])
    assert words(parts["advice-words"]) == (
        "Based on the last 30 hours. GPU-hours are per week, extrapolated.")


def test_an_advice_has_its_reason_command_and_a_dismissal_with_a_reason() -> None:
    parts = page(200, advice(title=HOSTILE, owner=HOSTILE),
                 advice("b/2", owner=None, dismissed={"by": "root", "reason": "we need it"}))
    assert parts["advice-none"] is None
    assert words(parts["advice-words"]) == (
        "Based on the last 200 hours. GPU-hours are per week.")
    text = words(parts["advice-place"])
    assert text.startswith("1,234GPU-hours a week" + HOSTILE)
    for part in ("It is idle.", "Kept so far.", "gpudeck end 1", "Undo: start it again",
                 f"Tasks of {HOSTILE}"):
        assert part in text
    links = [traits["href"] for tag, traits, _ in elements(parts["advice-place"]) if tag == "a"]
    assert links == ["/tasks?filter=user%3A%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D1%22"
                     "%3E%26%3Cb%3Ex"]
    [dismiss] = forms(parts["advice-place"])
    assert (dismiss["method"], dismiss["path"], dismiss["body"]) == (
        "POST", "advice/a%3A1/dismiss", {"reason": "$reason"})
    assert dismiss["fields"][0]["traits"]["minlength"] == "3"
    assert parts["advice-dismissed"] is True
    assert "Dismissed by root: we need it" in words(parts["advice-aside"])
    assert forms(parts["advice-aside"]) == [{"method": "POST", "path": "advice/b%2F2/recall"}]


def test_what_is_idle_now_is_seen() -> None:
    assert words(page(1, idle=[task(1)])["advice-now"]) == (
        "Idle right now, with memory held: n1 GPU 0, 3 (ana, for 15 min). Show on the map")
    many = [task(number, user=None, idle_s=None) for number in range(MOST_IDLE + 2)]
    assert words(page(1, idle=many)["advice-now"]).endswith(
        "n4 GPU 0, 3 (owner unknown); 2 more. Show on the map")


def test_who_is_no_operator_sees_none() -> None:
    """The hub would refuse: nothing else is asked for."""
    for role in (Role.VIEWER, Role.USER):
        client: Any = SimpleNamespace(hub=SimpleNamespace(
            get=lambda path, role=role: {"me": {"role": role, "unix_names": []}}[path]))
        assert answer(client, View(), 0.0) == {"advice-none": NOT_FOR_ALL}
