"""Lines of single GPUs: each step where its time is, a gap as a gap, and names as text."""

import random
from itertools import pairwise
from typing import Any

import pytest

from dashboard.pages.figures import GIB, AlertBegin, Colours, FigureStyle
from dashboard.pages.gpu_figure import PastGpu, gpu_figure, runs_of, series_of
from gpudeck.measures.metrics import COLUMN, COLUMNS, Metric

ZONE_S = random.choice([-34_200, 0, 7_200, 20_700])
STYLE = FigureStyle(Colours(
    "#101010", "#101010", "#101010", "#101010", "#aaaaaa", "#101010", "#bbbbbb", "sans",
    [f"#{at}0{at}0{at}0" for at in range(8)]), ZONE_S, 600)
START = 6_000
HOSTILE = '<b onclick="x">&eve</b>'


def metrics(*keys: str) -> list[Metric]:
    return [COLUMNS[COLUMN[key]] for key in keys]


def answer(step: int, means: dict[str, dict[str, list[float | None]]]) -> dict[str, Any]:
    """Answer of `GET series`: every mean with a range of one below to two above."""
    bands = {uuid: {key: {"mean": values,
                          "min": [None if value is None else value - 1 for value in values],
                          "max": [None if value is None else value + 2 for value in values]}
                    for key, values in of.items()} for uuid, of in means.items()}
    (first, own), *rest = bands.items()
    (metric, band), *also = own.items()
    count = len(band["mean"])
    return {"gpu": first, "metric": metric, "start": START, "step": step,
            "t": [START + at * step for at in range(count)], **band, "also": dict(also),
            "beside": dict(rest)}


def line_of(figure: dict[str, Any], uuid: str, key: str) -> Any:
    return next(trace for trace in figure["data"]
                if trace.get("meta") == {"gpu": uuid, "metric": key})


def figure_of(step: int, values: list[float | None], **more: Any) -> dict[str, Any]:
    series = series_of(answer(step, {"g": {"util_pct": values}}))
    return gpu_figure(series, [PastGpu("g", "GPU 0")], metrics("util_pct"),
                      (START, START + step * len(values)), STYLE, **more)


def x_of(steps: float, step: int) -> float:
    return (START + steps * step) * 1_000


def test_a_gap_is_one_of_the_line_and_of_its_band() -> None:
    values: list[float | None] = [10.0, 20.0, None, None, 30.0, 40.0]
    figure = figure_of(60, values)
    line = line_of(figure, "g", "util_pct")
    assert (line["y"], line["connectgaps"]) == (values, False)
    assert (line["x0"], line["dx"]) == (x_of(0.5, 60), 60_000)
    assert line["customdata"][:3] == [(9, 12), (19, 22), (None, None)]
    (band,) = (trace for trace in figure["data"] if "fill" in trace)
    assert band["y"] == [12, 22, 19, 9, None, 32, 42, 39, 29, None]
    assert band["x"][:5] == [*(x_of(at, 60) for at in (0.5, 1.5, 1.5, 0.5)), None]
    assert len(figure["data"]) == 2, "no step is alone"
    assert not any("fill" in trace for trace in figure_of(60, values, has_band=False)["data"])


def test_a_step_alone_is_as_long_as_it_lasted() -> None:
    figure = figure_of(60, [None, 5.0, None])
    (lone,) = (trace for trace in figure["data"] if "markers" in trace["mode"])
    assert lone["x"] == [x_of(1, 60), x_of(2, 60), None]
    assert lone["y"] == [5.0, 5.0, None]
    band = figure["data"][0]
    assert band["x"] == [x_of(1, 60), x_of(2, 60), x_of(2, 60), x_of(1, 60), None]
    assert band["y"] == [7, 7, 4, 4, None]


def test_one_second_has_no_band_and_is_seen() -> None:
    figure = figure_of(1, [50.0])
    line, lone = figure["data"]
    assert (line["x0"], line["y"], line["hovertemplate"]) == (x_of(0.5, 1), [50.0], "%{y:.1f}")
    assert "customdata" not in line
    assert lone["x"] == [x_of(0, 1), x_of(1, 1), None]


@pytest.mark.parametrize(("missing", "words"), [
    ([{}, {}], "No data"), ([{"util_pct": "unsupported"}] * 2, "Not supported here"),
    ([{"util_pct": "denied"}] * 2, "Denied by the driver (agent lacks permission)"),
    ([{"util_pct": "denied"}, {}], "No data"), ([{"util_pct": "stale"}] * 2, "No data")])
