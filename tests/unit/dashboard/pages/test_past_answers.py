"""Answers to the History page's requests: what the hub is asked for, and what comes with the
figure."""

from typing import Any

import pytest

from dashboard.pages.gpu_figure import PastGpu
from dashboard.pages.past_answers import PastRequest, past_answer
from dashboard.pages.past_subject import PastView
from gpudeck.client.hub import NotThere
from gpudeck.errors import CommandError

from .test_gpu_figure import HOSTILE, START, STYLE, answer

END = START + 3_600
GPUS = [PastGpu("a", "n1:0", "n1"), PastGpu("b", "n2:0", "n2"), PastGpu("gone", "gone")]


class Hub:
    """A hub that knows this load and these means of utilization, and asks back."""

    def __init__(self, means: dict[str, list[float | None]], events: list[dict[str, Any]]) -> None:
        self.means = means
        self.events = events
        self.queries: list[tuple[str, dict[str, str]]] = []

    @property
    def hub(self) -> "Hub":
        return self

    def series(self, **query: str) -> dict[str, Any]:
        self.queries.append(("series", query))
        if query["gpu"] not in self.means:
            raise NotThere("there is no GPU 'x' here")
        start, step = int(query["start"]), int(query["step"])
        steps = range((int(query["end"]) - start) // step)
        means = {uuid: {"util_pct": [self._mean(uuid, start + at * step) for at in steps]}
                 for uuid in (query["gpu"], *query.get("beside", "").split(",")) if uuid}
        return answer(step, means) | {"start": start}

    def _mean(self, uuid: str, at: int) -> float | None:
        """Return the minute's mean; a list of them ends at END."""
        minutes = self.means.get(uuid, [])
        place = len(minutes) - 1 - (END - 1 - at) // 60
        return minutes[place] if 0 <= place < len(minutes) else None

    def page(self, path: str, **query: str) -> dict[str, Any]:
        self.queries.append((path, query))
        if path == "events":
            return {"items": [one for one in self.events
                              if query.get("node") in (None, one["node"])], "next": "more"}
        return {"items": []}


def request(gpus: list[PastGpu], **more: Any) -> PastRequest:
    fields: dict[str, Any] = {"gpus": gpus, "metrics": ["util_pct", "no_such"]} | more
    return PastRequest(1, STYLE, "gpus", "", START, END, 60, **fields)


def event(node: str, gpu: str | None) -> dict[str, Any]:
    return {"at": START + 9.0, "node": node, "gpu": gpu, "severity": "info", "label": "Xid",
            "host": node, "index": 0, "place": None, "text": ""}


def test_one_question_brings_all_lines_and_a_vanished_gpu_has_none() -> None:
    hub: Any = Hub({"a": [1.0] * 60, "b": [2.0] * 60}, [
        event("n1", "a"), event("n1", "other"), event("n2", None), event("n3", None)])
    figure, facts = past_answer(hub, request(GPUS))
    (series,) = [query for path, query in hub.queries if path == "series"]
    assert series == {"gpu": "a", "beside": "b,gone", "metric": "util_pct", "step": "60",
                      "start": str(START), "end": str(END)}
    lines = [trace["name"] for trace in figure["data"] if "meta" in trace]
    assert lines == ["n1:0", "n2:0"]
    assert len(figure["data"][-1]["text"]) == 2, "of these GPUs and their nodes"
    assert [query["gpus"] for path, query in hub.queries if path == "alerts"] == ["a,b,gone"] * 2
    assert facts["parts"]["past-words"] == [
        "steps of 1 min · the newest 2 events; zoom in to see all"]
    assert (facts["span"], facts["least_s"], facts["whole"]) == ((START, END), 10, "usual")


@pytest.mark.parametrize("is_usual", [True, False])
def test_a_span_that_nobody_chose_begins_with_the_data(is_usual: bool) -> None:
    hub: Any = Hub({"a": [None] * 50 + [1.0] * 10}, [])
    _, facts = past_answer(hub, request(GPUS[:1], is_usual=is_usual))
    steps = [(int(query["start"]), int(query["step"]))
             for path, query in hub.queries if path == "series"]
    first = END - 600
    assert steps == [(START, 60), *([(first, 1)] if is_usual else [])]
    assert facts["span"] == ((first, END) if is_usual else (START, END))
    ((_, fit, _),) = facts["parts"]["past-fit"]
    assert ("hidden" in fit) == is_usual
    assert f'"start":"{first}"' in fit["data-set"]


def test_no_data_is_said_and_jumps_nowhere() -> None:
    hub: Any = Hub({"a": [None]}, [])
    figure, facts = past_answer(hub, request(GPUS[:1], is_usual=True))
    assert figure["data"] == []
    assert facts["parts"]["past-words"] == ["No data in this time."]
    ((_, fit, _),) = facts["parts"]["past-fit"]
    assert "hidden" in fit
    assert "data-set" not in fit


def test_a_gpu_that_was_never_there_is_said_in_place_of_the_figure() -> None:
    hub: Any = Hub({}, [])
    figure, facts = past_answer(hub, request(GPUS[:1]))
    assert figure["layout"]["annotations"][0]["text"] == "There is no GPU 'x' here."
    assert facts["parts"]["past-lane"] is None
    with pytest.raises(CommandError, match="at least one GPU"):
        past_answer(hub, request([]))


def test_a_picture_says_what_it_is_of_in_the_viewers_zone() -> None:
    hub: Any = Hub({"a": [1.0]}, [])
    for zone, words in (("Asia/Kathmandu", "Asia/Kathmandu, UTC+5:30"), ("no/such", "UTC")):
        view = PastView(start=str(START), end=str(END), zone=zone)
        figure, facts = past_answer(hub, request(GPUS[:2], view=view, title=HOSTILE))
        picture = facts["picture"]
        title = picture["layout"]["title"]["text"]
        assert title.endswith(f" · {words}")
        assert "<" not in title
        assert picture["file"] == "gpudeck_history_19700101T0140_19700101T0240Z.png"
        assert picture["layout"]["height"] > figure["layout"]["height"]
        assert picture["layout"]["showlegend"]
        assert facts["every_s"] == 60
