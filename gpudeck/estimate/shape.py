"""The shape of a language model and its exact number of parameters. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA of DeepSeek: keys and values are kept as one vector of low rank per token."""

    query_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of a layer. `window`: tokens that a layer looks back, None: all. `qk_norm`: weights
    of the norms of queries and keys together."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    latent: LatentAttention | None = None
    has_qkv_bias: bool = False
    has_out_bias: bool = False
    qk_norm: int = 0

    @property
    def query(self) -> int:
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Mlp:
    """The MLP of a layer. `experts` 0: dense. `width`: of one expert; `shared`: of all shared ones
    together."""

    width: int
    is_gated: bool = True
    has_bias: bool = False
    experts: int = 0
    active: int = 0
    shared: int = 0
    has_shared_gate: bool = False
    has_router_bias: bool = False

    @property
    def active_width(self) -> int:
        return self.active * self.width + self.shared if self.experts else self.width


@dataclass(frozen=True, slots=True)
class Block:
    """A run of `count` equal layers. `norms`: vectors of the hidden size in each."""

    count: int
    attention: Attention
    mlp: Mlp
    norms: int = 2


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a model. `positions`: rows of a learnt position table. `norms`: outside the
    layers. `is_parallel`: attention and MLP read the same norm, as in NeoX, Phi and Falcon."""

    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    is_tied: bool = False
    positions: int = 0
    norms: int = 1
    has_norm_bias: bool = False
    has_head_bias: bool = False
    is_parallel: bool = False

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def all_layers(self) -> Iterator[Block]:
        for block in self.blocks:
            for _ in range(block.count):
                yield block


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters by kind. `attention` and `mlp` are the matrices that quantization takes; `other`:
    norms, biases, routers, positions. `head` 0: tied to the embedding."""

    embedding: int
    head: int
    attention: int
    mlp: int
    other: int
    active: int

    @property
    def linear(self) -> int:
        return self.attention + self.mlp

    @property
    def total(self) -> int:
        return self.embedding + self.head + self.linear + self.other


def attention_matrices(hidden: int, of: Attention) -> int:
    latent = of.latent
    if latent is None:
        return 2 * hidden * of.query + 2 * hidden * of.key
    query = of.heads * (latent.nope_dim + latent.rope_dim)
    rank = latent.query_rank
    return ((hidden * query if rank is None else rank * (hidden + query))
            + latent.kv_rank * (hidden + of.heads * (latent.nope_dim + latent.value_dim))
            + hidden * latent.rope_dim + of.heads * latent.value_dim * hidden)


def _attention_other(hidden: int, of: Attention) -> int:
    norms = of.qk_norm if of.latent is None else of.latent.kv_rank + (of.latent.query_rank or 0)
    return (norms + of.has_qkv_bias * (of.query + 2 * of.key) + of.has_out_bias * hidden)


def mlp_matrices(hidden: int, of: Mlp, experts: int | None = None) -> int:
    """Count the weights of so many experts; None: of all."""
    per_expert = (3 if of.is_gated else 2) * hidden
    if not of.experts:
        return per_expert * of.width
    return per_expert * ((of.experts if experts is None else experts) * of.width + of.shared)


def _mlp_other(hidden: int, of: Mlp) -> int:
    if of.experts:
        return (hidden + of.has_router_bias) * of.experts + of.has_shared_gate * hidden
    return of.has_bias * ((2 if of.is_gated else 1) * of.width + hidden)


def count(model: Architecture) -> ParameterCount:
    hidden, norm = model.hidden, model.hidden * (2 if model.has_norm_bias else 1)
    embedding = model.vocab * hidden
    attention = sum(block.count * attention_matrices(hidden, block.attention)
                    for block in model.blocks)
    mlp = sum(block.count * mlp_matrices(hidden, block.mlp) for block in model.blocks)
    active = sum(block.count * mlp_matrices(hidden, block.mlp, block.mlp.active)
                 for block in model.blocks)
    other = (model.positions * hidden + model.norms * norm + model.has_head_bias * model.vocab
             + sum(block.count * (block.norms * norm + _attention_other(hidden, block.attention)
                                  + _mlp_other(hidden, block.mlp)) for block in model.blocks))
    head = 0 if model.is_tied else embedding
    # The embedding is looked up, not multiplied; a head is, whether tied or not.
    return ParameterCount(embedding, head, attention, mlp, other,
                          embedding + attention + active + other)
