"""The panel about service: whether a GPU or a node is in service, who took it out and why, how far
its repair is, and the next steps. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dash.development.base_component import Component

from gpudeck.contract.action_table import ROWS, SettingAction
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.markup import make

from .limit_panels import acts, note, pill, sentence_or_none
from .setting_forms import (
    Facts,
    SettingForm,
    act_button,
    diagnosis_form,
    drain_form,
    service_form,
)
from .words import moment, plural

Item = dict[str, Any]
OF_ONE_GPU = frozenset(("reset", "diagnose"))
IN_SERVICE = ("cordon", "drain")
TONES = {"drained": "ok", "needs_reboot": "lost", "needs_inspection": "lost"}  # others: stale
STEPS: dict[str, tuple[SettingAction, Callable[[str], SettingForm]]] = {
    "cordon": ("cordon", lambda place: service_form(
        "Cordon: assign nothing new here", "cordon", place)),
    "drain": ("drain", drain_form),
    "reset": ("reset_gpu", lambda place: service_form("Reset an empty GPU", "gpu_reset", place)),
    "diagnose": ("diagnose_gpu", diagnosis_form),
    "return": ("return_to_service", lambda place: service_form(
        "Return it to service", "return", place))}


@dataclass(frozen=True, slots=True)
class ServicePlace:
    """A node, or a board of it (`uuid`), and who looks. `about`: what names it in dialogs;
    `advice`: what the driver advises, "": nothing; `tasks`: ids of those that are there now."""

    node: str
    uuid: str | None
    about: Facts
    may_act: bool
    zone: str
    tasks: Sequence[str] = ()
    advice: str = ""


def own_repair(repairs: Sequence[Item], uuid: str | None) -> Item | None:
    return next((repair for repair in repairs if repair["gpu"] == uuid), None)


def service_panel(place: ServicePlace, repairs: Sequence[Item]) -> list[Component]:
    own = own_repair(repairs, place.uuid)
    of_node = None if place.uuid is None else own_repair(repairs, None)
    parts = [] if place.uuid is not None else [
        repair for repair in repairs if repair["gpu"] is not None]
    lines = []
    if place.advice:
        more = ("Draining starts the repair; the next steps are offered once no task is left."
                if own is None else "")
        lines.append(make("p.act-warning", f"The driver advises: {place.advice}. {more}".rstrip()))
    if own is None and of_node is None:
        lines.append(note(_in_service(parts)))
    if of_node is not None:
        lines.append(_repair(place, of_node, "The whole node: ", ()))
    if own is not None:
        return [*lines, _repair(place, own, "", own["may"])]
    return [*lines, *_buttons(place, IN_SERVICE, False)]


def _in_service(parts: Sequence[Item]) -> str:
    if not parts:
        return "In service."
    names = ", ".join(f"GPU {'?' if one['index'] is None else one['index']} {one['says']}"
                      for one in parts)
    return f"In service, except {plural(len(parts), 'GPU')}: {names}."


def _repair(place: ServicePlace, repair: Item, whose: str, may: Sequence[str]) -> Component:
    zone, until = place.zone, repair["until"]
    why = f": “{repair['reason']}”" if repair["reason"] else ""
    end = "" if until is None else (
        f" The time ended at {moment(until, zone)}." if repair["is_overdue"] else
        f" Owners have until {moment(until, zone)}.")
    is_left = repair["is_overdue"] and repair["gpu"] == place.uuid
    return make("div.limit", [
        make("p", [make("strong", f"{whose}Out of service"), " ",
                   pill(repair["says"], TONES.get(repair["state"], "stale"))]),
        note(f"Since {moment(repair['since'], zone)}, by {repair['by']}{why}.{end} "
             f"{sentence_or_none(repair['seen'])}".rstrip()),
        *_buttons(place, may, is_left)],
        data_state=repair["state"], data_key=whose or "own")


def _buttons(place: ServicePlace, may: Sequence[str], is_overdue: bool) -> list[Component]:
    target, setting_place = place.uuid or place.node, place.uuid or WHOLE_NODE
    buttons = []
    for step in may:
        if step in STEPS and (place.uuid is not None or step not in OF_ONE_GPU):
            action, form = STEPS[step]
            buttons.append(act_button(
                ROWS[action].label, step, action, target, form(setting_place), about=place.about))
    if is_overdue and (tasks := place.tasks):
        # What a drain leaves is ended as anything is: previewed, by a person.
        buttons.append(act_button(f"End {plural(len(tasks), 'task')}", "end", "end",
                                  tasks))
    return acts(buttons, place.may_act)
