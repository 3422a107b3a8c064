"""All that this node can do: a row for each act on a task, and for each setting of a GPU or of MPS.

Another one is a file beside this one and a row here.
"""

from gpudeck.action_table import Action
from gpudeck.limits import Setting

from .clock_lock import CLOCK_LOCK
from .compute_mode import COMPUTE_MODE
from .end import END
from .notify import NOTIFY
from .pause import PAUSE
from .power_cap import POWER_CAP
from .release_limit import RELEASE_LIMIT
from .restart_mps import RESTART_MPS
from .resume import RESUME
from .set_mps import MPS_VALUES
from .setting_kind import SettingKind
from .start_mps import START_MPS
from .stop_mps import STOP_MPS
from .task_kind import TaskActionKind
from .terminate_client import TERMINATE_CLIENT

TASK_KINDS: dict[Action, TaskActionKind] = {
    kind.action: kind for kind in (NOTIFY, PAUSE, RESUME, END, TERMINATE_CLIENT)}
SETTING_KINDS: dict[type[Setting], SettingKind] = {
    kind.setting: kind for kind in (POWER_CAP, CLOCK_LOCK, RELEASE_LIMIT, COMPUTE_MODE, *MPS_VALUES,
                                    START_MPS, STOP_MPS, RESTART_MPS)}
