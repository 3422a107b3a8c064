"""Memory of a GPU that serves a model: weights, KV cache, workspace, context. Pure."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from gpudeck.estimate.parts import CONTEXT, GIB, MemoryEstimate, MemoryPart
from gpudeck.estimate.shape import Architecture, Block
from gpudeck.estimate.weights import FORMATS, KEPT, WeightFormat, stored

KV_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
# Families checked against a published figure of memory; the others are arithmetic alone.
CHECKED = frozenset(("llama", "qwen2", "qwen3", "qwen3_moe", "phi", "falcon", "gpt_neox",
                     "deepseek_v3"))


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine. `prefill`: tokens at most that are read in one piece; None: all prompts at
    once. `overhead` and `graphs`: measured ranges, in GiB."""

    prefill: int | None
    overhead: tuple[float, float] | None
    graphs: tuple[float, float] | None
    fills: str = ""


ENGINES = {
    "transformers": Engine(None, None, None),
    "vllm": Engine(8_192, (0.4, 3.6), (1.0, 3.0),
                   "vLLM always fills gpu_memory_utilization (0.9), so its usage does not show "
                   "its need"),
    "sglang": Engine(8_192, (0.4, 3.6), (1.0, 3.0),
                     "SGLang always fills mem_fraction_static (0.85), so its usage does not show "
                     "its need"),
}


@dataclass(frozen=True, slots=True)
class InferenceSetting:
    """Parameters of serving. `prompt` and `output`: tokens of each of `concurrency` sequences.
    `prefill`: see Engine; 0: the workspace is not counted. `kept_16bit` None: not stated."""

    weights: str = "bf16"
    kv: str = "bf16"
    prompt: int = 4_096
    output: int = 1_024
    concurrency: int = 1
    tp: int = 1
    pp: int = 1
    engine: str = "vllm"
    prefill: int | None = None
    kept_16bit: Collection[str] | None = None


def kv_bytes_per_token(block: Block, bytes_each: int, tp: int) -> float:
    """Return the KV cache of one layer on one of `tp` GPUs."""
    latent = block.attention.latent
    if latent is not None:
        return (latent.kv_rank + latent.rope_dim) * bytes_each  # every GPU keeps all of it
    heads = max(1, math.ceil(block.attention.kv_heads / tp))
    return 2 * heads * block.attention.head_dim * bytes_each


def kv_bytes(model: Architecture, tokens: int, bytes_each: int, tp: int) -> float:
    """Return the KV cache of one sequence. A layer with a window keeps no more than that."""
    return sum(block.count * kv_bytes_per_token(block, bytes_each, tp)
               * min(tokens, block.attention.window or tokens) for block in model.blocks)


def estimate(model: Architecture, how: InferenceSetting) -> MemoryEstimate:
    form, engine = FORMATS[how.weights], ENGINES[how.engine]
    weights = stored(model, form, how.kept_16bit or ())
    share = math.ceil(model.layers / how.pp) / model.layers
    size = (weights.total if how.pp == 1
            else share * weights.layers + max(weights.embedding, weights.head)) / how.tp
    kv = how.concurrency * share * kv_bytes(model, how.prompt + how.output, KV_BYTES[how.kv],
                                            how.tp)
    parts = [
        _weights(model, how, form, size),
        MemoryPart("KV cache", kv, _kv_words(model, how)),
        *_workspace(model, how, engine)]
    if weights.unpacked:
        parts.append(MemoryPart("unpacked matrix", weights.unpacked / how.tp,
                                "2 bytes per parameter of the largest matrix, while it is used"))
    outside = [CONTEXT]
    if engine.overhead is not None:
        outside.append(_measured(f"{how.engine}, beyond PyTorch", engine.overhead))
    if engine.graphs is not None:
        outside.append(_measured("CUDA graphs", engine.graphs))
    return MemoryEstimate(tuple(parts), 0.05, tuple(_doubts(model, how)), 0.0, tuple(outside))


def _weights(model: Architecture, how: InferenceSetting, form: WeightFormat, size: float
             ) -> MemoryPart:
    words = f"{form.words}{_split(how)}"
    if how.weights != "fp8" or how.kept_16bit is not None:
        return MemoryPart("weights", size, words)
    # The modules that an FP8 model leaves in 16 bits are in its config, if anywhere.
    least, most = (stored(model, form, modules).total for modules in ((), KEPT))
    return MemoryPart("weights", size, words + "; more where attention, the first or the last "
                      "layer is kept in 16 bits: say which", size, size * most / least)


def _workspace(model: Architecture, how: InferenceSetting, engine: Engine) -> list[MemoryPart]:
    limit = engine.prefill if how.prefill is None else how.prefill
    tokens = how.prompt * how.concurrency if limit is None else min(
        limit, how.prompt * how.concurrency)
    if not tokens:
        return []
    width = max(block.mlp.active_width for block in model.blocks)
    return [MemoryPart(
        "workspace of prefill", tokens * (6 * width / how.tp + 8 * model.hidden),
        f"n (6 f + 8 h): n = {tokens} tokens in one piece, f = {width}, h = {model.hidden}"),
        MemoryPart("logits", 4.0 * model.vocab * how.concurrency / how.tp,
                   "4 V per sequence: the last token's")]


def _measured(name: str, gib: tuple[float, float]) -> MemoryPart:
    low, high = gib
    return MemoryPart(name, (low + high) / 2 * GIB, f"measured: {low:g} to {high:g} GiB",
                      low * GIB, high * GIB)


def _split(how: InferenceSetting) -> str:
    return "".join(f", / {number} ({name})" for name, number in (("TP", how.tp), ("PP", how.pp))
                   if number > 1)


def _kv_words(model: Architecture, how: InferenceSetting) -> str:
    first, size = model.blocks[0].attention, KV_BYTES[how.kv]
    if first.latent is not None:
        per_token = "L (kv_lora_rank + rope dim) b, on each GPU in full"
    elif how.tp > first.kv_heads:
        per_token = f"2 L d b: its {first.kv_heads} KV heads are on several GPUs"
    else:
        per_token = "2 L kv_heads d b" + (" / TP" if how.tp > 1 else "")
    windowed = sum(block.count for block in model.blocks if block.attention.window)
    tokens = f"{how.concurrency} x {how.prompt + how.output} tokens"
    return (f"{per_token} per token, b = {size}; {tokens}"
            + (f"; {windowed} of {model.layers} layers keep their window alone" * bool(windowed)))


def _doubts(model: Architecture, how: InferenceSetting) -> list[str]:
    doubts = []
    if model.family not in CHECKED:
        doubts.append(f"no published figure of a {model.family} was checked")
    if how.pp > 1:
        doubts.append("no published figure of a pipeline was checked")
    if how.engine != "transformers" and how.tp > 2:
        doubts.append("what an engine needs in addition to PyTorch was measured on 1 and 2 GPUs "
                      "only")
    return doubts
