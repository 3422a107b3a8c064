"""`gpu_config.yaml` of a resource manager: what each of its keys means here. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudeck.pool.manifest import ASCEND, resource_name
from gpudeck.sizes import GB
from gpudeck.strict_yaml import InvalidYamlError, load_with_lines

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
    """`setting`: the name and value of gpudeck's setting that comes of it."""

    line: int
    path: str
    value: Any
    means: str
    setting: tuple[str, str] | None = None


class GpuConfigError(ValueError):
    """Each argument is one sentence, with its line and key."""


def read(text: str, boards: Sequence[Board] | None) -> list[ConfigKey]:
    """`boards` None: nobody says which there are. Raises GpuConfigError."""
    if len(text.encode()) > MOST_BYTES:
        raise GpuConfigError(f"it has more than {MOST_BYTES} bytes")
    try:
        data, lines = load_with_lines(text)
    except InvalidYamlError as error:
        raise GpuConfigError(f"line {error.line}: this is not YAML: {error}" if error.line else
                             f"this is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise GpuConfigError("it has no keys: `gpu_resource:` and the like are expected")
    found, problems = [], []
    for path, value in _leaves(data):
        line = lines[path]
        try:
            found.append(ConfigKey(line, ".".join(path), value, *_meaning(path, value, boards)))
        except ValueError as error:
            problems.append(f"line {line}: {'.'.join(path)}: {error}")
    if problems:
        raise GpuConfigError(*problems)
    return _one_default(found)


def _leaves(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in data.items():
        if not isinstance(key, str):
            raise GpuConfigError(f"the key {key!r}: a word is needed")
        if key in ("gpu_resource", "gpu_memory_specs") and isinstance(value, dict):
            yield from (((key, str(name)), each) for name, each in value.items())
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
    given = resource_name(_word(value))
    wanted = REGISTERED.get(given, given)
    instead = "" if wanted == given else (
        f"; no device plugin registers {given}, so it is {wanted} here")
    if name in VENDORS:
        return f"what `--resource {name}` asks for{instead}", (f"{name}_resource", wanted)
    if name == "gpu":
        return f"{DEFAULT}{instead}", ("resource", wanted)
    return f"nothing here; a job requests it with `--resource {given}`", None


def _default(value: Any) -> tuple[str, tuple[str, str]]:
    means, setting = _resource("gpu", value) if value not in VENDORS else (DEFAULT, None)
    return means, setting or ("resource", value)


def _one_default(keys: Sequence[ConfigKey]) -> list[ConfigKey]:
    """`default_gpu_resource_name` before `gpu_resource.gpu`."""
    if not any(each.path == "default_gpu_resource_name" for each in keys):
        return list(keys)
    return [each if each.path != "gpu_resource.gpu" else ConfigKey(
        each.line, each.path, each.value, "nothing here: default_gpu_resource_name goes before it")
        for each in keys]


def _memory(name: str, size_gb: float, boards: Sequence[Board] | None) -> str:
    """By the words of the name, letters and digits apart: RTX3090 is the GeForce RTX 3090."""
    words = {each.lower() for each in re.findall(r"[A-Za-z]{2,}(?=\d{3})|.+", name)}
    if boards is None:
        return "nothing here: boards report how much memory they have"
    sizes = sorted({size for model, size in boards if size is not None
                    and words <= {*re.findall(r"[a-z0-9]+", model.lower())}})
    if not sizes:
        return "nothing here: boards report it themselves, and no such board is here"
    said = " and ".join(f"{size / 2**30:.1f} GiB" for size in sizes)
    is_right = all(LEAST_PART <= size / (size_gb * GB) <= MOST_PART for size in sizes)
    return (f"nothing here: boards report it themselves; those here have {said}, "
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
