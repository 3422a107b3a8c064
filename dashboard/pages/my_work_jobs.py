"""The jobs of one person as rows: what each is and uses, what is wrong with it, and its actions.
Pure."""

from collections.abc import Sequence
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.contract.action_table import TaskAction
from gpudeck.markup import make
from gpudeck.words.command_lines import short_command

from ..fleet.task_list import TaskGroup
from ..jobs.views import FindingView
from .finding_words import sign_of
from .item_lists import ItemList, stacked
from .words import NONE, age, amount, bytes_words, capital, plural

IDLE_FROM_S = 60.0
NO_JOBS = "No job of yours runs on a GPU now. One is listed some seconds after its start."


def job_table(jobs: Sequence[TaskGroup], findings: Sequence[FindingView], may_act: bool, now: float
              ) -> Component:
    return ItemList("Your jobs", (
        ("Job", lambda job: _job(job, now)),
        ("Load", lambda job: _share("not known" if job.util_pct is None else
                                    f"{amount(job.util_pct)} %", job.util_pct, 100.0)),
        ("Memory", lambda job: _share(bytes_words(job.mem_used_bytes, "not known"),
                                      job.mem_used_bytes, job.mem_total_bytes)),
        ("Idle for", _idle),
        ("Findings", lambda job: _findings(job, findings))),
        lambda job: job.key, NO_JOBS,
        lambda job: action_buttons(job) if may_act and job.act_on else [], is_steady=True,
        meanings={"Load": "Utilization, average of its GPUs"}).draw(jobs)


def whole_command(command: str | None) -> str | None:
    """Return for the hover what runs, uncut, then how it was started."""
    if command is None:
        return None
    short = short_command(command)
    return command if short == command else f"{short}\n\nStarted as: {command}"


def action_buttons(job: TaskGroup) -> list[Component]:
    return [make(f"button.button.small{'.danger' if action == 'end' else ''}", words,
                 aria_label=f"{words} {short_command(job.command)}", data_key=action,
                 data_act=action, data_targets=[*job.act_on])
            for action in (way_on(job.paused, job.suspended), "end")
            for words in (capital(action),)]


def way_on(paused: int, suspended: int) -> TaskAction:
    """Return what may be done to a job, besides ending it, of whose tasks so many are paused and
    suspended."""
    return "restore" if suspended else "resume" if paused else "pause"


def _job(job: TaskGroup, now: float) -> Component:
    facts = (job.host or plural(job.nodes, "node"), plural(job.gpus, "GPU"),
             "" if job.started_at is None else f"for {age(now - job.started_at)}")
    pills = [word if count == job.tasks else f"{count} of {job.tasks} {word}"
             for count, word in ((job.paused, "paused"), (job.suspended, "suspended")) if count]
    return stacked(
        make("a.name", short_command(job.command), title=whole_command(job.command),
             href=f"/job/{quote(job.first_job or '', safe='')}"),
        *(make("span.pill.stale", pill) for pill in pills),
        make("small", " · ".join(filter(None, facts))))


def _share(words: str, value: float | None, full: float | None) -> Component:
    """Return a value, and below it which share of all that is."""
    bar = [] if value is None or not full else [
        make("i.t-bar", style={"--share": f"{min(100.0, 100 * value / full):.4g}%"})]
    return make("div.my-work-share", [make("span", words), *bar])


def _idle(job: TaskGroup) -> Component:
    idle = job.idle_s
    words = NONE if idle is None or job.suspended else "in use" if idle < IDLE_FROM_S else age(idle)
    is_idle = (idle or 0.0) >= IDLE_FROM_S and not job.suspended
    return make(f"span{'.pool-idle' if is_idle else ''}", words)


def findings_of(job: TaskGroup, findings: Sequence[FindingView]) -> list[FindingView]:
    return [finding for finding in findings if job.first_job in finding.jobs]


def _findings(job: TaskGroup, findings: Sequence[FindingView]) -> list[Component] | str:
    return [make("p.my-work-finding", [make("strong", f"{sign_of(finding.kind)}. "),
                                       finding.sentence])
            for finding in findings_of(job, findings)] or "none"
