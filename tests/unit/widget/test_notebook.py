"""The pure parts of the notebook: pictures, stills, the bundle, the pipe's messages."""

import random
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pandas as pd
import pytest
from playwright._impl._driver import compute_driver_executable

from agent.backends.simulation.profiles import PROFILES
from dashboard.pool.views import ClaimView, LeaseView
from gpudeck.client.frames import HubFrames
from gpudeck.client.hub import Client
from gpudeck.contract.action_views import CommandView, RequesterView
from gpudeck.contract.notebook_pipe import (
    MAX_MESSAGE_BYTES,
    FromNotebook,
    PipeDecoder,
    PipeMarkReply,
    PipeMarkRequest,
    PipePreviewRequest,
    PipeSnapshot,
    packed,
)
from gpudeck.errors import CommandError, ExitCode
from widget import hub_source, watch
from widget.bundle import bundled, module, style
from widget.cost import Cost, GpuSample, ProcessUse, costs, rows
from widget.cost_words import table, words
from widget.fleet_view import OwnWork, fleet_picture
from widget.hub import Hub
from widget.machine_view import PAST_S, RecentGpuHistory, picture
from widget.plot import timeline
from widget.simulate import BOARDS, options_of
from widget.static_table import still_of
from widget.visible_gpus import visible_gpus

GIB = 2.0**30
KERNEL, CHILD = 4_711, 4_712
DICE = random.Random(random.random())


def gpu(**more: object) -> dict[str, object]:
    return {"uuid": "GPU-a", "node": "h", "index": 0, "place": "0", "name": "H100", "state": "ok",
            "values": {"util_pct": 50.0, "mem_used_bytes": 60 * GIB, "temp_c": 40.0},
            "missing": {"power_w": "unsupported"}, "facts": {"mem_total_bytes": 80 * GIB}, **more}


def task(pid: int, user: str | None, memory: float | None, mine: bool) -> dict[str, object]:
    return {"id": f"b-{pid}-1", "pid": pid, "user": user, "command": "python <b>train</b>.py",
            "gpus": [{"uuid": "GPU-a", "mem_used_bytes": memory, "sm_pct": None}], "sm_pct": None,
            "mem_used_bytes": memory, "state": "running", "started_at": 1.0, "mine": mine,
            "kernel": pid in (KERNEL, CHILD)}


TASKS = (task(KERNEL, "ada", 7 * GIB, True), task(CHILD, "ada", 3 * GIB, True),
         task(2, "ada", 5 * GIB, True), task(3, "bob", 20 * GIB, False), task(4, None, None, False))


def test_what_others_did_to_ones_tasks_is_shown_newest_first() -> None:
    commands = [CommandView(f"c{at}", "pause", "n", "gpu01", "done", "", reason="<b>maintenance",
                            by=RequesterView("person", f"op{at}"), requested_at=float(at))
                for at in range(7)]
    refusal = CommandView("r", "of-a-newer-hub", "n", "gpu01", "refused", "It is protected.",
                          by=RequesterView("person", "eve"), requested_at=9.0)
    view = fleet_picture([], [], "https://deck", 10.0, "", 2.0, OwnWork(done=[*commands, refusal]))
    assert [(row["words"], row["by"]) for row in view["done"]] == [
        ("of-a-newer-hub: It is protected.", "eve"),
        *(("Pause: done", f"op{at}") for at in (6, 5, 4, 3))]
    still = still_of(view)
    assert "maintenance" in still.text
    assert "<b>" not in still.html
    assert fleet_picture([], [], "https://deck", 10.0, "", 2.0, OwnWork())["done"] == []


def test_ones_leases_and_place_in_the_queue_are_shown_and_nobody_elses() -> None:
    def lease(owner: str, until: float, **more: object) -> dict[str, object]:
        return {"id": f"{owner}{until}", "owner": owner, "host": "gpu01", "gpus": ["GPU-a"],
                "share_pct": 100.0, "until": until, "idle_since": None, "command": "<b>x", **more}

    def claim(owner: str, place: int) -> dict[str, object]:
        return {"owner": owner, "place": place, "asks": "2 GPUs", "why": "<i>all are taken",
                "starts_at": None, "estimate": "in 20 min"}

    here = {**gpu(), "host": "gpu01", "is_free": False}
    view = fleet_picture([here], [], "https://deck", 10.0, "", 2.0, OwnWork(
        ["ada"], leases=[lease("ada", 9e4, share_pct=30.0, idle_since=60.0), lease("bob", 1.0),
                         lease("ada", 8e4)],
        claims=[claim("bob", 1), claim("ada", 2)]))
    assert [(row["until"], row["gpus"]) for row in view["leases"]] == [
        (8e4, ["0"]), (9e4, ["0"])]
    assert [row["place"] for row in view["claims"]] == [2]
    still = still_of(view)
    for phrase in ("1970-01-02 01:00 UTC", "0 (30 %)", "idle since 1970-01-01 00:01 UTC",
                   "in 20 min"):
        assert phrase in still.text
    assert "<b>" not in still.html
    assert "<i>" not in still.html


