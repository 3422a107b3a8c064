"""The widget as a table without scripts: for a saved notebook, a viewer, a printer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from gpudeck.language.printable import printable
from gpudeck.words.actions import gib, moment, text_table

Item = dict[str, Any]

COMMAND_WIDTH = 60
# While the widget lives it takes the place of the still; where it does not, the still takes the
# place of the error that Jupyter shows.
_STYLE = """<style>
.jp-OutputArea-child:has(.gpudeck) + .jp-OutputArea-child:has(.gpudeck-still) { display: none; }
.jp-OutputArea-child:not(:has(.gpudeck)):has(+ .jp-OutputArea-child .gpudeck-still)
{ display: none; }
.gpudeck-still td, .gpudeck-still th { text-align: left; padding: 2px 12px 2px 0; }
</style>"""


@dataclass(frozen=True, slots=True)
class StaticContent:
    text: str
    html: str


def still_of(picture: Mapping[str, Any]) -> StaticContent:
    title, *tables = _parts(picture)
    lines, marks = [title], [f"<p>{escape(title)}</p>"]
    for head, rows in tables:
        if rows:
            lines += ["", text_table([[*map(printable, row)] for row in (head, *rows)])]
            marks.append(_html_table(head, rows))
    return StaticContent("\n".join(lines),
                         f'<div class="gpudeck-still">{_STYLE}{"".join(marks)}</div>')


def _parts(picture: Mapping[str, Any]) -> list[Any]:
    if not picture:
        return ["gpudeck: nothing seen yet"]
    at = f"{datetime.fromtimestamp(picture['at'], UTC):%Y-%m-%d %H:%M:%S} UTC"
    if picture["kind"] == "fleet":
        return [f"gpudeck: {printable(picture['hub'])}, {picture['words']}, as of {at}",
                _quotas(picture["quotas"]), _recent_actions(picture["done"]),
                _leases(picture["leases"]), _claims(picture["claims"]), _free(picture["free"]),
                _tasks(picture["tasks"])]
    if not picture["gpus"]:
        return [f"gpudeck: {printable(picture['detail']) or 'no GPU here'} ({at})"]
    kind = "simulated GPUs" if picture["simulated"] else f"GPUs of {printable(picture['host'])}"
    return [f"gpudeck: {kind} as of {at}{picture['unseen'] and '. ' + picture['unseen']}",
            _gpus(picture["gpus"]), _tasks(picture["tasks"])]


def _gpus(gpus: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["GPU", "name", "utilization", "memory", "of", "held by", "temperature", "power"],
            [[gpu["place"], gpu["name"], _number(gpu, "util_pct", "%"),
              gib(gpu["values"].get("mem_used_bytes")), gib(gpu["total"]),
              ", ".join(f"{part['who']} {gib(part['bytes'])}" for part in gpu["held"]) or "nobody",
              _number(gpu, "temp_c", "°C"), _number(gpu, "power_w", "W")] for gpu in gpus])


def _number(gpu: Item, key: str, unit: str) -> str:
    value = gpu["values"].get(key)
    return gpu["missing"].get(key, "unknown") if value is None else f"{value:.0f} {unit}"


def _tasks(tasks: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["your task", "GPU", "memory", "SM", "state", "command"],
            [["this kernel" if task["kernel"] else " ".join(filter(None, [
                task["node"], str(task["pid"]), "of this kernel" if task["child"] else ""])),
              ",".join(task["gpus"]), gib(task["mem"]),
              "unknown" if task["sm"] is None else f"{task['sm']:.0f} %",
              task["state"] or "unknown", (task["command"] or "unknown")[:COMMAND_WIDTH]]
             for task in tasks])


def _free(free: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["free GPUs on", "how many", "name"],
            [[node["host"], str(node["gpus"]), node["name"]] for node in free])


def _quotas(quotas: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["your quota", "holder", "state"],
            [[quota["quota"], quota["holder"], ("over: " if quota["is_over"] else "")
              + quota["sentence"]] for quota in quotas])


def _recent_actions(actions: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["done to your tasks", "by", "on", "why"],
            [[action["words"], action["by"], action["host"], action["reason"]]
             for action in actions])


def _leases(leases: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["your lease on", "GPUs", "until", "used", "command"],
            [[lease["host"], ",".join(lease["gpus"]) + (
                "" if lease["share_pct"] >= 100 else f" ({lease['share_pct']:.0f} %)"),
              moment(lease["until"]), "in use" if lease["idle_since"] is None
              else f"idle since {moment(lease['idle_since'])}", lease["command"][:COMMAND_WIDTH]]
             for lease in leases])


def _claims(claims: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["place in the queue", "request", "starts", "why it waits"],
            [[str(claim["place"]), claim["asks"],
              claim["estimate"] if claim["starts_at"] is None else moment(claim["starts_at"]),
              claim["why"]] for claim in claims])


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in cells)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
