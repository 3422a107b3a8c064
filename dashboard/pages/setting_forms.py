"""Buttons for settings of a GPU, of a node and of MPS, and the fields of their dialogs. The browser
previews and sends them (assets/reading/written_acts.mjs). From data alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from .forms import Choices, Field, choice, text
from .parts import literal
from .words import plural

Item = dict[str, Any]
Facts = Sequence[tuple[str, str]]  # name and value
HOUR_S, DAY_S = 3_600, 86_400
LIMIT_TIMES = (("3600", "1 h"), ("14400", "4 h"), ("28800", "8 h"), ("86400", "1 day"),
               ("604800", "7 days"))
DRAIN_TIMES = (("600", "10 min"), ("3600", "1 h"), ("14400", "4 h"), ("86400", "1 day"),
               ("604800", "7 days"))
NEXT_SERVER = "null"  # the JSON of no server


@dataclass(frozen=True, slots=True)
class SettingForm:
    """Dialog of a setting. In `setting`, `$NAME` is the value of a field; values that a node
    reported are there as `literal` writes them."""

    title: str
    setting: Item
    fields: Sequence[Field] = ()
    caution: str = ""  # as long as nothing is entered; the preview has the node's own warnings


def act_button(words: str, key: str, action: str, targets: str | Sequence[str],
               form: SettingForm | None = None, label: str | None = None, about: Facts = ()
               ) -> Component:
    """Return a button that previews an action. `targets`: the ids, or the one; `key`: its name
    among its neighbours; `label`: its words for who does not see what it is about; `about`: facts
    of its target, which stand in the dialog of a setting before there is a preview."""
    traits = {} if form is None else {
        "data_title": form.title, "data_setting": form.setting, "data_fields": [*form.fields],
        "data_about": [[*fact] for fact in about] or None, "data_caution": form.caution or None}
    return make("button.button.small", words, data_key=key, data_act=action,
                data_targets=[targets] if isinstance(targets, str) else [*targets],
                aria_label=label, **traits)


def selection(name: str, label: str, options: Choices, value: str, hint: str) -> Field:
    """Return a field whose options are JSON."""
    return choice(name, label, options, value) | {"as": "json", "hint": hint}


def whole(name: str, label: str, low: int, high: int, value: str = "", hint: str | None = None
          ) -> Field:
    """Return a field for a whole number."""
    return text(name, label, value, hint, type="number", min=str(low), max=str(high), step="1",
                required="")


def _lease_field() -> Field:
    return selection("lease_s", "For how long", LIMIT_TIMES, str(HOUR_S),
                  "Afterwards the previous value is restored.")


# -- a GPU


def board_names(gpu: Item) -> Facts:
    """Return what names a board in a dialog; of a MIG instance, the board that it is a part of."""
    return (("GPU", f"{gpu['host']} · GPU {gpu['index']}"), ("Model", gpu["name"]))


def node_names(host: str) -> Facts:
    return (("Node", host),)


def _slows(gpu: Item) -> str:
    count = len(gpu["tasks"])
    return f"It slows the whole GPU: {plural(count, 'task')} on it." if count else ""


def cap_form(gpu: Item) -> SettingForm:
    """A number that the GPU does not accept is refused in words by its node."""
    low, high = (gpu["facts"][f"power_limit_{end}_w"] for end in ("min", "max"))
    hint = None if low is None or high is None else (
        f"This GPU accepts {low:.0f} to {high:.0f} W.")
    return SettingForm(
        "Cap the power of a GPU",
        {"type": "power_cap", "gpu_uuid": literal(gpu["uuid"]), "watts": "$watts",
         "lease_s": "$lease_s"},
        (whole("watts", "Power limit, in watts", 1, 5_000, hint=hint), _lease_field()),
        _slows(gpu))


def lock_form(gpu: Item) -> SettingForm:
    most = gpu["facts"]["sm_clock_max_mhz"]
    limit = "" if most is None else f" The maximum of this GPU is {most:.0f} MHz."
    return SettingForm(
        "Lock the clocks of a GPU",
        {"type": "clock_lock", "gpu_uuid": literal(gpu["uuid"]), "min_mhz": "$min_mhz",
         "max_mhz": "$max_mhz", "lease_s": "$lease_s"},
        (whole("min_mhz", "From, in MHz", 1, 20_000, "210"),
         whole("max_mhz", "To, in MHz", 1, 20_000, hint=f"The SM clock.{limit}"), _lease_field()),
        _slows(gpu))


def undo_form(limit: Item) -> SettingForm:
    return SettingForm("Undo a limit", {"type": "limit_off", **literal(
        {"gpu_uuid": limit["gpu_uuid"], "what": limit["what"]})})


def mode_form(uuid: str) -> SettingForm:
    modes = (("exclusive_process", "One process at a time (with MPS: its server)"),
             ("default", "Several processes at a time"))
    return SettingForm(
        "Set the compute mode of a GPU",
        {"type": "compute_mode", "gpu_uuid": literal(uuid), "mode": "$mode"},
        (choice("mode", "Compute mode", modes, "exclusive_process") | {
            "hint": "Applies to processes started from now on."},))


def open_form(uuid: str) -> SettingForm:
    return SettingForm("Allow several processes on a GPU again", {
        "type": "compute_mode", "gpu_uuid": literal(uuid), "mode": "default"})


def split_form(uuid: str) -> SettingForm:
    return SettingForm(
        "Split a GPU by MIG",
        {"type": "mig_layout", "gpu_uuid": literal(uuid), "layout": "$layout"},
        (text("layout", "Layout", hint="none: no instance; off: MIG off too. Only a GPU that is "
              "cordoned or drained can be split.", maxlength="128", required="",
              placeholder="2x 3g.40gb + 1x 1g.10gb"),),
        "Instances that nobody uses are destroyed where the layout needs their place.")


def whole_form(uuid: str) -> SettingForm:
    return SettingForm("Destroy all MIG instances of a GPU", {
        "type": "mig_layout", "gpu_uuid": literal(uuid), "layout": "none"})


# -- service of a GPU or a node (`*`)


def drain_form(place: str) -> SettingForm:
    return SettingForm(
        "Drain: no new work, and its tasks may finish",
        {"type": "drain", "gpu_uuid": literal(place), "within_s": "$within_s"},
        (selection("within_s", "Time for the owners to finish", DRAIN_TIMES, "14400",
                "Nothing is ended automatically when this time has passed."),))


def diagnosis_form(place: str) -> SettingForm:
    return SettingForm(
        "Diagnose an empty GPU",
        {"type": "gpu_diagnosis", "gpu_uuid": literal(place), "level": "$level"},
        (selection("level", "Level", (("1", "1: seconds"), ("2", "2: a few minutes")), "1",
                "Passing does not prove that it is healthy."),))


def service_form(title: str, kind: str, place: str) -> SettingForm:
    return SettingForm(title, {"type": kind, "gpu_uuid": literal(place)})


# -- MPS


def _server_field(daemon: Item) -> Field:
    servers = [(str(server["pid"]), " ".join([
        f"new clients of server {server['pid']}",
        *([] if server["user"] is None else [f"({server['user']})"])])
        ) for server in daemon["servers"]]
    options = [*servers, (NEXT_SERVER, "the next server, as the default")]
    return selection("server", "Applies to", options, options[0][0],
                  "Running clients keep their current value.")


def _mps_form(title: str, kind: str, daemon: Item, fields: Sequence[Field], **values: str
              ) -> SettingForm:
    return SettingForm(title, {"type": kind, "pipes": literal(daemon["pipes"]), **values,
                               "server": "$server"}, (_server_field(daemon), *fields))


def share_form(daemon: Item) -> SettingForm:
    return _mps_form("Set the share of MPS clients", "mps_percent", daemon, (
        whole("pct", "Share of the GPU's threads, in whole %", 1, 100,
              hint="A maximum for each client, not a reservation."),), pct="$pct")


def memory_form(daemon: Item) -> SettingForm:
    return _mps_form("Limit the memory of MPS clients", "mps_memory", daemon, (
        whole("ordinal", "Device number, as MPS counts", 0, 31, "0"),
        text("size", "Memory per client (empty: no limit)", hint="Whole numbers only: MPS misreads "
             "fractions.", type="number", min="1", max="16777216", step="1") | {"times": "unit"},
        choice("unit", "Unit", (("1", "MiB"), ("1024", "GiB")), "1024")),
        ordinal="$ordinal", mem_mib="$size")


def preset_form(daemon: Item) -> SettingForm:
    presets = (("high", "High: 60 %, normal priority"), ("normal", "Normal: 30 %, normal priority"),
               ("low", "Low: 10 %, below normal"))
    return _mps_form("Use a preset for MPS clients", "mps_preset", daemon, (
        choice("name", "Preset", presets, "normal") | {"hint": "Applies to new clients."},),
        name="$name")


def daemon_form(title: str, kind: str, daemon: Item) -> SettingForm:
    return SettingForm(title, {"type": kind, "pipes": literal(daemon["pipes"])})
