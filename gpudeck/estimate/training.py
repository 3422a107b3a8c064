"""Memory of a GPU that trains a model: states, activations, logits, context. Pure."""

from dataclasses import dataclass

from gpudeck.estimate.parts import CONTEXT, MemoryEstimate, MemoryPart
from gpudeck.estimate.shape import Architecture, attention_matrices, count, mlp_matrices
from gpudeck.estimate.weights import FORMATS, stored

BUCKET_BYTES = 2 * 5e8  # of DeepSpeed: 5e8 elements of 2 bytes each for reducing and for gathering


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes per trainable parameter."""

    weights: int
    grads: int
    master: int
    moment: int  # each of the optimizer's
    words: str


PRECISIONS = {
    "mixed": Precision(2, 2, 4, 4, "bf16 with fp32 master weights, as of ZeRO"),
    "mixed-fp32-grads": Precision(2, 4, 4, 4, "bf16 with fp32 master weights and gradients, as of "
                                              "Megatron"),
    "bf16": Precision(2, 2, 0, 2, "all in bf16"),
    "fp32": Precision(4, 4, 0, 4, "all in fp32, computed in bf16, as of FSDP2"),
}


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer. `moments` of the precision's size each, or `fixed` bytes in their place."""

    moments: int
    fixed: float | None
    words: str


OPTIMIZERS = {
    "adamw": Optimizer(2, None, "two moments"),
    "adamw-8bit": Optimizer(2, 2 + 8 / 256, "two moments of 8 bits, a scale per 256"),
    "sgd": Optimizer(1, None, "momentum"),
    "muon": Optimizer(1, None, "momentum; AdamW's second moment for embedding and head"),
    "adafactor": Optimizer(0, 0.0, "rows and columns alone"),
}
METHODS = ("full", "lora", "qlora")


@dataclass(frozen=True, slots=True)
class TrainingStack:
    """Choices of a framework that change the memory. `mlp`: bytes of 8 f per token and layer that
    are kept, as `8`; fused kernels keep 4 to 6. `logits`: bytes per token and word of the
    vocabulary; 0: the loss is computed in chunks. `adapter`: bytes per adapter parameter.
    `checked`: the methods whose published figures were met within 10 %."""

    mlp: float
    logits: int
    adapter: int
    base: str
    checked: tuple[str, ...] = ()
    has_buckets: bool = False
    has_sequence_parallel: bool = False
    precision: str = "mixed"


STACKS = {
    "litgpt": TrainingStack(8, 6, 16, "nf4", ("lora", "qlora"), precision="bf16"),
    "peft": TrainingStack(8, 10, 16, "nf4", ("lora",)),
    "torchtune": TrainingStack(5, 0, 8, "nf4-dq", ("lora",), precision="bf16"),
    "deepspeed": TrainingStack(8, 10, 16, "nf4", has_buckets=True),
    "megatron": TrainingStack(4, 6, 16, "nf4", has_sequence_parallel=True,
                              precision="mixed-fp32-grads"),
    "fsdp": TrainingStack(8, 6, 16, "nf4", precision="fp32"),
    "other": TrainingStack(8, 6, 16, "nf4"),
}


@dataclass(frozen=True, slots=True)
class TrainingSetting:
    """Parameters of a training. `batch`: sequences per GPU and step, of `sequence` tokens. `dp`:
    ranks that ZeRO or FSDP divides by; with `tp` and `pp` they make the number of GPUs.
    `trains_embedding`: of LoRA, as peft's `modules_to_save`. `base`: the frozen weights of
    QLoRA."""

    method: str = "full"
    stack: str = "other"
    precision: str = "mixed"
    optimizer: str = "adamw"
    zero: int = 0
    dp: int = 1
    tp: int = 1
    pp: int = 1
    batch: int = 1
    sequence: int = 2_048
    recompute: str = "none"
    is_flash: bool = True
    lora_rank: int = 16
    lora_targets: str = "all"
    trains_embedding: bool = False
    base: str | None = None
    varies: bool = False

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence


