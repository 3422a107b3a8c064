"""NVLink, and how the GPUs of a node reach each other."""

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, Literal

import pynvml

from gpudeck.contract.wire import MAX_LINKS, GpuLink
from gpudeck.measures.metrics import UNSUPPORTED, Absence

from ..metric_row import MetricRow, MonotonicCounter
from .ask import GpuLostError, NvmlDevice
from .fields import EVERY_LINK, Field, NvmlFieldValues

LINKS = range(pynvml.NVML_NVLINK_MAX_LINKS)
STATES: tuple[Field, ...] = tuple((pynvml.NVML_FI_DEV_NVLINK_GET_STATE, at) for at in LINKS)
# Flits, data, replays, recoveries: since the driver was loaded.
ERRORS: tuple[Field, ...] = tuple((number, 0) for number in (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
))
# Of the fifth generation, whose counters are asked link by link.
ERRORS_OF_5 = (pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS,
               pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS)
ERRORS_BY_CALL = (
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT, pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
)
# metric: the sum over all links in KiB, and one link's bytes (fifth generation)
TRAFFIC: dict[str, tuple[int, int]] = {
    "nvlink_tx_bytes_per_s": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
                              pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES),
    "nvlink_rx_bytes_per_s": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
                              pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES),
}
KIB = 1024.0

Path = Literal["board", "one switch", "switches", "host bridge", "numa node", "system"]
PATHS: dict[int, Path] = {0: "board", 10: "one switch", 20: "switches", 30: "host bridge",
                          40: "numa node", 50: "system"}


class NvLinkCounters:
    """The NVLinks of one GPU."""

    def __init__(self, asker: NvmlDevice) -> None:
        self._asker = asker
        self._by_link = False
        self._counters = {key: MonotonicCounter() for key in TRAFFIC}
        self.up: int | None = None

    def fields(self) -> list[Field]:
        """Return the fields, to be asked in the one call with all others."""
        fields = [*STATES, *ERRORS, *((total, EVERY_LINK) for total, _ in TRAFFIC.values())]
        if self._by_link:
            numbers = (*ERRORS_OF_5, *(bytes_of for _, bytes_of in TRAFFIC.values()))
            fields += [(number, at) for number in numbers for at in LINKS]
        return fields

    def put(self, row: MetricRow, answers: NvmlFieldValues, now: float) -> None:
        states = self._states(answers)
        present = {at: state for at, state in states.items() if type(state) is not Absence}
        self.up = sum(state == 1 for state in present.values()) if present else None
        row.put("nvlinks_up", _sum_or_why(
            [state if type(state) is Absence else float(state == 1) for state in states.values()]))
        row.put("nvlink_errors", self._errors(answers, present))
        for key, (total, bytes_of) in TRAFFIC.items():
            row.put(key, self._rate(key, answers, total, bytes_of, now))
        whole = answers.number((TRAFFIC["nvlink_tx_bytes_per_s"][0], EVERY_LINK))
        self._by_link = bool(present) and whole is UNSUPPORTED

    def _states(self, answers: NvmlFieldValues) -> dict[int, Any]:
        """Return the state by link, without links that this board does not have."""
        by_link = {at: answers.number(STATES[at]) for at in LINKS}
        states = {at: state for at, state in by_link.items() if state is not UNSUPPORTED}
        if states:
            return states
        for at in LINKS:  # an older driver
            state = self._asker.ask("nvmlDeviceGetNvLinkState", at)
            if state is UNSUPPORTED:
                break
            states[at] = state
        return states

    def _errors(self, answers: NvmlFieldValues, present: Mapping[int, Any]) -> "float | Absence":
        counts = [answers.number(field) for field in ERRORS]
        if all(count is UNSUPPORTED for count in counts):
            counts = [answers.number((number, at)) for number in ERRORS_OF_5 for at in present]
        if all(count is UNSUPPORTED for count in counts):
            counts = [self._asker.ask("nvmlDeviceGetNvLinkErrorCounter", at, kind)
                      for at in present for kind in ERRORS_BY_CALL]
        return _sum_or_why([count for count in counts if count is not UNSUPPORTED])

    def _rate(
        self, key: str, answers: NvmlFieldValues, total: int, bytes_of: int, now: float
    ) -> "float | Absence":
        counter = answers.counter((total, EVERY_LINK))
        scale = KIB
        if counter is UNSUPPORTED:
            counter, scale = _sum_of_links(answers, bytes_of), 1.0
        if type(counter) is Absence:
            return counter
        rate = self._counters[key].rate(*counter, now)
        return rate if type(rate) is Absence else rate * scale