def test_memory_is_divided_by_owner() -> None:
    view = picture(PipeSnapshot(9.0, "ok", "", "h", gpus=(gpu(),)), TASKS, RecentGpuHistory(),
                   KERNEL)
    assert [(part["who"], part["bytes"] / GIB) for part in view["gpus"][0]["held"]] == [
        ("this kernel", 10), ("your other tasks", 5), ("bob", 20),
        ("not by a visible task", 25)]
    assert [row["pid"] for row in view["tasks"]] == [KERNEL, CHILD, 2]  # not others'
    assert [(row["kernel"], row["child"]) for row in view["tasks"]] == [
        (True, False), (False, True), (False, False)]
    assert view["gpus"][0]["missing"] == {"power_w": "unsupported"}
    assert "power_w" not in view["gpus"][0]["values"]


def test_a_second_that_was_not_seen_is_a_hole() -> None:
    past = RecentGpuHistory()
    missed = DICE.randrange(2, PAST_S - 2)
    for at in range(PAST_S + 5):
        if at != missed + 5:
            past.add(PipeSnapshot(100.0 + at, "ok", "", "h", gpus=(gpu(),)))
    util, memory = past.lines("GPU-a", 100.0 + PAST_S + 4)
    assert [at for at, share in enumerate(util) if share is None] == [missed]
    assert util[0] == 0.5
    assert memory[0] == 0.75
    past.add(PipeSnapshot(200.0, "ok", "", "h"))  # it has gone, and its past with it
    assert past.by_gpu == {}


def test_a_still_is_readable_and_harmless() -> None:
    view = picture(PipeSnapshot(9.0, "ok", "", "h", gpus=(gpu(),)), TASKS, RecentGpuHistory(),
                   KERNEL)
    still = still_of(view)
    assert "bob 20.0 GiB" in still.text
    assert "unsupported" in still.text
    assert "<b>train" not in still.html
    assert "&lt;b&gt;train" in still.html
    assert "no library" in still_of(picture(
        PipeSnapshot(9.0, "no_library", "no library", "h"), None, RecentGpuHistory(), KERNEL)).text


@pytest.mark.parametrize(("name", "options"), [
    ("h100x2", "profile=h100,gpus=2"), ("L40S", "profile=l40s,gpus=1"),
    ("h100-mig x2".replace(" ", ""), "profile=h100-mig,gpus=2"),
    ("profile=a100,seed=3", "profile=a100,seed=3")])
def test_simulations_have_short_names(name: str, options: str) -> None:
    assert options_of(name) == options


def test_all_that_a_hub_gives_is_in_its_words_and_on_its_page() -> None:
    methods = {name for name in vars(HubFrames) if not name.startswith("_")}
    hub = repr(Hub(None, "http://h", {}))  # type: ignore[arg-type]
    page = (Path(__file__).parents[3] / "docs/notebook.md").read_text()
    assert set(re.findall(r"\.(\w+)\(\)", hub)) == methods
    assert set(re.findall(r"^\| `hub\.(\w+)\(", page, re.M)) == methods


class EmptyPool:
    """A hub's client where nobody leases or waits."""

    def leases(self) -> list[Any]:
        return []

    def claims(self) -> list[Any]:
        return []


class UsedPool(EmptyPool):
    def leases(self) -> list[Any]:
        return [msgspec.to_builtins(LeaseView(
            "l1", "ann", "n", "h", ["GPU-1"], 100.0, "held", 10.0, 70.0, None, "train", True, [],
            [], []))]

    def claims(self) -> list[Any]:
        return [msgspec.to_builtins(ClaimView(
            "c1", "bob", "2 GPUs", 2, 2, 10.0, 1, "5 of 8 matching are free", None, [], 3_600.0,
            None, True, "", [], None))]


def test_leases_and_the_queue_are_frames_also_where_there_are_none() -> None:
    empty: Any = EmptyPool()
    used: Any = UsedPool()
    for name, key in (("leases", "until"), ("claims", "asked_at")):
        none, some = (getattr(HubFrames(client), name)() for client in (empty, used))
        assert [*none.columns] == [*some.columns]
        assert (len(none), len(some)) == (0, 1)
        assert str(none[key].dt.tz) == str(some[key].dt.tz) == "UTC"
    assert HubFrames(used).leases()["until"][0].timestamp() == 70.0
    assert pd.isna(HubFrames(used).leases()["idle_since"][0])


