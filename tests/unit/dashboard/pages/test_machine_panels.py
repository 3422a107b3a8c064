"""Panels of a GPU and of a node: what they say, what each button would send, and who has one."""

import json
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from dash.development.base_component import Component

from dashboard.pages.element_tree import trees
from dashboard.pages.limit_panels import STATES, limits_panel, mig_panel
from dashboard.pages.machine_panels import MachineView, answer
from dashboard.pages.mps_panel import FIX_ACTIONS, mps_panel
from dashboard.pages.quotas_here import quotas_here
from dashboard.pages.reading import news, parts_on_wire
from dashboard.pages.service_panel import ServicePlace, service_panel
from dashboard.pages.setting_forms import board_names, node_names
from gpudeck.contract.limits import Setting, action_of
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.errors import CommandError
from tests.hostile import strings

from .machine_views import (
    NOW,
    Item,
    a_client,
    a_daemon,
    a_gpu,
    a_limit,
    a_node,
    a_repair,
    limits,
    mps,
)
from .read_parts import elements, words

# What somebody enters, by the names of fields.
ENTERED = {"watts": 333, "lease_s": 3_600, "min_mhz": 210, "max_mhz": 900, "layout": "2x 3g.40gb",
           "mode": "default", "within_s": 600, "level": 2, "server": None, "pct": 30,
           "ordinal": 1, "size": 2_048, "name": "low"}
BOARD: Item = {"gpu": "GPU-0", "now": "off", "instances": [], "wanted": None}
FREE: Item = {"fleet": None, "nodes": []}


def buttons(part: Sequence[Component]) -> dict[str, dict[str, str]]:
    """Return the traits of the buttons, by their keys."""
    return {traits["data-key"]: traits for tag, traits, _ in elements(trees([*part]))
            if tag == "button"}


def text(part: Sequence[Component]) -> str:
    return words(trees([*part]))


def fill(template: Any) -> Any:
    """Do as assets/reading/orders.mjs does."""
    if isinstance(template, dict):
        return {name: fill(part) for name, part in template.items()}
    if not isinstance(template, str) or not template.startswith("$"):
        return template
    return template[1:] if template.startswith("$$") else ENTERED[template[1:]]


def setting_of(traits: dict[str, str]) -> Any:
    """Return the setting that a button would send, as nodes take it."""
    setting: Any = msgspec.convert(fill(json.loads(traits["data-setting"])), Setting)
    assert traits["data-act"] == action_of(setting)
    return setting


def all_panels(uuid: str = "GPU-0", pipes: str = "/tmp/mps") -> list[Component]:
    """Return every panel that has buttons, for an operator."""
    gpu, mode = a_gpu(uuid=uuid), {"gpu_uuid": uuid, "by": "ann", "reason": "", "words": "",
                                   "state": "in_force"}
    node_limits = limits(leases=[a_limit(gpu_uuid=uuid)], modes=[mode])
    board = BOARD | {"gpu": uuid, "wanted": mode | {"layout": "1x 7g.80gb"}}
    of_board = ServicePlace("id-n1", uuid, board_names(gpu), True, "UTC")
    of_node = ServicePlace("id-n1", None, node_names("n1"), True, "UTC")
    return [*limits_panel(gpu, node_limits, True, "UTC"), *mig_panel(board, board_names(gpu), True),
            *service_panel(of_board, []), *service_panel(of_board, [a_repair(gpu=uuid)]),
            *service_panel(of_node, []),
            *mps_panel("id-n1", "n1", mps(a_daemon(a_client(), pipes=pipes)), {}, True),
            *mps_panel("id-n1", "n1", mps(a_daemon(is_alive=False, pipes=pipes)), {}, True)]


def all_buttons(part: Sequence[Component]) -> list[dict[str, str]]:
    return [traits for tag, traits, _ in elements(trees([*part])) if tag == "button"]


def test_each_button_sends_what_nodes_take() -> None:
    offers = [(traits["data-act"], traits["data-targets"], setting_of(traits))
             for traits in all_buttons(all_panels()) if "data-setting" in traits]
    assert {action for action, _, _ in offers} >= {
        "set_power_cap", "lock_clocks", "release_limit", "set_compute_mode", "set_mig_layout",
        "cordon", "drain", "reset_gpu", "diagnose_gpu", "return_to_service", "set_mps",
        "start_mps", "restart_mps", "stop_mps"}
    for _, targets, setting in offers:
        [target] = json.loads(targets)
        assert getattr(setting, "gpu_uuid", None) in (
            None, target, WHOLE_NODE if target == "id-n1" else target)
        assert target == ("id-n1" if hasattr(setting, "pipes") else target)
    [cap] = [setting for action, _, setting in offers if action == "set_power_cap"]
    assert (cap.watts, cap.lease_s) == (333, 3_600)


