"""The Slurm page: jobs that hold GPUs or wait for some, and nodes, with what Slurm can be asked."""

from functools import partial

from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.contract.slurm import OWNERS_MAY
from gpudeck.markup import make

from ..jobs.slurm_views import SlurmClusterView, SlurmJobView, SlurmList, SlurmNodeView
from .parts import READ_PAGE, Page
from .reading import Parts, Reading, View, Viewer, viewer
from .scheduler import (
    EVERY_S,
    SHOWN,
    ActionTarget,
    ClusterSection,
    Scheduler,
    actions_cell,
    cell,
    frame,
    node_cell,
    number_words,
    page_parts,
    soft_cell,
    table,
    unused_cell,
)
from .words import NONE, age, sentence

SLURM = Scheduler(
    "slurm", "Slurm", "job", "No agent reports Slurm yet. Start one with --slurm on a host that "
    "has Slurm's client programs, and name that host in the hub's setting slurm_nodes.")
JOB_HEADS = ("Job", "Owner", "State", "Partition", "Nodes", "GPUs", "Without process", "Time", "")
NODE_HEADS = ("Node", "State", "Allocated", "Partitions", "Reason", "")
OWNERS_VERBS = tuple(str(kind.__struct_config__.tag).removeprefix("slurm_") for kind in OWNERS_MAY)


def answer(client: Client, view: View, now: float) -> Parts:
    return parts_of(typed(SlurmList, client.hub.get("slurm")), viewer(client), view.zone, now)


def parts_of(listed: SlurmList, person: Viewer, zone: str, now: float) -> Parts:
    """Return the parts of the page. Pure."""
    sections = [_section(cluster, person, now) for cluster in listed.items]
    return page_parts(SLURM, sections, listed.ignored, zone)


def _section(cluster: SlurmClusterView, person: Viewer, now: float) -> ClusterSection:
    jobs = [_job(cluster, job, person, now) for job in cluster.jobs[:SHOWN]]
    nodes = [_node(cluster, node, person) for node in cluster.nodes]
    return ClusterSection(cluster, cluster.cluster or "Slurm", cluster.jobs, notes(cluster), [
        table("Jobs", JOB_HEADS, jobs), table("Nodes", NODE_HEADS, nodes)])


def notes(cluster: SlurmClusterView) -> list[str]:
    return [sentence(cluster.hidden) if cluster.hidden else "",
            f"Slurm lets the account {cluster.account} act on its own jobs alone."
            if cluster.rights == "own" else ""]


def _job(cluster: SlurmClusterView, job: SlurmJobView, person: Viewer, now: float) -> Component:
    target = ActionTarget(
        f"job {job.id}", {"job": job.id, "submitted_at": round(job.submitted_at)}, job.may,
        OWNERS_VERBS if person.may_change(job.user) else ())
    return make("tr", [
        soft_cell(job.id, job.name, "strong"), cell(job.user or NONE),
        soft_cell(job.state, job.reason), cell(job.partition or NONE),
        cell(", ".join(job.nodes)), cell(number_words(job.gpus)), unused_cell(job),
        cell(_time_words(job, now)), actions_cell(SLURM, cluster, target, person)],
        data_job=job.id, data_key=f"{job.id} {job.submitted_at}")


def _time_words(job: SlurmJobView, now: float) -> str:
    if job.started_at is None:
        return ""
    return age(now - job.started_at) + ("" if job.limit_s is None else f" of {age(job.limit_s)}")


def _node(cluster: SlurmClusterView, node: SlurmNodeView, person: Viewer) -> Component:
    target = ActionTarget(f"node {node.name}", {"node": node.name}, node.may)
    allocated = NONE if node.gpus is None else f"{number_words(node.allocated)} of {node.gpus}"
    return make("tr", [
        node_cell(node.name, node.host), cell(" + ".join(node.states)), cell(allocated),
        cell(node.partitions), cell(node.reason), actions_cell(SLURM, cluster, target, person)],
        data_key=node.name, **{"data-slurm-node": node.name})


PAGE = Page(
    "slurm", "Slurm", READ_PAGE, partial(frame, SLURM),
    "What Slurm has allocated next to what its jobs use. Jobs that hold GPUs without a process are "
    "listed first. Actions are Slurm's own, run by the agent that speaks for it, as far as its "
    "node permits them.", addresses=r"^/slurm$", under="/tasks",
    reading=Reading(View, answer, EVERY_S))
