"""Table of all that this node can do: a row for each action on a task, and for each setting of a
GPU, of MPS, of service or of a scheduler.

A new one is a file in this folder, or a part of a related file, and a row here.
"""

from gpudeck.contract.action_table import Action
from gpudeck.contract.limits import Setting

from .board_repair import DIAGNOSE, RESET
from .compute_mode import COMPUTE_MODE
from .end import END
from .kubernetes import KUBERNETES_KINDS
from .limit import LIMIT
from .mig_layout import MIG_LAYOUT
from .mps_daemons import RESTART_MPS, START_MPS, STOP_MPS
from .notify import NOTIFY
from .pause import PAUSE, RESUME
from .service import CORDON, DRAIN, RETURN
from .set_mps import MPS_VALUES
from .setting_kind import SettingKind
from .slurm import SLURM_KINDS
from .suspend import RESTORE, SUSPEND
from .task_kind import TaskActionKind
from .terminate_client import TERMINATE_CLIENT
from .time_slice import TIME_SLICE
from .timed_limits import CLOCK_LOCK, POWER_CAP, RELEASE_LIMIT

TASK_KINDS: dict[Action, TaskActionKind] = {
    kind.action: kind for kind in (NOTIFY, LIMIT, PAUSE, RESUME, SUSPEND, RESTORE, END,
                                TERMINATE_CLIENT)}
SETTING_KINDS: dict[type[Setting], SettingKind] = {
    kind.setting: kind for kind in (POWER_CAP, CLOCK_LOCK, RELEASE_LIMIT, COMPUTE_MODE, TIME_SLICE,
                                    *MPS_VALUES,
                                    START_MPS, STOP_MPS, RESTART_MPS, CORDON, DRAIN, RETURN, RESET,
                                    DIAGNOSE, MIG_LAYOUT, *SLURM_KINDS, *KUBERNETES_KINDS)}
