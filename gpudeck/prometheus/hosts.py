"""Hosts' numbers as Prometheus text. Pure."""

from collections.abc import Iterator, Sequence

from gpudeck.contract.hosts import HOST, HostMetric, HostSample, HostTask
from gpudeck.contract.serving import ServingSample
from gpudeck.prometheus.text import Kind, family

NAN = float("nan")
OF_TASKS: tuple[tuple[str, str, str], ...] = (
    ("gpudeck_task_host_cpu_ratio", "cpu_pct",
     "Processors that this task and its child processes keep busy."),
    ("gpudeck_task_host_memory_bytes", "mem_bytes",
     "Host memory resident of this task and its child processes."),
)
OF_SERVERS: tuple[tuple[str, Kind, str, str], ...] = (
    ("gpudeck_serving_prompt_tokens_total", "counter", "prompt_tokens",
     "Tokens of prompts that the server has processed."),
    ("gpudeck_serving_generated_tokens_total", "counter", "generated_tokens",
     "Tokens that the server has generated."),
    ("gpudeck_serving_requests_running", "gauge", "running", "Requests that the server works on."),
    ("gpudeck_serving_requests_waiting", "gauge", "waiting", "Requests in the server's queue."),
    ("gpudeck_serving_cache_ratio", "gauge", "cache_pct", "Share of the KV cache in use."),
)


def host_families(of: Sequence[str], samples: Sequence[HostSample | None]) -> Iterator[str]:
    """Yield a family per metric. `of`: the labels of each host. None: it does not report."""
    for metric in HOST:
        values = [None if sample is None else sample.number(metric.key) for sample in samples]
        yield family(metric.prometheus, "counter" if metric.is_counter else "gauge",
                     metric.description, of, [_value(metric, value) for value in values])


def _value(metric: HostMetric, value: float | None) -> float:
    if value is None:
        return NAN
    return value / 100 if metric.unit == "%" else value


def task_families(of: Sequence[str], uses: Sequence[HostTask]) -> Iterator[str]:
    for name, field, description in OF_TASKS:
        values = [getattr(use, field) for use in uses]
        yield family(name, "gauge", description, of, [
            NAN if value is None else value / 100 if field == "cpu_pct" else value
            for value in values])


def serving_families(of: Sequence[str], servers: Sequence[ServingSample]) -> Iterator[str]:
    for name, kind, field, description in OF_SERVERS:
        values = [getattr(server, field) for server in servers]
        yield family(name, kind, description, of, [
            NAN if value is None else value / 100 if field == "cache_pct" else value
            for value in values])
