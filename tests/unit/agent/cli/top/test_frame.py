"""The screen of `gpudeck top` as pure functions: sizes, hostile text, marks, keys."""

import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.top.frame import KEYS, TopView, frame, shown_jobs
from agent.top.idle_watch import IdleWatch
from agent.top.keys import apply_key
from agent.top.model import SORTS, Item, TopModel, gpu_rows, job_rows, news
from agent.top.text import cut, pad, width_of

GIB = 2**30
NOW = 1_800_000_000.0
CHARS = st.text(max_size=30) | st.sampled_from((
    "\x1b[2J\x1b]0;owned\x07", "\u8bad\u7ec3" * 18, "a\u0301\u0300" * 20, "\u202egnp.exe",
    "\U0001f469\u200d\U0001f4bb\U0001f44d\U0001f3fd" * 5, "\x9b1m"))


def gpu(at: int, util: float | None = 90.0, mem: float = 10.0, **more: Any) -> Item:
    values = {"mem_used_bytes": mem * GIB, "temp_c": 40.0, "power_w": 300.0}
    return {"uuid": f"GPU-{at}", "node": f"n{at // 8}", "index": at % 8, "place": str(at % 8),
            "name": "NVIDIA H100", "state": "ok", "facts": {"mem_total_bytes": 80.0 * GIB},
            "values": values if util is None else {"util_pct": util, **values}, **more}


def task(number: int, gpus: tuple[int, ...], mem: float | None = 10.0, **more: Any) -> Item:
    share = None if mem is None else mem * GIB
    return {"id": f"t{number}", "node": f"n{gpus[0] // 8}", "pid": number, "job_id": f"j{number}",
            "started_at": NOW - 100 * number, "user": "ana", "command": f"python train{number}.py",
            "gpus": [{"uuid": f"GPU-{at}", "mem_used_bytes": share} for at in gpus],
            "mem_used_bytes": None if share is None else share * len(gpus), "state": "running",
            "manager": None, "owner": {}, **more}


def model(gpus: list[Item], tasks: list[Item], **more: Any) -> TopModel:
    rows = gpu_rows(gpus, tasks, more.pop("leases", {}))
    return TopModel("n0", more.pop("is_fleet", False), rows, job_rows(tasks, rows), at=NOW, **more)


def text_of(top: TopModel, view: TopView | None = None, width: int = 80, height: int = 24) -> str:
    return "\n".join("".join(words for words, _ in line) for line in frame(
        top, view or TopView(), width, height, NOW))


@given(st.integers(1, 220), st.integers(1, 60), st.integers(0, 70), CHARS, CHARS, st.booleans(),
       st.sampled_from(["", "help", "details", "entry"]))
def test_no_line_is_wider_than_the_screen_and_nothing_steers_it(
    width: int, height: int, count: int, user: str, command: str, is_fleet: bool, mode: str
) -> None:
    tasks = [task(at, (at,), user=user, command=command, state=None) for at in range(count)]
    top = model([gpu(at, host=user or "n") for at in range(count)], tasks, is_fleet=is_fleet,
                trouble=command, notes=(user,), models=command)
    key = top.jobs[0].key if top.jobs else None
    view = TopView(selected=key, opened=frozenset((key,)) if key else frozenset(), message=command,
                   has_help=mode == "help", has_details=mode == "details",
                   entry=command if mode == "entry" else None)
    lines = frame(top, view, width, height, NOW)
    assert len(lines) == height
    for line in lines:
        words = "".join(part for part, _ in line)
        assert width_of(words) <= width
        assert words.isprintable()
        assert not any(unicodedata.category(char) in ("Mn", "Me", "Cf") for char in words)


@given(CHARS, st.integers(0, 40))
def test_padding_is_exact(text: str, width: int) -> None:
    assert width_of(pad(text, width)) == width
    assert width_of(cut(text, width)) <= width


def test_wide_letters_take_two_cells() -> None:
    assert cut("\u8bad\u7ec3", 3) == "\u8bad"
    assert pad("\u8bad\u7ec3", 5) == "\u8bad\u7ec3 "


def test_keys_and_help_fit_eighty_columns() -> None:
    assert width_of(KEYS) <= 80
    text = text_of(model([gpu(0)], [task(1, (0,))]), TopView(has_help=True))
    assert all(f"\n{key}" in text for key in ("↑ ↓", "/", "s ", "t ", "m ", "v ", "p r e", "q "))


def test_what_is_wasted_says_so_first() -> None:
    top = model([gpu(0), gpu(1, util=0.0, mem=40.0, wasted_s=900.0), gpu(2, util=0.0, mem=0.0),
                 gpu(3, state="lost", util=None)],
                [task(1, (0,)), task(2, (1,), mem=40.0, user="bohdan")])
    assert [row.mark for row in top.gpus] == ["busy", "waste", "idle", "crit"]
    assert [words for words, _ in news(top)] == ["1 wasted, 40 GiB", "1 lost"]
    assert shown_jobs(top, TopView())[0].owner == "bohdan"
    assert "1 wasted, 40 GiB  1 lost" in text_of(top).splitlines()[0]


def test_wasted_is_the_hubs_word() -> None:
    """A single sample says nothing: a training in a dip, a notebook between two cells."""
    on = [task(1, (0,), mem=40.0)]
    rows = [gpu_rows([board], on, {})[0] for board in (
        gpu(0, util=0.0), gpu(0, util=0.0, wasted_s=2_160.0), gpu(0, util=None))]
    assert [(row.mark, row.words) for row in rows] == [
        ("idle", ""), ("waste", "wasted, under 5 % for 36 min"), ("soft", "")]