def test_each_dialog_of_a_setting_names_its_target_before_anything_is_entered() -> None:
    """Dialogs of a cap, a lock and a layout named no GPU until a value had been typed."""
    for traits in all_buttons(all_panels()):
        if "data-setting" in traits:
            is_of_node = json.loads(traits["data-targets"]) == ["id-n1"]
            assert json.loads(traits["data-about"]) == (
                [["Node", "n1"]] if is_of_node else [["GPU", "n1 · GPU 0"], ["Model", "H100"]])


@pytest.mark.parametrize(("tasks", "caution"), [
    ([], None), (["b-1-1"], "It slows the whole GPU: 1 task on it."),
    (["b-1-1", "b-2-1"], "It slows the whole GPU: 2 tasks on it.")])
def test_a_limit_says_whom_it_slows_before_a_value_is_entered(tasks: list[str],
                                                              caution: str | None) -> None:
    offers = buttons(limits_panel(a_gpu(tasks=tasks), limits(), True, "UTC"))
    assert [offers[key].get("data-caution") for key in ("cap", "lock")] == [caution, caution]


def test_a_setting_of_a_mig_instance_names_the_board_that_it_is_of() -> None:
    part = a_gpu(6, place="6/9", facts={"parent_uuid": "GPU-9"})
    assert board_names(part)[0] == ("GPU", "n1 · GPU 6")


@pytest.mark.parametrize("name", ["$watts", "$$watts", "$server", "$1.x", *strings()])
def test_a_name_that_looks_like_a_field_is_sent_as_it_is(name: str) -> None:
    """A node chooses the folder of its MPS: as a template `$pct` would be what somebody enters."""
    for traits in all_buttons(all_panels(uuid=name, pipes=name)):
        if "data-setting" in traits:
            setting = fill(json.loads(traits["data-setting"]))
            places = {setting.get("pipes", name), setting.get("gpu_uuid", name)}
            assert places <= {name, WHOLE_NODE}


def test_who_may_not_act_has_no_button() -> None:
    uuid = "GPU-0"
    mode = {"gpu_uuid": uuid, "by": "ann", "reason": "", "words": "", "state": "in_force"}
    finding = {"code": "dead", "weight": "fault", "cause": "a", "remedy": "b",
               "fixes": [{"type": "mps_start", "pipes": "/p"}]}
    place = ServicePlace("id-n1", uuid, (), False, "UTC", ["b-1-1"])
    assert all_buttons([
        *limits_panel(a_gpu(), limits(leases=[a_limit()], modes=[mode]), False, "UTC"),
        *mig_panel(BOARD | {"wanted": mode | {"layout": "off"}}, (), False),
        *service_panel(place, []), *service_panel(place, [a_repair(is_overdue=True, until=NOW)]),
        *mps_panel("id-n1", "n1", mps(a_daemon(a_client()), findings=[finding]), {}, False)]) == []


@pytest.mark.parametrize("state", STATES)
def test_a_limit_says_how_it_is(state: str) -> None:
    [line, *_] = limits_panel(a_gpu(), limits(leases=[a_limit(state=state)]), True,
                              "Europe/Berlin")
    [(_, traits, _), *_] = elements(trees(line))
    assert (traits["data-state"], traits["data-key"]) == (state, "power")
    assert text([line]) == (
        f"Power 333 W {STATES[state][0]}Until 30 Nov 2026, 02:53, by ann: “the room is hot”. "
        "Read back: 333 W.Undo")


@pytest.mark.parametrize(("state", "words"), [("in_force", "in force"),
                                             ("drifted", "changed externally")])
def test_a_memory_limit_says_for_whom_it_is_and_is_undone_by_nobody_here(state: str, words: str
                                                                         ) -> None:
    memory = {"gpu_uuid": "GPU-0", "group": "/user.slice/user-7.slice", "holder": "quota q of ann",
              "limit_bytes": 12.0 * 2**30, "state": state, "words": "the driver reports 12.0 GiB"}
    panel = limits_panel(a_gpu(), limits(memory=[memory]), False, "UTC")
    assert text(panel) == (
        f"Memory limit 12.0 GiB {words}By the driver, for quota q of ann: control group "
        "/user.slice/user-7.slice. The driver reports 12.0 GiB.")


