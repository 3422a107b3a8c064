"""GPUs out of service, as sent to the Fleet map. Pure."""

from typing import Any

import numpy as np

from gpudeck.contract.repairs import AT_WORK, WORDS

from .fleet import Fleet
from .gpu_table import SERVICE_STATES
from .mig import NO_PARENT
from .visibility import VisibleFleet


def out_of_service(fleet: Fleet, visible: VisibleFleet) -> dict[str, Any]:
    """Return the GPUs out of service, and in which state."""
    states = fleet.service[visible.slots]
    places = np.flatnonzero(states)
    return {"words": [WORDS[state] for state in SERVICE_STATES],
            "slots": places.astype("<u4").tobytes(), "states": states[places].tobytes()}


def repair_brake(fleet: Fleet) -> str:
    """Return why no other board may be reset or diagnosed now; "": one may. At most one in twenty
    of the fleet at a time (of a node one, which it sees to itself), so that a fault of the tools
    takes no fleet down."""
    busy = np.isin(fleet.service[: len(fleet)], [SERVICE_STATES.index(state) for state in AT_WORK])
    boards = ((fleet.parent[: len(fleet)] == NO_PARENT) & ~fleet.retired[: len(fleet)]
              & ~fleet.viewed[: len(fleet)])
    under_way, most = int((busy & boards).sum()), max(1, int(boards.sum()) // 20)
    if under_way < most:
        return ""
    return (f"{under_way} GPUs of the fleet are being repaired already, and at most {most} are at "
            "a time (5 %); wait until one has ended")