def lora_parameters(model: Architecture, rank: int, targets: str) -> int:
    """Count adapter parameters: `sum r (in + out)`."""
    hidden, total = model.hidden, 0
    for block in model.blocks:
        of, mlp = block.attention, block.mlp
        per_layer = 2 * hidden + of.query + of.key  # query and value
        if targets != "qv":
            per_layer = 4 * hidden + 2 * of.query + 2 * of.key
            if model.family in FUSED:
                per_layer = 3 * hidden + 2 * of.query + 2 * of.key
        if targets == "all":
            experts = mlp.experts or 1
            per_layer += experts * (3 if mlp.is_gated else 2) * (hidden + mlp.width)
        total += block.count * per_layer
    return rank * total


# Query, key and value are one matrix.
FUSED = frozenset(("qwen", "gpt_neox", "falcon", "bloom", "gpt2", "mpt", "phi3"))


def activation_bytes(model: Architecture, how: TrainingSetting) -> tuple[float, str]:
    """Return the bytes of one token over all layers, and the formula."""
    total, words = 0.0, ""
    stack = STACKS[how.stack]
    for block in model.blocks:
        layer, words = _layer_bytes(model, block.attention.query, block.attention.key,
                                    block.mlp.active_width, block.mlp.is_gated, stack.mlp)
        if not how.is_flash and how.recompute != "selective":
            layer += 5 * block.attention.heads * how.sequence
            words += " + 5 a s"
        if stack.has_sequence_parallel:
            layer /= how.tp
        elif how.tp > 1:
            # Norms and residuals are on every GPU.
            layer = 10 * model.hidden + (layer - 10 * model.hidden) / how.tp
        total += block.count * layer
    return total, words


def _layer_bytes(model: Architecture, query: int, key: int, width: int, is_gated: bool, mlp: float
                 ) -> tuple[float, str]:
    hidden = model.hidden
    if is_gated:
        return (14 * hidden + 4 * query + 6 * key + mlp * width,
                f"14 h + 4 q + 6 k + {mlp:g} f")
    if model.is_parallel:
        return 15.5 * hidden + mlp / 2 * width, f"15.5 h + {mlp / 2:g} f"
    return 18 * hidden + 4 * width, "18 h + 4 f"


def estimate(model: Architecture, how: TrainingSetting) -> MemoryEstimate:
    parts = [*_states(model, how), *_activations(model, how)]
    if STACKS[how.stack].has_buckets and how.zero:
        parts.append(MemoryPart("DeepSpeed buckets", 2 * BUCKET_BYTES,
                                "2 buckets of 5e8 elements of 2 bytes"))
    return MemoryEstimate(tuple(parts), 0.1, tuple(_doubts(model, how)),
                          0.2 if how.varies else 0.1, (CONTEXT,))


def _states(model: Architecture, how: TrainingSetting) -> list[MemoryPart]:
    of = count(model)
    split = how.tp * how.pp
    if how.method == "full":
        return state_parts(of.total / split, how, 2 * of.embedding / how.tp,
                           _largest_block(model) / how.tp)
    form = FORMATS[_base_of(how)]
    base = stored(model, form)
    adapters = lora_parameters(model, how.lora_rank, how.lora_targets) / split
    size = STACKS[how.stack].adapter
    frozen = base.total / split / (how.dp if how.zero == 3 else 1)
    parts = [
        MemoryPart("frozen weights", frozen, f"{form.words}{_split(how, how.zero == 3)}"),
        MemoryPart("adapters", adapters * size / (how.dp if how.zero else 1),
                   f"{size} bytes x {adapters:,.0f}: r (in + out), r = {how.lora_rank}")]
    if base.unpacked:
        parts.append(MemoryPart("unpacked matrix", base.unpacked / how.tp,
                                "2 bytes per parameter of the largest matrix, while it is used"))
    if how.trains_embedding:
        trained = (of.embedding + of.head) / how.tp
        parts.append(MemoryPart("trained embedding and head", 12 * trained,
                                "12 bytes per parameter: a copy, its gradient, two moments"))
    if how.zero == 3:
        parts.append(_gathered(_largest_block(model) / how.tp, 2 * of.embedding / how.tp))
    return parts


