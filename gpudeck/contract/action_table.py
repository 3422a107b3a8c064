"""The table of actions: the row of an action holds all that pages, terminals, hub and node know of
it. Pure.

A new action is a word in a Literal and a row here, and at the node a file in agent/actions/kinds/
and a row in its table; a verb of the terminal, a line in agent/cli/actions.py. Pages and the
notebook's widget get the rows as JSON.
"""

from collections.abc import Collection
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from gpudeck.contract.ladder import Do

TaskAction = Literal["notify", "limit", "pause", "resume", "suspend", "restore", "end",
                     "terminate_client"]
SettingAction = Literal["set_mps", "start_mps", "stop_mps", "restart_mps", "set_power_cap",
                        "lock_clocks", "release_limit", "set_compute_mode", "set_time_slice",
                        "cordon", "drain", "return_to_service", "reset_gpu", "diagnose_gpu",
                        "set_mig_layout",
                        "slurm_cancel", "slurm_hold", "slurm_release", "slurm_requeue",
                        "slurm_suspend", "slurm_continue", "slurm_drain", "slurm_resume",
                        "kubernetes_delete", "kubernetes_evict", "kubernetes_cordon",
                        "kubernetes_uncordon"]
# Previewed actions: those on tasks, and settings of MPS and of GPUs (ActionParams.setting).
ShownAction = Literal[TaskAction, SettingAction]
# A hold stops every action on a node; it has no victim and so no Preview.
Action = Literal[ShownAction, "hold", "release"]

# Of `limit`: share of the power limit in force, and longest duration.
LIMIT_SHARE, LIMIT_LASTS_S = 0.7, 3_600.0
# Of a client of MPS: part of the share that its server gives now, and the least that is given.
MPS_SHARE_PART, MPS_SHARE_LEAST_PCT = 0.5, 10
GRACE_S, GRACE_LEAST_S, GRACE_MOST_S, CHECKPOINT_MOST_S = 30.0, 1, 600, 3_600
CHECKPOINT_SIGNALS = ("USR1", "USR2", "INT", "HUP")


class ActionParameter(Struct, frozen=True):
    """A parameter of actions. `name`: in ActionParams. `default` None: a text, which must be given,
    or a signal, which need not."""

    name: Literal["text", "grace_s", "checkpoint_signal", "checkpoint_wait_s",
                  "checkpoint_within_s"]
    flag: str
    help: str
    default: float | None = None
    choices: tuple[str, ...] = ()


TEXT = ActionParameter("text", "text", "the message")
GRACE = ActionParameter(
    "grace_s", "grace",
    f"seconds from SIGTERM to SIGKILL, {GRACE_LEAST_S} to {GRACE_MOST_S}; default {GRACE_S:.0f}",
    GRACE_S)
CHECKPOINT = (
    ActionParameter("checkpoint_signal", "signal",
                    "signal to send first, so that the task writes a checkpoint",
                    choices=CHECKPOINT_SIGNALS),
    ActionParameter("checkpoint_wait_s", "wait",
                    "with --signal: seconds to wait for the checkpoint, up to "
                    f"{CHECKPOINT_MOST_S}", 0.0))
NEXT_CHECKPOINT = ActionParameter(
    "checkpoint_within_s", "after-checkpoint",
    "wait for the task's next checkpoint first, that long at most, up to "
    f"{CHECKPOINT_MOST_S} seconds and two of its intervals; where none comes, nothing is touched",
    0.0)


class ActionRow(Struct, frozen=True, kw_only=True):
    """An action. Each row states what guards it; the default of a field permits nothing."""

    id: Action
    label: str  # on a button
    doing: str  # "The node is …"
    ended: str  # "It was not …", or another `subject`
    subject: str = "It"
    done: str = ""  # the sentence of its success, or its fixed part
    # Observed afterwards: who was notified and how, whether other processes live, that the
    # processes are gone and their memory is back, that it reads back as wanted.
    proof: Literal["", "step", "neighbours", "exit", "read_back"] = ""
    last_words: str = ""  # before it is confirmed: what cannot be undone
    is_setting: bool = False
    is_off: bool = False  # until the ceiling of a node names it
    is_unverified: bool = False  # on hardware: docs/hardware.md
    # what it may do
    signals: bool  # every process must be open to our signals, and old enough
    is_kill: bool  # ends work: it costs one of a ceiling's kills in an hour
    is_harmful: bool  # stops somebody's work, or may; the signer counts it
    only_tells: bool = False  # touches no process and no setting
    slows: bool = False  # the work goes on, and more slowly
    for_rules: bool = False
    rung: Do | None = None  # of the ladders of rules and quotas
    # where people find it
    key: str = ""  # on the Tasks page
    in_rows: bool = False  # a button in each row of tasks, and in notebooks
    # tasks in this state; "": in any
    fits: Literal["", "running", "paused", "suspended"] = ""
    undo: TaskAction | None = None
    is_typed: bool = False  # of several jobs: a word has to be typed
    params: tuple[ActionParameter, ...] = ()
    # words for the terminal, the owner, and others who are concerned
    does: str = ""  # of the verb of the terminal; "": it has none of its own
    summary: str = ""
    mail_subject: str = ""
    mail_text: str = ""
    ranks_left: str = ""  # the effect on other ranks of a launch

    def suits(self, state: str | None, permits: Collection[str]) -> bool:
        """Return whether it is offered for a task. `permits`: what is off elsewhere and permitted
        on its node. Stated in assets/actions/action_words.mjs as well."""
        if self.is_off and self.id not in permits:
            return False
        if self.fits == "running":  # or unknown
            return state not in ("paused", "suspended")
        return self.fits in ("", state)