def test_no_data_has_no_line_no_scale_and_a_reason(missing: list[dict[str, str]], words: str
                                                   ) -> None:
    means: dict[str, dict[str, list[float | None]]] = {
        uuid: {"util_pct": [None] * 3, "temp_c": [20.0, 0.0, 30.0]} for uuid in "ab"}
    gpus = [PastGpu(uuid, uuid, missing=of) for uuid, of in zip("ab", missing, strict=True)]
    figure = gpu_figure(series_of(answer(60, means)), gpus, metrics("util_pct", "temp_c"),
                        (START, START + 180), STYLE)
    assert [note["text"] for note in figure["layout"]["annotations"]][2:] == [words]
    assert figure["layout"]["yaxis"]["showticklabels"] is False
    assert figure["layout"]["yaxis2"]["rangemode"] == "normal", "of degrees 0 is no floor"
    assert {trace["yaxis"] for trace in figure["data"]} == {"y2"}
    assert line_of(figure, "a", "temp_c")["y"] == [20.0, 0.0, 30.0]


def test_a_gpu_that_is_gone_has_its_past_and_another_none() -> None:
    """The hub answers for what it was asked for; a GPU it has nothing of is no line."""
    series = series_of(answer(60, {"gone": {"mem_used_bytes": [GIB, 2 * GIB]}}))
    gpus = [PastGpu("gone", "gone"), PastGpu("never", "never")]
    figure = gpu_figure(series, gpus, metrics("mem_used_bytes"), (START, START + 120), STYLE)
    line = line_of(figure, "gone", "mem_used_bytes")
    assert line["y"] == [1.0, 2.0]
    assert {trace["legendgroup"] for trace in figure["data"]} == {"gone"}
    assert series.data_span() == (START, START + 120)
    assert series_of(answer(60, {"g": {"util_pct": [None]}})).data_span() is None


def test_names_are_text() -> None:
    event = {"at": START + 5.0, "severity": "critical", "label": HOSTILE, "host": HOSTILE,
             "index": 3, "place": None, "text": HOSTILE * 99}
    series = series_of(answer(1, {HOSTILE: {"util_pct": [1.0, 2.0]}}))
    figure = gpu_figure(series, [PastGpu(HOSTILE, HOSTILE)], metrics("util_pct"),
                        (START, START + 2), STYLE, events=[event])
    line, marks = figure["data"]
    for text in (line["name"], *marks["text"]):
        assert "<" not in text
        assert text.startswith("&lt;b onclick")
        assert len(text) < 400


def test_events_are_by_time_and_severity() -> None:
    events = [{"at": START + at, "severity": severity, "label": "Xid", "host": "n1",
               "index": index, "place": place, "text": ""} for at, severity, index, place in (
                   (9.0, "info", None, None), (3.0, "critical", 0, "0/9"), (5.0, "odd", 2, None))]
    figure = figure_of(1, [1.0, 2.0], events=events)
    marks = figure["data"][-1]
    assert marks["x"] == [(START + at) * 1_000 for at in (3.0, 5.0, 9.0)]
    assert marks["text"] == ["Xid · n1:0/9", "Xid · n1:2", "Xid · n1"]
    assert marks["marker"]["symbol"] == ["diamond", "circle", "circle"]
    assert marks["marker"]["color"][0] == STYLE.colours.bad
    assert figure["layout"]["yaxis2"]["overlaying"] == marks["yaxis"].replace("2", "")


def test_an_alert_begins_in_the_chart_of_its_metric() -> None:
    means: dict[str, dict[str, list[float | None]]] = {
        "g": {"util_pct": [1.0, 2.0], "temp_c": [20.0, 30.0]}}
    begin = AlertBegin(START + 30, "crit", frozenset(("temp_c",)))
    figure = gpu_figure(series_of(answer(60, means)), [PastGpu("g", "g")],
                        metrics("util_pct", "temp_c"), (START, START + 120), STYLE, begins=[begin])
    (line,) = figure["layout"]["shapes"]
    assert (line["yref"], line["x0"]) == ("y2 domain", (START + 30) * 1_000)


def test_runs_have_every_value_once_and_no_gap() -> None:
    values = [random.choice([None, 0.0, 1.0]) for _ in range(random.randrange(40))]
    runs = [*runs_of(values)]
    assert [at for run in runs for at in run] == [
        at for at, value in enumerate(values) if value is not None]
    assert all(run == [*range(run[0], run[-1] + 1)] for run in runs)
    assert all(one[-1] + 1 < other[0] for one, other in pairwise(runs))