def state_parts(parameters: float, how: TrainingSetting, ends: float = 0.0, largest: float = 0.0
                ) -> list[MemoryPart]:
    """Return weights, gradients and optimizer of so many trained parameters on a GPU. `ends`:
    embedding and head; `largest`: the largest layer."""
    kind, optimizer = PRECISIONS[how.precision], OPTIMIZERS[how.optimizer]
    moments = optimizer.moments * kind.moment if optimizer.fixed is None else optimizer.fixed
    states = parameters * (kind.master + moments)
    if how.optimizer == "muon":
        states += kind.moment * min(ends, parameters)
    weights, grads = parameters * kind.weights, parameters * kind.grads
    parts = [
        MemoryPart("weights", weights / (how.dp if how.zero == 3 else 1),
                   f"{kind.weights} bytes ({kind.words}){_split(how, how.zero == 3)}"),
        MemoryPart("gradients", grads / (how.dp if how.zero >= 2 else 1),
                   f"{kind.grads} bytes{_split(how, how.zero >= 2)}"),
        MemoryPart("optimizer", states / (how.dp if how.zero >= 1 else 1),
                   f"{kind.master + moments:.3g} bytes (master {kind.master}; {optimizer.words})"
                   f"{_split(how, how.zero >= 1)}")]
    if how.zero == 3 and largest:
        parts.append(_gathered(largest, ends))
    return parts


def _gathered(largest: float, ends: float) -> MemoryPart:
    unit = max(largest, ends / 2)
    return MemoryPart("gathered weights", 2 * 2 * unit,
                      "2 bytes x the largest unit that is gathered, and the next one")


def _largest_block(model: Architecture) -> float:
    return max(attention_matrices(model.hidden, block.attention)
               + mlp_matrices(model.hidden, block.mlp) for block in model.blocks)


def _activations(model: Architecture, how: TrainingSetting) -> list[MemoryPart]:
    size, words = activation_bytes(model, how)
    if how.method == "qlora":
        size, words = 1.2 * size, f"1.2 x ({words})"
    tokens = how.tokens
    # A stage holds a part of the layers, for as many micro-batches as the pipeline has stages.
    layers = model.layers
    if how.recompute == "full":
        checkpoints = 2.0 * model.hidden * layers * tokens / (
            how.tp if STACKS[how.stack].has_sequence_parallel else 1)
        parts = [MemoryPart("checkpoints", checkpoints, f"2 h x {layers} layers x {tokens} tokens"),
                 MemoryPart("one layer, recomputed", size / layers * tokens, f"{words} per token")]
    else:
        parts = [MemoryPart("activations", size * tokens,
                            f"{words} per token and layer x {layers} x {tokens} tokens"
                            + (f", {how.pp} micro-batches in flight" if how.pp > 1 else ""))]
    logits = STACKS[how.stack].logits
    if logits:
        parts.append(MemoryPart("logits and loss", logits * model.vocab * tokens / how.tp,
                                f"{logits} V per token, V = {model.vocab}"))
    return parts


def _base_of(how: TrainingSetting) -> str:
    if how.method == "lora":
        return "bf16"
    return how.base or STACKS[how.stack].base


def _split(how: TrainingSetting, by_dp: bool) -> str:
    divisors = (("TP", how.tp), ("PP", how.pp), ("DP", how.dp if by_dp else 1))
    return "".join(f", / {number} ({name})" for name, number in divisors if number > 1)


def _doubts(model: Architecture, how: TrainingSetting) -> list[str]:
    stack, doubts = STACKS[how.stack], []
    if how.method not in stack.checked:
        names = [name for name, other in STACKS.items() if how.method in other.checked]
        doubts.append(f"no published figure of {how.method} with this stack was met within 10 %; "
                      f"those of {' and '.join(names) or 'none'} were")
    if how.recompute == "selective":
        doubts.append("selective recomputation differs by framework and compiler by 7 % and more")
    if how.dp * how.tp * how.pp > 1:
        doubts.append("only figures of one GPU were checked; buffers of communication come on top")
    if any(block.mlp.experts for block in model.blocks):
        doubts.append("how tokens spread over experts is not known")
    if not any(block.mlp.is_gated for block in model.blocks) and not model.is_parallel:
        doubts.append("no published figure of such a block was checked")
    if how.trains_embedding:
        doubts.append("what trained embeddings keep differs by version")
    if how.varies:
        doubts.append("lengths vary: the longest batch decides")
    return doubts


def states_only(parameters: int, how: TrainingSetting) -> tuple[MemoryPart, ...]:
    """Return the parts that follow from the number of parameters alone: no activations, so no
    total."""
    return tuple(state_parts(parameters / (how.tp * how.pp), how))
