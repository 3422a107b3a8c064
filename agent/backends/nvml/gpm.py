"""GPM: what NVML measures between two samples of a board. Hopper and newer.

Counters that nobody feeds read 0, all of them, with every code a success (NVIDIA/dcgm-exporter#662:
"silently 0 after weeks"). So a 0 while the driver says that kernels ran is believed only where
another counter of the same reading moved: during pure copies multiprocessors do rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from gpudeck.measures.metrics import UNKNOWN, UNSUPPORTED, Absence

from ..metric_row import MetricRow

GPM_APART_S = 0.1  # nvml.h: samples closer than 100 ms give no metrics
# A kernel that ended right at a reading contradicts one; so many, without any number in between,
# are dead counters. What is read while nothing runs says nothing of them.
DEAD_AFTER = 20
ACTIVE, OCCUPANCY = pynvml.NVML_GPM_METRIC_SM_UTIL, pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
# What nobody will ever answer about one metric, on this driver and board.
_NO_SUCH = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

Shares = dict[int, "float | Absence"]


class GpmSampler:
    """Sampler of these metrics: what they were between two readings."""

    def __init__(
        self, metrics: Sequence[int], take: Callable[[Any, Any], Any] | None = None
    ) -> None:
        # SM activity is asked for with each: a 0 of the others is worth what its own is.
        self._metrics = tuple(dict.fromkeys((*metrics, ACTIVE)))
        self._take = take  # a sample of this handle into this buffer
        self._samples: list[Any] | None = None
        self._sampled_at: float | None = None
        self._request: Any = None
        self._answers: list[Any] = []  # where in the request they come
        self._contradicted = 0  # since any of them moved
        self.absence = UNKNOWN

    @property
    def is_dead(self) -> bool:
        """True where its counters stand still: it says 0 whatever runs."""
        return self._contradicted >= DEAD_AFTER

    def read(
        self, handle: Any, now: float, why: Callable[[int], Absence], ran: bool = False
    ) -> Shares:
        """Return metric -> number or why not; what is not in it is absent by `absence`. `ran`: the
        driver says elsewhere that kernels ran since the last time."""
        if self.absence is UNSUPPORTED:
            return {}
        try:
            return self._believed(self._read(handle, now), ran)
        except pynvml.NVMLError as error:
            # Here a bad argument is two samples too close, not a metric that is not known.
            bad_argument = error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT
            self.absence = UNKNOWN if bad_argument else why(error.value)
        except pynvml.NVMLLibraryMismatchError:
            self.absence = UNSUPPORTED
        return {}

    def put(
        self, row: MetricRow, metrics: Mapping[str, int], handle: Any, now: float,
        why: Callable[[int], Absence], ran: bool = False
    ) -> Shares:
        """Put into the row what it has of these, by metric key."""
        shares = self.read(handle, now, why, ran)
        for key, number in metrics.items():
            row.put(key, shares.get(number, self.absence))
        return shares

    def _believed(self, shares: Shares, ran: bool) -> Shares:
        active = shares.get(ACTIVE)
        if active is None or type(active) is Absence:
            return shares
        if any(type(share) is float and share != 0 for share in shares.values()):
            self._contradicted = 0
            if active != 0 and shares.get(OCCUPANCY) == 0:  # an active SM has warps resident
                return {**shares, OCCUPANCY: UNKNOWN}
            return shares
        if not ran:
            return shares
        self._contradicted += 1
        self.absence = UNKNOWN
        return {}

    def _read(self, handle: Any, now: float) -> Shares:
        if self._samples is None:
            if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self.absence = UNSUPPORTED
                return {}
            self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        if self._sampled_at is not None and now - self._sampled_at <= GPM_APART_S:
            return {}
        before, after = self._samples
        had_one, self._sampled_at = self._sampled_at is not None, None
        take = self._take or pynvml.nvmlGpmSampleGet
        take(handle, before if not had_one else after)
        self._sampled_at = now
        if not had_one:
            return {}
        self._samples = [after, before]
        return self._between(before, after)

    def _between(self, before: Any, after: Any) -> Shares:
        if self._request is None:
            self._request = pynvml.c_nvmlGpmMetricsGet_t()
            self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            self._request.numMetrics = len(self._metrics)
            self._answers = [self._request.metrics[at] for at in range(len(self._metrics))]
            for answer, metric in zip(self._answers, self._metrics, strict=True):
                answer.metricId = metric
        self._request.sample1, self._request.sample2 = before, after
        pynvml.nvmlGpmMetricsGet(self._request)
        return {metric: _share(answer)
                for metric, answer in zip(self._metrics, self._answers, strict=True)}


def _share(answer: Any) -> "float | Absence":
    if answer.nvmlReturn == pynvml.NVML_SUCCESS:
        return float(answer.value)
    return UNSUPPORTED if answer.nvmlReturn in _NO_SUCH else UNKNOWN
