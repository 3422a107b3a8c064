"""Watch over the GPUs of this machine, for `gpudeck top`: which of them are wasted. Pure."""

from collections.abc import Iterable, Sequence

from gpudeck.measures.waste import WASTED_AFTER_S, is_idle

from .model import Item


class IdleWatch:
    """Watch that reports no GPU as wasted before it has watched for as long as that takes."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def with_waste(self, gpus: Iterable[Item], tasks: Sequence[Item], now: float) -> list[Item]:
        """Return the GPUs, with `wasted_s` where they are wasted, as a hub has it. A GPU that is
        not read now goes on as it was."""
        return [gpu if idle_s is None or idle_s < WASTED_AFTER_S else {**gpu, "wasted_s": idle_s}
                for gpu in gpus for idle_s in (self._idle_s(gpu, tasks, now),)]

    def _idle_s(self, gpu: Item, tasks: Sequence[Item], now: float) -> float | None:
        values, uuid = gpu["values"], gpu["uuid"]
        loads = ["util_max_pct", "util_pct"]
        if gpu["facts"].get("parent_uuid") is not None:  # for an instance the driver has no other
            loads.append("sm_active_pct")
        peak = next((values[key] for key in loads if key in values), None)
        mem = values.get("mem_used_bytes")
        if gpu["state"] != "ok" or peak is None or mem is None:
            return None
        on = [task for task in tasks if any(use["uuid"] == uuid for use in task["gpus"])]
        if not is_idle(peak, mem) or all(task["state"] == "paused" for task in on):
            self._since.pop(uuid, None)
            return None
        return now - self._since.setdefault(uuid, now)