def test_limits_of_others_and_of_a_state_not_known_yet() -> None:
    elsewhere = limits(leases=[a_limit(gpu_uuid="GPU-1")])
    assert text(limits_panel(a_gpu(), elsewhere, False, "UTC")) == "No limit is set by gpudeck."
    odd = limits(leases=[a_limit(what="clocks", wanted=[210.0, 1_980.0], state="new")])
    assert "SM clock 210 to 1980 MHz new" in text(limits_panel(a_gpu(), odd, False, "UTC"))


@pytest.mark.parametrize(("node", "fields", "says"), [
    ([], {}, "The node has not reported whether limits can be set."),
    (limits(trouble="not root"), {}, "Not root."),
    (limits(), {"facts": {"parent_uuid": "GPU-9"}},
     "Limits apply to the whole board, not to a single instance.")])
def test_where_no_limit_can_be_set_none_is_offered(
        node: list[Item], fields: Item, says: str) -> None:
    part = limits_panel(a_gpu(**fields), node, True, "UTC")
    assert (text(part), buttons(part)) == (says, {})


def test_what_is_not_read_is_said_first() -> None:
    part = limits_panel(a_gpu(), limits(unread="a file is newer", leases=[a_limit()]), True, "UTC")
    assert text(part).startswith("A file is newer.Power 333 W")


def test_a_cap_beyond_what_the_gpu_accepts_reaches_the_node() -> None:
    """A GPU refuses in words: the field must not keep it back."""
    [watts, _] = json.loads(buttons(limits_panel(a_gpu(), limits(), True, "UTC"))["cap"][
        "data-fields"])
    assert (watts["traits"]["min"], watts["traits"]["max"]) == ("1", "5000")
    assert watts["hint"] == "This GPU accepts 200 to 700 W."


@pytest.mark.parametrize(("now", "says"), [
    (None, "How it is split now is not known"), ("off", "Not split: MIG is off"),
    ("none", "MIG is on, and there is no instance: nobody can run here"),
    ("2x 3g.40gb", "Split into 2x 3g.40gb (GPU 0/1, 0/2)")])
def test_how_a_board_is_split(now: str | None, says: str) -> None:
    instances = [{"place": place} for place in ("0/1", "0/2") if now and now.startswith("2x")]
    part = mig_panel(BOARD | {"now": now, "instances": instances}, (), True)
    assert text(part) == f"{says}gpudeck keeps no layout here.Split by MIG"


def test_mps_says_which_client_has_which_share() -> None:
    part = mps_panel("id-n1", "n1", mps(a_daemon(a_client(), a_client(pid=9, pct=30.0))), {}, True)
    assert "Server 7 root, active: new clients get 30 %, 2G on device 0; 2 clients." in text(part)
    assert "Default for the next server: 100 %, normal priority." in text(part)
    shares = [(inside, traits["title"]) for tag, traits, inside in elements(trees(part))
              if tag == "span" and "title" in traits]
    assert shares == [(["100 %"], "This client keeps the value it started with"),
                      (["30 %"], "The server's current value")]
    [size] = [field for field in json.loads(buttons(part)["memory"]["data-fields"])
              if field["name"] == "size"]
    assert size["times"] == "unit"


def test_a_client_that_names_several_tasks_is_one_target() -> None:
    """A node names it: split at the space these would be two targets."""
    for task in ("b-8-1", "b-8-1 c-9-1", 'b"8'):
        part = mps_panel("id-n1", "n1", mps(a_daemon(a_client(task_id=task))), {}, True)
        assert json.loads(buttons(part)["out"]["data-targets"]) == [task]
    part = mps_panel("id-n1", "n1", mps(a_daemon(a_client(task_id=None))), {}, True)
    assert "out" not in buttons(part)


