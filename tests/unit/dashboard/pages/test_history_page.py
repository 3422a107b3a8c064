"""The History page as Python: what an address shows, which span and steps, and what stands
there."""

import random
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit
from zoneinfo import ZoneInfo

import pytest

from dashboard.pages.alert_strips import alert_strips
from dashboard.pages.history import answer
from dashboard.pages.past_parts import (
    closer,
    fields_of_whole,
    gpu_words,
    jump_parts,
    load_words,
    range_buttons,
    usage_words,
    whole_of,
)
from dashboard.pages.past_span import (
    DAY_S,
    HOUR_S,
    LASTS,
    Kind,
    clock_of,
    is_short,
    span_of,
    step_for,
    step_words,
    zone_of,
)
from dashboard.pages.past_subject import MOST_GPUS, STANDARD, PastView
from dashboard.pages.reading import addressed, parts_on_wire, view_from
from gpudeck.errors import CommandError
from gpudeck.markup import markup

NOW = 1_764_434_567.25
HOSTILE = "<img src=x onerror=alert(1)>"
KINDS: tuple[Kind, ...] = ("fleet", "group", "model", "user", "team", "gpus")


def gpu(host: str, place: str, **more: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{host}-{place}", "node": f"id-{host}", "host": host, "place": place,
            "name": "H200", "missing": {}} | more


class Hub:
    """A hub with these GPUs. `refuses`: paths that it does not answer."""

    def __init__(self, *gpus: dict[str, Any], refuses: tuple[str, ...] = ()) -> None:
        self.listed = gpus
        self.refuses = refuses

    @property
    def hub(self) -> "Hub":
        return self

    def gpus(self, filter: str, metrics: str, node_id: str) -> list[dict[str, Any]]:
        return [one for one in self.listed if one["node"] == node_id]

    def nodes(self) -> list[dict[str, Any]]:
        hosts = dict.fromkeys(one["host"] for one in self.listed)
        return [{"id": f"id-{host}", "host": host} for host in hosts]

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        kind, _, more = path.partition("?")
        if kind in self.refuses:
            raise CommandError("for admins")
        if kind == "gpus":
            uuids = parse_qs(more)["uuid"]
            return [one for one in self.listed if one["uuid"] in uuids]
        if kind == "reports":
            return [{"of": query["by"]}, {"of": None}, {"of": HOSTILE}]
        return [node for node in self.nodes() if query["id"] in node.values()]

    def get(self, path: str, **query: str) -> dict[str, Any]:
        assert path == "load"
        return {"groups": ["lab"], "models": ["H200"]}


def page_at(hub: Hub, address: str, **more: Any) -> tuple[PastView, dict[str, Any]]:
    """Return the view of an address once it is answered, and what stands on the page."""
    query: dict[str, Any] = {}
    for name, value in parse_qsl(urlsplit(address).query):
        query.setdefault(name, []).append(value)
    usual = addressed(PastView())
    field_values = {name: values if isinstance(usual.get(name), (list, tuple)) else values[0]
             for name, values in query.items()}
    view = view_from(PastView, field_values | more)
    client: Any = hub
    return view, answer(client, view, NOW)


def request_in(parts: dict[str, Any]) -> Any:
    return parts["past-request"].to_plotly_json()["props"]["data-request"]


def text_of(part: Any) -> str:
    return str(part if isinstance(part, str) else markup(part))


def unusual(view: PastView) -> dict[str, Any]:
    usual = addressed(PastView())
    return {name: value for name, value in addressed(view).items() if value != usual[name]}


