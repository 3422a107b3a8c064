"""The rules of a demo: the shipped ones, adjusted to what a visitor can see within an hour."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ..alerts.active_rules import shipped_rules
from ..alerts.core.rule import Rule

# On the demo's nodes Slurm, Kubernetes and logins share the GPUs, which real sites separate.
LEFT_OUT = ("foreign-process",)
ADJUSTED: dict[str, dict[str, Any]] = {
    # Two hours elsewhere. The demo's idle tasks were idle in its simulated history already. In a
    # large fleet many hold less: the list of wasted GPUs has them all.
    "idle-held": {"signal": "max(busy_pct, 1m)", "for_": "5m", "where": ("mem_share >= 50%",),
                  "runbook": "The task holds at least half of the GPU's memory, and for five "
                             "minutes no metric of its work on the GPU was above 5 %: a forgotten "
                             "notebook, a debugger, a hung job. Ask its owner. Elsewhere this rule "
                             "waits for two hours; the demo's is shorter."},
    # The demo's one hot board throttles: one fault, one alert.
    "temp-high": {"for_": "10m"},
    "allocated-unused": {
        "for_": "5m",
        "runbook": "Slurm or Kubernetes has given GPUs of this node to jobs or pods, and no "
                   "process of theirs has been on them for five minutes: nobody else gets them "
                   "either. The Slurm and the Kubernetes page list these jobs first, with the "
                   "owner. Elsewhere this rule waits for half an hour; the demo's is shorter."},
}


def demo_rules() -> Iterator[Rule]:
    for rule in shipped_rules():
        if rule.id not in LEFT_OUT:
            yield msgspec.structs.replace(rule, **ADJUSTED.get(rule.id, {}))
