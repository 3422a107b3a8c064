"""A job in words: what is wrong with it, its facts, and the events on its GPUs. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from dash.development.base_component import Component

from gpudeck.markup import make
from gpudeck.measures.events import kind_of

from ..fleet.host_views import CheckpointsView, ServingView
from ..jobs.core.collectives import collective_words
from ..jobs.core.findings import FindingEvidence, JobFinding
from ..jobs.core.phases import PhaseKind
from ..jobs.views import JobEventView, JobItem, JobPage, JobTasksNow
from .finding_words import sign_of
from .pool_tables import Facts
from .rank_map import label_of, rank_name, value_words
from .words import age, amount, bytes_words, moment, plural

UNKNOWN = "not known"
PARTLY_S = 120.0  # how long before its first sight a job has begun, to say so
RANKS_NAMED = 8
PHASES: dict[PhaseKind, str] = {
    "loading": "loading", "training": "training", "evaluation": "evaluation",
    "checkpoint": "checkpoint", "serving": "serving", "work": "at work", "pause": "pause",
    "idle": "idle", "unknown": UNKNOWN}
JOULES_PER_KWH = 3.6e6
OF_GPU = re.compile(r"GPU ([\d/]+): (.*)", re.S)


def subtitle(page: JobPage, zone: str, now: float) -> str:
    job, is_running = page.job, page.is_running
    owner = f"{job.user or 'owner unknown'}{f' ({job.team})' if job.team else ''}"
    state = _state_now(page.tasks_now) if is_running else (
        "ended at an unknown time" if job.ended_at is None else
        f"ended {moment(job.ended_at, zone)}")
    since = [] if job.started_at is None else [
        f"for {age(now - job.started_at)}" if is_running else
        f"from {moment(job.started_at, zone)}"]
    return "  ·  ".join([owner, ", ".join(job.hosts), plural(job.gpus, "GPU"), state, *since])


def _state_now(tasks: JobTasksNow | None) -> str:
    """Return the state of its tasks; where it is not that of all, of how many."""
    if tasks is None or not (tasks.suspended or tasks.paused):
        return "running"
    count, word = (tasks.suspended, "suspended") if tasks.suspended else (tasks.paused, "paused")
    whole = len(tasks.ids)
    return word if count == whole else f"{count} of {whole} {word}"


# -- findings


def finding_lines(page: JobPage, zone: str) -> list[Component]:
    return [_finding(page, finding, zone) for finding in page.findings] or [
        make("li.job-well", "No findings.")]


def _finding(page: JobPage, finding: JobFinding, zone: str) -> Component:
    since = "" if finding.since is None else f" Since {moment(finding.since, zone)}."
    rows, ranks = finding.ranks, page.ranks
    names = ", ".join(rank_name(ranks[row]) for row in rows[:RANKS_NAMED] if row < len(ranks))
    return make(f"li.finding.{finding.kind}", [
        make("strong", sign_of(finding.kind)), make("p", f"{finding.sentence}{since}"),
        make("dl", [make("div", [make("dt", label_of(one.metric)), make("dd", _proof(one))])
                    for one in finding.evidence if one.value is not None]),
        *([make("p.finding-ranks", names)] if 0 < len(rows) < len(ranks) else [])],
        data_key=finding.kind)


def _proof(evidence: FindingEvidence) -> str:
    metric, against = evidence.metric, evidence.against
    value = "" if evidence.value is None else value_words(metric, evidence.value)
    if against is None:
        return f"{value} {evidence.against_is}"
    return f"{value}; {evidence.against_is} {value_words(metric, against)}"


def marked_ranks(page: JobPage) -> set[int]:
    """Return the rows of ranks that a finding names, unless it names all."""
    return {row for finding in page.findings if len(finding.ranks) < len(page.ranks)
            for row in finding.ranks}


# -- facts


def facts_of(page: JobPage, zone: str) -> Facts:
    job, totals = page.job, page.totals
    memory = next((rank.mem_total_bytes for rank in page.ranks
                   if rank.mem_total_bytes is not None), None)
    began_before = job.started_at is not None and job.started_at < job.first_seen - PARTLY_S
    step, cost = page.step_period_s, page.cost_per_million_tokens
    return [
        ("Command", job.command or UNKNOWN),
        *((f"Serves ({server.engine})", serving_words(server)) for server in page.serving),
        *([] if not page.phases else [("Phase", phase_words(page, zone))]),
        *([] if step is None else [("Steps", f"one every {amount(step, 1)} s, by its power")]),
        *(("Checkpoints", _checkpoint_words(one, zone)) for one in page.checkpoints),
        *(("Collectives", collective_words(one)) for one in page.collectives),
        *_names(job), ("Nodes", ", ".join(job.hosts)), ("Processes", str(job.tasks)),
        *([] if cost is None else [
            ("Cost", f"{amount(cost, 2)} per million tokens, by the team's price for a "
             "GPU-hour")]),
        ("GPU memory", UNKNOWN if memory is None else f"{bytes_words(memory)} a GPU"),
        ("Held", f"{amount(totals.gpu_hours, 1)} GPU-hours"
         f"{', as far as recorded' if began_before else ''}"),
        ("Used", _or_unknown(totals.util_pct, "% average utilization")),
        ("Idle", _or_unknown(totals.idle_hours, "GPU-hours")),
        ("Energy", _or_unknown(totals.energy_kwh, "kWh")),
        ("First seen", moment(job.first_seen, zone))]


def phase_words(page: JobPage, zone: str) -> str:
    """Tell the last phase, and for how long there were which in the span. A phase that fills the
    span from its first minute on may have begun before."""
    last, totals = page.phases[-1], Counter[PhaseKind]()
    for phase in page.phases:
        totals[phase.kind] += phase.end - phase.start
    spans = [f"{PHASES[kind]} {age(seconds)}" for kind, seconds in totals.most_common()]
    began_at = page.job.first_seen if page.job.started_at is None else page.job.started_at
    is_cut = last.start <= page.start and began_at < last.start
    when = f"since {'before ' if is_cut else ''}{moment(last.start, zone)}"
    return (f"{PHASES[last.kind]} {when if page.is_running else 'at its end'}; "
            f"in this span {', '.join(spans)}")


def _or_unknown(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{amount(value, 1)} {unit}"


def _names(job: JobItem) -> Facts:
    pod = f"{job.namespace or ''}/{job.pod}" if job.pod else None
    names = (("Launch", job.launch), ("Slurm job", job.slurm_job), ("Pod", pod),
             ("Container", job.container and job.container[:12]), ("Unit", job.unit),
             ("Managed by", job.manager))
    return [(label, name) for label, name in names if name]


def serving_words(server: ServingView) -> str:
    """Return what a server does now, or why that is not known."""
    if server.trouble:
        return server.trouble
    joules = server.joules_per_million_tokens
    return ", ".join(words for value, words in (
        (server.generated_tokens_per_s, f"{amount(server.generated_tokens_per_s or 0)} tokens/s"),
        (server.running, f"{plural(server.running or 0, 'request')} running"),
        (server.waiting, f"{amount(server.waiting or 0)} waiting"),
        (server.cache_pct, f"KV cache {amount(server.cache_pct or 0)} %"),
        (server.first_token_s, f"first token after {amount(server.first_token_s or 0, 2)} s"),
        (joules, f"{amount((joules or 0) / JOULES_PER_KWH, 2)} kWh per million tokens"))
        if value is not None)


def _checkpoint_words(checkpoints: CheckpointsView, zone: str) -> str:
    return (f"every {age(checkpoints.every_s)}; the last one at "
            f"{moment(checkpoints.last_at, zone)}, the next one about "
            f"{moment(checkpoints.next_at, zone)}")


# -- events


def event_lines(page: JobPage, zone: str) -> list[Component]:
    events = together(page.events, {rank.gpu: rank.host for rank in page.ranks},
                      len(page.job.hosts) > 1, zone)
    return [make("li", [
        make("time", moment(at, zone)),
        f" GPU {', '.join(sorted(gpus))}: " if gpus else " ", make("span", what)])
        for at, what, gpus in reversed(events)] or [
            make("li", "No events on its GPUs in this time.")]


def _event_words(kind: str, words: str) -> str:
    """Return an event in words, as assets/live/event_lines.mjs does: its text alone may be no more
    than how long it took."""
    label = kind_of(kind).label
    if words.startswith("after "):
        return f"{label} {words}"
    return words if words.lower().startswith(label.lower()) else ": ".join(
        filter(None, (label, words)))


def together(events: Sequence[JobEventView], hosts: Mapping[str, str], has_nodes: bool, zone: str
             ) -> list[tuple[float, str, list[str]]]:
    """Return what all GPUs of a job report within a minute as one: when, what, on which. `hosts`:
    by GPU; `has_nodes`: the job is on several, and each GPU is named with its own."""
    lines: dict[tuple[str, str, bool], tuple[float, str, list[str]]] = {}
    for event in events:
        match = OF_GPU.fullmatch(event.text)
        place, words = match.groups() if match else (None, event.text)
        what, host = _event_words(event.kind, words), hosts.get(event.gpu or "")
        gpu = f"{host}:{place}" if place and has_nodes and host else place
        key = (moment(event.t, zone), what, gpu is None)
        _, _, gpus = lines.setdefault(key, (event.t, what, []))
        if gpu is not None and gpu not in gpus:
            gpus.append(gpu)
    return list(lines.values())
