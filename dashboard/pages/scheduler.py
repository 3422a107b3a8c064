"""The page of a scheduler, Slurm or Kubernetes: the words above its tables, the tables, and the
buttons for what it can be asked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from ..jobs.kubernetes_views import KubernetesClusterView, KubernetesPodView
from ..jobs.slurm_views import SlurmClusterView, SlurmJobView
from .parts import problem
from .reading import Parts, Viewer
from .words import NONE, moment, plural, sentence

EVERY_S = 10.0
SHOWN = 500
ENDS_WORK = ("cancel", "delete")

Cluster = SlurmClusterView | KubernetesClusterView
Allocation = SlurmJobView | KubernetesPodView


@dataclass(frozen=True, slots=True)
class ActionForm:
    """Questions before an action: fields of a dialog, and where their values stand in its
    setting."""

    fields: Sequence[Mapping[str, Any]]
    setting: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler. `key`: in addresses of pages and of the API, and before the names of its
    actions; `thing`: what it allocates GPUs to; `none`: what to do where no agent speaks for it;
    `forms`: of actions that ask for more than a reason."""

    key: str
    name: str
    thing: str
    none: str
    forms: Mapping[str, ActionForm] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionTarget:
    """A job, a pod or a node as actions name it. `verbs`: those that fit its state;
    `owners_verbs`: those that the viewer may use without being an operator."""

    words: str
    setting: Mapping[str, object]
    verbs: Sequence[str]
    owners_verbs: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ClusterSection:
    """A cluster as the page shows it. `notes`: what only this scheduler has to say; `tables`: of
    the first SHOWN `allocations`, and of the nodes."""

    cluster: Cluster
    title: str
    allocations: Sequence[Allocation]
    notes: Sequence[str]
    tables: Sequence[Component]


def frame(scheduler: Scheduler) -> Component:
    key = scheduler.key
    return make(f"div#{key}.slurm-page", [
        make("header.slurm-head", [make("nav.crumbs", make("a", "Tasks", href="/tasks"),
                                        aria_label="Path"),
                                   make("h1", scheduler.name),
                                   make(f"p#{key}-words", "", role="status")]),
        problem(key),
        make(f"p#{key}-none.none", "Loading …", role="status"),
        make(f"div#{key}-place.slurm-place")],
        hidden=True, data_unsettled="")


def page_parts(scheduler: Scheduler, sections: Sequence[ClusterSection], ignored: Sequence[str],
               zone: str) -> Parts:
    key = scheduler.key
    allocations = [one for section in sections for one in section.allocations]
    idle = sum(one.without_process or 0 for one in allocations)
    note = (f"Ignored: {', '.join(ignored)}, since the hub's setting {key}_nodes does not name it."
            if ignored else "")
    words = (f"{plural(len(allocations), scheduler.thing)} with GPUs or waiting for some; "
             f"{plural(idle, 'GPU')} allocated without a process.")
    return {f"{key}-none": (note if sections else f"{scheduler.none} {note}".strip()) or None,
            f"{key}-words": words if sections else "",
            f"{key}-place": [_section(scheduler, section, zone) for section in sections]}


def _section(scheduler: Scheduler, section: ClusterSection, zone: str) -> Component:
    cluster = section.cluster
    version = "" if cluster.version == "" else f", {scheduler.name} {cluster.version}"
    return make("section.slurm-cluster", [
        make("h2", [section.title, " ", make("span.pill", f"by {cluster.host}{version}")]),
        *(make("p.act-warning", words) for words in cluster_notes(scheduler, section, zone)),
        *section.tables], data_node=cluster.node, data_key=cluster.node)


def cluster_notes(scheduler: Scheduler, section: ClusterSection, zone: str) -> list[str]:
    cluster, number = section.cluster, len(section.allocations)
    notes = [
        f"Not up to date: the last answer is of {moment(cluster.taken_at, zone)}."
        if cluster.is_stale else "",
        f"{scheduler.name} cannot be read: {sentence(cluster.trouble)}" if cluster.trouble else "",
        *section.notes,
        "" if cluster.actions else
        f"Read only: the ceiling of {cluster.host} permits no action on {scheduler.name}.",
        f"Not shown: {plural(cluster.left_out, scheduler.thing)} more."
        if cluster.left_out > 0 else "",
        f"The first {SHOWN} of {number} {scheduler.thing}s." if number > SHOWN else ""]
    return [words for words in notes if words]


def actions_cell(scheduler: Scheduler, cluster: Cluster, target: ActionTarget,
                 viewer: Viewer) -> Component:
    """Make a cell with the buttons that the state, the node's ceiling and the viewer's role permit;
    the hub decides again on each order."""
    return make("td.slurm-acts", [
        _button(scheduler, cluster.node, verb, target) for verb in target.verbs
        if f"{scheduler.key}_{verb}" in cluster.actions
        and (viewer.may(Role.OPERATOR) or verb in target.owners_verbs)])


def _button(scheduler: Scheduler, node: str, verb: str, target: ActionTarget) -> Component:
    action, label = f"{scheduler.key}_{verb}", verb.capitalize()
    form = scheduler.forms.get(action, ActionForm((), {}))
    return make(f"button.button.small{'.danger' if verb in ENDS_WORK else ''}", label,
                aria_label=f"{label} {target.words}", data_key=verb, data_act=action,
                data_targets=[node], data_title=f"{label} {target.words} of {scheduler.name}",
                data_setting={"type": action, **target.setting, **form.setting},
                data_fields=[*form.fields])


# -- tables


def table(name: str, heads: Sequence[str], rows: Sequence[Component]) -> Component:
    if not rows:
        return make("p.slurm-empty", f"{name}: none.", data_key=name)
    return make("div.slurm-scroll", make("table.slurm-table", [
        make("thead", make("tr", [make("th", words, scope="col") for words in heads])),
        make("tbody", [*rows])]), tabIndex="0", role="region", aria_label=name, data_key=name)


def number_words(value: int | None) -> str:
    return NONE if value is None else str(value)


def cell(words: str) -> Component:
    return make("td", words)


def soft_cell(words: str, more: str, tag: str = "span") -> Component:
    """Make a cell with a word and, in softer ink, what belongs to it."""
    return make("td", [make(tag, words), *([make("span.slurm-name", f" {more}")] if more else [])])


def unused_cell(allocation: Allocation) -> Component:
    """Make a cell of the GPUs that no process uses; why that is not known is its tooltip."""
    unused = allocation.without_process
    title = sentence(allocation.unknown) if allocation.unknown else None
    if unused is not None and unused > 0:
        return make("td.slurm-left", make("strong", str(unused)), title=title)
    return make("td", make("span", number_words(unused)), title=title)


def node_cell(name: str, host: str | None) -> Component:
    return cell(name) if host is None else make(
        "td", make("a", name, href=f"/node/{quote(host, safe='')}"))