class UnsupportedFan:
    """A hub with one board that reports its utilization alone, and none for any other filter."""

    def gpus(self, filter: str) -> list[dict[str, Any]]:
        board = {"host": "h", "place": "0", "name": "board", "state": "ok", "sampled_at": 5.0,
                 "values": {"util_pct": 7.0, "of_a_newer_hub": 1.0}, "facts": {}, "tasks": [],
                 "missing": {"fan_pct": "unsupported"}, "uuid": "GPU-1", "node": "n"}
        return [board] if filter == "" else []

    def series(self, **_query: str) -> dict[str, Any]:
        return {"t": [1, 2], "mean": [None, None], "min": [None, None], "max": [None, None]}


def test_a_column_of_which_nothing_is_known_is_there_and_of_numbers() -> None:
    frames = HubFrames(cast(Client, UnsupportedFan()))
    some, none = frames.gpus(), frames.gpus("util>50")
    assert (some["util_pct"][0], some["of_a_newer_hub"][0]) == (7.0, 1.0)
    for frame, key in ((some, "fan_pct"), (none, "util_pct"), (frames.series("GPU-1"), "mean")):
        assert frame[key].dtype == "float64"
        assert frame[key].isna().all()
    assert {*none.columns} == {*some.columns} - {"of_a_newer_hub"}


class RestartingHub:
    """A hub that does not answer for a while, once an action was ordered."""

    def __init__(self, *failures: CommandError) -> None:
        self.failures = [*failures]

    def me(self) -> dict[str, Any]:
        raise CommandError("no hub", ExitCode.UNREACHABLE)

    def command(self, command_id: str) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return SimpleNamespace(id=command_id, state="done")


@pytest.mark.parametrize(("failure", "is_followed"), [
    (CommandError("no hub", ExitCode.UNREACHABLE), True), (CommandError("denied"), False)])
def test_a_hub_that_restarts_has_failed_no_action(
        failure: CommandError, is_followed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_source, "FOLLOW_EVERY_S", 0.0)
    source = hub_source.HubSource(cast(Client, RestartingHub(failure, failure)), "http://h")
    messages: list[Any] = []
    source.view(lambda *_: None, messages.append)
    if is_followed:
        source._follow("a", ["c1"])
        assert [message.command.state for message in messages] == ["done"]
    else:
        with pytest.raises(CommandError, match="denied; the action continues"):
            source._follow("a", ["c1"])
    source.close()


def test_a_figure_is_read_on_a_dark_page_and_says_that_there_is_nothing() -> None:
    columns = ["gpu", "seconds", "util_pct", "my_sm_pct", "my_mem_bytes"]
    empty = timeline(pd.DataFrame(columns=columns))
    some = timeline(pd.DataFrame([[0, 1.0, 50.0, 20.0, GIB]], columns=columns))
    assert "no GPU was measured" in [note.text for note in empty.layout.annotations]
    assert "no GPU was measured" not in [note.text for note in some.layout.annotations]
    for figure in (empty, some):
        assert {figure.layout.paper_bgcolor, figure.layout.plot_bgcolor} == {"rgba(0, 0, 0, 0)"}


def test_a_wrong_simulation_says_what_is_wanted() -> None:
    with pytest.raises(ValueError, match="as in 'h100x2'"):
        options_of("two of them")


def test_a_board_that_nobody_knows_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no such board; there are h100, "):
        watch(simulate="foo")
    assert {*BOARDS} == {*PROFILES, "mixed"}


def test_the_bundle_is_one_module_that_asks_for_nothing(tmp_path: Path) -> None:
    source = module()
    assert not re.search(r"^\s*import\b", source, re.M)
    assert not re.search(r"https?://", re.sub(r"//.*", "", source))
    assert "url(" not in style()
    assert ":root" not in style()
    path = tmp_path / "widget.mjs"
    path.write_text(source)
    node, _ = compute_driver_executable()  # Playwright brings one
    subprocess.run([node, "--check", path], check=True)
    with pytest.raises(ValueError, match="is not bundled"):
        bundled({"a": 'import uPlot from "./vendor/uplot.js";\n'})


