"""Guard: may this be done to these processes, now? Every reason why not, with a remedy. Pure.

Nothing here can be widened from the hub: what is protected is listed below, and the ceiling of
the node can only add to it, or open what its owner opened by name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from gpudeck.contract import rungs
from gpudeck.contract.action_table import (
    HITS,
    KILLS,
    ROWS,
    SHOWN_ACTIONS,
    TASK_ACTIONS,
    Action,
    ShownAction,
    TaskAction,
)
from gpudeck.contract.actions import YOUNGEST_S, Refusal, RefusalCode
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.contract.rungs import RungTarget

from ..tasks.jobs import ProcessTableRow, one_tree
from ..tasks.processes import ProcessFacts
from .ceiling import Ceiling

SYSTEM_UIDS = range(1_000)
SIGNALS = tuple(action for action in TASK_ACTIONS if ROWS[action].signals)
# Of a suspended task: paused, it could not be restored; the others need its work on a GPU.
RUNNING_ONLY: tuple[TaskAction, ...] = ("limit", "pause", "terminate_client")
LEAVE_MPS = tuple(action for action in TASK_ACTIONS if action in KILLS)

# Protected where they run as a system user: by device and inode of the file, since anyone can
# give a process any name.
SYSTEM_EXECUTABLES = (
    "/usr/sbin/sshd", "/usr/lib/openssh/sshd-session", "/usr/libexec/openssh/sshd-session",
    "/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-cuda-mps-control",
    "/usr/bin/nvidia-cuda-mps-server", "/usr/bin/nv-hostengine", "/usr/bin/nv-fabricmanager",
    "/usr/bin/dcgm-exporter", "/usr/bin/nvidia-dcgm", "/usr/bin/kubelet", "/usr/local/bin/kubelet",
    "/usr/bin/containerd", "/usr/local/bin/containerd", "/usr/bin/containerd-shim-runc-v2",
    "/usr/local/bin/containerd-shim-runc-v2", "/usr/bin/dockerd", "/usr/bin/crio",
    "/usr/bin/conmon", "/usr/sbin/slurmd", "/usr/sbin/slurmstepd", "/usr/sbin/munged",
    "/usr/lib/systemd/systemd-logind", "/lib/systemd/systemd-logind",
)
# Protected for every user: a desktop or a login would go with them.
EVERYBODYS_EXECUTABLES = (
    "/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/sbin/init", "/usr/bin/dbus-daemon",
    "/usr/bin/dbus-broker", "/usr/bin/dbus-broker-launch", "/usr/lib/xorg/Xorg",
    "/usr/libexec/Xorg", "/usr/bin/Xorg", "/usr/bin/Xwayland", "/usr/bin/gnome-shell",
    "/usr/bin/kwin_wayland", "/usr/bin/kwin_x11", "/usr/bin/weston", "/usr/bin/sway",
)
# Only root can give root's processes these names, and to refuse is the safe side.
ROOTS_NAMES = frozenset(
    path.rpartition("/")[2] for path in (*SYSTEM_EXECUTABLES, *EVERYBODYS_EXECUTABLES)
) | {"nvidia-imex", "nvsm", "nvidia-fabricmanager", "k3s", "crun", "runc", "podman"}


T = TypeVar("T")
# What becomes of an order that fails: a `stray` one may not be taken for the order of that id, and
# nothing is recorded under it; a `repeated` one gets the answer that is recorded.
Consequence = Literal["refused", "stray", "not_recorded", "repeated"]


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """A condition that must hold before an action; a row of docs/commands.md."""

    name: str
    codes: tuple[RefusalCode, ...]
    meaning: str
    refusals: Callable[[T], Iterable[Refusal]]
    actions: tuple[Action, ...] = SHOWN_ACTIONS  # that it applies to
    consequence: Consequence = "refused"


@dataclass(frozen=True, slots=True)
class ProtectedExecutables:
    """device:inode of the executables above, as they are on this machine."""

    systems: frozenset[str]
    everybodys: frozenset[str]


@dataclass(frozen=True, slots=True)
class GuardedProcess:
    """A process that would be hit. Nothing has a default: what was not asked must not permit."""

    facts: ProcessFacts
    user: str | None
    kind: str | None  # of its Task; None: it uses no GPU
    may_signal: bool
    is_ours: bool  # the agent, its ancestors, its reader
    is_frozen: bool  # with its cgroup: it receives no signal but SIGKILL
    is_suspended: bool  # its GPU memory is on the host, or may be


@dataclass(frozen=True, slots=True)
class GuardInput:
    action: ShownAction
    ceiling: Ceiling
    subjects: tuple[GuardedProcess, ...]
    age_s: float | None
    protected: ProtectedExecutables
    protected_by_ceiling: frozenset[str]
    holds: tuple[str, ...]
    asker: str | None  # kind; None while nobody has decided yet
    sees_host_pids: bool
    kills_last_hour: int
    pauses_last_hour: int
    manager: str | None
    mps: str  # why MPS clients cannot be ended here; "": they can


def discount_itself(case: GuardInput) -> GuardInput:
    """Return the input for an action whose INTENT is on disk: it counts in the budgets already, but
    not against itself."""
    kills, pauses = int(case.action in KILLS), int(case.action == "pause")
    return replace(case, kills_last_hour=max(case.kills_last_hour - kills, 0),
                   pauses_last_hour=max(case.pauses_last_hour - pauses, 0))


def refusals(case: GuardInput) -> tuple[Refusal, ...]:
    """Return all refusals, in the order of CHECKS; the first is the one that counts."""
    return tuple(refusal for check in CHECKS if case.action in check.actions
                 for refusal in check.refusals(case))


def made_up_refusal(pid: int) -> Refusal | None:
    if pid <= PID_MAX:
        return None
    return Refusal("made_up", "this task is made up by the simulator and has no process; nothing "
                              "can be done to it. Those on the first nodes of a demo are real.")


def recorded_refusal() -> Refusal:
    return Refusal("made_up", "this task is played back from a recording, and its process number "
                              "here belongs to another process; nothing can be done to it.")


def gone_refusal(task_id: str) -> Refusal:
    return Refusal("gone", f"task {task_id} is not on a GPU of this node any more; nothing was "
                           "touched. Refresh the list of tasks.")


def hold_refusal(holds: Sequence[str]) -> Refusal:
    return Refusal("hold", f"all actions on this node are stopped: {'; '.join(holds)}. Resume "
                           "actions first."[:1_024])


def unreadable_refusal(why: str) -> Refusal:
    return Refusal("unreadable", "the driver did not list its processes just now, and without a "
                                 f"fresh list nothing is done{why and f' ({why})'}. Try again; "
                                 "`gpudeck status` shows how the reader is.")


def _by_ceiling(case: GuardInput) -> Iterator[Refusal]:
    ceiling = case.ceiling
    if ceiling.trouble:
        yield Refusal("type", ceiling.trouble[:1_024])
    else:
        yield from rungs.by_ceiling(case.action, _as_rung(case))


def _by_budget(case: GuardInput) -> Iterator[Refusal]:
    ceiling = case.ceiling
    if case.action in KILLS and case.kills_last_hour >= ceiling.kills_per_hour:
        yield Refusal("budget", f"{case.kills_last_hour} jobs were ended on this node within the "
                                f"last hour and its ceiling permits {ceiling.kills_per_hour}; "
                                "wait, or let its administrator raise `kills_per_hour`.")
    if case.action == "pause" and case.pauses_last_hour >= ceiling.pauses_per_hour:
        yield Refusal("budget", f"{case.pauses_last_hour} jobs were paused on this node within the "
                                f"last hour and its ceiling permits {ceiling.pauses_per_hour}; "
                                "wait, or let its administrator raise `pauses_per_hour`.")


def _by_asker(case: GuardInput) -> Iterator[Refusal]:
    if case.asker == "rule":
        yield from rungs.by_rules(case.action, _as_rung(case))
        if case.action == "suspend":  # what could not come back by itself would be forgotten
            yield from rungs.by_ceiling("restore", _as_rung(case))
    if case.asker == "terminal" and not case.ceiling.terminal_may_act:
        yield Refusal("type", "the ceiling of this node does not permit actions from its terminal; "
                              "act through the hub.")


def _by_hold(case: GuardInput) -> Iterator[Refusal]:
    if case.holds:
        yield hold_refusal(case.holds)


def _by_pid_namespace(case: GuardInput) -> Iterator[Refusal]:
    ceiling = case.ceiling
    if not case.sees_host_pids and not ceiling.own_pid_namespace:
        yield Refusal("pidns", "this agent runs in a separate PID namespace, so the driver's "
                               "numbers may mean other processes here. Run it on the host (or "
                               "with hostPID); only where the driver is known to speak of the same "
                               "namespace, set `own_pid_namespace = true` in ceiling.toml.")


def _by_protection(case: GuardInput) -> Iterator[Refusal]:
    """Yield one refusal per reason, not per process: a job has hundreds."""
    reasons: set[str] = set()
    for subject in case.subjects:
        why = _protection(case, subject)
        if why and why not in reasons:
            reasons.add(why)
            pid = subject.facts.identity.pid
            yield Refusal("protected", f"process {pid} is protected: {why}."[:1_024])


def _protection(case: GuardInput, subject: GuardedProcess) -> str:
    facts, identity = subject.facts, subject.facts.identity
    name = (facts.executable_path or "").removesuffix(" (deleted)").rpartition("/")[2]
    if identity.pid <= 2 or _is_kernel(facts.row):
        return "it belongs to the kernel, or is the first process"
    if subject.is_ours:
        return "it is gpudeck's own, or gpudeck runs inside it"
    if facts.oom_score_adj == -1_000:
        return "the kernel is set never to kill it (oom_score_adj -1000)"
    if identity.executable is not None:
        if identity.executable in case.protected.everybodys:
            return f"{name} carries sessions of this machine"
        if identity.executable in case.protected.systems and identity.uid in SYSTEM_UIDS:
            return f"{name} is a service of this machine"
        if identity.executable in case.protected_by_ceiling:
            return f"the ceiling of this node protects {facts.executable_path}"
    if identity.uid == 0 and name in ROOTS_NAMES:
        return f"{name} is a service of this machine"
    if subject.kind == "mps_server":
        return "it is an MPS server; all its clients would die with it"
    if subject.user is not None and subject.user in case.ceiling.protected_users:
        return f"the ceiling of this node protects the tasks of {subject.user}"
    unit = _unit(facts.cgroups, case.ceiling.protected_units)
    if unit:
        return f"the ceiling of this node protects {unit}"
    if identity.uid == 0 and not case.ceiling.root_tasks:
        return ("it runs as root; the administrator of this node can set `root_tasks = true` in "
                "ceiling.toml")
    return ""


def _is_kernel(row: ProcessTableRow) -> bool:
    return row.is_kernel or row.parent == 2


def _unit(cgroup: str, units: Iterable[str]) -> str:
    parts = set(cgroup.replace(";", "/").split("/"))
    return next((unit for unit in units if unit in parts), "")


def _by_kind(case: GuardInput) -> Iterator[Refusal]:
    rung = _as_rung(case)
    yield from rungs.by_manager(case.action, rung)
    frozen = [subject for subject in case.subjects
              if subject.is_frozen and case.action in SIGNALS]
    if frozen:
        yield Refusal("condition", f"process {frozen[0].facts.identity.pid} is frozen with "
                                   "its cgroup, and would die without receiving SIGTERM. "
                                   "Thaw it first: `docker unpause`, `systemctl thaw`, or the "
                                   "tool that froze it.")
    clients = [subject for subject in case.subjects if subject.kind == "mps_client"]
    yield from (stalls := [*rungs.by_mps(case.action, rung)])
    if case.action == "terminate_client" and not clients:
        yield Refusal("mps", "it is not an MPS client; only MPS clients can be disconnected.")
    elif clients and case.mps and not stalls:
        yield Refusal("mps", case.mps)
    if case.asker == "rule":
        yield from rungs.by_tree(case.action, rung)


def _as_rung(case: GuardInput) -> RungTarget:
    """Describe the case for the rungs. That it is one tree is proven by the processes themselves,
    each held while it says who its parent is."""
    rows = [(subject.facts.row, subject.facts.identity.uid) for subject in case.subjects]
    return RungTarget(
        actions=case.ceiling.actions, rules=case.ceiling.rules, manager=case.manager,
        is_mps_client=any(subject.kind == "mps_client" for subject in case.subjects),
        processes=len(rows), is_one_tree=bool(one_tree(rows)),
        # The hub compares the tasks that the rule means with the preview.
        meant=frozenset(), tree=None, other_nodes=0)


def _by_suspension(case: GuardInput) -> Iterator[Refusal]:
    """Refuse what is done to work that runs. By itself it looks idle: it holds nothing."""
    if not any(subject.is_suspended for subject in case.subjects):
        return
    if case.asker == "rule" and case.action != "restore":
        yield Refusal("condition", "it is suspended, and rules and quotas leave it alone until it "
                                   "is restored.")
    elif case.action in RUNNING_ONLY:
        yield Refusal("condition", "it is suspended; restore it first (`gpudeck restore`).")


def _by_rights(case: GuardInput) -> Iterator[Refusal]:
    denied = [subject for subject in case.subjects if not subject.may_signal]
    if denied:
        owner = denied[0].user or f"uid {denied[0].facts.identity.uid}"
        yield Refusal("permission", f"the agent may not signal the processes of {owner}; run it "
                                    "with CAP_KILL, or as root.")


def _by_age(case: GuardInput) -> Iterator[Refusal]:
    if case.age_s is not None and case.age_s < YOUNGEST_S:
        yield Refusal("young", f"the task is {case.age_s:.1f} s old; within the first "
                               f"{YOUNGEST_S:.0f} s a process is not told apart from its "
                               "predecessor with certainty. Try again.")


CHECKS: tuple[Check[GuardInput], ...] = (
    Check("ceiling", ("type",), "the node's ceiling can be read and permits the action",
          _by_ceiling),
    Check("budget", ("budget",), "fewer jobs were ended here within the hour than the ceiling "
          "permits", _by_budget),
    Check("asker", ("rules", "type"), "the ceiling lets rules, or the node's terminal, act",
          _by_asker),
    Check("hold", ("hold",), "neither a hold file nor the hub stops actions here, and the hub has "
                             "not recalled this command", _by_hold),
    Check("PID namespace", ("pidns",), "the driver's process numbers mean the same here",
          _by_pid_namespace),
    Check("protected set", ("protected",), "no process is protected, by gpudeck or by the ceiling",
          _by_protection, HITS),
    Check("manager, cgroup and MPS", ("managed", "condition", "mps", "multi_process"),
          "no other manager runs the job, its cgroup is not frozen, no client of MPS is paused, "
          "and what a rule pauses is proven to be one tree of one user's processes",
          _by_kind, HITS),
    Check("suspension", ("condition",), "no process is suspended, or a person ends, resumes or "
          "restores it, or the pool restores what it has suspended", _by_suspension, HITS),
    Check("rights", ("permission",), "the agent may signal every process", _by_rights, SIGNALS),
    Check("age", ("young",), f"the task is at least {YOUNGEST_S:.0f} s old", _by_age, SIGNALS),
)
