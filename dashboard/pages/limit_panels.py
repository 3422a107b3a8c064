"""Panels about what gpudeck keeps in force on a GPU: limits, the compute mode and the MIG layout.
For each: what is wanted, and what is in force. Pure."""

from collections.abc import Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from .setting_forms import (
    Facts,
    act_button,
    board_names,
    cap_form,
    lock_form,
    mode_form,
    open_form,
    split_form,
    undo_form,
    whole_form,
)
from .words import moment, sentence

Item = dict[str, Any]
STATES = {
    "beginning": ("being set", "stale"), "applying": ("being set", "stale"),
    "half_made": ("half made", "lost"), "in_force": ("in force", "ok"),
    "not_in_force": ("not in force", "lost"), "drifted": ("changed externally", "lost"),
    "unknown": ("unknown", "stale")}
LIMITS = {"power": ("Power", "W"), "clocks": ("SM clock", "MHz"),
          "mps_share": ("MPS share of next clients", "%")}
UNREPORTED = "The node has not reported whether limits can be set."
LAYOUTS = {"none": "MIG is on, and there is no instance: nobody can run here",
           "off": "Not split: MIG is off"}


def note(words: Any) -> Component:
    return make("p.limits-none", words)


def acts(buttons: Sequence[Component], may_act: bool) -> list[Component]:
    """Return the line of buttons, for who may press them. By its key it stays the same element,
    with the focus in it, when lines come and go above it."""
    return [make("p.limits-acts", [*buttons], data_key="acts")] if may_act and buttons else []


def pill(words: str, tone: str) -> Component:
    return make(f"span.pill.{tone}", words)


def sentence_or_none(text: str) -> str:
    return text and sentence(text)


def setting_line(setting: Item, what: str, until: str, buttons: Sequence[Component], key: str
                 ) -> Component:
    """Return what gpudeck keeps in force: until when, by whom, and the proof or what is wrong."""
    words, tone = STATES.get(setting["state"], (setting["state"], "stale"))
    reason = f": “{setting['reason']}”" if setting["reason"] else ""
    proof = sentence_or_none(setting["words"])
    return make("div.limit", [
        make("p", [make("strong", what), " ", pill(words, tone)]),
        note(f"Until {until}, by {setting['by']}{reason}. {proof}"), *buttons],
        data_state=setting["state"], data_key=key)


def limits_panel(gpu: Item, nodes: Sequence[Item], may_act: bool, zone: str) -> list[Component]:
    """Return the limits of a GPU. `nodes`: the answer for its node, one or none."""
    node, uuid, about = next(iter(nodes), None), gpu["uuid"], board_names(gpu)
    is_instance = gpu["facts"]["parent_uuid"] is not None
    trouble = UNREPORTED if node is None else node["trouble"]
    limits, modes, memory = ([] if node is None else [
        one for one in node[kind] if one["gpu_uuid"] == uuid]
        for kind in ("leases", "modes", "memory"))
    lines = [*(_limit(one, about, may_act, zone) for one in limits),
             *(_mode(one, about, may_act) for one in modes), *map(_memory, memory)]
    if not lines:
        lines = [note("Limits apply to the whole board, not to a single instance."
                      if is_instance else sentence_or_none(trouble)
                      or "No limit is set by gpudeck.")]
    unread = [] if node is None or not node["unread"] else [
        make("p.act-warning", sentence(node["unread"]))]
    return [*unread, *lines, *acts(
        _limit_buttons(gpu), may_act and not trouble and not is_instance)]


def _limit_buttons(gpu: Item) -> list[Component]:
    uuid, about = gpu["uuid"], board_names(gpu)
    return [
        act_button("Cap power", "cap", "set_power_cap", uuid, cap_form(gpu), about=about),
        act_button("Lock clocks", "lock", "lock_clocks", uuid, lock_form(gpu), about=about),
        act_button("Compute mode", "mode", "set_compute_mode", uuid, mode_form(uuid), about=about)]


def _limit(limit: Item, about: Facts, may_act: bool, zone: str) -> Component:
    name, unit = LIMITS[limit["what"]]
    return setting_line(
        limit, f"{name} {' to '.join(f'{value:.0f}' for value in limit['wanted'])} {unit}",
        moment(limit["ends_at"], zone), acts([act_button(
            "Undo", "undo", "release_limit", limit["gpu_uuid"], undo_form(limit), about=about)],
            may_act),
        limit["what"])


def _mode(mode: Item, about: Facts, may_act: bool) -> Component:
    uuid = mode["gpu_uuid"]
    return setting_line(mode, "One process at a time", "removed", acts([act_button(
        "Undo", "undo", "set_compute_mode", uuid, open_form(uuid), about=about)], may_act),
        "mode")


def _memory(limit: Item) -> Component:
    """Return a limit that nobody ordered by itself: it goes with its lease, or its quota."""
    words, tone = STATES.get(limit["state"], (limit["state"], "stale"))
    most, holder = limit["limit_bytes"] / 2**30, limit["holder"]
    return make("div.limit", [
        make("p", [make("strong", f"Memory limit {most:.1f} GiB"), " ", pill(words, tone)]),
        note(f"By the driver, for {holder}: control group {limit['group']}. "
             f"{sentence_or_none(limit['words'])}")],
        data_state=limit["state"], data_key=f"memory {limit['group']}")


def mig_panel(board: Item, about: Facts, may_act: bool) -> list[Component]:
    """Return a board's instances, the layout that gpudeck keeps, and whether it is in force.
    `about`: what names it in dialogs."""
    now, layout, uuid = board["now"], board["wanted"], board["gpu"]
    places = ", ".join(instance["place"] for instance in board["instances"])
    words = "How it is split now is not known" if now is None else LAYOUTS.get(
        now, f"Split into {now}")
    line = note("gpudeck keeps no layout here.") if layout is None else setting_line(
        layout, f"Kept: {layout['layout']}", "removed", acts([act_button(
            "Remove", "remove", "set_mig_layout", uuid, whole_form(uuid), about=about)], may_act),
        "layout")
    return [make("p.mig-now", f"{words} (GPU {places})" if places else words), line, *acts([
        act_button("Split by MIG", "split", "set_mig_layout", uuid, split_form(uuid), about=about)],
        may_act)]
