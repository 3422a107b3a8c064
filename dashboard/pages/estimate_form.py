"""The fields of the Estimate page, and the question that they make."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import msgspec
from dash.development.base_component import Component

from gpudeck.errors import CommandError, ExitCode
from gpudeck.markup import make

from .reading import View

EXAMPLE = """{
  "model_type": "llama",
  "hidden_size": 4096,
  "num_hidden_layers": 32,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "intermediate_size": 14336,
  "vocab_size": 128256
}"""
EXACT_MOST = 2.0**53
_BETWEEN = re.compile(r"[\s_,]")


class EstimateForm(View):
    """The choices of the page, as they stand in its address; the config itself does not. What is
    typed stays as it is typed, what is left empty is not asked."""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("config",))

    kind: Literal["inference", "training"] = "inference"
    weights: Literal["", "bf16", "fp16", "fp32", "fp8", "gptq-int8", "gptq-int4", "awq", "nf4",
                     "nf4-dq"] = ""
    kv: Literal["bf16", "fp8", "fp32"] = "bf16"
    engine: Literal["vllm", "sglang", "transformers"] = "vllm"
    prompt: str = "4096"
    output: str = "1024"
    concurrency: str = "1"
    tp: str = "1"
    pp: str = "1"
    method: Literal["full", "lora", "qlora"] = "full"
    stack: Literal["other", "peft", "litgpt", "torchtune", "deepspeed", "fsdp",
                   "megatron"] = "other"
    precision: Literal["", "mixed", "mixed-fp32-grads", "bf16", "fp32"] = ""
    optimizer: Literal["adamw", "adamw-8bit", "sgd", "muon", "adafactor"] = "adamw"
    batch: str = "1"
    sequence: str = "2048"
    recompute: Literal["none", "selective", "full"] = "none"
    lora_rank: str = "16"
    zero: Literal["0", "1", "2", "3"] = "0"
    dp: str = "1"
    tokens: str = ""
    config: str = EXAMPLE


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form. `words`: of its choices, where they differ from the values."""

    name: str
    label: str
    words: tuple[tuple[str, str], ...] = ()
    hint: str | None = None
    is_number: bool = False  # of its choices; what is typed always is one


PARALLEL = (FormField("tp", "Tensor parallel"), FormField("pp", "Pipeline parallel"))
FIELDS = {
    "inference": (
        FormField("weights", "Weights", (("", "from the config"),)),
        FormField("kv", "KV cache"), FormField("engine", "Engine"),
        FormField("prompt", "Prompt, tokens"), FormField("output", "Output, tokens"),
        FormField("concurrency", "Concurrent sequences"), *PARALLEL),
    "training": (
        FormField("method", "Method", (("full", "all parameters"), ("lora", "LoRA"),
                                       ("qlora", "QLoRA"))),
        FormField("stack", "Framework"),
        FormField("precision", "Precision", (("", "the framework's default"),)),
        FormField("optimizer", "Optimizer"), FormField("batch", "Sequences per GPU"),
        FormField("sequence", "Sequence, tokens"), FormField("recompute", "Recomputation"),
        FormField("lora_rank", "LoRA rank"),
        FormField("zero", "ZeRO or FSDP", (("0", "none"), ("1", "stage 1"), ("2", "stage 2"),
                                           ("3", "stage 3, FSDP")), is_number=True),
        FormField("dp", "Data parallel"), *PARALLEL,
        FormField("tokens", "Total tokens", hint="Whole training, to estimate its length"))}
CHOICES = {field.name: get_args(field.type) for field in msgspec.structs.fields(EstimateForm)
           if get_args(field.type)}


def fields(kind: str) -> list[Component]:
    return [_field(field) for field in FIELDS[kind]]


def _field(field: FormField) -> Component:
    ident = f"estimate-{field.name}"
    traits = {"data_view": field.name}
    words = dict(field.words)
    control = make(f"select#{ident}", [
        make("option", words.get(value, value), value=value) for value in CHOICES[field.name]],
        **traits) if field.name in CHOICES else make(
        f"input#{ident}", inputMode="numeric", autoComplete="off", maxLength="24", **traits)
    return make("p.field", [make("label", field.label, htmlFor=ident), control],
                title=field.hint, data_key=field.name)


def question_of(form: EstimateForm) -> dict[str, Any]:
    """Return what `POST estimates` is asked. Raises CommandError with a sentence."""
    answers = {field: text for field in FIELDS[form.kind]
               if (text := getattr(form, field.name).strip()) != ""}
    return {"config": _config_of(form.config), form.kind: {
        field.name: _number(text, field.label)
        if field.is_number or field.name not in CHOICES else text
        for field, text in answers.items()}}


def _config_of(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise CommandError("this is not a config.json: a JSON object is expected", ExitCode.USAGE)
    return config


def _number(text: str, label: str) -> float:
    """Parse a number; `2e12` and `1 000` are numbers, too."""
    try:
        number = float(_BETWEEN.sub("", text))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise CommandError(f"{label} is not a number", ExitCode.USAGE)
    return int(number) if number.is_integer() and abs(number) < EXACT_MOST else number
