"""Which GPUs of this machine are wasted, by `gpudeck top`'s own watch. Pure."""

from collections.abc import Iterable, Sequence

from gpudeck.waste import WASTED_AFTER_S, is_idle

from .model import Item


class IdleWatch:
    """Says so of none before it has watched for as long as that takes."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def watched(self, gpus: Iterable[Item], tasks: Sequence[Item], now: float) -> list[Item]:
        """With `wasted_s`, as a hub has it. What is not read now goes on as it was."""
        return [gpu if idle_s is None or idle_s < WASTED_AFTER_S else {**gpu, "wasted_s": idle_s}
                for gpu in gpus for idle_s in (self._idle_s(gpu, tasks, now),)]

    def _idle_s(self, gpu: Item, tasks: Sequence[Item], now: float) -> float | None:
        values, uuid = gpu["values"], gpu["uuid"]
        loads = ["util_max_pct", "util_pct"]
        if gpu["facts"].get("parent_uuid") is not None:  # of an instance the driver knows no other
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
