"""Static facts of a GPU through NVML: name, position, limits and thresholds."""

from typing import Any

import pynvml
from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import Absence, metric

from .ask import NvmlCall, NvmlDevice, map_answer
from .fields import read_fields

# From Ada on in degrees below the GPU's own limit, the other way round: -2 is two above it.
SHUTDOWN_LIMIT = (pynvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, 0)
SLOWDOWN_LIMIT = (pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 0)
MEMORY_LIMIT = (pynvml.NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, 0)
MARGIN_MOST_C = 150
NODE_WORDS = 16  # of 64 NUMA nodes each
_SWITCH = {0: "off", 1: "on"}
# Beyond it a fact is a driver's sentinel, and the hub would refuse the message.
HIGH: dict[str, float] = {
    "minor": 65_535, "numa_node": 65_535, "mem_total_bytes": metric("mem_used_bytes").high,
    "pcie_gen_max": metric("pcie_gen").high, "pcie_width_max": metric("pcie_width").high,
    "sm_clock_max_mhz": metric("sm_clock_mhz").high,
    "mem_clock_max_mhz": metric("mem_clock_mhz").high,
    "temp_slowdown_c": metric("temp_c").high, "temp_shutdown_c": metric("temp_c").high,
    "mem_temp_max_c": metric("mem_temp_c").high,
    **dict.fromkeys(("power_limit_w", "power_limit_min_w", "power_limit_max_w",
                     "power_limit_default_w"), metric("power_w").high),
}


def _word(value: object) -> str | None:
    return str(value)[:128] or None


def _watts(milliwatts: int) -> float:
    return milliwatts / 1_000


FACTS = {
    "name": NvmlCall("nvmlDeviceGetName", (), _word),
    "serial": NvmlCall("nvmlDeviceGetSerial", (), _word),
    "vbios": NvmlCall("nvmlDeviceGetVbiosVersion", (), _word),
    "minor": NvmlCall("nvmlDeviceGetMinorNumber"),
    "pci_bus_id": NvmlCall("nvmlDeviceGetPciInfo", (), lambda pci: _word(pci.busId)),
    "compute_capability": NvmlCall("nvmlDeviceGetCudaComputeCapability", (),
                                   lambda pair: f"{pair[0]}.{pair[1]}"),
    "pcie_gen_max": NvmlCall("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_width_max": NvmlCall("nvmlDeviceGetMaxPcieLinkWidth"),
    "power_limit_default_w": NvmlCall("nvmlDeviceGetPowerManagementDefaultLimit", (), _watts),
    "sm_clock_max_mhz": NvmlCall("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_SM,)),
    "mem_clock_max_mhz": NvmlCall("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_MEM,)),
    # Only asked: to switch it on is for root, and not for us.
    "accounting_on": NvmlCall("nvmlDeviceGetAccountingMode", (), bool),
}


def read_facts(asker: NvmlDevice, facts: GpuFacts, memory: Any, temp_c: Any) -> GpuFacts:
    """Read the facts. A call that fails this time only leaves what was known."""

    def or_former(key: str, answer: Any) -> Any:
        if type(answer) is not Absence:
            return answer
        return getattr(facts, key) if answer is Absence.UNKNOWN else None

    limits = asker.ask("nvmlDeviceGetPowerManagementLimitConstraints")
    answers = {key: asker.call(call) for key, call in FACTS.items()} | {
        "numa_node": _numa_node(asker),
        "mem_total_bytes": map_answer(memory, lambda info: float(info.total)),
        "power_limit_w": map_answer(asker.first(
            "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), _watts),
        "power_limit_min_w": map_answer(limits, lambda pair: _watts(pair[0])),
        "power_limit_max_w": map_answer(limits, lambda pair: _watts(pair[1])),
    }
    values = {key: or_former(key, answer) for key, answer in answers.items()}
    values["name"] = values["name"] or facts.name
    values |= _thresholds(asker, facts, temp_c) | _memory_limits(asker, facts)
    lies = {key for key, value in values.items()
            if key in HIGH and value is not None and not 0 <= value <= HIGH[key]}
    return structs.replace(facts, **values | dict.fromkeys(lies))


def read_pending(asker: NvmlDevice) -> tuple[str, ...]:
    """Return modes that are set and not in force yet, for people."""
    pairs = ((mode, asker.ask(call)) for mode, call in (
        ("ECC", "nvmlDeviceGetEccMode"), ("MIG", "nvmlDeviceGetMigMode")))
    return tuple(f"{mode} is {_SWITCH[states[0]]}, and {_SWITCH[states[1]]} from its next reset on"
                 for mode, states in pairs if type(states) is not Absence and states[0] != states[1]
                 and {*states} <= _SWITCH.keys())


def _margin(degrees: float) -> float | None:
    """Return the margin; a number beyond this is a driver's sentinel."""
    return float(degrees) if abs(degrees) <= MARGIN_MOST_C else None


def _numa_node(asker: NvmlDevice) -> Any:
    """Return the node of the processors nearest to it. nvmlDeviceGetNumaNodeId is another thing,
    the node that the GPU's own memory forms; where it does, that one is meant."""
    own = asker.ask("nvmlDeviceGetNumaNodeId")
    if type(own) is not Absence:
        return own if own >= 0 else Absence.UNSUPPORTED
    words = asker.ask("nvmlDeviceGetMemoryAffinity", NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
    if type(words) is Absence:
        return words
    near = sum(int(word) << (64 * at) for at, word in enumerate(words))
    return (near & -near).bit_length() - 1 if near else Absence.UNSUPPORTED


def _thresholds(asker: NvmlDevice, facts: GpuFacts, temp_c: Any) -> dict[str, float | None]:
    thresholds: dict[str, float | None] = {}
    for key, number, limit in (
        ("temp_shutdown_c", pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, SHUTDOWN_LIMIT),
        ("temp_slowdown_c", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, SLOWDOWN_LIMIT),
    ):
        answer = asker.ask("nvmlDeviceGetTemperatureThreshold", number)
        if type(answer) is not Absence:
            thresholds[key] = float(answer)
        # Once: temperature and margin are not of one moment, and a fact must not tremble.
        elif answer is Absence.UNSUPPORTED and getattr(facts, key) is None:
            thresholds[key] = _from_margin(asker, limit, temp_c)
    return thresholds


def _memory_limits(asker: NvmlDevice, facts: GpuFacts) -> dict[str, float | None]:
    """Return the limit in degrees, or as the margin that must be left."""
    limit_c = asker.ask("nvmlDeviceGetTemperatureThreshold",
                        pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)
    if not isinstance(limit_c, Absence):
        return {"mem_temp_max_c": float(limit_c)}
    if limit_c is not Absence.UNSUPPORTED or facts.mem_margin_min_c is not None:
        return {}
    margin = read_fields(asker, [MEMORY_LIMIT]).number(MEMORY_LIMIT)
    return {"mem_margin_min_c": None if isinstance(margin, Absence) else _margin(margin)}


def _from_margin(asker: NvmlDevice, limit: tuple[int, int], temp_c: Any) -> float | None:
    margin_c = asker.ask("nvmlDeviceGetMarginTemperature")
    limit_c = read_fields(asker, [limit]).number(limit)
    if any(type(value) is Absence for value in (margin_c, limit_c, temp_c)):
        return None
    return float(temp_c + margin_c - limit_c)