def test_an_old_address_opens_the_same_view() -> None:
    hub = Hub(*(gpu("n1", str(at)) for at in range(10)), gpu("n2", "0"))
    _, parts = page_at(hub, "/history")
    assert (request_in(parts)["by"], request_in(parts)["is_usual"]) == ("fleet", True)
    assert parts["past-choices"] is False
    for kind, name in (("group", "lab"), ("model", "H 200"), ("team", "t")):
        _, parts = page_at(hub, f"/history?{kind}={name}&last=7d")
        request = request_in(parts)
        assert (request["by"], request["name"], request["is_usual"]) == (kind, name, False)
        assert request["end"] - request["start"] == 7 * DAY_S
    _, parts = page_at(hub, "/history?owner=user%3Aann%3D1&last=6h")
    assert (request_in(parts)["by"], request_in(parts)["name"]) == ("user", "ann=1")
    _, parts = page_at(hub, "/history?node=id-n1&last=15m")
    assert [one["label"] for one in request_in(parts)["gpus"]] == [
        f"GPU {at}" for at in range(MOST_GPUS)]
    assert parts["past-subtitle"] == "max. 8 of 10 GPUs"
    assert request_in(parts)["metrics"] == [*STANDARD]
    view, parts = page_at(hub, "/history?gpu=GPU-n2-0&gpu=GPU-n1-3&metric=fan_pct&metric=energy_j"
                        "&start=2025-11-29T12:00:00Z&end=1764421200")
    request = request_in(parts)
    assert [one["label"] for one in request["gpus"]] == ["n2:0", "n1:3"]
    assert (request["metrics"], request["start"], request["end"]) == (
        ["fan_pct"], 1_764_417_600, 1_764_421_200)
    assert (view.start, view.end) == ("1764417600", "1764421200")
    assert parts["past-title"] == "2 GPUs"


def test_a_gpu_that_is_gone_is_asked_for_all_the_same() -> None:
    uuid = "GPU-0123456789abcdef-gone"
    _, parts = page_at(Hub(), f"/history?gpu={uuid}")
    (request,) = request_in(parts)["gpus"]
    assert (request["uuid"], request["label"], request["node"]) == (uuid, "GPU-0123456789ab…", None)
    assert f"gpu={uuid}" in text_of(parts["past-csv"])
    assert text_of(parts["past-live"]).count(f"/gpu/{uuid}") == 1


def test_a_node_that_is_not_there_says_so_and_asks_for_no_figure() -> None:
    _, parts = page_at(Hub(), "/history?node=gone")
    assert "does not exist" in parts["past-none"]
    assert parts["past-request"] is None
    assert parts["past-place"] is False
    hub = Hub()
    hub.nodes = lambda: [{"id": "id-n1", "host": "n1"}]  # type: ignore[method-assign]
    _, parts = page_at(hub, "/history?node=id-n1")
    assert parts["past-none"] == "This node has reported no GPU."
    assert parts["past-request"] is None


@pytest.mark.parametrize(("typed", "fields"), [
    ("fleet", {}), ("group:lab", {"group": "lab"}), ("model:H200", {"model": "H200"}),
    ("user:ann", {"owner": "user:ann"}), ("team:t", {"team": "t"}), ("n1", {"node": "id-n1"}),
    ("n1:3/9", {"gpu": ("GPU-n1-3/9",)}), ("n1:7", None), ("n9", None), ("n9:1", None),
    ("user:", None), (HOSTILE, None)])
def test_what_is_typed_becomes_the_subject(typed: str, fields: dict[str, Any] | None) -> None:
    hub = Hub(gpu("n1", "0"), gpu("n1", "3/9"))
    view, parts = page_at(hub, "/history?gpu=GPU-n1-0&last=6h", what=typed)
    if fields is None:
        assert (view.what, view.gpu) == (typed, ("GPU-n1-0",))
        assert parts["past-what-label"] == "Show (not found)"
        assert "aria-invalid" in text_of(parts["past-what"])
        assert "<img" not in text_of(parts["past-what"])
    else:
        assert unusual(view) == {"last": "6h"} | fields
        assert parts["past-what-label"] == "Show"


