"""A question to the estimator, as REST and the terminal send it, and its answer. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from gpudeck.estimate import inference, training
from gpudeck.estimate.boards import board_of
from gpudeck.estimate.config import EstimateError, architecture
from gpudeck.estimate.fit import FitQuestion, FleetBoards, FleetFit, fits
from gpudeck.estimate.inference import InferenceSetting
from gpudeck.estimate.parts import MemoryEstimate, MemoryPart
from gpudeck.estimate.shape import Architecture, count
from gpudeck.estimate.training import TrainingSetting
from gpudeck.estimate.weights import FORMATS

Tokens = Annotated[int, Meta(ge=1, le=2**24)]
Ways = Annotated[int, Meta(ge=1, le=1_024)]
Key = Annotated[str, Meta(max_length=80)]
SHAPE_FLAGS = ("layers", "hidden", "heads", "kv_heads", "mlp", "vocab")


class InferenceAsked(Struct, forbid_unknown_fields=True, frozen=True):
    """Parameters of serving. `weights` null: from the config. `prefill`: tokens read in one piece;
    null: as the engine does. `kept_16bit`: parts that a quantized model leaves in 16 bits; null:
    from the config."""

    weights: Literal["fp32", "bf16", "fp16", "fp8", "gptq-int8", "gptq-int4", "awq", "nf4",
                     "nf4-dq"] | None = None
    kv: Literal["bf16", "fp16", "fp8", "fp32"] = "bf16"
    prompt: Tokens = 4_096
    output: Tokens = 1_024
    concurrency: Annotated[int, Meta(ge=1, le=65_536)] = 1
    tp: Ways = 1
    pp: Ways = 1
    engine: Literal["transformers", "vllm", "sglang"] = "vllm"
    prefill: Annotated[int, Meta(ge=0, le=2**24)] | None = None
    kept_16bit: Annotated[tuple[Literal["attention", "first", "last"], ...],
                          Meta(max_length=3)] | None = None


class TrainingAsked(Struct, forbid_unknown_fields=True, frozen=True):
    """Parameters of a training. `precision` null: as the stack does. `tokens`: of the whole
    training, for its length."""

    method: Literal["full", "lora", "qlora"] = "full"
    stack: Literal["litgpt", "peft", "torchtune", "deepspeed", "megatron", "fsdp",
                   "other"] = "other"
    precision: Literal["mixed", "mixed-fp32-grads", "bf16", "fp32"] | None = None
    optimizer: Literal["adamw", "adamw-8bit", "sgd", "muon", "adafactor"] = "adamw"
    zero: Annotated[int, Meta(ge=0, le=3)] = 0
    dp: Ways = 1
    tp: Ways = 1
    pp: Ways = 1
    batch: Annotated[int, Meta(ge=1, le=65_536)] = 1
    sequence: Tokens = 2_048
    recompute: Literal["none", "selective", "full"] = "none"
    is_flash: bool = True
    lora_rank: Annotated[int, Meta(ge=1, le=4_096)] = 16
    lora_targets: Literal["qv", "attention", "all"] = "all"
    trains_embedding: bool = False
    base: Literal["fp8", "gptq-int8", "gptq-int4", "awq", "nf4", "nf4-dq"] | None = None
    varies: bool = False
    mfu: Annotated[float, Meta(gt=0, le=1)] | None = None
    tokens: Annotated[float, Meta(gt=0, le=1e16)] | None = None


class EstimateAsked(Struct, forbid_unknown_fields=True, frozen=True):
    """A question: either `inference` or `training`, and a model: its `config`, as in config.json,
    or nothing but `parameters`. `ignored`: keys of the config that do not change the size. `board`:
    a name, for its speed where no fleet is asked."""

    config: dict[str, Any] | None = None
    parameters: Annotated[int, Meta(ge=1, le=10**14)] | None = None
    inference: InferenceAsked | None = None
    training: TrainingAsked | None = None
    ignored: Annotated[tuple[Key, ...], Meta(max_length=100)] = ()
    board: Key | None = None


class PartView(Struct):
    """A part of the memory of the GPU that needs most."""

    name: str
    bytes: float
    formula: str


class SpeedView(Struct):
    """Speed as ranges. `tokens_per_s`: a range. `days`: of the whole training, a range; null: not
    requested."""

    tokens_per_s: tuple[float, float]
    formula: str
    days: tuple[float, float] | None


class FitView(Struct):
    """GPUs of one model and size. `gpus` null: none of the layouts that were tried fits; `why`
    gives the reason. `free` of `there` are free now. `command`: empty where no node has so many."""

    model: str
    mem_bytes: float | None
    there: int
    free: int
    gpus: int | None
    layout: str
    ask_bytes: float | None
    speed: SpeedView | None
    command: str
    why: str


class EstimateView(Struct):
    """Estimate for one GPU, in bytes. `allocated`: what the framework reports; `total`: with the
    context and the engine; `low` and `high`: the range; `ask`: what to have free. Null: `missing`
    is needed for a total. `error`: against published figures of this kind; `inexact`: why 20 %
    instead."""

    family: str | None
    parameters: int
    active: int | None
    gpus: int
    parts: list[PartView]
    allocated: float | None
    total: float | None
    low: float | None
    high: float | None
    ask: float | None
    error: float
    inexact: list[str]
    missing: list[str]
    notes: list[str]
    speed: SpeedView | None
    fits: list[FitView]


def answer(query: EstimateAsked, fleet: Collection[FleetBoards] = ()) -> EstimateView:
    """Answer a question. `fleet`: the GPUs that it might run on. Raises EstimateError."""
    if (query.inference is None) == (query.training is None):
        raise EstimateError("say either inference or training")
    if (query.config is None) == (query.parameters is None):
        raise EstimateError("give either the model's config.json or its number of parameters")
    if query.config is None:
        return _by_parameters(query)
    model = architecture(query.config, query.ignored)
    question = _question(query, model)
    memory = question.estimate(question.setting)
    board = None if query.board is None else board_of(query.board)
    notes = [inference.ENGINES[question.setting.engine].fills] if isinstance(
        question.setting, InferenceSetting) else []
    if query.board is not None and board is None:
        notes.append(f"there are no figures for the speed of {query.board!r}")
    if query.ignored:
        notes.append(f"keys left out of the account: {', '.join(query.ignored)}")
    of = count(model)
    return EstimateView(
        model.family, of.total, of.active, question.gpus(question.setting),
        [_part(part) for part in (*memory.parts, *memory.outside)],
        memory.allocated, memory.total, memory.low, memory.high, memory.ask, memory.error,
        [*memory.inexact], [], [note for note in notes if note],
        None if board is None else _speed(question.speed(question.setting, board)),
        [_fit(fit) for fit in fits(question, fleet)])


def _part(part: MemoryPart) -> PartView:
    return PartView(part.name, part.bytes, part.formula)


def _question(query: EstimateAsked, model: Architecture) -> FitQuestion:
    if query.inference is not None:
        return FitQuestion(model, _inference(query.inference, query.config or {}))
    assert query.training is not None
    return FitQuestion(model, _training(query.training), query.training.mfu, query.training.tokens)


def _training(query: TrainingAsked) -> TrainingSetting:
    fields = {name: value for name, value in structs.asdict(query).items()
              if name not in ("mfu", "tokens")}
    fields["precision"] = query.precision or training.STACKS[query.stack].precision
    return TrainingSetting(**fields)


def _inference(query: InferenceAsked, config: Mapping[str, Any]) -> InferenceSetting:
    weights, modules = stored_as(config)
    fields = structs.asdict(query)
    fields["weights"] = query.weights or weights
    fields["kept_16bit"] = modules if query.kept_16bit is None else query.kept_16bit
    return InferenceSetting(**fields)


def stored_as(config: Mapping[str, Any]) -> tuple[str, tuple[str, ...] | None]:
    """Return the weight format that a config states, and what of it is in 16 bits; None: not
    stated."""
    quantization = config.get("quantization_config")
    if quantization is None:
        kind = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
        return {"float32": "fp32", "float16": "fp16"}.get(str(kind), "bf16"), None
    if not isinstance(quantization, Mapping):
        raise EstimateError("quantization_config is not understood; say how the weights are kept")
    method, bits = str(quantization.get("quant_method", "")), quantization.get("bits")
    name = {"fp8": "fp8", "fbgemm_fp8": "fp8", "awq": "awq"}.get(method, "")
    if method == "gptq":
        name = f"gptq-int{bits}"
    elif method == "bitsandbytes" and quantization.get("load_in_4bit"):
        name = "nf4-dq" if quantization.get("bnb_4bit_use_double_quant") else "nf4"
    if name not in FORMATS or quantization.get("group_size", 128) != 128 or (
            method == "awq" and bits not in (4, None)):
        raise EstimateError(f"quant_method {method[:40]!r} with {str(bits)[:10]} bits is not "
                            "known; say how the weights are kept, such as gptq-int4",
                            unknown=("quantization_config",))
    names = quantization.get("modules_to_not_convert") or quantization.get("ignore") or ()
    return name, _kept_modules(config, [str(module) for module in names])


def _kept_modules(config: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    last = f"layers.{(config.get('num_hidden_layers') or 0) - 1}."
    parts = {"attention": any("self_attn" in name for name in names),
             "first": any("layers.0.mlp" in name for name in names),
             "last": any(f"{last}mlp" in name for name in names)}
    return tuple(name for name, is_kept in parts.items() if is_kept)


def _by_parameters(query: EstimateAsked) -> EstimateView:
    """Estimate the parts that follow from the number alone, and list what is missing for a
    total."""
    number = query.parameters or 0
    if query.training is not None:
        how = _training(query.training)
        parts, gpus = training.states_only(number, how), how.dp * how.tp * how.pp
    else:
        assert query.inference is not None
        form = FORMATS[query.inference.weights or "bf16"]
        gpus = query.inference.tp * query.inference.pp
        parts = (MemoryPart("weights", form.linear * number / gpus, form.words),)
    return EstimateView(
        None, number, None, gpus, [_part(part) for part in parts], None, None, None, None, None,
        0.0, [], [*SHAPE_FLAGS],
        ["activations, logits and the KV cache follow from the shape: give the model's config.json "
         "or its layers"], None, [])


def _speed(speed: Any) -> SpeedView | None:
    return None if speed is None else SpeedView((speed[0].low, speed[0].high), speed[0].formula,
                                                speed[1])


def _fit(fit: FleetFit) -> FitView:
    memory: MemoryEstimate | None = fit.estimate
    return FitView(fit.boards.model, fit.boards.mem_bytes, fit.boards.there, fit.boards.free,
                   fit.gpus, fit.layout, None if memory is None else memory.ask, _speed(fit.speed),
                   fit.command, fit.why)
