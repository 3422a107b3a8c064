"""The past of a quota: bars are what was held, and the words say how long it was too much."""

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dashboard.pages.figures import Colours, FigureStyle
from dashboard.pages.graphs import QuotaPastRequest, quota_past_answer
from dashboard.pages.quota_cards import LIMITS
from dashboard.pages.quota_past import past_words, quota_past_figure
from gpudeck.contract.quota import LIMITS as QUOTA_LIMITS
from gpudeck.errors import CommandError

ZONE_S = random.choice([-7, 0, 2]) * 3_600
GREY = dict.fromkeys(("ground", "raised", "line", "ink", "soft", "warn", "bad"), "#101010")
STYLE = FigureStyle(Colours(**GREY, font="sans", lines=["#202020"] * 8), ZONE_S, 180)
START, STEP_S = 1_764_000_000, 300


def past(usage: list[float | None], most: list[float | None], limit: str = "gpus"
         ) -> dict[str, Any]:
    return {"quota": "q", "limit": limit, "holder": "ada", "step_s": STEP_S, "why": "",
            "t": [START + at * STEP_S for at in range(len(usage))], "used": usage, "most": most}


def test_bars_end_at_the_limit_and_what_is_over_stands_on_them() -> None:
    usage, most = [1.0, None, 5.0, 6.0], [2.0, 2.0, 2.0, None]
    figure = quota_past_figure(past(usage, most), 4.0, STYLE)
    within, over, line = figure["data"]
    assert within["x"][0] == (START + STEP_S / 2) * 1_000, "Plotly shows it in the viewer's zone"
    assert within["y"] == [1.0, None, 2.0, 4.0]
    assert over["y"] == [0.0, None, 3.0, 2.0]
    assert over["marker"]["opacity"][:3] == [1.0] * 3
    assert over["marker"]["opacity"][3] < 1.0, "it was not limited then"
    assert line["y"] == [2.0, 2.0] * 3 + [None, None]
    assert within["customdata"] == ["1 of 2 GPUs", "", "5 of 2 GPUs",
                                    "6 of 4 GPUs (quota not set yet)"]
    assert figure["layout"]["yaxis"]["range"][1] > 6.0
    [now] = figure["layout"]["annotations"]
    assert (now["text"], now["y"]) == ("4 GPUs", 4.0)


def test_the_words_say_how_long_it_was_over_and_would_have_been() -> None:
    usage: list[float | None] = [9.0] * 3 + [1.0] * 9 + [None] * 2 + [3.0] * 6
    most: list[float | None] = [None] * 12 + [2.0] * 8
    assert past_words(past(usage, most), 2.0, 0.0) == (
        "Over for 30 min of 30 min. Before the quota was set: would have been over for 15 min of "
        "60 min. Most: 9 GPUs, 24 Nov 2025, 16:00. Averages over 5 min. Gaps: no data.")
    assert past_words(past([1.0], [2.0]), 2.0, 3_600.0) == (
        "Never over since the quota was set. Most: 1 GPU, 24 Nov 2025, 17:00. Averages over "
        "5 min.")
    hours = past([0.25], [0.5], "gpu_hours")
    assert "Most: 0.25 GPU-hours" in past_words(hours, 0.5, 0.0)
    assert "Each hour shows the usage at its end." in past_words(hours, 0.5, 0.0)
    assert past_words(past([None], [None]), 2.0, 0.0) == "No data for this time."


@pytest.mark.parametrize(("limit", "value", "words"), [
    ("gpus", 0.123, "0.12"), ("gpus", 2.0, "2"), ("gpus", 2.5, "2.5"), ("gpu_hours", 0.0, "0"),
    ("mem_bytes", 3 * 2.0**30, "3.0 GiB"), ("max_age_s", 7_199.0, "120 min"),
    ("max_age_s", 9_000.0, "2.5 h")])
def test_amounts_are_written_as_on_the_page(limit: Any, value: float, words: str) -> None:
    assert LIMITS[limit][1](value) == words


def test_each_limit_has_a_name() -> None:
    assert set(LIMITS) == set(QUOTA_LIMITS)


def test_where_there_is_no_past_the_page_learns_why() -> None:
    paths: list[str] = []
    answers = [past([1.0], [None]), past([], []) | {"why": "there is no past of this"},
               past([], []), past([None], [2.0])]

    def get(path: str, **query: str) -> dict[str, Any]:
        paths.append(path)
        assert query == {"holder": "a/b", "limit": "gpus", "last": "24h"}
        return answers[len(paths) - 1]

    client: Any = SimpleNamespace(hub=SimpleNamespace(get=get))
    request = QuotaPastRequest(1, STYLE, "q/1", "a/b", "gpus", "24h", 2.0)
    figure, facts = quota_past_answer(client, request)
    assert len(figure["data"]) == 3
    assert "Most: 1 GPU" in facts["parts"]["quota-past-words"][0]
    for reason in ("there is no past of this", "no data for this time"):
        with pytest.raises(CommandError, match=reason):
            quota_past_answer(client, request)
    figure, facts = quota_past_answer(client, request)
    assert facts == {"parts": {"quota-past-words": ["No data for this time."],
                               "quota-past-figure": True}}
    assert (figure["data"][0]["y"], figure["data"][1]["y"]) == ([None], [None])
    assert set(paths) == {"quotas/q%2F1/past"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(request) | {"most": -1.0}, QuotaPastRequest)