READ_BACK = "The value is read back from the driver afterwards."


CLIENTS_END = "Clients that are still connected then lose their work on the GPU."


def _setting(id: SettingAction, label: str, doing: str, ended: str, ends_work: bool = False,
             last_words: str = READ_BACK, is_off: bool = False, is_unverified: bool = False,
             for_rules: bool = False, mail_subject: str = "", mail_text: str = "",
             stops_work: bool = False) -> ActionRow:
    return ActionRow(id=id, label=label, doing=doing, ended=ended, proof="read_back",
                     is_setting=True, is_off=is_off, is_unverified=is_unverified,
                     last_words=last_words, signals=False,
                     is_kill=ends_work, is_harmful=ends_work or stops_work, for_rules=for_rules,
                     mail_subject=mail_subject, mail_text=mail_text)


_ROWS = (
    ActionRow(
        id="notify", label="Notify", doing="notifying its owner", ended="notified",
        subject="Its owner", done="Its owner was notified", proof="step",
        last_words="The message goes to the owner's terminals, and to their e-mail address if "
                   "known. Nothing is stopped.",
        signals=False, is_kill=False, is_harmful=False, only_tells=True, for_rules=True,
        rung="tell", key="n", params=(TEXT,),
        does="Send a message to a task's owner, on their open terminals.",
        summary="send a message to a task's owner",
        mail_subject="About your task on {host}", mail_text="Nothing was done to it."),
    ActionRow(
        id="limit", label="Limit", doing="limiting it", ended="limited",
        done="Its GPUs draw less power, and it runs more slowly.", proof="step",
        last_words=f"The power limit of its GPUs is lowered to {LIMIT_SHARE:.0%} for "
                   f"{LIMIT_LASTS_S / 3_600:.0f} h at most, and then set back; where a board takes "
                   "no lower one, its clocks are locked. Of a client of MPS, the share of its "
                   "owner's next clients is lowered instead. Nothing is stopped.",
        signals=False, is_kill=False, is_harmful=True, slows=True, for_rules=True, rung="limit",
        mail_subject="The GPUs of your task on {host} are being limited",
        mail_text="It continues, more slowly, until the limit is removed.",
        ranks_left="will wait for it: a job is as slow as its slowest GPU"),
    ActionRow(
        id="pause", label="Pause", doing="pausing", ended="paused",
        done="Paused. It keeps its GPU memory, and processes that wait for it, such as other ranks "
             "of the job, hang until it is resumed.", proof="neighbours",
        last_words="Resume continues its processes; a peer that waits for them may time out in the "
                   "meantime.",
        signals=True, is_kill=False, is_harmful=True, for_rules=True, rung="pause", key="p",
        in_rows=True, fits="running", undo="resume", params=(NEXT_CHECKPOINT,),
        does="Pause a task's processes; they keep their memory.",
        summary="pause a task's processes; they keep their memory",
        mail_subject="Your task on {host} is being paused",
        mail_text="It is stopped and keeps its memory until it is resumed.",
        ranks_left="will hang until it is resumed"),
    ActionRow(
        id="resume", label="Resume", doing="resuming", ended="resumed",
        done="Resumed; it runs again.", last_words="It continues where it was stopped.",
        signals=True, is_kill=False, is_harmful=False, for_rules=True, key="r", in_rows=True,
        fits="paused",
        does="Resume a paused task.", summary="resume a paused task",
        mail_subject="Your task on {host} was resumed", mail_text="It runs again."),
    ActionRow(
        id="suspend", label="Suspend", doing="suspending", ended="suspended",
        done="Suspended", proof="step",
        last_words="Its GPU memory is moved to the memory of its machine, which may take minutes. "
                   "Restore brings it back while its GPUs have room.",
        is_off=True, is_unverified=True,
        signals=True, is_kill=False, is_harmful=True, for_rules=True, rung="suspend", key="u",
        fits="running", undo="restore",
        does="Move a task's GPU memory to its machine's memory (cuda-checkpoint).",
        summary="move a task's GPU memory to its machine's memory",
        mail_subject="Your task on {host} is being suspended",
        mail_text="Its GPU memory is moved to the memory of its machine until it is restored.",
        ranks_left="will hang until it is restored"),
    ActionRow(
        id="restore", label="Restore", doing="restoring", ended="restored",
        done="Restored", proof="step",
        last_words="Its GPU memory comes back from the memory of its machine, which may take "
                   "minutes.",
        is_off=True, is_unverified=True,
        # The pool restores what it has suspended, and nothing else (agent/actions/kinds).
        signals=True, is_kill=False, is_harmful=False, for_rules=True, key="o", fits="suspended",
        does="Restore a suspended task.", summary="restore a suspended task",
        mail_subject="Your task on {host} was restored", mail_text="It runs again."),
    ActionRow(
        id="end", label="End", doing="ending", ended="ended",
        done="Ended: its processes are gone.", proof="exit",
        last_words="{first}SIGTERM, {grace} of grace, then SIGKILL for the rest.",
        signals=True, is_kill=True, is_harmful=True, for_rules=True, rung="end", key="e",
        in_rows=True, is_typed=True, params=(GRACE, *CHECKPOINT, NEXT_CHECKPOINT),
        does="End a task and its whole job.",
        summary="end a task and its job",
        mail_subject="Your task on {host} is being ended",
        mail_text="It gets SIGTERM, and is killed if it does not end within {grace_s:.0f} s.",
        ranks_left="will hang or fail"),
    ActionRow(
        id="terminate_client", label="Disconnect client", doing="disconnecting it from MPS",
        ended="disconnected from MPS", proof="read_back",
        last_words="Its contexts on the GPU are destroyed at once. The process itself keeps "
                   "running, with errors from CUDA.",
        signals=False, is_kill=True, is_harmful=True,
        mail_subject="Your task on {host} is disconnected from MPS",
        mail_text="Its work on the GPU is lost; the process itself keeps running, with errors from "
                  "CUDA."),
    _setting("set_mps", "Set MPS", "setting MPS", "set"),
    _setting("start_mps", "Start MPS", "starting MPS", "started"),
    _setting("stop_mps", "Stop MPS", "stopping MPS", "stopped", ends_work=True,
             last_words=CLIENTS_END),
    _setting("restart_mps", "Restart MPS", "restarting MPS", "restarted", ends_work=True,
             last_words=CLIENTS_END),
    _setting("set_power_cap", "Cap power", "capping the power", "set"),
    _setting("lock_clocks", "Lock clocks", "locking the clocks", "set"),
    # A rule takes back what it has limited, and no other limit (agent/actions/kinds).
    _setting("release_limit", "Undo limit", "removing the limit", "removed", for_rules=True),
    _setting("set_compute_mode", "Set mode", "setting the compute mode", "set"),
    _setting("set_time_slice", "Set time slice", "setting the time slice", "set", is_off=True,
             is_unverified=True),
    _setting("cordon", "Cordon", "cordoning it", "cordoned", for_rules=True,
             last_words="Nothing new is assigned there until it is returned. What runs continues."),
    _setting("drain", "Drain", "draining it", "set to drain",
             last_words="Nothing new is assigned there, and the owners of what runs are asked to "
                        "finish. Nothing is ended by this.",
             mail_subject="GPUs of your tasks on {host} are being taken out of service",
             mail_text="Nothing is ended by this."),
    _setting("return_to_service", "Return", "returning it to service", "returned",
             last_words="It is assigned again."),
    _setting("reset_gpu", "Reset", "resetting it", "reset", is_off=True,
             is_unverified=True,
             last_words="Only an empty GPU out of service is reset. The whole node is not read "
                        "meanwhile."),
    _setting("diagnose_gpu", "Diagnose", "diagnosing it", "diagnosed", is_off=True,
             is_unverified=True,
             last_words="Only an empty GPU out of service is diagnosed. Passing is no proof that "
                        "it is healthy."),
    _setting("slurm_cancel", "Cancel", "cancelling it", "cancelled", ends_work=True, is_off=True,
             last_words="Slurm ends it, as by scancel. Work that is not in a checkpoint is lost."),
    _setting("slurm_hold", "Hold", "holding it", "held", is_off=True,
             last_words="Slurm does not start it until it is released."),
    _setting("slurm_release", "Release", "releasing it", "released", is_off=True,
             last_words="Slurm may start it."),
    _setting("slurm_requeue", "Requeue", "requeueing it", "requeued", ends_work=True, is_off=True,
             last_words="Slurm ends it and queues it again. Work that is not in a checkpoint is "
                        "lost."),
    _setting("slurm_suspend", "Suspend", "suspending it", "suspended", is_off=True,
             stops_work=True,
             last_words="Slurm stops its processes. Its GPUs stay allocated to it, and its memory "
                        "stays on them, until it continues."),
    _setting("slurm_continue", "Continue", "continuing it", "continued", is_off=True,
             last_words="Slurm lets its processes run again."),
    _setting("slurm_drain", "Drain in Slurm", "draining it", "set to drain", is_off=True,
             last_words="Slurm starts no more jobs there. Jobs that run go on."),
    _setting("slurm_resume", "Resume in Slurm", "resuming it", "resumed", is_off=True,
             last_words="Slurm starts jobs there again."),
    _setting("kubernetes_delete", "Delete", "deleting it", "deleted", ends_work=True, is_off=True,
             last_words="Kubernetes ends the pod, as by kubectl delete. Work that is not in a "
                        "checkpoint is lost."),
    _setting("kubernetes_evict", "Evict", "evicting it", "evicted", ends_work=True, is_off=True,
             last_words="Kubernetes ends the pod, where its disruption budget permits it. Work "
                        "that is not in a checkpoint is lost."),
    _setting("kubernetes_cordon", "Cordon in Kubernetes", "cordoning it", "cordoned", is_off=True,
             last_words="Kubernetes places no more pods there. Pods that run go on."),
    _setting("kubernetes_uncordon", "Uncordon in Kubernetes", "uncordoning it", "uncordoned",
             is_off=True, last_words="Kubernetes places pods there again."),
    _setting("set_mig_layout", "Split", "splitting it by MIG", "split", is_off=True,
             is_unverified=True,
             last_words="Only a GPU out of service is split. Instances in use stay where they are; "
                        "new instances have other UUIDs than those they take the place of."),
    ActionRow(id="hold", label="Hold", doing="holding", ended="held", signals=False,
              is_kill=False, is_harmful=False,
              done="The node carries out no actions until they are resumed."),
    ActionRow(id="release", label="Release", doing="releasing", ended="released", signals=False,
              is_kill=False, is_harmful=False,
              done="The node accepts commands again."),
)

