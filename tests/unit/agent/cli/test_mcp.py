"""Answers to an assistant by a hub that has more than an answer may hold."""

from typing import Any, cast

from agent.cli.mcp import MOST_BYTES, MOST_ITEMS, MOST_POINTS, McpServer
from gpudeck.client.hub import Client


class FakeClient:
    """A hub with two thousand seconds of one metric, and more events than a page has."""

    SECONDS = 2_000

    def __init__(self) -> None:
        self.hub = self
        self.has_more = True

    def series(self, step: str = "2", **_query: str) -> dict[str, Any]:
        times = [*range(0, self.SECONDS, int(step))]
        return {"step": int(step), "t": times, **{name: [1 / 3] * len(times)
                                                  for name in ("mean", "min", "max")}}

    def page(self, _path: str, **_query: str) -> dict[str, Any]:
        return {"items": [{"kind": "xid"}] * 100, "next": "later" if self.has_more else None}


def call(client: FakeClient, name: str, **arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = McpServer(cast(Client, client), "http://hub")._call_tool(
        name, arguments)
    assert len(result["content"][0]["text"]) <= MOST_BYTES
    return cast(dict[str, Any], result["structuredContent"])


def test_a_long_series_has_all_of_its_time_in_columns_of_one_length() -> None:
    whole = call(FakeClient(), "series", gpu="g", metric="util_pct")
    assert whole["step"] == 10
    assert (whole["t"][0], whole["t"][-1]) == (0, 1_990)
    fine = call(FakeClient(), "series", gpu="g", metric="util_pct", step="1")
    assert fine["cut"]
    for series in (whole, fine):
        assert {len(series[name]) for name in ("t", "mean", "min", "max")} == {MOST_POINTS}
        assert series["t"][-1] >= 1_990, "the newest are there"


def test_where_there_are_more_events_their_number_is_not_made_up() -> None:
    client = FakeClient()
    answer = call(client, "events")
    assert (len(answer["items"]), answer["has_more"], "total" in answer) == (
        MOST_ITEMS, True, False)
    client.has_more = False
    assert call(client, "events")["total"] == 100
