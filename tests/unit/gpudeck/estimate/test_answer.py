"""Questions to the estimator and its answers: ranges, fleets, refusals, the terminal."""

import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.cli.estimate import estimate
from gpudeck.errors import CommandError
from gpudeck.estimate.boards import board_of
from gpudeck.estimate.config import EstimateError
from gpudeck.estimate.fit import FleetBoards
from gpudeck.estimate.request import (
    EstimateAsked,
    EstimateView,
    InferenceAsked,
    TrainingAsked,
    answer,
)
from gpudeck.pool.core.fragmentation import accepts

from .published import configs

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-40GB"
FLEET = (FleetBoards(H100, 79.6 * GIB, 16, 3, 8), FleetBoards(A100, 39.5 * GIB, 32, 32, 8),
         FleetBoards("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8 * GIB, 7, 7, 7, True),
         FleetBoards("nobody's board", None, 1, 1, 1))


def config(name: str) -> dict[str, Any]:
    content: dict[str, Any] = configs()[name]["config"]
    return content


def question(name: str, **how: Any) -> EstimateAsked:
    kind = how.pop("kind", "inference")
    request_type: Callable[..., Any] = InferenceAsked if kind == "inference" else TrainingAsked
    return EstimateAsked(config(name), **{kind: request_type(**how)})


def test_parts_make_the_total_and_the_range_is_around_it() -> None:
    view = answer(question("Llama-3.1-8B", concurrency=8))
    assert view.total is not None
    assert view.total == pytest.approx(sum(part.bytes for part in view.parts))
    assert view.low is not None
    assert view.high is not None
    assert view.low < view.total < view.high
    assert all(part.formula for part in view.parts)
    assert view.inexact == []


def test_the_fleets_gpus_that_fit_it() -> None:
    fits = {fit.model: fit for fit in answer(question("Qwen2.5-32B"), FLEET).fits}
    one = fits[H100]
    assert one.gpus == 1
    words = shlex.split(one.command)
    assert words[:2] == ["gpudeck", "run"]
    assert words[words.index("--gpus") + 1] == "1"
    assert one.ask_bytes is not None
    assert int(words[words.index("--mem") + 1].removesuffix("G")) == math.ceil(one.ask_bytes / GIB)
    assert accepts((words[words.index("--model") + 1],), H100)
    assert one.speed is not None
    assert one.speed.tokens_per_s[0] < one.speed.tokens_per_s[1]
    two = fits[A100]
    assert (two.gpus, two.layout) == (4, "TP 4")
    mig = fits["NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
    assert mig.gpus is None
    assert "GiB" in mig.why
    assert fits["nobody's board"].gpus is None


def test_free_and_nodes_are_said() -> None:
    fits = {fit.model: fit for fit in answer(
        question("Llama-3.1-8B", kind="training", zero=3, dp=16), FLEET).fits}
    assert fits[H100].gpus == 16
    assert fits[H100].command == ""
    assert "more than one node" in fits[H100].why
    one = next(fit for fit in answer(question("Qwen2.5-72B", concurrency=16), FLEET).fits
               if fit.model == H100)
    assert (one.gpus, one.free, one.there) == (4, 3, 16)
    assert "until enough are free" in one.why


def test_the_command_asks_for_no_more_than_the_board_has() -> None:
    """A need of 79.3 of 79.6 GiB is possible, and `--mem 80G` would match no board."""
    need = answer(question("Qwen2.5-72B", tp=2)).ask
    assert need is not None
    board = FleetBoards(H100, need + (GIB - need % GIB) / 2, 2, 2, 2)
    words = shlex.split(answer(question("Qwen2.5-72B", tp=2), [board]).fits[0].command)
    assert int(words[words.index("--mem") + 1].removesuffix("G")) * GIB <= (board.mem_bytes or 0)


def test_what_is_too_large_says_what_would_help() -> None:
    fits = answer(question("Llama-3.1-8B", kind="training"), FLEET).fits
    assert all(fit.gpus is None for fit in fits)
    assert any("ZeRO" in fit.why for fit in fits)


def test_zero_divides_by_data_parallel_ranks() -> None:
    def parts(zero: int) -> dict[str, float]:
        view = answer(question("Llama-3.1-8B", kind="training", zero=zero, dp=8))
        return {part.name: part.bytes for part in view.parts}

    none, first, second, third = (parts(zero) for zero in range(4))
    assert first["optimizer"] == pytest.approx(none["optimizer"] / 8)
    assert first["gradients"] == none["gradients"]
    assert second["gradients"] == pytest.approx(none["gradients"] / 8)
    assert second["weights"] == none["weights"]
    assert third["weights"] == pytest.approx(none["weights"] / 8)
    assert "gathered weights" in third
    states = [none[name] for name in ("weights", "gradients", "optimizer")]
    assert sum(states) == pytest.approx(16 * 8_030_261_248)


@pytest.mark.parametrize(("how", "what"), [
    ({"kind": "training", "method": "full", "stack": "fsdp", "zero": 3, "dp": 4}, "one GPU"),
    ({"kind": "training", "recompute": "selective"}, "selective"),
    ({"kind": "training", "varies": True}, "lengths vary"),
    ({"pp": 2}, "pipeline"), ({"tp": 8}, "1 and 2 GPUs")])
def test_what_was_never_checked_is_a_range_that_says_why(how: dict[str, Any], what: str) -> None:
    view = answer(question("Llama-3.1-8B", **how))
    assert any(what in reason for reason in view.inexact)
    assert view.low is not None
    assert view.high is not None
    assert view.allocated is not None
    assert view.high - view.low >= 0.39 * view.allocated


def test_a_number_of_parameters_alone_gives_parts_and_no_total() -> None:
    view = answer(EstimateAsked(parameters=7 * 10**9, training=TrainingAsked()))
    assert sum(part.bytes for part in view.parts) == 16 * 7e9
    assert (view.total, view.ask) == (None, None)
    assert "vocab" in view.missing


def test_formats_are_read_from_the_config() -> None:
    quantized = config("Qwen2.5-7B") | {"quantization_config": {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}}
    assert answer(EstimateAsked(quantized, inference=InferenceAsked())).parts == answer(
        question("Qwen2.5-7B", weights="gptq-int4")).parts
    native = config("DeepSeek-V3") | {"quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
    part = answer(EstimateAsked(native, inference=InferenceAsked(tp=8))).parts[0]
    assert "say which" not in part.formula
    strange = config("Qwen2.5-7B") | {"quantization_config": {"quant_method": "hqq", "nbits": 3}}
    with pytest.raises(EstimateError, match="hqq"):
        answer(EstimateAsked(strange, inference=InferenceAsked()))


@pytest.mark.parametrize("wrong", [
    EstimateAsked(config("gpt2")), EstimateAsked(inference=InferenceAsked()),
    EstimateAsked(config("gpt2"), inference=InferenceAsked(), training=TrainingAsked()),
    EstimateAsked({"model_type": "jamba"}, inference=InferenceAsked()),
    EstimateAsked(config("gpt2") | {"n_embd": "much"}, inference=InferenceAsked()),
    EstimateAsked(config("gpt2") | {"n_embd": 0}, inference=InferenceAsked()),
    EstimateAsked(config("gpt2") | {"n_embd": 10**30}, inference=InferenceAsked()),
    EstimateAsked({"vision_config": {}, "text_config": config("Llama-3.1-8B")},
                  inference=InferenceAsked())])
def test_what_makes_no_sense_is_refused_in_a_sentence(wrong: EstimateAsked) -> None:
    with pytest.raises(EstimateError):
        answer(wrong)


def test_windows_bound_the_cache_and_experts_the_speed() -> None:
    def cache(name: str, **how: Any) -> float:
        return answer(question(name, **how)).parts[1].bytes

    assert cache("Mistral-7B-v0.1", prompt=60_000) == cache("Mistral-7B-v0.1", prompt=30_000)
    half = cache("gemma-2-9b", prompt=60_000) / cache("gemma-2-9b", prompt=3_000)
    assert 7 < half < 16
    sparse = answer(msgspec.structs.replace(question("Qwen3-30B-A3B"), board=H100)).speed
    dense = answer(msgspec.structs.replace(question("Qwen2.5-32B"), board=H100)).speed
    assert sparse is not None
    assert dense is not None
    assert sparse.tokens_per_s[0] > 2 * dense.tokens_per_s[0]


def test_boards_are_known_by_the_drivers_names_or_not_at_all() -> None:
    board = board_of("NVIDIA A100 80GB PCIe")
    assert board is not None
    assert board.gb_per_s == 1_935
    assert board_of("Radeon Pro") is None
    notes = answer(msgspec.structs.replace(question("gpt2"), board="Radeon Pro")).notes
    assert any("Radeon" in note for note in notes)


def test_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config("Llama-3.1-8B")))
    assert estimate(["training", "--model", str(file), "--method", "lora", "--stack", "peft",
                     "--recompute", "full", "--json"]) == 0
    view = msgspec.json.decode(capsys.readouterr().out, type=EstimateView)
    assert view == answer(question("Llama-3.1-8B", kind="training", method="lora", stack="peft",
                                   recompute="full"))
    assert estimate(["inference", "--layers", "32", "--hidden", "4096", "--heads", "32",
                     "--kv-heads", "8", "--mlp", "14336", "--vocab", "128256"]) == 0
    out = capsys.readouterr().out
    assert "8,030,261,248 parameters" in out
    assert "14.96 GiB" in out
    assert estimate(["training", "--parameters", "7B"]) == 0
    assert "no total" in capsys.readouterr().out


@pytest.mark.parametrize("words", [
    ["inference"], ["inference", "--parameters", "many"], ["inference", "--model", "/nowhere"],
    ["training", "--parameters", "7B", "--zero", "4"], ["training", "--method", "dream"],
    ["serving"], ["inference", "--parameters", "7B", "--layers", "3"]])
def test_a_wrong_command_is_refused_in_a_sentence(words: list[str]) -> None:
    with pytest.raises(CommandError):
        estimate(words)
