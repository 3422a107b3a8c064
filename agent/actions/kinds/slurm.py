"""Actions by Slurm's own commands, read back afterwards: `scancel` of a job that is not there says
neither a word nor an error."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import SettingChange
from gpudeck.contract.slurm import (
    HOLDING,
    SlurmCancel,
    SlurmContinue,
    SlurmDrain,
    SlurmHold,
    SlurmJob,
    SlurmJobRequest,
    SlurmNode,
    SlurmRelease,
    SlurmRequeue,
    SlurmResume,
    SlurmRights,
    SlurmSetting,
    SlurmSuspend,
)

from ...slurm.programs import SlurmError, SlurmPrograms
from .execution import ActionExecution
from .setting_kind import Applied, SettingKind, many

READ_BACK_S = 20.0
LOOK_EVERY_S = 0.5
REASON_MOST = 200
NOT_HERE = ("this agent does not speak for Slurm: start it with --slurm on a machine that has "
            "Slurm's client programs")
NO_RIGHT = ("Slurm lets the account {account} of this agent act on its own jobs alone. Run the "
            "agent as SlurmUser or root, or give the account AdminLevel=Operator in Slurm's "
            "accounting.")
_WANTED: dict[type, str] = {
    SlurmCancel: "cancelled", SlurmHold: "held", SlurmRelease: "released",
    SlurmRequeue: "queued again", SlurmSuspend: "suspended", SlurmContinue: "running",
    SlurmDrain: "draining", SlurmResume: "in service"}


@dataclass(frozen=True, slots=True)
class SlurmPreview:
    """State of a job or node as Slurm reports it. `trouble`: why it cannot be asked."""

    trouble: str
    account: str
    rights: SlurmRights
    job: SlurmJob | None = None
    node: SlurmNode | None = None


def preview_of(slurm: SlurmPrograms | None, setting: SlurmSetting) -> SlurmPreview:
    if slurm is None:
        return SlurmPreview(NOT_HERE, "", "unknown")
    account = slurm.account()
    try:
        rights = slurm.rights(slurm.config())
        if isinstance(setting, SlurmJobRequest):
            return SlurmPreview("", account, rights, job_of(slurm.jobs(), setting))
        matches = (node for node in slurm.nodes() if node.name == setting.node)
        return SlurmPreview("", account, rights, node=next(matches, None))
    except SlurmError as why:
        return SlurmPreview(str(why), account, "unknown")


def job_of(jobs: tuple[SlurmJob, ...], request: SlurmJobRequest) -> SlurmJob | None:
    return next((job for job in jobs
                 if (job.id, job.submitted_at) == (request.job, float(request.submitted_at))), None)


def flaws(setting: SlurmSetting, preview: SlurmPreview) -> Iterator[Refusal]:
    if preview.trouble:
        yield Refusal("unreadable", f"{preview.trouble}; nothing was touched")
        return
    if isinstance(setting, SlurmJobRequest):
        yield from _job_flaws(setting, preview.job)
    else:
        yield from _node_flaws(setting, preview.node)
    is_own = preview.job is not None and preview.job.user == preview.account
    if preview.rights != "all" and not is_own:
        yield Refusal("permission", NO_RIGHT.format(account=preview.account))


def _job_flaws(setting: SlurmJobRequest, job: SlurmJob | None) -> Iterator[Refusal]:
    if job is None or job.is_over:
        yield Refusal("gone", f"Slurm has no job {setting.job} any more that was submitted then")
    elif job.is_het:
        yield Refusal("setting", "it is part of a heterogeneous job, which Slurm handles as a "
                                 "whole: act on that by Slurm's own commands")
    elif why := _unfit(setting, job):
        yield Refusal("setting", f"{why}; it is {job.state}"
                                 + (f" ({job.reason})" if job.reason else ""))


def _unfit(setting: SlurmJobRequest, job: SlurmJob) -> str:
    if isinstance(setting, SlurmHold) and (job.state != "PENDING" or job.is_held):
        return "only a job that waits can be held, once"
    if isinstance(setting, SlurmRelease) and not job.is_held:
        return "only a job that is held can be released"
    if isinstance(setting, SlurmRequeue) and job.state not in ("RUNNING", "SUSPENDED"):
        return "only a job that runs can be queued again"
    if isinstance(setting, SlurmSuspend) and job.state != "RUNNING":
        return "only a job that runs can be suspended"
    if isinstance(setting, SlurmContinue) and job.state != "SUSPENDED":
        return "only a job that is suspended can continue"
    return ""


def _node_flaws(setting: SlurmSetting, node: SlurmNode | None) -> Iterator[Refusal]:
    if node is None:
        yield Refusal("gone", "Slurm has no node of this name")
    elif isinstance(setting, SlurmDrain) and node.is_draining:
        yield Refusal("setting", f"Slurm drains it already: {node.reason or 'no reason is given'}")
    elif isinstance(setting, SlurmResume) and _is_in_service(node):
        yield Refusal("setting", "it is in service")


def _is_in_service(node: SlurmNode) -> bool:
    return not node.is_draining and not {"DOWN", "FAIL", "FAILING"} & {*node.states}


def changes(setting: SlurmSetting, preview: SlurmPreview) -> tuple[SettingChange, ...]:
    job, node, outcome = preview.job, preview.node, _WANTED[type(setting)]
    if job is not None:
        where = f" on {', '.join(part.node for part in job.nodes[:4])}" if job.nodes else ""
        name = f" ({job.name})" if job.name else ""
        return (SettingChange(f"job {job.id} of {job.user or 'an unknown user'}{name}"[:1_024],
                              f"{job.state}{where}"[:1_024], outcome),)
    if node is not None:
        return (SettingChange(f"node {node.name}", " + ".join(node.states)[:1_024], outcome),)
    return ()


def warnings(setting: SlurmSetting, preview: SlurmPreview) -> Iterator[str]:
    job, node = preview.job, preview.node
    if isinstance(setting, SlurmCancel | SlurmRequeue) and job is not None and job.holds_gpus:
        yield ("How many GPUs it holds is not known." if job.gpus is None else
               f"It holds {many(job.gpus, 'GPU')}.")
    if isinstance(setting, SlurmSuspend):
        yield "It keeps its GPUs, and its memory stays on them."
    if isinstance(setting, SlurmHold) and preview.rights == "all":
        yield "Held by Slurm's administrator: its owner cannot release it."
    if isinstance(setting, SlurmDrain) and node is not None and node.allocated:
        yield f"{many(node.allocated, 'GPU')} of it stay with jobs until these end."


def do(act: ActionExecution, setting: SlurmSetting) -> Applied:
    slurm = act.context.schedulers.slurm
    assert slurm is not None  # a fresh preview has just refused otherwise
    try:
        applied, output = slurm.do(*_words(act, setting))
        act.report("reading back what Slurm says")
        is_done, words = _read_back(slurm, setting)
    except SlurmError as why:
        # Whether Slurm took it is not known: neither done nor refused.
        return False, None, f"{why}. What became of it is not known: look at Slurm."
    return applied, is_done, f"{words}{f'. Slurm said: {output}' if output else ''}"


def _words(act: ActionExecution, setting: SlurmSetting) -> tuple[str, ...]:
    match setting:
        case SlurmCancel():
            return "scancel", setting.job
        case SlurmHold():
            return "scontrol", "hold", setting.job
        case SlurmRelease():
            return "scontrol", "release", setting.job
        case SlurmRequeue():
            return "scontrol", "requeue", setting.job
        case SlurmSuspend():
            return "scontrol", "suspend", setting.job
        case SlurmContinue():
            return "scontrol", "resume", setting.job
        case SlurmResume():
            return "scontrol", "update", f"NodeName={setting.node}", "State=RESUME"
    asker, why = act.command.asker.name, act.command.reason
    reason = "".join(char if char.isprintable() and char not in '"[]' else " "
                     for char in f"gpudeck, {asker}: {why}"[:REASON_MOST])
    return ("scontrol", "update", f"NodeName={setting.node}", "State=DRAIN", f"Reason={reason}")


def _read_back(slurm: SlurmPrograms, setting: SlurmSetting) -> tuple[bool, str]:
    """Read back until it is done, or for as long as Slurm may take."""
    until = time.monotonic() + READ_BACK_S
    while True:
        is_done, words = _observe(slurm, setting)
        if is_done or time.monotonic() >= until:
            return is_done, words
        time.sleep(LOOK_EVERY_S)


def _observe(slurm: SlurmPrograms, setting: SlurmSetting) -> tuple[bool, str]:
    if not isinstance(setting, SlurmJobRequest):
        node = next(iter(slurm.nodes(setting.node)), None)
        if node is None:
            return False, "Slurm has no node of this name any more"
        is_done = node.is_draining if isinstance(setting, SlurmDrain) else _is_in_service(node)
        return is_done, f"Slurm says {' + '.join(node.states)}"
    jobs = slurm.jobs()
    if isinstance(setting, SlurmRequeue):
        # It is submitted again then: found by its name alone.
        job = next((job for job in jobs if job.id == setting.job), None)
    else:
        job = job_of(jobs, setting)
    words = "Slurm has it no more" if job is None else f"Slurm says {job.state}" + (
        f" ({job.reason})" if job.reason else "")
    return _IS_DONE[type(setting)](job), words


_IS_DONE: dict[type, Callable[[SlurmJob | None], bool]] = {
    SlurmCancel: lambda job: job is None or job.is_over or job.state == "COMPLETING",
    SlurmHold: lambda job: job is not None and job.is_held,
    SlurmRelease: lambda job: job is not None and not job.is_held,
    SlurmRequeue: lambda job: job is not None and (
        job.state == "COMPLETING" or (job.state not in HOLDING and not job.is_over)),
    SlurmSuspend: lambda job: job is not None and job.state == "SUSPENDED",
    SlurmContinue: lambda job: job is not None and job.state == "RUNNING",
}

SLURM_KINDS = tuple(SettingKind(kind, flaws, changes, warnings, do) for kind in _WANTED)
