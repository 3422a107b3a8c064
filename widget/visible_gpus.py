"""GPUs that CUDA gives to this process, by its environment. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

Item = dict[str, Any]


def visible_gpus(gpus: Sequence[Item], env: Mapping[str, str]) -> list[str]:
    """Return their UUIDs. Rather one too many than one too few: no use of a GPU is counted as this
    process's only because it is visible."""
    variable = env.get("CUDA_VISIBLE_DEVICES")
    boards = [gpu for gpu in gpus if gpu["facts"].get("parent_uuid") is None]
    if variable is None:
        return [uuid for board in boards for uuid in _parts(board, gpus)]
    visible: dict[str, None] = {}
    is_by_speed = (env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
                   and len({board["name"] for board in boards}) > 1)
    for word in map(str.strip, variable.split(",")):
        if word.startswith("MIG-"):
            matches = _instance(word, gpus)
        elif word.isdecimal() and is_by_speed:  # only CUDA knows which is the fastest
            matches = visible_gpus(gpus, {})
        else:
            matches = [uuid for board in boards if _is_named(word, board)
                       for uuid in _parts(board, gpus)]
        if not matches:  # CUDA reads no further
            break
        visible |= dict.fromkeys(matches)
    return [*visible]


def _parts(board: Item, gpus: Sequence[Item]) -> list[str]:
    """Return the MIG instances that a board is split into, or the board."""
    return [gpu["uuid"] for gpu in gpus
            if gpu["facts"].get("parent_uuid") == board["uuid"]] or [board["uuid"]]


def _is_named(word: str, board: Item) -> bool:
    """Return whether the word names this board: by its index, or by the beginning of its UUID."""
    if word.isdecimal():
        return bool(board["index"] == int(word))
    return word.startswith("GPU-") and bool(board["uuid"].startswith(word))


def _instance(word: str, gpus: Sequence[Item]) -> list[str]:
    """Return the instance of `MIG-UUID`, or as drivers before 470 have it, `MIG-GPU-UUID/gi/ci`."""
    return [gpu["uuid"] for gpu in gpus if (facts := gpu["facts"]).get("parent_uuid") and (
        gpu["uuid"].startswith(word) or word == "MIG-{parent_uuid}/{gpu_instance}/"
        "{compute_instance}".format_map({"compute_instance": 0, **facts}))]
