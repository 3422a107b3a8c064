"""The rules of a demo: the shipped ones, told of what is there within the hour that people look."""

from collections.abc import Iterator

import msgspec

from ..alerts.core.rule import Rule
from ..alerts.rules_file import PACK, parse

# On each of its nodes Slurm, Kubernetes and logins share the GPUs, which a site keeps apart.
LEFT_OUT = ("foreign-process",)
# Two hours elsewhere. What is idle here was so before the demo began, in its made-up past.
SOONER = {"idle-held": {"signal": "max(busy_pct, 5m)", "for_": "5m"}}


def demo_rules() -> Iterator[Rule]:
    for ready in parse(PACK.read_text()).rules.values():
        if ready.rule.id not in LEFT_OUT:
            yield msgspec.structs.replace(ready.rule, **SOONER.get(ready.rule.id, {}))