def test_messages_come_whole_whatever_the_pieces() -> None:
    messages: list[FromNotebook] = [PipeMarkRequest(7), PipePreviewRequest("a", "pause", "t"),
                                    PipeMarkRequest(DICE.randrange(10**6))]
    data = b"".join(packed(message) for message in messages)
    pieces, at = PipeDecoder(), 0
    received: list[FromNotebook] = []
    while at < len(data):
        step = DICE.randrange(1, 9)
        received += pieces.from_notebook(data[at : at + step])
        at += step
    assert received == messages
    with pytest.raises(msgspec.MsgspecError):
        list(PipeDecoder().from_notebook((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little")))
    with pytest.raises(msgspec.MsgspecError):
        list(PipeDecoder().from_notebook(packed(PipeMarkReply(1, 2.0))))  # the other way round


def test_what_began_before_the_stretch_counts_in_part() -> None:
    """100 % for the half second that lies within, 0 % for the second after it."""
    begin, end = PipeMarkReply(1, 10.5, {"GPU-a": 100.0}), PipeMarkReply(2, 12.0, {"GPU-a": 400.0})
    points = [GpuSample(10.0, "GPU-a", util_pct=77.0),
              GpuSample(11.0, "GPU-a", util_pct=100.0, uses={KERNEL: ProcessUse(None, None)}),
              GpuSample(12.0, "GPU-a", util_pct=0.0)]
    (cost,) = costs(points, begin, end, [gpu()], [], 1.5, {})
    assert cost.util_mean_pct == pytest.approx(100 / 3)
    assert cost.util_peak_pct == 100
    assert cost.energy_j == pytest.approx(300)
    back = PipeMarkReply(2, 12.0, {"GPU-a": 4.0})  # the driver was loaded anew
    assert costs(points, begin, back, [gpu()], [], 1.5, {})[0].energy_j is None
    assert cost.sm_mean_pct is None  # and never 0
    report = Cost(1.5, 0.2, (cost,), KERNEL, {})
    assert "SM unknown" in words(report)
    assert "<script" not in table(report, points, 10.5)


def test_a_frame_has_one_row_per_gpu_and_second() -> None:
    """Found by visitors: readings of the board and looks at processes came in rows of their own, so
    that a filter by one left nothing of the other."""
    places = {"GPU-a": "0", "GPU-b": "1"}
    mem_bytes, seconds = DICE.randrange(1, 80) * GIB, DICE.randrange(2, 20)
    begin = DICE.uniform(0, 1e6)
    points = [point for at in range(-1, seconds) for uuid in places for point in (
        GpuSample(begin + at + 0.9, uuid, None, None, None,
                  {KERNEL: ProcessUse(mem_bytes + at, 10.0 + at)}),
        GpuSample(begin + at + 0.1, uuid, float(at), 300.0, 60 * GIB))]
    frame = rows(points, begin, places)
    assert sorted((row["seconds"], row["gpu"]) for row in frame) == [
        (at, gpu) for at in range(seconds) for gpu in ("0", "1")]
    for row in frame:
        assert (row["util_pct"], row["my_mem_bytes"], row["my_sm_pct"]) == (
            row["seconds"], mem_bytes + row["seconds"], 10.0 + row["seconds"])


def board(index: int, uuid: str, name: str = "H100", **facts: object) -> dict[str, object]:
    return {"uuid": uuid, "index": index, "name": name, "facts": {"parent_uuid": None, **facts}}


A, B = board(0, "GPU-aaaa"), board(1, "GPU-abbb")
MIG = (A, board(1, "GPU-abbb"), *(board(1, f"MIG-{at}", "1g", parent_uuid="GPU-abbb",
                                       gpu_instance=at, compute_instance=0) for at in (7, 8)))
MIXED = (A, board(1, "GPU-abbb", "L40S"))


@pytest.mark.parametrize(("gpus", "setting", "visible"), [
    ((A, B), None, "GPU-aaaa GPU-abbb"), ((A, B), "1", "GPU-abbb"),
    ((A, B), "1, 0", "GPU-abbb GPU-aaaa"), ((A, B), "0,-1,1", "GPU-aaaa"), ((A, B), "", ""),
    ((A, B), "NoDevFiles", ""), ((A, B), "-1", ""), ((A, B), "0,7,1", "GPU-aaaa"),
    ((A, B), "GPU-ab", "GPU-abbb"), ((A, B), "GPU-x,0", ""),
    (MIG, None, "GPU-aaaa MIG-7 MIG-8"), (MIG, "MIG-8", "MIG-8"), (MIG, "1", "MIG-7 MIG-8"),
    (MIG, "MIG-GPU-abbb/7/0", "MIG-7"), (MIXED, "1", "GPU-aaaa GPU-abbb"),
    (MIXED, "GPU-ab", "GPU-abbb")])
def test_which_gpus_cuda_gives(gpus: tuple[dict[str, object], ...], setting: str | None,
                               visible: str) -> None:
    env = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert " ".join(visible_gpus(gpus, env)) == visible
    if gpus is MIXED and setting == "1":
        assert visible_gpus(gpus, {**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == ["GPU-abbb"]
