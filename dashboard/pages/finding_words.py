"""Names of what may be wrong with a job. Pure."""

SIGNS = {"stuck": "Stuck", "slow_rank": "Slow rank", "crashed_rank": "Rank ended",
         "starved": "Waiting for data", "unused": "Held and unused",
         "memory_unused": "Memory unused"}


def sign_of(kind: str) -> str:
    return SIGNS.get(kind, kind)