FIXES: list[tuple[Item, str]] = [
    ({"type": "mps_start", "pipes": "/p"}, "Start MPS"),
    ({"type": "mps_restart", "pipes": "/p"}, "Restart MPS"),
    ({"type": "mps_percent", "pipes": "/p", "pct": 30, "server": None}, "Set 30 % again"),
    ({"type": "mps_memory", "pipes": "/p", "ordinal": 1, "mem_mib": None, "server": None},
     "Set no limit on device 1 again"),
    ({"type": "mps_memory", "pipes": "/p", "ordinal": 1, "mem_mib": 512, "server": None},
     "Set 512 MiB on device 1 again"),
    ({"type": "mps_priority", "pipes": "/p", "priority": 0},
     "Set normal priority again"),
    ({"type": "compute_mode", "gpu_uuid": "GPU-e7537bd6-1", "mode": "exclusive_process"},
     "Make GPU 3 exclusive")]


@pytest.mark.parametrize(("fix", "says"), FIXES)
def test_the_doctor_offers_its_fixes(fix: Item, says: str) -> None:
    finding = {"code": "x", "weight": "fault", "cause": "it is gone", "remedy": "start it",
               "fixes": [fix, {"type": "of a newer agent"}]}
    part = mps_panel("id-n1", "n1", mps(findings=[finding]), {"GPU-e7537bd6-1": 3}, True)
    assert text(part) == f"MPS doctor problems foundfix needed It is gone.Start it.{says}"
    [traits] = all_buttons(part)
    assert json.loads(traits["data-targets"]) == [fix.get("gpu_uuid", "id-n1")]
    assert msgspec.to_builtins(setting_of(traits)) == fix
    assert fix["type"] in FIX_ACTIONS


def test_a_node_does_not_offer_acts_on_the_gpus_of_others() -> None:
    finding = {"code": "x", "weight": "advice", "cause": "a", "remedy": "b",
               "fixes": [FIXES[-1][0]]}
    for indices in ({}, {"GPU-1": 0}):
        part = mps_panel("id-n1", "n1", mps(findings=[finding]), indices, True)
        assert "no problems found" in text(part)
        assert all_buttons(part) == []


@pytest.mark.parametrize(("report", "says"), [
    (None, "The node has not reported whether MPS is running."),
    (mps(), "No MPS control daemon is running, and none left files behind."),
    (mps(trouble="nvidia-cuda-mps-control is missing"),
     "Nvidia-cuda-mps-control is missing.")])
def test_without_mps(report: Item | None, says: str) -> None:
    assert text(mps_panel("id-n1", "n1", report, {}, True)) == says


def test_service_and_its_next_steps() -> None:
    board, node = (ServicePlace("id-n1", uuid, (), True, "UTC", ["b-1-1", "b-2-1"])
                   for uuid in ("GPU-0", None))
    assert text(service_panel(board, [])) == "In service.CordonDrain"
    assert [*buttons(service_panel(board, [a_repair()]))] == ["reset", "diagnose", "return"]
    # Only one board at a time is reset or diagnosed.
    whole = a_repair(gpu=None, index=None)
    assert [*buttons(service_panel(node, [whole]))] == ["return"]
    assert "The whole node: Out of service" in text(service_panel(board, [whole]))
    assert [*buttons(service_panel(board, [whole]))] == ["cordon", "drain"]
    assert text(service_panel(node, [a_repair(says="draining")])) == (
        "In service, except 1 GPU: GPU 0 draining.CordonDrain")


def test_what_a_drain_left_may_be_ended_once_its_time_is_over() -> None:
    place = ServicePlace("id-n1", "GPU-0", (), True, "UTC", ["b-1-1", "b-2-1"])
    late = a_repair(state="draining", says="draining", until=NOW - 60, is_overdue=True, may=[])
    end = buttons(service_panel(place, [late]))["end"]
    assert (end["data-act"], end["data-targets"]) == ("end", '["b-1-1","b-2-1"]')
    assert "data-setting" not in end
    on_time = late | {"is_overdue": False, "until": NOW + 60}
    assert buttons(service_panel(place, [on_time])) == {}
    assert "Owners have until 30 Nov 2026, 00:54." in text(service_panel(place, [on_time]))
    # That of the whole node is ended on the node's own page.
    assert "end" not in buttons(service_panel(place, [late | {"gpu": None}]))


def test_a_task_that_names_others_is_one_target_among_what_a_drain_left() -> None:
    """A node names its tasks: split at a space this would be a task of another node."""
    late = a_repair(state="draining", says="draining", until=NOW - 60, is_overdue=True, may=[])
    tasks = ["b-1-1", "b-2-1 other/c-9-1", 'b"c', "d,e"]
    place = ServicePlace("id-n1", "GPU-0", (), True, "UTC", tasks)
    assert json.loads(buttons(service_panel(place, [late]))["end"]["data-targets"]) == tasks


