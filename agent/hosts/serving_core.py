"""Engines that serve models: how to recognise one, and what its metrics mean. Pure.

Names are matched in full: `vllm:num_requests_waiting_by_reason` and `vllm:iteration_tokens_total`
begin like others and mean something else. A signal lists its names from the newest on; what a
version does not have is absent, never 0.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.contract.serving import ServingSample

MOST_LINES = 50_000
MOST_SERIES = 4_096  # of the names that are read
LINE_MOST = 8_192
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?\s*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
MOST_VALUE = 1e18


@dataclass(frozen=True, slots=True)
class Signal:
    """Metric of an engine. `repeats`: labels whose values repeat one number (such as the ranks of a
    tensor-parallel group), so that the largest counts; all else is added up. `only`: samples with
    these labels."""

    names: tuple[str, ...]
    repeats: tuple[str, ...] = ()
    only: tuple[tuple[str, str], ...] = ()
    is_mean: bool = False  # for a share: over all that serve in parallel


@dataclass(frozen=True, slots=True)
class EngineRow:
    name: str
    port: int
    path: str
    words: re.Pattern[str]  # in a command line
    port_flags: tuple[str, ...]
    signals: Mapping[str, Signal]
    latencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
_OPENAI = {"first_token_s": ("time_to_first_token_seconds",),
           "token_s": ("inter_token_latency_seconds", "request_time_per_output_token_seconds",
                       "time_per_output_token_seconds"),
           "request_s": ("e2e_request_latency_seconds",)}


def _with_prefix(prefix: str) -> dict[str, tuple[str, ...]]:
    return {key: tuple(prefix + name for name in names) for key, names in _OPENAI.items()}


def _flag(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|[\s/]){text}(?:\s|$)")


ENGINES: tuple[EngineRow, ...] = (
    EngineRow("vllm", 8000, "/metrics", _flag(r"(?:vllm serve|vllm\.entrypoints\.\S+)"),
              ("--port",), {
        "prompt_tokens": Signal(("vllm:prompt_tokens_total",)),
        "generated_tokens": Signal(("vllm:generation_tokens_total",)),
        "running": Signal(("vllm:num_requests_running",)),
        "waiting": Signal(("vllm:num_requests_waiting",)),
        "cache_share": Signal(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
                              is_mean=True)}, _with_prefix("vllm:")),
    EngineRow("sglang", 30_000, "/metrics", _flag(r"sglang(?:\.launch_server| serve)"),
              ("--port",), {
        "prompt_tokens": Signal(("sglang:prompt_tokens_total",), _RANKS),
        # What a long answer has so far; the other counter moves when a request ends.
        "generated_tokens": Signal(("sglang:realtime_tokens_total",), _RANKS, (
            ("mode", "decode"),)),
        "generated_tokens_ended": Signal(("sglang:generation_tokens_total",), _RANKS),
        "running": Signal(("sglang:num_running_reqs",), _RANKS),
        "waiting": Signal(("sglang:num_queue_reqs",), _RANKS),
        "cache_share": Signal(("sglang:token_usage",), _RANKS, is_mean=True)},
              _with_prefix("sglang:")),
    EngineRow("trtllm", 8000, "/prometheus/metrics", _flag("trtllm-serve"), ("--port",), {
        "prompt_tokens": Signal(("trtllm_prompt_tokens_total",)),
        "generated_tokens": Signal(("trtllm_generation_tokens_total",)),
        "running": Signal(("trtllm_num_requests_running",)),
        "waiting": Signal(("trtllm_num_requests_waiting",)),
        "cache_share": Signal(("trtllm_kv_cache_utilization",), is_mean=True)},
              _with_prefix("trtllm_")),
    EngineRow("triton", 8002, "/metrics", _flag("tritonserver"), ("--metrics-port",), {
        "running": Signal(("nv_trt_llm_request_metrics",), only=(("request_type", "scheduled"),)),
        "waiting": Signal(("nv_inference_pending_request_count",)),
        "cache_share": Signal(("nv_trt_llm_kv_cache_block_metrics",), is_mean=True,
                              only=(("kv_cache_block_type", "fraction"),))}),
    EngineRow("tgi", 3000, "/metrics", _flag(r"text-generation-(?:launcher|router)"),
              ("--prometheus-port", "--port", "-p"), {
        "prompt_tokens": Signal(("tgi_request_input_length_sum",)),
        "generated_tokens": Signal(("tgi_request_generated_tokens_sum",)),
        "running": Signal(("tgi_batch_current_size",)),
        "waiting": Signal(("tgi_queue_size",))}, {
        "token_s": ("tgi_request_mean_time_per_token_duration",),
        "request_s": ("tgi_request_duration",)}),
    EngineRow("llama.cpp", 8080, "/metrics", _flag("llama-server"), ("--port",), {
        "prompt_tokens": Signal(("llamacpp:prompt_tokens_total",)),
        "generated_tokens": Signal(("llamacpp:tokens_predicted_total",)),
        "running": Signal(("llamacpp:requests_processing",)),
        "waiting": Signal(("llamacpp:requests_deferred",))}),
)


@dataclass(frozen=True, slots=True)
class ServingAddress:
    engine: EngineRow
    port: int


def address_of(words: Sequence[str]) -> ServingAddress | None:
    """Return where a process serves, by its command line. None: it is no engine that is known
    here."""
    line = " ".join(words)[:LINE_MOST]
    engine = next((row for row in ENGINES if row.words.search(line)), None)
    if engine is None:
        return None
    for flag in engine.port_flags:
        for at, word in enumerate(words):
            value = words[at + 1] if word == flag and at + 1 < len(words) else \
                word.removeprefix(f"{flag}=") if word.startswith(f"{flag}=") else ""
            if value.isdecimal() and 0 < int(value) < 65_536:
                return ServingAddress(engine, int(value))
    return ServingAddress(engine, engine.port)


Series = dict[str, list[tuple[dict[str, str], float]]]


def parse_samples(text: str, engine: EngineRow) -> Series:
    """Return the samples that this engine's signals need. Lines that are no samples are skipped;
    NaN, infinities, negative numbers and what no counter can reach are not values."""
    wanted_names = {name for signal in engine.signals.values() for name in signal.names}
    wanted_names |= {name + end for names in engine.latencies.values() for name in names
                     for end in ("_sum", "_count")}
    series: Series = {}
    total = 0
    for line in text.split("\n", MOST_LINES)[:MOST_LINES]:
        if not line or line[0] == "#" or len(line) > LINE_MOST:
            continue
        name = re.match(r"[a-zA-Z0-9_:]*", line)
        if name is None or name[0] not in wanted_names:
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        value = None if match is None else _value(match[3])
        if match is not None and value is not None and total < MOST_SERIES:
            series.setdefault(match[1], []).append((dict(_LABEL.findall(match[2] or "")), value))
            total += 1
    return series


def _value(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MOST_VALUE else None


def number(series: Series, signal: Signal) -> float | None:
    """Return the value under the newest name that is there, or None."""
    for name in signal.names:
        rows = [(labels, value) for labels, value in series.get(name, ())
                if all(labels.get(key) == required for key, required in signal.only)]
        if not rows:
            continue
        parts: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in rows:
            rest = tuple(sorted((key, word) for key, word in labels.items()
                                if key not in signal.repeats))
            parts[rest] = max(parts.get(rest, 0.0), value)
        total = sum(parts.values())
        return total / len(parts) if signal.is_mean else total
    return None


def latencies(series: Series, engine: EngineRow) -> dict[str, tuple[float, float]]:
    """Return sum and count of each latency, as the engine counts them."""
    totals = {}
    for key, names in engine.latencies.items():
        for name in names:
            total, count = (number(series, Signal((name + end,))) for end in ("_sum", "_count"))
            if total is not None and count is not None:
                totals[key] = (total, count)
                break
    return totals


@dataclass(frozen=True, slots=True)
class ServingCounters:
    at: float
    tokens: Mapping[str, float]
    latencies: Mapping[str, tuple[float, float]]


def sample_of(task_id: str, engine: EngineRow, text: str, at: float,
              before: ServingCounters | None) -> tuple[ServingSample, ServingCounters]:
    """Return the sample, and the counters to pass next time as `before`. Rates cover the time since
    `before`; a counter that was reset has none."""
    series = parse_samples(text, engine)
    numbers = {key: number(series, signal) for key, signal in engine.signals.items()}
    generated = numbers.get("generated_tokens")
    if generated is None:
        generated = numbers.get("generated_tokens_ended")
    tokens = {key: value for key, value in (
        ("prompt", numbers.get("prompt_tokens")), ("generated", generated)) if value is not None}
    now = ServingCounters(at, tokens, latencies(series, engine))
    share = numbers.get("cache_share")
    nothing = "" if series else "its metrics hold nothing that is known here: another version?"
    return ServingSample(
        task_id, engine.name, nothing, tokens.get("prompt"), tokens.get("generated"),
        _rate("prompt", before, now), _rate("generated", before, now),
        numbers.get("running"), numbers.get("waiting"),
        None if share is None or share > 1 else 100.0 * share,
        *(_mean(key, before, now) for key in ("first_token_s", "token_s", "request_s"))), now


def _rate(key: str, before: ServingCounters | None, now: ServingCounters) -> float | None:
    if before is None or key not in before.tokens or key not in now.tokens or now.at <= before.at:
        return None
    grown = now.tokens[key] - before.tokens[key]
    return grown / (now.at - before.at) if grown >= 0 else None


def _mean(key: str, before: ServingCounters | None, now: ServingCounters) -> float | None:
    """Return the mean since `before`. None: no request has ended since then."""
    if before is None or key not in before.latencies or key not in now.latencies:
        return None
    total, count = (b - a for a, b in zip(before.latencies[key], now.latencies[key], strict=True))
    return total / count if count > 0 and total >= 0 else None
