"""All that this node can do: a row for each act on a task, and for each setting of a GPU or of MPS.

Another one is a file beside this one, or a part of the file of its like, and a row here.
"""

from gpudeck.action_table import Action
from gpudeck.limits import Setting

from .compute_mode import COMPUTE_MODE
from .end import END
from .mps_daemons import RESTART_MPS, START_MPS, STOP_MPS
from .notify import NOTIFY
from .pause import PAUSE, RESUME
from .set_mps import MPS_VALUES
from .setting_kind import SettingKind
from .task_kind import TaskActionKind
from .terminate_client import TERMINATE_CLIENT
from .timed_limits import CLOCK_LOCK, POWER_CAP, RELEASE_LIMIT

TASK_KINDS: dict[Action, TaskActionKind] = {
    kind.action: kind for kind in (NOTIFY, PAUSE, RESUME, END, TERMINATE_CLIENT)}
SETTING_KINDS: dict[type[Setting], SettingKind] = {
    kind.setting: kind for kind in (POWER_CAP, CLOCK_LOCK, RELEASE_LIMIT, COMPUTE_MODE, *MPS_VALUES,
                                    START_MPS, STOP_MPS, RESTART_MPS)}