def test_the_drivers_advice_begins_a_repair() -> None:
    place = ServicePlace("id-n1", "GPU-0", (), True, "UTC", advice="reset the GPU")
    assert text(service_panel(place, [])).startswith(
        "The driver advises: reset the GPU. Draining starts the repair;")
    assert text(service_panel(place, [a_repair()])).startswith(
        "The driver advises: reset the GPU.Out of service drained")


def test_quotas_of_a_place() -> None:
    quiet = {"quota": "q", "mode": "warn", "meaning": "m", "is_applied": True, "is_in_force": True,
             "proof": "read back", "holders": []}
    holder = {"holder": "ann", "limit": "gpus", "used": 3.0, "most": 2.0, "here": 1.0,
              "is_over": True, "is_whole": True, "sentence": "ann has 3 of 2 GPUs", "goes": 1}
    assert text(quotas_here([], "GPU")) == "No quota applies to this GPU. Quotas"
    assert text(quotas_here([quiet], "GPU")) == "1 quota in force without usage here: q."
    part = quotas_here([quiet | {"holders": [holder]}, quiet | {"quota": "r"}], "node")
    assert text(part) == ("q warnann3 of 2 GPUsover1 on this node; 1 job here would be ended."
                          "And 1 quota in force without usage here: r.")
    weak = quotas_here([quiet | {"is_in_force": False, "is_applied": False}], "node")
    assert text(weak) == "q warnnot appliedread back."


# -- the whole answer


class FakeHub:
    """Answers from a table; what is not in it, it refuses."""

    def __init__(self, **lists: Any) -> None:
        self.lists = lists

    def items(self, path: str, **_: str) -> Any:
        if (name := "quotas" if path.endswith("/quotas") else path) not in self.lists:
            raise CommandError("not now")
        return self.lists[name]

    all = items

    def get(self, path: str) -> Any:
        if path.startswith("nodes/"):
            matches = [node for node in self.items("nodes") if f"nodes/{node['id']}" == path]
        else:
            matches = [{"me": {"role": self.lists.get("role", "operator")},
                        "hold": self.lists.get("hold", FREE)}[path]]
        if matches in ([], [None]):
            raise CommandError("not now")
        return matches[0]


def parts_of(view: MachineView, **lists: Any) -> dict[str, Any]:
    client: Any = SimpleNamespace(hub=FakeHub(**lists))
    return parts_on_wire(answer(client, view, NOW))


ALL: dict[str, Any] = {"nodes": [a_node()], "repairs": [], "limits": limits(), "mig": [BOARD],
                       "quotas": [], "mps": [mps()]}


def test_the_panels_of_a_gpu() -> None:
    parts = parts_of(MachineView(gpu="GPU-0"), gpus=[a_gpu(), a_gpu(1)], **ALL)
    assert {*parts} == {f"panel-{name}" for name in (
        "service", "mig", "limits", "quotas", "board", "hold", "node", "peers")}
    assert words(parts["panel-hold"]) == "Actions on n1 are allowed.Stop actions"
    assert parts_of(MachineView(gpu="GPU-0"), gpus=[a_gpu()], **ALL | {"mig": []})[
        "panel-mig"] is None


def test_the_panels_of_a_node() -> None:
    parts = parts_of(MachineView(node="id-n1"), gpus=[a_gpu(), a_gpu(1)], **ALL)
    assert {*parts} == {"lines-acts", *(f"panel-{name}" for name in (
        "now", "mps", "quotas", "health", "host", "links", "node"))}
    assert words(parts["lines-acts"]) == (
        "In service.CordonDrainActions on n1 are allowed.Stop actions")
    assert words(parts["panel-now"]) == "Limits in forcePower limit700 W, default"


def test_what_the_hub_does_not_give_now_stays_as_it_is() -> None:
    for name in random.sample(("repairs", "limits", "mig", "quotas", "nodes"), 3):
        lists = {key: items for key, items in ALL.items() if key != name}
        parts = parts_of(MachineView(gpu="GPU-0"), gpus=[a_gpu()], **lists)
        place = {"repairs": "panel-service", "nodes": "panel-node"}.get(name, f"panel-{name}")
        assert place not in parts
        assert len(parts) >= 6


