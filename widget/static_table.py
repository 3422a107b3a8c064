"""The widget as a table that needs nothing: for a saved notebook, a viewer, a printer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from gpudeck.action_words import gib, printable, text_table

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


def still_of(shown: Item) -> StaticContent:
    title, *tables = _parts(shown)
    lines, marks = [title], [f"<p>{escape(title)}</p>"]
    for head, rows in tables:
        if rows:
            lines += ["", text_table([[*map(printable, row)] for row in (head, *rows)])]
            marks.append(_html_table(head, rows))
    return StaticContent("\n".join(lines),
                         f'<div class="gpudeck-still">{_STYLE}{"".join(marks)}</div>')


def _parts(shown: Item) -> list[Any]:
    if not shown:
        return ["gpudeck: nothing seen yet"]
    at = f"{datetime.fromtimestamp(shown['at'], UTC):%Y-%m-%d %H:%M:%S} UTC"
    if shown["kind"] == "fleet":
        return [f"gpudeck: {printable(shown['hub'])}, {shown['words']}, as of {at}",
                _quotas(shown["quotas"]), _done(shown["done"]), _leases(shown["leases"]),
                _claims(shown["claims"]), _free(shown["free"]), _tasks(shown["tasks"])]
    if not shown["gpus"]:
        return [f"gpudeck: {printable(shown['detail']) or 'no GPU here'} ({at})"]
    kind = "simulated GPUs" if shown["simulated"] else f"GPUs of {printable(shown['host'])}"
    return [f"gpudeck: {kind} as of {at}{shown['unseen'] and '. ' + shown['unseen']}",
            _gpus(shown["gpus"]), _tasks(shown["tasks"])]


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
            [[each["host"], str(each["gpus"]), each["name"]] for each in free])


def _quotas(quotas: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["your quota", "holder", "state"],
            [[each["quota"], each["holder"], ("over: " if each["is_over"] else "")
              + each["sentence"]] for each in quotas])


def _done(done: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["done to your tasks", "by", "on", "why"],
            [[each["words"], each["by"], each["host"], each["reason"]] for each in done])


def _leases(leases: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["your lease on", "GPUs", "until", "used", "command"],
            [[each["host"], ",".join(each["gpus"]) + (
                "" if each["share_pct"] >= 100 else f" ({each['share_pct']:.0f} %)"),
              _clock(each["until"]), "in use" if each["idle_since"] is None
              else f"idle since {_clock(each['idle_since'])}", each["command"][:COMMAND_WIDTH]]
             for each in leases])


def _claims(claims: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    return (["place in the queue", "request", "starts", "why it waits"],
            [[str(each["place"]), each["asks"],
              each["estimate"] if each["starts_at"] is None else _clock(each["starts_at"]),
              each["why"]] for each in claims])


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in cells)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
