"""The estimator against what others measured: parameters, inference, named stacks of training."""

import random
from dataclasses import replace
from statistics import median

import pytest

from gpudeck.estimate import inference, training
from gpudeck.estimate.config import EstimateError, architecture
from gpudeck.estimate.inference import InferenceSetting
from gpudeck.estimate.shape import count
from gpudeck.estimate.training import TrainingSetting

from .published import (
    Row,
    configs,
    inference_error,
    inference_setting,
    model_of,
    rows,
    training_error,
    training_setting,
)

EXACT = [name for name, entry in configs().items() if entry["parameters"] is not None]
# One sequence on one GPU, and no published load of weights that AWQ had not packed yet.
NAMED = [("S1", "Qwen2.5-0.5B", "bf16", 30720), ("S1", "Qwen2.5-1.5B", "gptq-int4", 14336),
         ("S1", "Qwen2.5-7B", "bf16", 1), ("S1", "Qwen2.5-7B", "bf16", 30720),
         ("S1", "Qwen2.5-7B", "gptq-int4", 1), ("S1", "Qwen2.5-14B", "bf16", 14336),
         ("S1", "Qwen2.5-32B", "bf16", 30720), ("S1", "Qwen2.5-32B", "awq", 1),
         ("S1", "Qwen2.5-72B", "gptq-int4", 14336), ("S2", "Qwen3-0.6B", "bf16", 30720),
         ("S2", "Qwen3-0.6B", "fp8", 1), ("S2", "Qwen3-8B", "bf16", 6144),
         ("S2", "Qwen3-8B", "fp8", 30720), ("S2", "Qwen3-32B", "bf16", 30720),
         ("S3", "phi-1.5", "nf4", 14), ("S3", "Llama-2-7B", "bf16", 14),
         ("S3", "Llama-2-7B", "nf4", 14), ("S3", "falcon-40b", "nf4", 14),
         ("S3", "CodeLlama-34B", "nf4", 14)]


def names(row: Row) -> tuple[str, str, str, int]:
    return row["source"], row["model"], row["weights"], int(row["prompt"])


INFERENCE = list(rows("inference.csv"))
TRAINING = list(rows("training.csv"))


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_exact(name: str) -> None:
    assert len(EXACT) >= 12
    assert count(architecture(configs()[name]["config"])).total == configs()[name]["parameters"]


@pytest.mark.parametrize("key", [
    {"index_topk": 2048, "index_head_dim": 128},  # DeepSeek V3.2 and later
    {"full_attention_interval": 4},  # hybrids
    {"num_kv_shared_layers": 10}])  # Gemma 3n
def test_a_key_that_nobody_knows_is_refused_by_its_name(key: dict[str, int]) -> None:
    config = configs()["Llama-3.1-8B"]["config"]
    with pytest.raises(EstimateError, match=next(iter(key))) as error:
        architecture(config | key)
    assert set(error.value.unknown) == set(key)
    assert count(architecture(config | key, tuple(key))).total == 8_030_261_248


def test_a_key_that_is_missing_is_named() -> None:
    config = dict(configs()["Llama-3.1-8B"]["config"])
    del config["vocab_size"]
    with pytest.raises(EstimateError, match="vocab_size") as error:
        architecture(config)
    assert error.value.missing == ("vocab_size",)


@pytest.mark.parametrize("key", NAMED, ids=lambda key: "-".join(map(str, key)))
def test_inference_is_within_5_percent(key: tuple[str, str, str, int]) -> None:
    row = next(row for row in INFERENCE if names(row) == key)
    assert abs(inference_error(row)) <= 0.05


def test_so_it_is_of_rows_that_no_formula_was_fitted_to() -> None:
    """Other rows of these tables: what misses are a few models of AWQ before the first long prompt,
    and such as are spread over several GPUs."""
    held_out = [row for row in INFERENCE if names(row) not in NAMED]
    errors = [abs(inference_error(row)) for row in held_out]
    assert len(held_out) >= 180
    assert median(errors) <= 0.01
    assert sum(error <= 0.05 for error in errors) >= 0.93 * len(errors)
    missed = [row for row, error in zip(held_out, errors, strict=True) if error > 0.1]
    assert {(row["weights"], row["prompt"]) for row in missed if row["gpus"] == "1"} <= {
        ("awq", "1")}


@pytest.mark.parametrize("row", [row for row in TRAINING if row["method"] in ("lora", "qlora")
                                 and (row["method"] == "lora" or row["stack"] == "litgpt")],
                         ids=lambda row: "-".join(list(row.values())[:7]))
def test_named_stacks_are_within_10_percent(row: Row) -> None:
    estimate = training.estimate(model_of(row), training_setting(row))
    assert estimate.inexact == ()
    # The smallest Qwen at middle lengths is the one kind that misses, and was always said to.
    most = 0.2 if row["model"] == "Qwen-1.8B" else 0.1
    assert abs(training_error(row)) <= most