def test_one_request_that_fails_does_not_take_all_panels_away() -> None:
    parts = parts_of(MachineView(gpu="GPU-0"), gpus=[a_gpu()], **ALL | {"hold": None})
    assert "panel-hold" not in parts
    assert "panel-limits" in parts
    parts = parts_of(MachineView(node="id-n1"), gpus=[a_gpu()], **ALL | {"hold": None})
    assert "lines-acts" not in parts
    assert "panel-mps" in parts
    parts = parts_of(MachineView(node="id-n1"), **ALL)  # without GPUs
    assert {*parts} == {"panel-host", "panel-node", "panel-quotas", "lines-acts"}
    late = a_repair(gpu=None, until=NOW - 60, is_overdue=True, may=["return"])
    parts = parts_of(MachineView(node="id-n1"), gpus=[a_gpu()], **ALL | {"repairs": [late]})
    assert {*buttons_of(parts["lines-acts"])} == {"return"}  # without tasks


def buttons_of(part: Any) -> set[str]:
    return {traits["data-key"] for tag, traits, _ in elements(part)
            if tag == "button" and "data-key" in traits}


def test_of_a_silent_node_nothing_is_said_to_be_so_now() -> None:
    for view, names in ((MachineView(gpu="GPU-0"), ("service", "limits", "mig")),
                        (MachineView(node="id-n1"), ("mps",))):
        for state in ("live", "silent"):
            parts = parts_of(view, gpus=[a_gpu()], **ALL | {
                "nodes": [a_node(state=state)], "limits": limits(leases=[a_limit()])})
            for name in names:
                says = words(parts[f"panel-{name}"])
                assert ("this is its last report" in says) is (state == "silent")


def test_the_machines_of_another_site_have_facts_only() -> None:
    gpu = a_gpu(link="https://other.example/gpu/GPU-0")
    parts = parts_of(MachineView(gpu="GPU-0"), gpus=[gpu], **ALL)
    assert {*parts} == {"panel-board", "panel-node"}
    lists = ALL | {"nodes": [a_node(link="https://other.example/node/id-n1")]}
    parts = parts_of(MachineView(node="id-n1"), gpus=[gpu], **lists)
    assert {*parts} == {f"panel-{name}" for name in ("now", "health", "host", "links", "node")}


def test_a_node_whose_host_is_named_as_the_id_of_another() -> None:
    nodes = [a_node(id="other", host="id-n1", agent_version="9.9"), a_node()]
    for view, place in ((MachineView(node="id-n1"), "lines-acts"),
                        (MachineView(gpu="GPU-0"), "panel-hold")):
        parts = parts_of(view, gpus=[a_gpu()], **ALL | {"nodes": nodes})
        assert "0.1.0" in words(parts["panel-node"])
        assert "Actions on n1 are allowed." in words(parts[place])


def test_a_machine_that_is_gone() -> None:
    assert parts_of(MachineView(gpu="GPU-0"), gpus=[], **ALL) == {}
    assert parts_of(MachineView(node="id-n1"), gpus=[], **ALL | {"nodes": []}) == {}
    assert parts_of(MachineView()) == {}


def test_only_what_is_new_travels() -> None:
    lists = ALL | {"gpus": [a_gpu()]}
    parts = parts_of(MachineView(gpu="GPU-0"), **lists)
    first = news(parts, {})
    assert first["parts"] == parts
    have = first["digests"]
    assert news(parts_of(MachineView(gpu="GPU-0"), **lists), have) == {"parts": {}, "digests": {}}
    lists["limits"] = limits(leases=[a_limit()])
    second = news(parts_of(MachineView(gpu="GPU-0"), **lists), have)
    assert [*second["parts"]] == [*second["digests"]] == ["panel-limits"]
    assert news({"panel-mig": None}, {}) != news({"panel-mig": []}, {})


def test_a_viewer_sees_the_same_words_without_buttons() -> None:
    for view in (MachineView(gpu="GPU-0"), MachineView(node="id-n1")):
        lists = ALL | {"gpus": [a_gpu()], "limits": limits(leases=[a_limit()])}
        operator, viewer = (parts_of(view, role=role, **lists) for role in ("operator", "viewer"))
        assert {*operator} == {*viewer}
        assert "button" in {tag for part in operator.values() for tag, _, _ in elements(part)}
        assert "button" not in {tag for part in viewer.values() for tag, _, _ in elements(part)}