def test_subjects_are_listed_once_they_are_wanted_and_as_text() -> None:
    hub = Hub(gpu("n1", "0"))
    assert "past-whats" not in page_at(hub, "/history")[1]
    _, parts = page_at(hub, "/history", choices="listed")
    listed = text_of(parts["past-whats"])
    for typed in ("fleet", "group:lab", "model:H200", "n1", "user:user", "team:team"):
        assert f'value="{typed}"' in listed
    assert "<img" not in listed
    assert page_at(Hub(refuses=("reports",)), "/history", choices="listed")[1]["past-whats"] == []


def chip_sets(parts: dict[str, Any], place: str) -> dict[str, Any]:
    return {chip.to_plotly_json()["props"]["data-key"]:
            chip.to_plotly_json()["props"].get("data-set") for chip in parts[place]}


def test_chips_add_and_take_away() -> None:
    hub = Hub(gpu("n1", "0"), gpu("n1", "1"), gpu("n2", "0"))
    _, parts = page_at(hub, "/history?node=id-n1")
    sets = chip_sets(parts, "past-gpus")
    assert sets["GPU-n1-0"] == {"gpu": ["GPU-n1-1"]}
    _, parts = page_at(hub, "/history?node=id-n1&gpu=GPU-n1-1")
    sets = chip_sets(parts, "past-gpus")
    assert sets == {"GPU-n1-0": {"gpu": []}, "GPU-n1-1": None}, "the last one stays"
    _, parts = page_at(hub, "/history?gpu=GPU-n2-0&gpu=GPU-n1-1&hide=GPU-n1-1")
    assert [one["uuid"] for one in request_in(parts)["gpus"]] == ["GPU-n2-0"]
    assert chip_sets(parts, "past-gpus")["GPU-n1-1"] == {"hide": []}
    metrics = chip_sets(parts, "past-metrics")
    assert set(metrics["temp_c"]["metric"]) == {*STANDARD} - {"temp_c"}
    _, parts = page_at(hub, "/history?metric=temp_c&gpu=GPU-n2-0")
    assert chip_sets(parts, "past-metrics")["temp_c"] is None
    assert "energy_j" not in chip_sets(parts, "past-metrics")


def test_every_part_goes_over_the_wire() -> None:
    hub = Hub(gpu(HOSTILE, "0", name=HOSTILE), gpu(HOSTILE, "1"))
    for address in ("/history", f"/history?group={HOSTILE}", f"/history?node=id-{HOSTILE}",
                    "/history?node=gone", f"/history?owner={HOSTILE}"):
        _, parts = page_at(hub, address)
        assert parts_on_wire(parts)
        assert "<img" not in "".join(text_of(part) for name, part in parts.items()
                                     if name not in ("@tab", "past-title", "past-subtitle"))


def test_yesterday_is_one_click_away() -> None:
    start, end = (datetime(2025, 11, day, tzinfo=ZoneInfo("Asia/Kolkata")).timestamp()
                  for day in (28, 29))
    buttons = {zone: range_buttons(PastView(zone=zone, start=f"{start:.0f}", end=f"{end:.0f}"),
                                   "fleet", NOW)[-1].to_plotly_json()["props"]
               for zone in ("Asia/Kolkata", "UTC", "no/such")}
    assert [traits["aria-pressed"] for traits in buttons.values()] == ["true", "false", "false"]
    fields = buttons["Asia/Kolkata"]["data-set"]
    assert fields == {"start": f"{start:.0f}", "end": f"{end:.0f}", "last": "", "whole": ""}
    _, parts = page_at(Hub(gpu("n1", "0")), "/history")
    assert text_of(parts["past-ranges"]).endswith(">yesterday</button>")


