"""Words of a terminal about actions: the preview, the question, each step, the outcome. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpudeck.contract.action_table import ROWS
from gpudeck.contract.action_views import (
    BystanderView,
    CommandView,
    PreviewItemView,
    PreviewView,
    ProcessView,
)
from gpudeck.contract.actions import CommandState
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.errors import ExitCode
from gpudeck.language.printable import printable as printable

UNKNOWN = "unknown"
LABEL_WIDTH = 9
MOST_PROCESSES = 12
MOST_BYSTANDERS = 12

_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60

EXIT_OF: dict[CommandState, ExitCode] = {
    "done": ExitCode.OK, "refused": ExitCode.REFUSED, "not_effective": ExitCode.NOT_EFFECTIVE,
    "unkillable": ExitCode.UNKILLABLE, "expired": ExitCode.EXPIRED, "unknown": ExitCode.UNKNOWN,
}
# The state that a person must look at first comes first.
_WORST: tuple[CommandState, ...] = (
    "unkillable", "unknown", "not_effective", "refused", "expired", "done")

_MEANING: dict[CommandState, str] = {
    "requested": "asked for", "queued": "queued", "sent": "sent to the node",
    "accepted": "the node has it", "acting": "the node acts", "done": "done and verified",
    "refused": "refused", "not_effective": "done, without effect",
    "unkillable": "still there after SIGKILL", "expired": "expired, nothing was done",
    "unknown": "unknown; it may or may not have been done",
}


def words(text: str | None) -> str:
    return UNKNOWN if text is None else printable(text)


def gib(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount / 2**30:.1f} GiB"


def age(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    if whole >= _DAY_S:
        return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"
    if whole >= _HOUR_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _MINUTE_S} min" if whole >= _MINUTE_S else f"{whole} s"


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Align rows in columns. The first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{_PLURAL.get(noun, 's')}"


_PLURAL = {"process": "es"}


def short(task_id: str) -> str:
    """Return a task's pid on its node, as people call it; never enough to act on."""
    parts = task_id.split("-")
    return parts[-2] if len(parts) > 2 else task_id


def clock(at: float) -> str:
    """Format a time of day in UTC, so that terminals, logs and pages of several places agree."""
    return f"{datetime.fromtimestamp(int(at), UTC):%H:%M:%S} UTC"


def second_words(at: float) -> str:
    return f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M:%S}"


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


# -- the preview


def preview_lines(view: PreviewView) -> list[str]:
    lines = [_headline(view), *_how(view)]
    for item in view.items:
        lines += ["", *item_lines(item)]
    left_out = len(view.items) - len(view.possible)
    if left_out:
        lines += ["", f"{left_out} of {many(len(view.items), 'job')} would be refused and "
                      f"{'is' if left_out == 1 else 'are'} left out"]
    if view.needs.second_person:
        lines += ["", "more than 3 jobs: a second person must approve this"]
    if view.needs.maintenance:
        lines += ["", "this node is in maintenance: confirm twice"]
    return lines


def _headline(view: PreviewView) -> str:
    hosts = sorted({printable(item.host) for item in view.items})
    where = hosts[0] if len(hosts) == 1 else many(len(hosts), "node")
    if any(item.changes for item in view.items):
        return f"{view.action} on {where}{_gpu(view.params.get('setting') or {})}"
    return f"{view.action}: {many(len(view.items), 'job')} on {where}"


def _gpu(setting: Mapping[str, Any]) -> str:
    """Return the GPU that a setting is for, which was perhaps named by its number."""
    uuid = setting.get("gpu_uuid", WHOLE_NODE)
    return "" if uuid == WHOLE_NODE else f", {printable(uuid)}"


def _how(view: PreviewView) -> list[str]:
    params, names = view.params, {param.name for param in ROWS[view.action].params}
    lines = [_line("says", words(params.get("text")))] if "text" in names else []
    if params.get("checkpoint_within_s"):
        lines.append(_line("after", "its next checkpoint, waited for up to "
                                    f"{age(params['checkpoint_within_s'])}"))
    if "checkpoint_signal" in names and params.get("checkpoint_signal"):
        lines.append(_line("first", f"SIG{params['checkpoint_signal']}, then up to "
                                    f"{age(params.get('checkpoint_wait_s'))} for its checkpoint"))
    if "grace_s" in names:
        lines.append(_line("then", f"SIGTERM, {age(params.get('grace_s'))} of grace, SIGKILL"))
    return lines


