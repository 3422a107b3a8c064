"""Waste of GPUs: a task holds memory on one, and for ten minutes it has hardly worked. Pure.

The functions take one GPU or columns of many. Pages, filters and terminals repeat what a hub calls
wasted; a terminal without a hub says it only after watching for as long itself.
"""

from typing import Any

from gpudeck.measures.metrics import HELD_AT_LEAST_BYTES, IDLE_AT_MOST_PCT

WASTED_AFTER_S = 600.0
# The first of these that is known is a GPU's load: for a MIG instance the driver knows the SM
# activity alone.
LOADS = ("util_max_pct", "util_pct", "sm_active_pct")
UNDER = f"under {IDLE_AT_MOST_PCT:g} %"  # what is measured; it may still have worked a little


def is_unused(peak_pct: Any) -> Any:
    """Return whether it hardly worked in one second or minute, by the highest load in it. NaN: not
    known, which is not unused."""
    return peak_pct <= IDLE_AT_MOST_PCT


def is_idle(peak_pct: Any, mem_used_bytes: Any) -> Any:
    """Return whether it was unused with memory held."""
    return is_unused(peak_pct) & (mem_used_bytes >= HELD_AT_LEAST_BYTES)
