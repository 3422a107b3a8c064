"""The fixtures in this folder (README.md names their sources)."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpudeck.estimate import inference, training
from gpudeck.estimate.config import architecture
from gpudeck.estimate.inference import InferenceSetting
from gpudeck.estimate.shape import Architecture
from gpudeck.estimate.training import TrainingSetting

FOLDER = Path(__file__).parent
UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9}
Row = dict[str, str]


@cache
def configs() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads((FOLDER / "configs.json").read_text())
    return models


def model_of(row: Row) -> Architecture:
    """Return the architecture of a row; litgpt keeps a separate head, whatever the config has."""
    model = architecture(configs()[row["model"]]["config"])
    return replace(model, is_tied=False) if row["source"] == "S3" else model


def rows(name: str) -> Iterator[Row]:
    with (FOLDER / name).open(newline="") as file:
        yield from csv.DictReader(file)


def inference_setting(row: Row) -> InferenceSetting:
    return InferenceSetting(
        weights=row["weights"], prompt=int(row["prompt"]), output=int(row["output"]),
        engine="transformers", prefill=0 if row["source"] == "S2" else None)


def training_setting(row: Row) -> TrainingSetting:
    return TrainingSetting(
        method=row["method"], stack=row["stack"], base=row["base"] or None,
        sequence=int(row["sequence"]), batch=int(row["batch"]), recompute=row["recompute"],
        lora_rank=int(row["rank"]), lora_targets=row["targets"])


def inference_error(row: Row) -> float:
    allocated = inference.estimate(model_of(row), inference_setting(row)).allocated
    return allocated / (float(row["published"]) * UNITS[row["unit"]]) - 1


def training_error(row: Row) -> float:
    """Return the relative error. S4 is what the driver reported: its context is on top."""
    allocated = training.estimate(model_of(row), training_setting(row)).allocated
    return (allocated + float(row["context_gb"]) * 1e9) / (
        float(row["published"]) * UNITS[row["unit"]]) - 1
