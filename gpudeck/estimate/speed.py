"""Tokens per second and days, as ranges: by bandwidth and a stated share of the peak. Pure.

Never from utilization: it says for how much of the time something ran, not how much was done."""

from dataclasses import dataclass

from gpudeck.estimate.boards import Board
from gpudeck.estimate.inference import KV_BYTES, InferenceSetting, kv_bytes
from gpudeck.estimate.shape import Architecture, count, mlp_matrices
from gpudeck.estimate.training import TrainingSetting
from gpudeck.estimate.weights import FORMATS

DAY_S = 86_400
# Of the bandwidth bound, by parameters, vLLM 0.6.3 on A100 at batch 1: 0.5B 15 %, 1.5B 28 %, 3B
# 39 %, 7B 63 %, 14B 67 %, 32B 71 %.
DECODE_SHARES = ((1e9, (0.12, 0.20)), (2e9, (0.20, 0.35)), (6e9, (0.30, 0.50)),
                 (float("inf"), (0.60, 0.70)))


@dataclass(frozen=True, slots=True)
class SpeedRange:
    low: float
    high: float
    formula: str


def decode_speed(model: Architecture, how: InferenceSetting, board: Board) -> SpeedRange:
    """Tokens per second of all sequences together, on `tp` boards; a pipeline does not add."""
    of, form = count(model), FORMATS[how.weights]
    sparse = sum(block.count * (mlp_matrices(model.hidden, block.mlp)
                                - mlp_matrices(model.hidden, block.mlp, 0))
                 for block in model.blocks if block.mlp.experts)
    touched = sum(block.count * _touched(block.mlp.active / block.mlp.experts, how.concurrency)
                  * (mlp_matrices(model.hidden, block.mlp)
                     - mlp_matrices(model.hidden, block.mlp, 0))
                  for block in model.blocks if block.mlp.experts)
    read = form.linear * (of.linear - sparse + touched) + form.rest * (of.other + (
        of.head or of.embedding))
    cache = how.concurrency * kv_bytes(model, how.prompt + how.output // 2, KV_BYTES[how.kv],
                                       how.tp) * how.tp
    low, high = next(share for most, share in DECODE_SHARES if of.active < most)
    if form.linear < 2:
        low /= 2  # unpacking costs what was saved, in part; measured only in 16 bits
    bound = how.concurrency * how.tp * board.gb_per_s * 1e9 / (read + cache)
    return SpeedRange(low * bound, high * bound,
                      f"{low:.0%} to {high:.0%} of batch x bandwidth / (weights read + KV cache)")


def _touched(share: float, batch: int) -> float:
    """Return the share of experts that `batch` tokens touch, each choosing independently."""
    return 1 - (1 - share) ** batch


def flops_per_token(model: Architecture, how: TrainingSetting) -> float:
    passes = (6 if how.method == "full" else 4) + (2 if how.recompute == "full" else 0)
    attention = sum(2 * block.count * block.attention.query
                    * min(how.sequence, block.attention.window or how.sequence)
                    for block in model.blocks)
    return passes * (count(model).active + attention)


def training_speed(model: Architecture, how: TrainingSetting, board: Board, gpus: int,
                   mfu: float | None = None) -> SpeedRange:
    """Return tokens per second. `mfu` None: as published for such boards."""
    low, high = (mfu, mfu) if mfu else board.mfu
    peak = gpus * board.tflops * 1e12 / flops_per_token(model, how)
    share = f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}"
    return SpeedRange(low * peak, high * peak, f"{share} of {gpus} x {board.tflops:g} TFLOPS / "
                                               "FLOPs per token")


def days(tokens: float, speed: SpeedRange) -> tuple[float, float]:
    return tokens / speed.high / DAY_S, tokens / speed.low / DAY_S