def test_a_span_ends_on_its_step_and_is_as_long_as_it_says() -> None:
    for last, (seconds, _) in LASTS.items():
        kind = random.choice(KINDS)
        span = span_of(kind, last, "", "", NOW)
        assert (span.end - span.start, span.is_usual) == (seconds, False)
        assert NOW - 60 < span.end <= NOW
    usual = span_of("gpus", "3w", "soon", "", NOW)
    assert (usual.end - usual.start, usual.is_usual) == (HOUR_S, True)
    assert span_of("fleet", "", "", "", NOW).end - span_of("fleet", "", "", "", NOW).start == DAY_S
    # A span backwards, or in the future without an end, is none.
    for start, end in (("200", "100"), (str(NOW + 9), ""), ("nan", "5"), ("9e99", "")):
        assert span_of("fleet", "", start, end, NOW).is_usual
    since = span_of("gpus", "", str(int(NOW) - 600), "", NOW)
    assert (since.start, NOW - 6 < since.end <= NOW) == (int(NOW) - 600, True)


def test_one_second_is_widened_to_what_can_be_shown() -> None:
    for kind, least in (("gpus", 10), ("fleet", 120), ("team", 120)):
        span = span_of(kind, "", "1000", "1001", NOW)  # type: ignore[arg-type]
        assert (span.start, span.end) == (1_001 - least, 1_001)
    assert span_of("fleet", "", "0", "1", NOW).start == 0


def test_no_line_has_more_points_than_a_figure_shows() -> None:
    for _ in range(200):
        kind, seconds, lines = random.choice(KINDS), random.uniform(10, 9e7), random.randint(1, 48)
        step = step_for(kind, lines, seconds)
        assert seconds / step <= 900
        assert kind == "gpus" or step % 60 == 0
        assert kind != "team" or step % HOUR_S == 0
        if kind == "user" and seconds <= DAY_S:
            assert step <= 1_800


def test_what_is_looked_at_closer_leads_back() -> None:
    view = PastView(last="7d")
    for start, end in ((100, 200), (120, 150)):
        for name, value in closer(view, start, end).items():
            setattr(view, name, value)
    assert (view.start, view.end, view.whole) == ("120", "150", "7d")
    assert fields_of_whole(view.whole) == {"start": "", "end": "", "whole": "", "last": "7d"}
    for view in (PastView(), PastView(start="100", end="200"), PastView(start="100")):
        back = fields_of_whole(whole_of(view))
        assert {name: getattr(view, name) for name in ("start", "end", "last")} | {
            "whole": ""} == back


def test_jumps_are_there_when_there_is_somewhere_to_go() -> None:
    parts = jump_parts(PastView(), None, (0, 3_600), None)
    assert "hidden" in text_of(parts["past-fit"])
    assert "hidden" in text_of(parts["past-busiest"]), "not that of the span before"
    assert "data-set" not in text_of(parts["past-busiest"])
    parts = jump_parts(PastView(), (60, 120), (0, 7_200), {"start": 3_600, "end": 7_200})
    assert "hidden" not in text_of(parts["past-fit"])
    by_key_alone = text_of(jump_parts(PastView(), (60, 7_100), (0, 7_200), None)["past-fit"])
    assert "hidden" in by_key_alone
    assert "7100" in by_key_alone
    assert "3600" in text_of(parts["past-busiest"])
    assert "hidden" not in text_of(parts["past-busiest"])
    assert is_short((0, 69), 0, 100)
    assert not is_short((0, 70), 0, 100)
    assert not is_short(None, 0, 100)


def test_words_tell_nothing_that_is_not_known() -> None:
    usage = {"known": None, "step": 3_600, "hours": 0.0, "idle_hours": 0.0, "kwh": None}
    assert usage_words(usage).startswith("No GPU was held")
    assert usage_words(usage | {"known": [0, 60]}) == (
        "steps of 1 h · 0.0 GPU-hours, 0.0 of them idle")
    assert load_words({"step": 60, "busiest": None}, UTC) == "No data in this time."
    assert gpu_words(1, None, 0, 0, True) == "No data in this time."
    assert gpu_words(1, (0, 60), 1, 2, True) == "every second · 1 alert · 2 events"
    assert gpu_words(60, (0, 60), 0, 500, False) == (
        "steps of 1 min · the newest 500 events; zoom in to see all")
    assert [step_words(step) for step in (1, 90, 7_200, DAY_S)] == ["1 s", "90 s", "2 h", "1 d"]