def _sum_of_links(answers: NvmlFieldValues, number: int) -> "tuple[int, int] | Absence":
    parts = [answers.number((number, at)) for at in LINKS]
    whole = _sum_or_why([part for part in parts if part is not UNSUPPORTED])
    return whole if type(whole) is Absence else (int(whole), 64)


def _sum_or_why(parts: Sequence[Any]) -> "float | Absence":
    """Return the sum, or why not: one part that did not answer makes the sum a lie."""
    if not parts:
        return UNSUPPORTED
    bad = next((part for part in parts if type(part) is Absence), None)
    return float(sum(parts)) if bad is None else bad


class NvLinkEndpoints:
    """Ends of the active NVLinks of one GPU: where they lead."""

    def __init__(self, asker: NvmlDevice) -> None:
        self.to: Tally[str] = Tally()  # by the other's bus id
        self.to_switches = 0
        for at in LINKS:
            state = asker.ask("nvmlDeviceGetNvLinkState", at)
            if state is UNSUPPORTED:
                break
            if state == 1:
                self._follow(asker, at)

    def _follow(self, asker: NvmlDevice, at: int) -> None:
        kind = asker.ask("nvmlDeviceGetNvLinkRemoteDeviceType", at)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            self.to_switches += 1
            return
        other = asker.ask("nvmlDeviceGetNvLinkRemotePciInfo", at)
        if type(other) is not Absence:
            self.to[str(other.busId).lower()] += 1

    def between(self, other: "NvLinkEndpoints", bus_id: str | None) -> int:
        """Count the links to a GPU at this bus id: direct ones, else as many as meet in the
        switches."""
        direct = self.to[bus_id.lower()] if bus_id else 0
        return direct or min(self.to_switches, other.to_switches)


class GpuTopology:
    """Paths between each pair of GPUs: read once, and again when a link went up or down."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, str], tuple[Path, int]] = {}
        self._last_state: object = None

    def learn(self, boards: Sequence[tuple[NvmlDevice, str | None, int | None]]) -> None:
        """Learn the paths of those that answer, by their bus ids and how many of their links are
        up."""
        state = [(asker.uuid, up) for asker, _, up in boards]
        if state == self._last_state or len(boards) < 2:
            return
        with suppress(GpuLostError):  # its own reading will say so
            ends = {asker.uuid: NvLinkEndpoints(asker) for asker, _, _ in boards}
            for (one, _, _), (other, bus_id, _) in combinations(boards, 2):
                level = one.ask("nvmlDeviceGetTopologyCommonAncestor", other.handle,
                                question=("ancestor", other.uuid))
                path = None if type(level) is Absence else PATHS.get(level)
                if path is not None:
                    nvlinks = ends[one.uuid].between(ends[other.uuid], bus_id)
                    self._paths[one.uuid, other.uuid] = path, nvlinks
            self._last_state = state

    def links(self, uuids: Sequence[str]) -> tuple[GpuLink, ...]:
        """Return the links, by their places in this list. A lost GPU has not moved."""
        place = {uuid: at for at, uuid in enumerate(uuids)}
        links = (GpuLink(place[one], place[other], path, nvlinks)
                 for (one, other), (path, nvlinks) in self._paths.items()
                 if one in place and other in place)
        return tuple(sorted(links, key=lambda link: (link.a, link.b)))[:MAX_LINKS]
