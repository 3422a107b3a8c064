"""A rule reduced to what one moment can tell, for a draft: no history was collected for the spans
that it looks back over. Pure."""

import re
from typing import Literal

from msgspec.structs import replace

from .rule import Rule
from .rule_signal import FUNCTIONS, MINUTE_FUNCTIONS, TIME_UNTIL

# now: complete. newest: the newest sample stands for each span. grows: one sample says nothing.
Basis = Literal["now", "newest", "grows"]
SPANNED = re.compile(rf"\b({'|'.join((*FUNCTIONS, TIME_UNTIL))})\s*\(\s*(\w+)\s*,\s*[\w.]+\s*%?"
                     r"\s*\)", re.IGNORECASE)
GROWS = frozenset(("rate", "increase", *MINUTE_FUNCTIONS, TIME_UNTIL))


def momentary(rule: Rule) -> tuple[Rule, Basis]:
    hows = {how.lower() for text in (rule.signal, *rule.where)
            for how, _ in SPANNED.findall(text)}
    if not hows:
        return rule, "now"
    if hows & GROWS:
        return rule, "grows"
    where = tuple(map(_newest, rule.where))
    return replace(rule, signal=_newest(rule.signal), where=where), "newest"


def _newest(text: str) -> str:
    return SPANNED.sub(r"\2", text)
