"""`gpudeck estimate inference|training`: how much memory a model needs, and where it fits."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from gpudeck.cli.command_parser import read_verb
from gpudeck.client.hub import typed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.estimate.config import EstimateError
from gpudeck.estimate.request import (
    EstimateAsked,
    EstimateView,
    InferenceAsked,
    TrainingAsked,
    answer,
)
from gpudeck.estimate.text import lines
from gpudeck.settings import parser

from ..settings import CA_FILE, TOKEN_FILE, ConnectionSettings, read_reach
from .action_settings import HUB, JSON

TABLE = (HUB, TOKEN_FILE, CA_FILE, JSON)
DOES = {"inference": "Estimate the memory and speed of serving a model.",
        "training": "Estimate the memory and speed of training a model."}
KINDS: dict[str, type[msgspec.Struct]] = {"inference": InferenceAsked, "training": TrainingAsked}
CONFIG_MOST = 2**20  # bytes of a config.json
STDIN = "-"
# The keys of config.json that describe a shape where there is no such file.
SHAPE = (("layers", "num_hidden_layers", "number of layers"),
         ("hidden", "hidden_size", "hidden size"),
         ("heads", "num_attention_heads", "attention heads"),
         ("kv-heads", "num_key_value_heads", "KV heads; default: as many as heads"),
         ("head-dim", "head_dim", "size of a head; default: hidden size / heads"),
         ("mlp", "intermediate_size", "width of the gated MLP"),
         ("vocab", "vocab_size", "size of the vocabulary"))


@dataclass(frozen=True, slots=True)
class EstimateFlag:
    """Flag of an estimate. `field`: that of the request; the field's type says which values it
    takes."""

    field: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.field.removeprefix("is_").replace("_", "-")


FLAGS: dict[str, tuple[EstimateFlag, ...]] = {
    "inference": (
        EstimateFlag("weights", "FORMAT", "how weights are kept; default: from the config, else "
                                          "bf16"),
        EstimateFlag("kv", "FORMAT", "of the KV cache; default: bf16"),
        EstimateFlag("prompt", "TOKENS", "of each sequence; default: 4096"),
        EstimateFlag("output", "TOKENS", "of each sequence; default: 1024"),
        EstimateFlag("concurrency", "N", "concurrent sequences; default: 1"),
        EstimateFlag("engine", "NAME", "default: vllm"),
        EstimateFlag("prefill", "TOKENS", "read in one piece; default: the engine's"),
        EstimateFlag("kept_16bit", "A,B", "what a quantized model leaves in 16 bits: attention, "
                                          "first (layer), last (layer)"),
        EstimateFlag("tp", "N", "tensor parallel"),
        EstimateFlag("pp", "N", "pipeline parallel")),
    "training": (
        EstimateFlag("method", "NAME", "default: full"),
        EstimateFlag("stack", "NAME", "the framework; default: other"),
        EstimateFlag("precision", "NAME", "default: the framework's"),
        EstimateFlag("optimizer", "NAME", "default: adamw"),
        EstimateFlag("zero", "0-3", "ZeRO stage; FSDP is 3"),
        EstimateFlag("dp", "N", "ranks that ZeRO or FSDP divides by"),
        EstimateFlag("tp", "N", "tensor parallel"),
        EstimateFlag("pp", "N", "pipeline parallel"),
        EstimateFlag("batch", "N", "sequences per GPU and step; default: 1"),
        EstimateFlag("sequence", "TOKENS", "of each; default: 2048"),
        EstimateFlag("recompute", "NAME", "activations that are computed again; default: none"),
        EstimateFlag("is_flash", "", "flash attention"),
        EstimateFlag("lora_rank", "R", "default: 16"),
        EstimateFlag("lora_targets", "NAME", "qv: queries and values; default: all"),
        EstimateFlag("trains_embedding", "", "LoRA that trains embedding and head as well "
                                             "(modules_to_save)"),
        EstimateFlag("base", "FORMAT", "frozen weights of QLoRA; default: the framework's"),
        EstimateFlag("varies", "", "variable lengths: the allocator's reserve varies too"),
        EstimateFlag("mfu", "0-1", "share of the peak; default: as published for such boards"),
        EstimateFlag("tokens", "N", "of the whole training, to estimate its length")),
}


def estimate(argv: Sequence[str]) -> int:
    if (choice := read_verb(argv, DOES, _overview())) is None:
        return ExitCode.OK
    verb, words = choice
    args = _parser(verb).parse_args(words)
    reach = read_reach(f"estimate {verb}", TABLE, args, os.environ)
    view = _answer(reach, _request(verb, args))
    print(msgspec.json.encode(view).decode() if reach.json else "\n".join(lines(view)))
    return ExitCode.OK


def _overview() -> str:
    return "\n".join(["Choose what to estimate: gpudeck estimate VERB --model config.json", "",
                      *(f"  {verb:10} {does}" for verb, does in DOES.items())])


def _parser(verb: str) -> argparse.ArgumentParser:
    flags = parser(f"estimate {verb}", TABLE, DOES[verb])
    flags.add_argument("--model", metavar="FILE", type=Path,
                       help="its config.json; - reads standard input")
    flags.add_argument("--parameters", metavar="N", help="or their number, such as 7B: parts "
                                                         "without a total")
    for name, _, text in SHAPE:
        flags.add_argument(f"--{name}", metavar="N", type=int,
                           help=f"or its shape, as of Llama: {text}")
    flags.add_argument("--ignore", metavar="KEY,KEY", default="",
                       help="keys of the config that do not change its size")
    flags.add_argument("--board", metavar="NAME",
                       help="say the speed on this board, such as 'NVIDIA H100 80GB HBM3'")
    types = {field_info.name: field_info.type for field_info in msgspec.structs.fields(KINDS[verb])}
    for flag in FLAGS[verb]:
        choices = _choices(types[flag.field])
        if types[flag.field] is bool:
            flags.add_argument(flag.flag, dest=flag.field, default=None,
                               action=argparse.BooleanOptionalAction, help=flag.help)
        elif choices and flag.field != "kept_16bit":
            flags.add_argument(flag.flag, dest=flag.field, choices=choices, help=flag.help)
        else:
            flags.add_argument(flag.flag, dest=flag.field, metavar=flag.metavar, help=flag.help)
    return flags


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the choices of a Literal, wherever it is in the type."""
    arguments = get_args(kind)
    words = tuple(argument for argument in arguments if isinstance(argument, str))
    return words or next((inner for argument in arguments if (inner := _choices(argument))), ())