TASK_ACTIONS: tuple[TaskAction, ...] = get_args(TaskAction)
SETTING_ACTIONS: tuple[SettingAction, ...] = get_args(SettingAction)
SHOWN_ACTIONS: tuple[ShownAction, ...] = (*TASK_ACTIONS, *SETTING_ACTIONS)
ACTIONS: tuple[Action, ...] = (*SHOWN_ACTIONS, "hold", "release")
# An action without a row is an error here, before anything runs.
ROWS: dict[Action, ActionRow] = {row.id: row for row in _ROWS}
ROWS = {action: ROWS[action] for action in ACTIONS}

# Permitted by a node that has no ceiling.
PERMITTED = tuple(action for action in SHOWN_ACTIONS if not ROWS[action].is_off)
# Off until a ceiling names them: pages offer them where it does.
OPTIONAL = tuple(action for action in TASK_ACTIONS if ROWS[action].is_off)
KILLS = tuple(action for action in SHOWN_ACTIONS if ROWS[action].is_kill)
# These end clients that are working, or a scheduler's jobs.
ENDS_WORK = tuple(action for action in SETTING_ACTIONS if ROWS[action].is_kill)
HARMFUL = tuple(action for action in SHOWN_ACTIONS if ROWS[action].is_harmful)
# Tasks that these hit must not be protected.
HITS = tuple(action for action in SHOWN_ACTIONS
             if ROWS[action].signals or ROWS[action].is_kill or ROWS[action].slows)
IN_ROWS = tuple(action for action in TASK_ACTIONS if ROWS[action].in_rows)
TERMINAL_ACTIONS = tuple(action for action in TASK_ACTIONS if ROWS[action].does)
ON_RUNG: dict[Do, TaskAction] = {
    rung: action for action in TASK_ACTIONS if (rung := ROWS[action].rung) is not None}


def rows_json() -> str:
    """Encode the rows for the pages and the widget; safe inside HTML too."""
    return msgspec.json.encode([*ROWS.values()]).decode().replace("<", "\\u003c")
