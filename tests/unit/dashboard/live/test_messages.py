"""Messages of the live socket are what dashboard/live/messages.py says, to the last field: the
types of the pages' JavaScript are made from it."""

from typing import Any, get_args, get_origin, is_typeddict

import msgspec
import pytest

from dashboard.fleet import views
from dashboard.fleet.fleet import Fleet, Site
from dashboard.fleet.recent_seconds import TimelineBuffer
from dashboard.fleet.site_views import sites_now
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.live.messages import MESSAGES, SiteCounts
from dashboard.live.owner_changes import next_owners
from tests.unit.fleets import MONO, NOW, add_node, frame


def unknown_fields(value: Any, kind: Any, place: str = "") -> list[str]:
    """Return what a TypedDict, or one in it, does not name."""
    if is_typeddict(kind):
        hints = kind.__annotations__
        return [f"{place}.{key}" for key in value if key not in hints] + [
            name for key, part in value.items() if key in hints
            for name in unknown_fields(part, hints[key], f"{place}.{key}")]
    if get_origin(kind) is list:
        return [name for one in value for name in unknown_fields(one, get_args(kind)[0], place)]
    inner = [part for part in get_args(kind) if is_typeddict(part) or get_origin(part) is list]
    return [name for part in inner for name in unknown_fields(value, part, place)]


def assert_fits(name: str, message: Any) -> None:
    kind = MESSAGES[name]
    msgspec.convert(message, kind, builtin_types=(bytes,))
    assert unknown_fields(message, kind) == []


def a_fleet() -> Fleet:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=2)
    fleet.frame(node, frame([{"util_pct": 1.0}, {"util_pct": 50.0}]), NOW, MONO)
    return fleet


def test_what_is_sent_fits() -> None:
    fleet = a_fleet()
    visible = focus(fleet, EVERYTHING_SEEN)
    assert_fits("layout", views.layout(fleet, visible))
    assert_fits("cells", views.cells(fleet, visible, "util_pct", None, NOW, MONO))
    owners = views.owners(fleet, visible)
    assert_fits("owners", owners)
    whole = next_owners(1, owners, None)
    changes = next_owners(2, owners, whole).changes
    assert changes is not None
    assert_fits("owners", dict(changes))
    assert_fits("totals", views.totals(fleet, visible, NOW, MONO))
    lines = TimelineBuffer(fleet)
    assert_fits("lines", {"at": NOW, "gpus": lines.since([0, 1], -1)})


def test_sites_fit() -> None:
    fleet = a_fleet()
    fleet.sites["lyon"] = Site("lyon", "https://lyon.example", since=NOW)
    visible = focus(fleet, EVERYTHING_SEEN)
    sites = sites_now(fleet, visible, fleet.statuses(MONO))["sites"]
    assert [set(site) for site in sites] == [set(SiteCounts.__annotations__)]
    msgspec.convert(sites, list[SiteCounts])


@pytest.mark.parametrize("change", [{"more": 1}, {"wasted": {"more": 1}}])
def test_a_field_that_is_not_named_is_found(change: dict[str, Any]) -> None:
    fleet = a_fleet()
    totals = views.totals(fleet, focus(fleet, EVERYTHING_SEEN), NOW, MONO)
    for key, part in change.items():
        totals[key] = {**totals[key], **part} if isinstance(part, dict) else part
    with pytest.raises(AssertionError):
        assert_fits("totals", totals)


def test_a_field_that_is_missing_is_found() -> None:
    fleet = a_fleet()
    totals = views.totals(fleet, focus(fleet, EVERYTHING_SEEN), NOW, MONO)
    del totals["gpus"]["error"]
    with pytest.raises(msgspec.ValidationError):
        assert_fits("totals", totals)