def item_lines(item: PreviewItemView) -> list[str]:
    if item.changes:
        return _setting_lines(item)
    lines = [
        f"{printable(item.host)}  {words(item.owner)}  {words(item.command)}",
        _line("age", age(item.age_s)),
        _line("memory", _memory(item)),
        _line("job", f"{words(item.job_id)}, {many(len(item.processes), 'process')}"),
        *_cut([_process(process) for process in item.processes], MOST_PROCESSES, "process"),
    ]
    if item.kind is not None:
        lines.append(_line("kind", printable(item.kind).replace("_", " ")))
    lines.append(_line("manager", "none" if item.manager is None else printable(item.manager)))
    lines += _beside(item.bystanders)
    if item.keep is not None:
        lines.append(_line("KEEP", f"until {moment(item.keep.until)}: "
                                   f"{printable(item.keep.because)} ({words(item.keep.by)})"))
    return lines + _notes(item)


def _setting_lines(item: PreviewItemView) -> list[str]:
    lines = [printable(item.host)]
    lines += [_line("changes", f"{printable(change.what)}: {printable(change.before)} -> "
                               f"{printable(change.after)}") for change in item.changes]
    if item.processes:
        lines.append(_line("ENDS", f"the work of {many(len(item.processes), 'client')}"))
        lines += _cut([_process(process) for process in item.processes], MOST_PROCESSES, "process")
    lines += _beside(item.bystanders) if item.bystanders else []
    return lines + _notes(item)


def _notes(item: PreviewItemView) -> list[str]:
    return [*(_line("note", printable(warning)) for warning in item.warnings),
            *(_line("REFUSED", f"{printable(refusal.sentence)} ({printable(refusal.code)})")
              for refusal in item.refusals)]


def _line(label: str, text: str) -> str:
    return f"  {label:{LABEL_WIDTH}}{text}"


def _memory(item: PreviewItemView) -> str:
    on = ", ".join(
        f"GPU {printable(gpu.uuid)[:12] if gpu.index is None else gpu.index} "
        f"({gib(gpu.mem_used_bytes)})" for gpu in item.gpus)
    return f"{gib(item.mem_used_bytes)} on {on or 'no GPU'}"


def _process(process: ProcessView) -> str:
    task = "" if process.task_id is None else f"  task {printable(process.task_id)}"
    return _line("", f"{process.pid}  {words(process.user)}  {words(process.command)}{task}")


def _beside(bystanders: Sequence[BystanderView]) -> list[str]:
    if not bystanders:
        return [_line("beside", "no other task on its GPUs")]
    lines = [_line("beside", f"{many(len(bystanders), 'other task')} on its GPUs, to stay:")]
    return lines + _cut(
        [_line("", f"{words(other.user)}  {words(other.command)}  task {printable(other.task_id)}")
         for other in bystanders], MOST_BYSTANDERS, "task")


def _cut(lines: list[str], most: int, noun: str) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[:most], _line("", f"and {many(len(lines) - most, noun)} more; --json lists all")]


# -- the question


@dataclass(frozen=True, slots=True)
class ConfirmationPrompt:
    prompt: str
    accepted: tuple[str, ...]  # all else means no

    def is_yes(self, answer: str) -> bool:
        return answer.strip().lower() in self.accepted


def question(view: PreviewView) -> ConfirmationPrompt:
    """Return the question to confirm. Ending several jobs requires a word that nobody types by
    hitting Enter."""
    count = len(view.possible)
    if ROWS[view.action].is_typed and count > 1:
        word = short(view.possible[0].task_ids[0])
        return ConfirmationPrompt(f"type {word}, the first of them, to {view.action} "
                                  f"{many(count, 'job')}: ", (word.lower(),))
    whose = "" if count != 1 else f" of {words(view.possible[0].owner)}"
    return ConfirmationPrompt(f"{view.action} {many(count, 'job')}{whose}? [y/N] ", ("y", "yes"))


# -- the steps


def step_line(command: CommandView, at: float) -> str:
    what = printable(command.step) or _MEANING[command.state]
    name = command.job_id if command.task_id is None else short(command.task_id)
    whose = "" if name is None else f" {printable(name)}"  # a setting is of no task
    return f"{clock(at)}  {printable(command.host)}{whose}  {command.state}: {what}"


def end_line(command: CommandView) -> str:
    return printable(command.sentence) or _MEANING[command.state]


def exit_code(states: Iterable[CommandState]) -> ExitCode:
    """Return the code of the worst state; a state that is no outcome counts as unknown."""
    codes = {EXIT_OF.get(state, ExitCode.UNKNOWN) for state in states}
    return next((code for state in _WORST if (code := EXIT_OF[state]) in codes), ExitCode.REFUSED)
