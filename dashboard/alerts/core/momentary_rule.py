"""A Rule as far as one moment can tell of it, for who is writing one: nothing was kept of the spans
that it looks back over. Pure."""

import re
from typing import Literal

from msgspec.structs import replace

from .rule import Rule

# now: all of it. newest: the newest sample stands for each span. grows: one sample says nothing.
Basis = Literal["now", "newest", "grows"]
SPANNED = re.compile(r"\b(avg|min|max|rate|increase)\s*\(\s*(\w+)\s*,\s*\w+\s*\)", re.IGNORECASE)
GROWS = frozenset(("rate", "increase"))


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
