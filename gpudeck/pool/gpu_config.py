"""`gpu_config.yaml` of a resource manager: what each of its keys means here. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudeck.language.sizes import GB
from gpudeck.language.strict_yaml import InvalidYamlError, load_with_lines
from gpudeck.pool.manifest import ASCEND, resource_name

MOST_BYTES = 1_000_000
LEAST_PART, MOST_PART = 0.95, 1.1  # a board of 80 GB has 85.5e9 bytes, one of 48 with ECC 48.3e9
Board = tuple[str, float | None]  # its name, and its memory in bytes
# Names that are widely written, and that no device plugin registers.
REGISTERED = {"intel.com/gpu": "gpu.intel.com/i915", "huawei.com/npu": ASCEND}
DEFAULT = "the default of --resource"
VENDORS = ("nvidia", "amd", "intel", "npu")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """Key of the file, and its meaning here. `setting`: gpudeck's setting that results, with its
    value."""

    line: int
    path: str
    value: Any
    means: str
    setting: tuple[str, str] | None = None


class GpuConfigError(ValueError):
    """Faults of the file: each argument is one sentence, with its line and key."""


def read(text: str, boards: Sequence[Board] | None) -> list[ConfigKey]:
    """Read the keys of a file. `boards` None: not known. Raises GpuConfigError."""
    if len(text.encode()) > MOST_BYTES:
        raise GpuConfigError(f"it has more than {MOST_BYTES} bytes")
    try:
        data, lines = load_with_lines(text)
    except InvalidYamlError as error:
        raise GpuConfigError(f"line {error.line}: this is not YAML: {error}" if error.line else
                             f"this is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise GpuConfigError("it has no keys: `gpu_resource:` and the like are expected")
    keys, problems = [], []
    for path, value in _leaves(data):
        line = lines[path]
        try:
            keys.append(ConfigKey(line, ".".join(path), value, *_meaning(path, value, boards)))
        except ValueError as error:
            problems.append(f"line {line}: {'.'.join(path)}: {error}")
    if problems:
        raise GpuConfigError(*problems)
    return _one_default(keys)


def _leaves(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in data.items():
        if not isinstance(key, str):
            raise GpuConfigError(f"the key {key!r}: a word is needed")
        if key in ("gpu_resource", "gpu_memory_specs") and isinstance(value, dict):
            yield from (((key, str(name)), leaf) for name, leaf in value.items())
        else:
            yield (key,), value


def _meaning(path: tuple[str, ...], value: Any, boards: Sequence[Board] | None
             ) -> tuple[str, tuple[str, str] | None]:
    match path:
        case ("gpu_resource", name):
            return _resource(name, value)
        case ("gpu_memory_specs", name):
            return _memory(name, _number(value, 0.001, 1e5), boards), None
        case ("default_gpu_resource_name",):
            return _default(value)
        case ("gpu_resource" | "gpu_memory_specs",):
            raise ValueError("lines of `name: value` below it are expected")
        case (name,) if name in CHECKED:
            check, means = CHECKED[name]
            check(value)
            return f"nothing here: {means}", None
    return "nothing here", None


def _resource(name: str, value: Any) -> tuple[str, tuple[str, str] | None]:
    resource = resource_name(_word(value))
    registered = REGISTERED.get(resource, resource)
    instead = "" if registered == resource else (
        f"; no device plugin registers {resource}, so it is {registered} here")
    if name in VENDORS:
        return f"what `--resource {name}` asks for{instead}", (f"{name}_resource", registered)
    if name == "gpu":
        return f"{DEFAULT}{instead}", ("resource", registered)
    return f"nothing here; a job requests it with `--resource {resource}`", None


def _default(value: Any) -> tuple[str, tuple[str, str]]:
    means, setting = _resource("gpu", value) if value not in VENDORS else (DEFAULT, None)
    return means, setting or ("resource", value)


def _one_default(keys: Sequence[ConfigKey]) -> list[ConfigKey]:
    """Prefer `default_gpu_resource_name` to `gpu_resource.gpu`."""
    if not any(key.path == "default_gpu_resource_name" for key in keys):
        return list(keys)
    return [key if key.path != "gpu_resource.gpu" else ConfigKey(
        key.line, key.path, key.value, "nothing here: default_gpu_resource_name goes before it")
        for key in keys]


def _memory(name: str, size_gb: float, boards: Sequence[Board] | None) -> str:
    """Compare with the boards whose names have the same words, letters and digits apart: RTX3090 is
    the GeForce RTX 3090."""
    words = {word.lower() for word in re.findall(r"[A-Za-z]{2,}(?=\d{3})|.+", name)}
    if boards is None:
        return "nothing here: boards report how much memory they have"
    sizes = sorted({size for model, size in boards if size is not None
                    and words <= {*re.findall(r"[a-z0-9]+", model.lower())}})
    if not sizes:
        return "nothing here: boards report it themselves, and no such board is here"
    reported = " and ".join(f"{size / 2**30:.1f} GiB" for size in sizes)
    is_right = all(LEAST_PART <= size / (size_gb * GB) <= MOST_PART for size in sizes)
    return (f"nothing here: boards report it themselves; those here have {reported}, "
            f"{'as' if is_right else 'not what'} the table says")


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is needed, not {value!r}"[:200])
    return value


def _number(value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"a number from {least:g} to {most:g} is needed, not {value!r}"[:200])
    return float(value)


def _level(value: Any) -> None:
    if _word(value).upper() not in LEVELS:
        raise ValueError(f"one of {', '.join(LEVELS)} is needed, not {value!r}"[:200])


CHECKED: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "monitor_update_interval": (
        lambda value: _number(value, 0.001, 86_400),
        "agents read their GPUs every second, and the hub shows each reading"),
    "resource_change_threshold": (
        lambda value: _number(value, 0, 1), "every change is reported"),
    "log_level": (_level, "the log has one level; filter it with journalctl"),
}
