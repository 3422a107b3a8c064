"""The panel about MPS on a node: its daemons, servers and clients, and what its doctor finds.
Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make
from gpudeck.words.command_lines import short_command

from .limit_panels import acts, note, pill, sentence_or_none
from .my_work_jobs import whole_command
from .parts import literal
from .setting_forms import (
    SettingForm,
    act_button,
    daemon_form,
    memory_form,
    node_names,
    preset_form,
    share_form,
)
from .words import plural, sentence

Item = dict[str, Any]
UNREPORTED = "The node has not reported whether MPS is running."
NO_DAEMON = "No MPS control daemon is running, and none left files behind."
PRIORITIES = {0: "normal priority", 1: "below normal priority"}
UNKNOWN_OWNER = "owner unknown"
GPU_FIX = "compute_mode"  # the fix that is about a GPU
FIX_ACTIONS = {"mps_start": "start_mps", "mps_restart": "restart_mps", "mps_percent": "set_mps",
               "mps_memory": "set_mps", "mps_priority": "set_mps", GPU_FIX: "set_compute_mode"}


def mps_panel(node: str, host: str, report: Item | None, indices: Mapping[str, int],
              may_act: bool) -> list[Component]:
    """Return the panel. `report`: what the node reported; `indices`: of its GPUs, by UUID."""
    if report is None:
        return [note(UNREPORTED)]
    daemons, findings = report["daemons"], report["findings"]
    if not daemons and not findings:
        return [note(sentence_or_none(report["trouble"]) or NO_DAEMON)]
    return [*(_daemon(node, host, daemon, may_act) for daemon in daemons),
            _doctor(node, findings, indices, may_act)]


def _doctor(node: str, findings: Sequence[Item], indices: Mapping[str, int], may_act: bool
            ) -> Component:
    is_wrong = any(finding["weight"] == "fault" for finding in findings)
    verdict = pill("problems found", "lost") if is_wrong else pill("no problems found", "ok")
    lines = make("ul.mps-findings", [
        _finding(node, finding, indices, may_act) for finding in findings]) if findings else note(
        "Checked: daemons, servers, logs and the GPUs' compute modes.")
    return make("div.limit.mps-doctor", [
        make("p", [make("strong", "MPS doctor"), " ", verdict]), lines],
        role="group", aria_label="MPS doctor", data_key="doctor")


def _finding(node: str, finding: Item, indices: Mapping[str, int], may_act: bool) -> Component:
    code = finding["code"]
    weight = pill("fix needed", "lost") if finding["weight"] == "fault" else pill(
        "advice", "stale")
    fixes = [_fix(f"fix {code} {at}", node, fix, indices)
             for at, fix in enumerate(finding["fixes"]) if fix["type"] in FIX_ACTIONS
             # A node's report is a reason for acts on its own GPUs only.
             and fix.get("gpu_uuid") in (None, *indices)]
    return make("li", [
        make("p", [weight, f" {sentence_or_none(finding['cause'])}"]),
        note(sentence_or_none(finding["remedy"])), *acts(fixes, may_act)],
        data_code=code, data_key=f"{code} {finding['cause']}")


def _fix(key: str, node: str, fix: Item, indices: Mapping[str, int]) -> Component:
    words = fix_words(fix, indices)
    return act_button(words, key, FIX_ACTIONS[fix["type"]], fix.get("gpu_uuid", node),
                      SettingForm(words, literal(fix)))


def fix_words(fix: Item, indices: Mapping[str, int]) -> str:
    kind = fix["type"]
    if kind in ("mps_start", "mps_restart"):
        return "Start MPS" if kind == "mps_start" else "Restart MPS"
    if kind == "mps_percent":
        return f"Set {fix['pct']} % again"
    if kind == "mps_memory":
        limit = "no limit" if fix["mem_mib"] is None else f"{fix['mem_mib']} MiB"
        return f"Set {limit} on device {fix['ordinal']} again"
    if kind == "mps_priority":
        return f"Set {'normal priority' if fix['priority'] == 0 else 'below normal'} again"
    return f"Make GPU {indices[fix['gpu_uuid']]} exclusive"


def _daemon(node: str, host: str, daemon: Item, may_act: bool) -> Component:
    pipes, is_alive, servers = daemon["pipes"], daemon["is_alive"], daemon["servers"]
    state = pill("answers", "ok") if is_alive else pill("does not answer", "lost")
    owner = "" if daemon["user"] is None else f"of {daemon['user']}"
    trouble = [make("p.act-warning", sentence(daemon["trouble"]))] if daemon["trouble"] else []
    usual = [note(f"Default for the next server: {_share(daemon['default_pct'])}, "
                  f"{PRIORITIES.get(daemon['default_priority'], 'priority unknown')}"
                  f"{_memory(daemon['default_memory'])}.")] if is_alive else []
    none = [note("No server yet: the first client starts one.")] if is_alive and not servers else []
    return make("div.limit", [
        make("p", [make("code", pipes), " ", state, f" {owner}"]), *trouble, *usual,
        *(_server(server, may_act) for server in servers), *none,
        *acts(_daemon_buttons(node, host, daemon), may_act)], data_pipes=pipes, data_key=pipes)


def _daemon_buttons(node: str, host: str, daemon: Item) -> list[Component]:
    about = node_names(host)
    plain = [("Restart", "restart"), ("Stop", "stop")] if daemon["is_alive"] else [
        ("Start", "start")]
    buttons = [act_button(words, key, f"{key}_mps", node, daemon_form(
        f"{words} MPS", f"mps_{key}", daemon), about=about) for words, key in plain]
    if not daemon["is_alive"]:
        return buttons
    return [act_button("Share", "share", "set_mps", node, share_form(daemon), about=about),
            act_button("Memory", "memory", "set_mps", node, memory_form(daemon), about=about),
            act_button("Preset", "preset", "set_mps", node, preset_form(daemon), about=about),
            *buttons]


def _server(server: Item, may_act: bool) -> Component:
    pid, clients = server["pid"], server["clients"]
    status = "" if server["status"] is None else f", {server['status'].lower()}"
    return make("div.mps-server", [
        make("p", [make("strong", f"Server {pid}"),
                   f" {server['user'] or UNKNOWN_OWNER}{status}: new clients get "
                   f"{_share(server['pct'])}{_memory(server['memory'])}; "
                   f"{plural(len(clients), 'client')}."]),
        make("ul.mps-clients", [_client(client, server["pct"], may_act) for client in clients])],
        data_server=str(pid), data_key=str(pid))


def _client(client: Item, server_pct: float | None, may_act: bool) -> Component:
    pid, task, is_old = client["pid"], client["task_id"], client["pct"] != server_pct
    out = [act_button("Disconnect client", "out", "terminate_client", task)] if (
        may_act and task) else []
    return make("li", [
        make("span.act-pid", str(pid)), make("span", client["user"] or UNKNOWN_OWNER),
        make("code", short_command(client["command"]), title=whole_command(client["command"])),
        make(f"span{'.limits-old' if is_old else ''}", _share(client["pct"]),
             title="This client keeps the value it started with" if is_old
             else "The server's current value"), *out], data_pid=str(pid), data_key=str(pid))


def _share(pct: float | None) -> str:
    return "an unknown share" if pct is None else f"{pct:g} %"


def _memory(limits: Sequence[tuple[int, str]]) -> str:
    return "".join(f", {limit} on device {ordinal}" for ordinal, limit in limits)