def _request(verb: str, args: argparse.Namespace) -> EstimateAsked:
    how = {flag.field: _value(flag.field, getattr(args, flag.field)) for flag in FLAGS[verb]
           if getattr(args, flag.field) is not None}
    ignored = [name for name in args.ignore.split(",") if name]
    body: dict[str, Any] = {verb: how, "ignored": ignored, "board": args.board}
    shape = {key: getattr(args, name.replace("-", "_")) for name, key, _ in SHAPE
             if getattr(args, name.replace("-", "_")) is not None}
    if sum((args.model is not None, args.parameters is not None, bool(shape))) != 1:
        raise CommandError("name the model once: --model config.json, --parameters 7B, or its "
                           "shape with --layers, --hidden and so on", ExitCode.USAGE)
    if args.parameters is not None:
        body["parameters"] = _number(args.parameters)
    else:
        body["config"] = {"model_type": "llama", **shape} if shape else _config(args.model)
    try:
        return msgspec.convert(body, EstimateAsked, strict=False)
    except msgspec.ValidationError as error:
        raise CommandError(f"{error}".replace("$.", "--").replace(f"--{verb}.", "--"),
                           ExitCode.USAGE) from None


def _value(field: str, value: Any) -> Any:
    return [word for word in value.split(",") if word] if field == "kept_16bit" else value


def _number(text: str) -> int:
    """Return the number in `7B`, `1.5B`, `125M` or digits. Raises CommandError."""
    scale = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}.get(text[-1:].upper(), 1)
    try:
        return round(float(text if scale == 1 else text[:-1]) * scale)
    except (ValueError, OverflowError):
        raise CommandError(f"--parameters {text[:40]!r} is not a number; write for example 7B",
                           ExitCode.USAGE) from None


def _config(path: Path) -> dict[str, Any]:
    try:
        text = (sys.stdin.read(CONFIG_MOST + 1) if str(path) == STDIN
                else path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}", ExitCode.USAGE) from None
    try:
        config = json.loads(text) if len(text) <= CONFIG_MOST else None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise CommandError(f"{path} is not a config.json: a JSON object of up to 1 MiB is expected",
                           ExitCode.USAGE)
    return config


def _answer(reach: ConnectionSettings, request: EstimateAsked) -> EstimateView:
    if reach.hub is None:
        try:
            return answer(request)
        except EstimateError as error:
            raise CommandError(str(error)) from None
    return typed(EstimateView, reach.client("fleet").estimate(msgspec.to_builtins(request)))
