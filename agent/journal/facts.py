"""Names of the facts that must outlive a node's agent, each used by one store."""

from enum import StrEnum, unique


@unique
class Fact(StrEnum):
    HUB_HOLD = "hub hold"
    EPOCH = "epoch"  # these three once for each hub
    ANCHOR = "anchor"
    QUOTAS = "desired"
    QUOTA_WARNINGS = "quota warnings"
    TIMED_LIMITS = "leases"  # what they were called before there was a pool
    COMPUTE_MODES = "modes"
    MIG_LAYOUTS = "mig_layouts"
    REPAIRS = "repairs"
    RESETS = "resets"
    SUSPENSIONS = "suspensions"
    MPS_SHARES = "mps given"
    MPS_DEFAULTS = "mps defaults"
    POOL_LEASES = "pool_leases"
    POOL_USAGE = "pool_usage"
    POOL_RESERVATIONS = "reservations"
    POOL_MODES = "exclusive"
    MEMORY_LIMITS = "memory limits"
