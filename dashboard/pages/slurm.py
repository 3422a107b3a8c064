"""The Slurm page: its frame; assets/slurm/slurm.mjs fills it."""

from functools import partial

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page, problem


def scheduler_frame(key: str, title: str) -> Component:
    return make(f"div#{key}.slurm-page", [
        make("header.slurm-head", [make("nav.crumbs", make("a", "Tasks", href="/tasks"),
                                        aria_label="Path"),
                                   make("h1", title),
                                   make(f"p#{key}-words", "", role="status")]),
        problem(key),
        make(f"p#{key}-none.none", "Loading …", role="status"),
        make(f"div#{key}-place.slurm-place")],
        hidden=True, data_unsettled="")


PAGE = Page(
    "slurm", "Slurm", "slurm/slurm.mjs", partial(scheduler_frame, "slurm", "Slurm"),
    "What Slurm has allocated next to what its jobs use. Jobs that hold GPUs without a process are "
    "listed first. Actions are Slurm's own, run by the agent that speaks for it, as far as its "
    "node permits them.", addresses=r"^/slurm$", under="/tasks")