def test_moments_are_of_the_viewers_zone_and_have_24_hours() -> None:
    zone = zone_of("Asia/Kathmandu")
    at = datetime(2025, 11, 29, 23, 30, tzinfo=zone).timestamp()
    assert clock_of(at, zone, at + 60) == "23:30:00"
    assert clock_of(at, zone, at + HOUR_S) == "Sat 29 Nov 23:30:00"
    words = load_words({"step": 60, "busiest": {
        "start": int(at), "end": int(at) + HOUR_S, "util_mean_pct": 61.25}}, zone)
    assert words == ("steps of 1 min · busiest hour 29 Nov 2025, 23:30 to 00:30, "
                     "61.3 % on average")
    # The clock goes back between the two.
    berlin = ZoneInfo("Europe/Berlin")
    assert [clock_of(at, berlin, at)[:5] for at in (1_761_436_800, 1_761_444_000)] == [
        "02:00", "03:00"]
    for name in ("", "no/such", "../etc/passwd", "x" * 999, "Europe/\0"):
        assert zone_of(name) is UTC


def alert(rule: str, since: float, ended_at: float | None, **more: Any) -> dict[str, Any]:
    return {"id": f"{rule}-{since}", "rule": rule, "title": HOSTILE, "severity": "crit",
            "since": since, "ended_at": ended_at, "silenced_by": [], "of": "gpu", "place": "0",
            "host": "n1", "users": [], "target": "g"} | more


def titles_of(rules: Any) -> list[str]:
    return [re.sub("<.*?>", "", title)
            for title in re.findall("<strong>(.*?)</strong>", text_of(rules))]


def test_alerts_are_strips_of_their_rules() -> None:
    alerts = [alert("hot", 50, 100), alert("hot", 150, None, place="1", severity="odd"),
              alert("quiet", 120, 130, silenced_by=["s"], of="node", place=""),
              alert("past", 10, 99), alert("later", 200, None)]
    none, rules = alert_strips(alerts, (100, 200), UTC, 200.0)
    assert "hidden" in text_of(none)
    text = text_of(rules)
    assert text.count("<li") == 2
    assert "<img" not in text
    assert "GPU 1" in text
    assert " · silenced" in text
    assert 'class="silenced"' in text
    assert "left: 50.00%; width: 50.00%" in text
    alarms = [alert("late", 100, None, severity="warn", title="late", of="fleet", place=""),
             alert("lost", 150, None, title="lost", host="n7", place="5"),
             alert("hot", 150, None, severity="warn", title="hot", host="n1"),
             alert("hot", 160, None, severity="warn", title="hot", host="n2")]
    _, rules = alert_strips(alarms, (100, 200), UTC, 200.0)
    titles = titles_of(rules)
    assert titles == ["lost · n7 · GPU 5", "late", "hot · 2 nodes"]
    _, rules = alert_strips(alarms[1:2], (100, 200), UTC, 200.0, has_hosts=False)
    assert titles_of(rules) == ["lost · GPU 5"]
    assert '<span class="lane-gpus"> · GPU 5</span>' in text_of(rules), "it is not cut"
    none, rules = alert_strips([], (100, 200), UTC, 200.0)
    assert (text_of(none), text_of(rules)) == (
        '<p class="lane-none">No alert in this time</p>', '<ul class="lane-rules"></ul>')


def test_a_hub_without_anything_has_a_page() -> None:
    view, parts = page_at(Hub(), "/history")
    assert unusual(view) == {}
    assert parts["past-title"] == "Fleet"
