"""Figures that a task which serves models reports by the engine's own /metrics."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Amount, Word

MOST_SERVERS = 64
EVERY_S = 5.0

Engine = Literal["vllm", "sglang", "trtllm", "triton", "tgi", "llama.cpp"]


class ServingSample(Struct, frozen=True):
    """Figures of one server. None: this engine, or its version, does not report it. `task_id`: a
    task of the job that the server belongs to. `trouble`: why nothing could be read; "": it
    could."""

    task_id: Word
    engine: Word
    trouble: Annotated[str, Meta(max_length=256)] = ""
    prompt_tokens: Amount | None = None  # ever
    generated_tokens: Amount | None = None  # ever
    prompt_tokens_per_s: Amount | None = None
    generated_tokens_per_s: Amount | None = None
    running: Amount | None = None  # requests
    waiting: Amount | None = None
    cache_pct: Annotated[float, Meta(ge=0, le=100)] | None = None
    first_token_s: Amount | None = None  # mean of the requests since the previous reading
    token_s: Amount | None = None  # mean time between two tokens
    request_s: Amount | None = None
