"""Effect of a key on the view, and the request that it makes. Pure."""

from dataclasses import dataclass, replace
from typing import Literal

from gpudeck.contract.action_table import TaskAction

from .frame import TopView, shown_jobs
from .model import SORTS, JobRow, TopModel

UP, DOWN, PAGE_UP, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
HOME, END = ("\x1b[H", "\x1b[1~"), ("\x1b[F", "\x1b[4~")
STEPS = {UP: -1, "k": -1, "\x1bOA": -1, DOWN: 1, "j": 1, "\x1bOB": 1, PAGE_UP: -10, PAGE_DOWN: 10}
ENTER, ESCAPE, BACKSPACE = ("\r", "\n"), "\x1b", ("\x7f", "\b")
ACTS: dict[str, TaskAction] = {"p": "pause", "r": "resume", "e": "end", "n": "notify"}
FILTER_MOST = 1_000


@dataclass(frozen=True, slots=True)
class TopRequest:
    """`preview`: of an end, and nothing more. `refilter`: what is shown has to be read again."""

    do: Literal["quit", "act", "preview", "refilter", "redraw"]
    action: TaskAction = "end"
    job: JobRow | None = None


def apply_key(model: TopModel, view: TopView, key: str) -> tuple[TopView, TopRequest | None]:
    view = replace(view, message="")
    if view.entry is not None:
        return _edit_filter(view, view.entry, key)
    if key in ("q", "Q"):
        return view, TopRequest("quit")
    if key == "\x0c":  # Ctrl-L
        return view, TopRequest("redraw")
    if key == "?":
        return replace(view, has_help=not view.has_help), None
    if key == ESCAPE:
        was_plain = not (view.has_help or view.has_details)
        view = replace(view, has_help=False, has_details=False)
        if was_plain and view.filter:
            return replace(view, filter=""), TopRequest("refilter")
        return view, None
    if key == "/":
        return replace(view, entry=view.filter, has_help=False), None
    if key == "s":
        after = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
        return replace(view, sort=after, message=f"sorted by {after}"), None
    if key == "m":
        return replace(view, is_mine=not view.is_mine), TopRequest("refilter")
    return _on_jobs(model, view, key)


def _on_jobs(model: TopModel, view: TopView, key: str) -> tuple[TopView, TopRequest | None]:
    jobs = shown_jobs(model, view)
    at = next((at for at, job in enumerate(jobs) if job.key == view.selected), None)
    if (step := STEPS.get(key)) is not None or key in (*HOME, *END):
        if not jobs:
            return view, None
        there = (0 if key in HOME else len(jobs) - 1) if step is None else (
            0 if at is None else min(max(at + step, 0), len(jobs) - 1))
        return replace(view, selected=jobs[there].key), None
    if key not in (*ENTER, "t", "v", *ACTS):
        return view, None
    # What was selected may have ended since: its neighbour is never meant instead.
    if at is None:
        had_selection = view.selected is not None
        return replace(view, selected=None, has_details=False, message=(
            "the job that was selected has ended, or is not shown" if had_selection
            else "select a job first, with the arrow keys")), None
    job = jobs[at]
    if key in ENTER:
        return replace(view, has_details=not view.has_details), None
    if key == "t":
        return replace(view, opened=view.opened ^ {job.key}), None
    if key == "v":
        return view, TopRequest("preview", "end", job)
    return view, TopRequest("act", ACTS[key], job)


def _edit_filter(view: TopView, entry: str, key: str) -> tuple[TopView, TopRequest | None]:
    if key in ENTER:
        return replace(view, filter=entry.strip(), entry=None), TopRequest("refilter")
    if key == ESCAPE:
        return replace(view, entry=None), None
    if key in BACKSPACE:
        return replace(view, entry=entry[:-1]), None
    if key == "\x15":  # Ctrl-U
        return replace(view, entry=""), None
    if key.isprintable() and len(entry) < FILTER_MOST:
        return replace(view, entry=entry + key), None
    return view, None