def test_what_was_not_met_within_10_percent_is_a_range_of_20() -> None:
    peft_rows = [row for row in TRAINING if row["stack"] == "peft" and row["method"] == "qlora"]
    for row in peft_rows:
        assert training.estimate(model_of(row), training_setting(row)).inexact
        assert abs(training_error(row)) <= 0.2
    assert max(abs(training_error(row)) for row in peft_rows) > 0.1


def test_capacity_of_the_kv_cache() -> None:
    """vLLM: 3947 blocks of 16 tokens in 7.71 GiB; SGLang on 4 GPUs: 367,404 tokens in 16.46 GiB;
    llama.cpp: 163,840 tokens of DeepSeek in 10.72 GiB."""
    model = {name: architecture(configs()[name]["config"]) for name in (
        "Llama-3.1-8B", "Qwen3-235B-A22B", "DeepSeek-V3")}
    assert inference.kv_bytes(model["Llama-3.1-8B"], 3_947 * 16, 2, 1) / 2**30 == pytest.approx(
        7.71, abs=0.01)
    assert inference.kv_bytes(model["Qwen3-235B-A22B"], 367_404, 2, 4) / 2**30 == pytest.approx(
        16.46, abs=0.01)
    assert inference.kv_bytes(model["DeepSeek-V3"], 163_840, 2, 8) / 2**30 == pytest.approx(
        10.72, abs=0.01)


def test_weights_of_a_large_model_in_fp8_depend_on_what_is_kept_in_16_bits() -> None:
    """vLLM: 57.75 GiB on each of 8 GPUs."""
    model = architecture(configs()["Llama-3.1-405B"]["config"])
    how = InferenceSetting(weights="fp8", tp=8)
    stated = inference.estimate(model, replace(how, kept_16bit=("attention", "first", "last")))
    unstated = inference.estimate(model, how).parts[0]
    assert stated.parts[0].bytes / 2**30 == pytest.approx(57.75, rel=0.05)
    assert unstated.least / 2**30 == pytest.approx(47.2, rel=0.02)
    assert unstated.most / 2**30 == pytest.approx(57.75, rel=0.05)


def test_two_gpus_hold_half_each() -> None:
    model = architecture(configs()["Llama-3.1-8B"]["config"])
    for tp, gib in ((1, 14.96), (2, 7.48)):
        weights_gib = inference.estimate(model, InferenceSetting(tp=tp)).parts[0].bytes / 2**30
        assert weights_gib == pytest.approx(gib, rel=0.001)


def test_it_is_not_fitted_to_single_rows() -> None:
    """Settings near a published one: what changes is what the formula says, to the byte. A table of
    the rows, or a correction for one of them, would jump."""
    lot = random.Random(random.randrange(10**6))
    for row in lot.sample(INFERENCE, 12):
        model, how = model_of(row), inference_setting(row)
        more = lot.randrange(1, 400)
        before = inference.estimate(model, how).allocated
        token_bytes = inference.kv_bytes(model, 1, 2, 1)
        assert inference.estimate(model, replace(how, output=how.output + more)).allocated == (
            pytest.approx(before + more * token_bytes, rel=1e-12))
        one = replace(model, blocks=(*model.blocks, replace(model.blocks[0], count=1)))
        layer = inference.estimate(one, how).allocated - before
        two = replace(model, blocks=(*model.blocks, replace(model.blocks[0], count=2)))
        assert inference.estimate(two, how).allocated - before == pytest.approx(2 * layer)
    for row in lot.sample(TRAINING, 8):
        model, setting = model_of(row), training_setting(row)
        steps = [training.estimate(model, replace(setting, sequence=setting.sequence + more))
                 .allocated for more in (0, 17, 34)]
        assert steps[1] - steps[0] == pytest.approx(steps[2] - steps[1])


def test_every_constant_matters() -> None:
    """A wrong formula as control: without the workspace, or with the head of a tied model counted
    once, the held-out rows are missed."""
    long = [row for row in INFERENCE if row["source"] == "S1" and row["prompt"] == "30720"
            and row["weights"] == "bf16" and row["gpus"] == "1"]
    without = [inference.estimate(model_of(row), replace(inference_setting(row), prefill=0)
                                  ).allocated / 2**30 / float(row["published"]) - 1 for row in long]
    assert min(without) < -0.1
    qlora = TrainingSetting(method="lora", stack="litgpt", sequence=1_304, lora_rank=8,
                            lora_targets="qv")
    model = architecture(configs()["Llama-2-7B"]["config"])
    eager = training.estimate(model, qlora).allocated
    recomputed = training.estimate(model, replace(qlora, recompute="full")).allocated
    assert eager > 1.3 * recomputed