def test_without_a_hub_it_takes_ten_minutes_of_watching() -> None:
    watch, on = IdleWatch(), [task(1, (0, 1, 2, 3, 4), mem=40.0)]

    def wasted(now: float, **loads: float) -> list[bool]:
        part = {"parent_uuid": "GPU-9"}
        gpus = [gpu(0, util=loads.get("first", 3.0)), gpu(1, util=0.0, mem=0.5),
                gpu(2, util=None), gpu(3, util=0.0), gpu(4, util=None, facts=part)]
        gpus[3]["values"]["util_max_pct"] = loads.get("burst", 0.0)
        gpus[4]["values"]["sm_active_pct"] = loads.get("part", 0.0)
        return ["wasted_s" in row for row in watch.with_waste(gpus, on, now)]

    assert not any(any(wasted(now)) for now in (0.0, 300.0, 599.0))
    assert wasted(600.0, burst=40.0) == [True, False, False, False, True]
    assert wasted(601.0, first=90.0, part=30.0) == [False] * 5
    assert wasted(1_199.0) == [False] * 5
    assert wasted(1_201.0) == [False, False, False, True, False]


def test_paused_leased_and_stale_have_their_marks() -> None:
    rows = gpu_rows([gpu(0, util=0.0), gpu(1, util=0.0), gpu(2, state="stale")],
                    [task(1, (0,), state="paused")], {"GPU-1": "carla"})
    assert [(row.mark, row.words) for row in rows] == [
        ("paused", "paused"), ("lease", "leased by carla"), ("soft", "no reading")]
    assert rows[2].util_pct is None


def test_a_split_board_is_shown_by_its_parts() -> None:
    part = gpu(1, facts={"mem_total_bytes": 10.0 * GIB, "parent_uuid": "GPU-0"})
    assert [row.uuid for row in gpu_rows([gpu(0), part], [], {})] == ["GPU-1"]


def test_a_thousand_gpus_show_the_worst_nodes() -> None:
    top = model([gpu(at, util=0.0, wasted_s=700.0) if at == 999 else gpu(at, util=50.0)
                 for at in range(1_000)],
                [task(1, (999,))], is_fleet=True)
    text = text_of(top)
    assert "n124 #######W" in text
    assert "more nodes" in text
    assert "train1.py" in text


def test_a_large_screen_has_a_bar_and_the_owner_of_each_of_64_gpus() -> None:
    top = model([gpu(at, util=50.0) for at in range(64)], [task(1, (0, 63))])
    lines = text_of(top, width=200, height=50).splitlines()
    bars = [line for line in lines if "\N{FULL BLOCK}" in line]
    assert sum(line.count(" 50 ") for line in bars) == 64
    assert len(bars) == 32, "as few columns as leave room for jobs"
    assert "train1.py" in "\n".join(lines)
    owner = top.gpus[63].owners[0]
    assert owner in bars[-1]
    # There is no room for that at 80x24: a character each.
    assert "W wasted" in text_of(top, width=80, height=24)


def test_small_screens_show_jobs_and_large_ones_all() -> None:
    top = model([gpu(0)], [task(1, (0,))])
    assert "train1.py" in text_of(top, width=40, height=8)
    assert "load %" not in text_of(top, width=40, height=8)
    assert "load %" in text_of(top, width=200, height=50)


def test_a_selection_stays_with_its_job_when_lines_move() -> None:
    top = model([gpu(at) for at in range(4)], [task(at, (at,)) for at in range(1, 4)])
    view, _ = apply_key(top, TopView(), "j")
    view, _ = apply_key(top, view, "j")
    key = view.selected
    for sort in SORTS:
        _, request = apply_key(top, replace(view, sort=sort), "e")
        assert request is not None
        assert request.job is not None
        assert (request.do, request.action, request.job.key) == ("act", "end", key)


def test_when_it_has_ended_its_neighbour_is_not_meant() -> None:
    tasks = [task(at, (at,)) for at in range(1, 4)]
    before = model([gpu(at) for at in range(4)], tasks)
    for key in "epvrn":
        view = TopView(selected="n0 j2")
        assert apply_key(before, view, key)[1] is not None
        after = model([gpu(at) for at in range(4)], [tasks[0], tasks[2]])
        moved, request = apply_key(after, view, key)
        assert request is None
        assert moved.selected is None
        assert "has ended" in moved.message


@pytest.mark.parametrize("key", ["e", "p", "r", "v", "n", "K", "T", "\x1b[99z", "E"])
def test_nothing_acts_without_a_selection(key: str) -> None:
    assert apply_key(model([gpu(0)], [task(1, (0,))]), TopView(), key)[1] is None


def test_a_filter_is_typed_and_its_letters_act_on_nothing() -> None:
    top = model([gpu(0)], [task(1, (0,))])
    view = TopView(selected="n0 j1")
    for key in "/eqpm\x7f":
        view, request = apply_key(top, view, key)
        assert request is None
    assert view.entry == "eqp"
    view, request = apply_key(top, view, "\r")
    assert request is not None
    assert (request.do, view.filter, view.entry) == ("refilter", "eqp", None)


def test_hosts_of_several_sites_are_told_apart() -> None:
    rows = gpu_rows([gpu(0, host="n1", site=site) for site in ("lyon", "oslo")], [], {})
    assert [row.host for row in rows] == ["lyon/n1", "oslo/n1"]
