"""Messages of the mirror by OTLP, read by OpenTelemetry's own message classes."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dashboard.mirror.formats import otlp
from dashboard.mirror.samples import GpuSeconds, MirrorBatch, SeriesPlace
from tests.machine import required_module

pytestmark = pytest.mark.soak
MESSAGES = "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"


def test_opentelemetry_reads_each_sample_at_its_time() -> None:
    messages: Any = required_module(MESSAGES)
    start = random.randrange(1_600_000_000, 1_800_000_000)
    watts = [float(random.randrange(700)) for _ in range(3)]
    rows = GpuSeconds(np.array([0, 0, 1]), np.array([start, start + 1, start + 1]), {
        "power_w": np.array(watts), "energy_j": np.array([1.0, 2.0, np.nan])})
    places = [SeriesPlace("c", "GPU-a", "h", "n"), SeriesPlace(None, "GPU-b", None, "m")]
    request = messages.ExportMetricsServiceRequest.FromString(
        otlp(MirrorBatch(places, rows, start, start + 60, True)))
    samples: Counter[tuple[str, str, float, float | None]] = Counter()
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        is_counter = metric.name == "gpudeck_gpu_energy_j"
        assert kind == ("sum" if is_counter else "gauge")
        if is_counter:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == 2, "cumulative"
        for point in getattr(metric, kind).data_points:
            labels = {label.key: label.value.string_value for label in point.attributes}
            is_over = bool(point.flags & 1)  # no recorded value: the series ends
            samples[metric.name, labels["gpu"], point.time_unix_nano / 1e9 - start,
                    None if is_over else point.as_double] += 1
    ends = 1.999
    assert {key: count for key, count in samples.items() if key[3] is not None} == Counter([
        ("gpudeck_gpu_power_w", "GPU-a", 0.0, watts[0]),
        ("gpudeck_gpu_power_w", "GPU-a", 1.0, watts[1]),
        ("gpudeck_gpu_power_w", "GPU-b", 1.0, watts[2]),
        ("gpudeck_gpu_energy_j", "GPU-a", 0.0, 1.0),
        ("gpudeck_gpu_energy_j", "GPU-a", 1.0, 2.0)])
    assert {(name, gpu) for name, gpu, at, value in samples if value is None
            and at == pytest.approx(ends, abs=1e-3)} == {
        ("gpudeck_gpu_power_w", "GPU-a"), ("gpudeck_gpu_power_w", "GPU-b"),
        ("gpudeck_gpu_energy_j", "GPU-a")}
