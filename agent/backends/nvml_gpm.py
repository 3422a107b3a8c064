"""GPM: what NVML measures between two samples of a board. Hopper and newer."""

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from gpudeck.metrics import UNKNOWN, UNSUPPORTED, Absence

from .nvml_errors import Code

GPM_APART_S = 0.1  # nvml.h: samples closer than 100 ms give no metrics


class Gpm:
    """What these metrics were between two readings."""

    def __init__(
        self, metrics: Sequence[int], take: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self._metrics = metrics
        self._take = take  # a sample of this handle into this buffer
        self._samples: list[Any] | None = None
        self._sampled_at: float | None = None
        self._request: Any = None
        self._answers: list[Any] = []  # where in the request they come
        self.absence = UNKNOWN

    def read(
        self, handle: Any, now: float, why: Callable[[int], Absence]
    ) -> dict[int, float]:
        """Metric -> number; what is not in it is absent by `absence`."""
        if self.absence is UNSUPPORTED:
            return {}
        try:
            return self._read(handle, now)
        except pynvml.NVMLError as error:
            # Here a bad argument is two samples too close, not a metric that is not known.
            bad_argument = error.value == Code.INVALID_ARGUMENT
            self.absence = UNKNOWN if bad_argument else why(error.value)
        except pynvml.NVMLLibraryMismatchError:
            self.absence = UNSUPPORTED
        return {}

    def _read(self, handle: Any, now: float) -> dict[int, float]:
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

    def _between(self, before: Any, after: Any) -> dict[int, float]:
        if self._request is None:
            self._request = pynvml.c_nvmlGpmMetricsGet_t()
            self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            self._request.numMetrics = len(self._metrics)
            self._answers = [self._request.metrics[at] for at in range(len(self._metrics))]
            for answer, metric in zip(self._answers, self._metrics, strict=True):
                answer.metricId = metric
        self._request.sample1, self._request.sample2 = before, after
        pynvml.nvmlGpmMetricsGet(self._request)
        return {metric: answer.value
                for metric, answer in zip(self._metrics, self._answers, strict=True)
                if answer.nvmlReturn == pynvml.NVML_SUCCESS}
