"""A model's shape from the `config.json` of Hugging Face. Pure.

Each family has one row, which gives its keys a meaning; a key that no row and no list knows is
refused: it may be what makes the model larger. Class defaults are those of Transformers 4.57.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gpudeck.estimate.shape import Architecture, Attention, Block, LatentAttention, Mlp

Raw = Mapping[str, Any]
NESTED = ("text_config", "llm_config", "language_config")
MOST = 2**40  # of any number of a config

# Keys that change neither what is stored nor how much of it.
_WORDS = """
_attn_implementation _experts_implementation _name_or_path activation activation_function alibi
apply_residual_connection_post_layernorm architectures attention_dropout
attention_probs_dropout_prob attention_softmax_in_fp32 attn_impl attn_logit_softcapping attn_pdrop
auto_map aux_loss_alpha bf16 bias_dropout_fusion bos_token_id cache_implementation
chunk_size_feed_forward classifier_dropout dropout dtype emb_dropout_prob embd_pdrop
embedding_fraction embedding_pdrop eos_token_id ep_size final_logit_softcapping fp16 fp32
gradient_checkpointing hidden_act hidden_activation hidden_dropout hidden_dropout_prob id2label
init_device init_std initializer_cutoff_factor initializer_range is_decoder label2id
layer_norm_eps layer_norm_epsilon layerdrop learned_pos_emb logit_scale low_precision_layernorm
masked_softmax_fusion max_position_embeddings max_seq_len max_window_layers model_type n_ctx
n_group n_positions norm_eps norm_topk_prob offset_alibi onnx_safe
original_max_position_embeddings output_attentions output_hidden_states output_past
output_router_logits pad_token_id param_init_fn partial_rotary_factor prefix pretraining_tp
problem_type quantization_config query_pre_attn_scalar rank_dtype reorder_and_upcast_attn
resid_pdrop return_dict rms_norm_eps rope_interleave rope_local_base_freq rope_parameters
rope_scaling rope_theta rotary_dim rotary_emb_base rotary_pct routed_scaling_factor
router_aux_loss_coef router_jitter_noise scale_attn_by_inverse_layer_idx scale_attn_weights
scale_embeddings scoring_func seq_aux seq_length skip_bias_add skip_bias_add_qkv
sliding_window_size slow_but_exact softmax_precision softmax_scale summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
tokenizer_class topk_group topk_method torch_dtype transformers_version unk_token_id
use_bidirectional_attention use_cache use_dynamic_ntk use_flash_attn use_logn_attn use_return_dict
verbose
"""
IGNORED = frozenset(_WORDS.split())


class EstimateError(ValueError):
    """Error in a question; `unknown` and `missing`: keys of its config."""

    def __init__(self, sentence: str, unknown: Sequence[str] = (), missing: Sequence[str] = ()
                 ) -> None:
        super().__init__(sentence)
        self.unknown, self.missing = tuple(unknown), tuple(missing)


class ConfigKeys:
    """The keys of a config, and which of them were read."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.read: set[str] = set()

    def number(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.value(name)
        if value is None:
            if default is None:
                raise EstimateError(f"the config lacks {name}", missing=(name,))
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise EstimateError(f"{name} is {str(value)[:40]!r}, not a whole number from {least}")
        return value

    def number_or_none(self, name: str) -> int | None:
        return None if self.value(name) is None else self.number(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise EstimateError(f"{name} is {str(value)[:40]!r}, neither true nor false")
        return value

    def value(self, name: str) -> Any:
        self.read.add(name)
        return self.raw.get(name)

    def fixed(self, name: str, value: Any) -> None:
        """Accept a key with this one value alone."""
        if self.value(name) not in (None, value):
            raise EstimateError(f"{name} = {str(self.raw[name])[:40]} is not understood; only "
                              f"{value} is", unknown=(name,))


def architecture(raw: Raw, ignored: Sequence[str] = ()) -> Architecture:
    """Read the architecture from a config. `ignored`: keys that the caller says do not matter.
    Raises EstimateError."""
    for name in NESTED:
        if isinstance(raw.get(name), Mapping):
            # Next to it there is an encoder for images or sound, which is not counted here.
            _refuse(set(raw) - {name} - IGNORED - set(ignored), str(raw.get("model_type")))
            raw = raw[name]
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        listed = ", ".join(sorted(FAMILIES))
        raise EstimateError(
            f"model_type {str(family)[:60]!r} is not known; there are {listed}. For another, give "
            "its shape: layers, hidden size, heads, KV heads, MLP width, vocabulary",
            unknown=("model_type",))
    keys = ConfigKeys(raw)
    model = FAMILIES[family](keys)
    _refuse(set(raw) - keys.read - IGNORED - set(ignored), family)
    return model


def _refuse(unknown: set[str], family: str) -> None:
    if unknown:
        raise EstimateError(
            f"unknown architecture: nothing is known of {', '.join(sorted(unknown))[:300]} in a "
            f"config of {family[:60]}, and it may change the size; if it does not, name it among "
            "the ignored keys", unknown=sorted(unknown))


def _runs(layers: Sequence[Block]) -> tuple[Block, ...]:
    """Merge equal neighbours; each of `layers` stands for one layer."""
    return tuple(Block(sum(1 for _ in same), block.attention, block.mlp, block.norms)
                 for block, same in groupby(layers))


def _windows(keys: ConfigKeys, layers: int, window: int | None, pattern: Callable[[int], bool]
             ) -> Iterator[int | None]:
    """Yield the window of each layer. `pattern`: which layers have one, where `layer_types` is
    absent."""
    kinds = keys.value("layer_types")
    if kinds is not None:
        if len(kinds) != layers or set(kinds) - {"full_attention", "sliding_attention"}:
            raise EstimateError("layer_types has other kinds than full_attention and "
                              f"sliding_attention, or not {layers} of them",
                              unknown=("layer_types",))
        yield from (window if kind == "sliding_attention" else None for kind in kinds)
    else:
        yield from (window if pattern(at) else None for at in range(layers))


@dataclass(frozen=True, slots=True)
class LlamaLike:
    """Families with gated MLPs, RMSNorm and grouped queries; they differ in the fields."""

    family: str
    head_dim: int | None = None
    kv_heads: int | None = None
    qkv_bias: bool = False
    qk_norm: str = ""  # "head": of one head's size each; "all": of all queries and all keys
    is_tied: bool = False
    norms: int = 2
    window: str = ""  # "": none; "all", "used" (only with use_sliding_window), "every"
    sliding_window: int | None = None
    pattern: int = 0  # with "every": each n-th layer has full attention
    moe: str = ""

    def __call__(self, keys: ConfigKeys) -> Architecture:
        hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
        layers = keys.number("num_hidden_layers")
        kv_heads = keys.number("num_key_value_heads", self.kv_heads or heads)
        head_dim = keys.number("head_dim", self.head_dim or hidden // heads)
        if heads % kv_heads:
            raise EstimateError(f"{heads} heads cannot share {kv_heads} KV heads")
        bias = keys.flag("attention_bias", False)
        qkv_bias = keys.flag("qkv_bias", True) if self.moe == "qwen2" else self.qkv_bias or bias
        norm = {"": 0, "head": 2 * head_dim, "all": (heads + kv_heads) * head_dim}[self.qk_norm]
        blocks = [Block(1, Attention(heads, kv_heads, head_dim, window, None, qkv_bias, bias, norm),
                        mlp, self.norms)
                  for window, mlp in zip(self._windows(keys, layers), self._mlps(keys, layers),
                                         strict=True)]
        return Architecture(self.family, hidden, keys.number("vocab_size"), _runs(blocks),
                            keys.flag("tie_word_embeddings", self.is_tied))

    def _windows(self, keys: ConfigKeys, layers: int) -> Iterator[int | None]:
        configured = keys.value("sliding_window")
        if "sliding_window" not in keys.raw:
            configured = self.sliding_window
        window = None if configured is None else keys.number("sliding_window", configured)
        if self.window == "used" and not keys.flag("use_sliding_window", False):
            window = None
        every = keys.number("sliding_window_pattern", keys.number(
            "_sliding_window_pattern", self.pattern), least=1) if self.pattern else 0
        start = keys.number("max_window_layers", 0, least=0) if self.window == "used" else 0
        if not self.window:
            window = None
        return _windows(keys, layers, window,
                        lambda at: (at + 1) % every != 0 if every else at >= start)

    def _mlps(self, keys: ConfigKeys, layers: int) -> Iterator[Mlp]:
        dense = Mlp(keys.number("intermediate_size"), True, keys.flag("mlp_bias", False))
        if not self.moe:
            yield from (dense for _ in range(layers))
            return
        if self.moe == "mixtral":
            sparse = Mlp(dense.width, experts=keys.number("num_local_experts", 8),
                         active=keys.number("num_experts_per_tok", 2))
            yield from (sparse for _ in range(layers))
            return
        is_2 = self.moe == "qwen2"
        sparse = Mlp(keys.number("moe_intermediate_size"),
                     experts=keys.number("num_experts"), active=keys.number("num_experts_per_tok"),
                     shared=keys.number("shared_expert_intermediate_size") if is_2 else 0,
                     has_shared_gate=is_2)
        step, only = keys.number("decoder_sparse_step", 1), keys.value("mlp_only_layers") or ()
        yield from (sparse if at not in only and (at + 1) % step == 0 else dense
                    for at in range(layers))


def _deepseek(keys: ConfigKeys) -> Architecture:
    """Read DeepSeek V2 and V3. `num_key_value_heads` is 128 there and means nothing."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    layers, width = keys.number("num_hidden_layers"), keys.number("moe_intermediate_size")
    for name in ("num_key_value_heads", "head_dim", "num_nextn_predict_layers", "qk_head_dim"):
        keys.value(name)
    keys.fixed("moe_layer_freq", 1)
    keys.fixed("attention_bias", False)
    keys.fixed("mlp_bias", False)
    latent = LatentAttention(
        keys.number_or_none("q_lora_rank"), keys.number("kv_lora_rank"),
        keys.number("qk_nope_head_dim"), keys.number("qk_rope_head_dim"),
        keys.number("v_head_dim"))
    attention = Attention(heads, heads, latent.nope_dim + latent.rope_dim, latent=latent)
    sparse = Mlp(width, experts=keys.number("n_routed_experts"),
                 active=keys.number("num_experts_per_tok"),
                 shared=width * (keys.number_or_none("n_shared_experts") or 0),
                 has_router_bias=keys.value("topk_method") == "noaux_tc")
    dense = min(keys.number("first_k_dense_replace", 0, least=0), layers)
    blocks = [Block(dense, attention, Mlp(keys.number("intermediate_size"))),
              Block(layers - dense, attention, sparse)]
    return Architecture(str(keys.raw["model_type"]), hidden, keys.number("vocab_size"),
                        tuple(block for block in blocks if block.count),
                        keys.flag("tie_word_embeddings", False))


def _qwen(keys: ConfigKeys) -> Architecture:
    """Read the first Qwen: its `intermediate_size` is twice the width of the MLP."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    keys.fixed("no_bias", True)
    attention = Attention(heads, heads, keys.number("kv_channels", hidden // heads),
                          has_qkv_bias=True)
    return Architecture("qwen", hidden, keys.number("vocab_size"), (Block(
        keys.number("num_hidden_layers"), attention, Mlp(keys.number("intermediate_size") // 2)),),
        keys.flag("tie_word_embeddings", False))


def _neox(keys: ConfigKeys) -> Architecture:
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    bias = keys.flag("attention_bias", True)
    return Architecture("gpt_neox", hidden, keys.number("vocab_size"), (Block(
        keys.number("num_hidden_layers"),
        Attention(heads, heads, hidden // heads, has_qkv_bias=bias, has_out_bias=bias),
        Mlp(keys.number("intermediate_size"), is_gated=False, has_bias=True)),),
        keys.flag("tie_word_embeddings", False), has_norm_bias=True,
        is_parallel=keys.flag("use_parallel_residual", True))


def _phi(keys: ConfigKeys) -> Architecture:
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    keys.fixed("qk_layernorm", False)
    kv_heads = keys.number("num_key_value_heads", heads)
    return Architecture("phi", hidden, keys.number("vocab_size"), (Block(
        keys.number("num_hidden_layers"),
        Attention(heads, kv_heads, hidden // heads, has_qkv_bias=True, has_out_bias=True),
        Mlp(keys.number("intermediate_size"), is_gated=False, has_bias=True), norms=1),),
        keys.flag("tie_word_embeddings", False), has_norm_bias=True, has_head_bias=True,
        is_parallel=True)


def _gpt2(keys: ConfigKeys) -> Architecture:
    hidden, heads = keys.number("n_embd"), keys.number("n_head")
    return Architecture("gpt2", hidden, keys.number("vocab_size"), (Block(
        keys.number("n_layer"),
        Attention(heads, heads, hidden // heads, has_qkv_bias=True, has_out_bias=True),
        Mlp(keys.number_or_none("n_inner") or 4 * hidden, is_gated=False, has_bias=True)),),
        keys.flag("tie_word_embeddings", True), positions=keys.number("n_positions", 1_024),
        has_norm_bias=True)


def _bloom(keys: ConfigKeys) -> Architecture:
    hidden = keys.number("n_embed" if "n_embed" in keys.raw else "hidden_size")
    heads = keys.number("num_attention_heads" if "num_attention_heads" in keys.raw else "n_head")
    return Architecture("bloom", hidden, keys.number("vocab_size"), (Block(
        keys.number("n_layer"),
        Attention(heads, heads, hidden // heads, has_qkv_bias=True, has_out_bias=True),
        Mlp(4 * hidden, is_gated=False, has_bias=True)),),
        keys.flag("tie_word_embeddings", True), norms=2, has_norm_bias=True)


def _opt(keys: ConfigKeys) -> Architecture:
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    keys.fixed("word_embed_proj_dim", hidden)
    keys.fixed("do_layer_norm_before", True)
    keys.fixed("_remove_final_layer_norm", False)
    keys.fixed("enable_bias", True)
    keys.fixed("layer_norm_elementwise_affine", True)
    return Architecture("opt", hidden, keys.number("vocab_size"), (Block(
        keys.number("num_hidden_layers"),
        Attention(heads, heads, hidden // heads, has_qkv_bias=True, has_out_bias=True),
        Mlp(keys.number("ffn_dim"), is_gated=False, has_bias=True)),),
        keys.flag("tie_word_embeddings", True),
        # Its table begins two rows before the first position.
        positions=keys.number("max_position_embeddings", 2_048) + 2, has_norm_bias=True)


def _mpt(keys: ConfigKeys) -> Architecture:
    hidden, heads = keys.number("d_model"), keys.number("n_heads")
    keys.fixed("no_bias", True)
    attention = keys.value("attn_config") or {}
    if not isinstance(attention, Mapping) or attention.get("attn_type", "multihead_attention") != (
            "multihead_attention") or attention.get("qk_ln") or not attention.get("alibi"):
        raise EstimateError("attn_config is not that of MPT-7B: multihead_attention with alibi, "
                          "without qk_ln", unknown=("attn_config",))
    return Architecture("mpt", hidden, keys.number("vocab_size"), (Block(
        keys.number("n_layers"), Attention(heads, heads, hidden // heads),
        Mlp(keys.number("expansion_ratio", 4) * hidden, is_gated=False)),),
        keys.flag("tie_word_embeddings", True))


def _falcon(keys: ConfigKeys) -> Architecture:
    """Read Falcon. 7B has `num_kv_heads` 71 and `multi_query` true: it has one KV head."""
    hidden = keys.number("hidden_size")
    heads = keys.number("num_attention_heads" if "num_attention_heads" in keys.raw else "n_head")
    is_new = keys.flag("new_decoder_architecture", False)
    stated = keys.number("num_kv_heads" if "num_kv_heads" in keys.raw else "n_head_kv", heads)
    kv_heads = stated if is_new else 1 if keys.flag("multi_query", True) else heads
    keys.value("multi_query")
    bias, is_parallel = keys.flag("bias", False), keys.flag("parallel_attn", True)
    norms = (keys.number_or_none("num_ln_in_parallel_attn") or 2) if is_new else (
        1 if is_parallel else 2)
    layers = keys.number("num_hidden_layers" if "num_hidden_layers" in keys.raw else "n_layer")
    return Architecture("falcon", hidden, keys.number("vocab_size"), (Block(
        layers,
        Attention(heads, kv_heads, hidden // heads, has_qkv_bias=bias, has_out_bias=bias),
        Mlp(keys.number_or_none("ffn_hidden_size") or 4 * hidden, is_gated=False, has_bias=bias),
        norms),),
        keys.flag("tie_word_embeddings", True), has_norm_bias=True, is_parallel=is_parallel)


FAMILIES: dict[str, Callable[[ConfigKeys], Architecture]] = {
    "llama": LlamaLike("llama"),
    "mistral": LlamaLike("mistral", kv_heads=8, window="all", sliding_window=4_096),
    "qwen": _qwen,
    "qwen2": LlamaLike("qwen2", qkv_bias=True, window="used"),
    "qwen3": LlamaLike("qwen3", head_dim=128, qk_norm="head", window="used"),
    "qwen2_moe": LlamaLike("qwen2_moe", moe="qwen2", window="used"),
    "qwen3_moe": LlamaLike("qwen3_moe", qk_norm="head", moe="qwen3", window="used"),
    "mixtral": LlamaLike("mixtral", kv_heads=8, window="all", moe="mixtral"),
    "phi3": LlamaLike("phi3", window="all"),
    "olmo2": LlamaLike("olmo2", qk_norm="all"),
    "gemma": LlamaLike("gemma", head_dim=256, is_tied=True),
    "gemma2": LlamaLike("gemma2", head_dim=256, is_tied=True, norms=4, window="every",
                        sliding_window=4_096, pattern=2),
    "gemma3_text": LlamaLike("gemma3_text", head_dim=256, is_tied=True, norms=4, qk_norm="head",
                             window="every", sliding_window=4_096, pattern=6),
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_neox": _neox,
    "phi": _phi,
    "gpt2": _gpt2,
    "bloom": _bloom,
    "opt": _opt,
    "mpt": _mpt,
    "falcon": _falcon,
}
