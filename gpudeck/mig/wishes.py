"""What a board shall be split into, as people write it: "2x 3g.40gb + 1x 1g.10gb", or the file of
NVIDIA's mig-parted, which many have already. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpudeck.mig.boards import MigProfile
from gpudeck.mig.planner import NoLayoutError

NOTHING = "none"
OFF = "off"  # no instance, and the mode off too
NEAR = 0.1  # of the memory that two names of one profile say
_SIZE = re.compile(r"([1-9])g\.([0-9]+)gb((?:\+[a-z.]+)?)")
_PART_OF = re.compile(r"^[1-9]c\.")
_PART = re.compile(r"(?:(\d{1,2})\s*[xX]?\s+|(\d{1,2})[xX]\s*)?([1-9]g\.[0-9]+gb(?:\+[a-z.]+)?)")


class WishError(ValueError):
    """Which part is not understood, for people."""


def parse_wish(text: str, profiles: Sequence[MigProfile]) -> Counter[int]:
    """By profile id. "none" and "off": whole again, no instance."""
    found: Counter[int] = Counter()
    if text.strip().lower() in (NOTHING, OFF):
        return found
    # The plus sign of "1g.10gb+me" has no space around it.
    for part in re.split(r"\s+\+\s+|\s*,\s*", text.strip()):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise WishError(f"{part[:40]!r} is not part of a layout; write for example "
                            "'2x 3g.40gb + 1x 1g.10gb', none or off")
        count = int(match[1] or match[2] or 1)
        if count:
            found[_named(match[3], profiles).id] += count
    return found


def wants_mode(text: str) -> bool | None:
    """Whether MIG has to be on for it; None: it stays as it is."""
    return {NOTHING: None, OFF: False}.get(text.strip().lower(), True)


def wish_words(wish: Mapping[int, int], profiles: Sequence[MigProfile]) -> str:
    names = {each.id: each.name for each in profiles}
    order = [each.id for each in profiles]
    return " + ".join(f"{wish[each]}x {names[each]}" for each in order if wish.get(each)) or NOTHING


def _named(name: str, profiles: Sequence[MigProfile]) -> MigProfile:
    found = next((each for each in profiles if each.name == name), None) or _alike(name, profiles)
    if found is None:
        raise WishError(f"this board has no profile {name}; it has "
                        f"{', '.join(each.name for each in profiles)}")
    return found


def _alike(name: str, profiles: Sequence[MigProfile]) -> MigProfile | None:
    """Drivers name one profile differently, such as 1g.23gb and 1g.24gb of a GB200: it is told by
    its slices and its memory."""
    asked = _SIZE.fullmatch(name)
    if asked is None:
        return None
    alike = [each for each in profiles if (its := _SIZE.fullmatch(each.name)) is not None
             and (its[1], its[3]) == (asked[1], asked[3])
             and abs(int(its[2]) - int(asked[2])) <= NEAR * int(its[2])]
    return alike[0] if len(alike) == 1 else None


def whole_profile(name: str) -> str:
    """"1c.3g.40gb" is a part of an instance of this profile."""
    return _PART_OF.sub("", name)


def mig_parted_words(document: Any, config: str, index: int) -> str:
    """The same as a text, for a node whose profiles are not known here."""
    devices = _devices(document, config, index)
    for name, count in devices.items():
        _count(name, count)
    return " + ".join(f"{count}x {name}" for name, count in devices.items() if count) or NOTHING


def from_mig_parted(document: Any, config: str, index: int, profiles: Sequence[MigProfile]
                    ) -> Counter[int]:
    """What this configuration of a mig-parted file wants of the board of that number."""
    return _counted(_devices(document, config, index), profiles)


def _devices(document: Any, config: str, index: int) -> Mapping[Any, Any]:
    configs = document.get("mig-configs") if isinstance(document, dict) else None
    if not isinstance(configs, dict) or document.get("version") != "v1":
        raise WishError("this is not a file of mig-parted: it needs `version: v1` and mig-configs")
    if config not in configs:
        raise WishError(f"there is no configuration {config[:60]!r}; there are "
                        f"{', '.join(map(str, configs))[:300]}")
    for row in configs[config] if isinstance(configs[config], list) else []:
        if not isinstance(row, dict) or not _is_of(row.get("devices"), index):
            continue
        if "device-filter" in row:
            raise WishError("`device-filter` is not read here: name devices by number")
        devices = row.get("mig-devices") or {}
        if not row.get("mig-enabled") or not isinstance(devices, dict):
            return {}
        return devices
    raise WishError(f"configuration {config[:60]!r} says nothing of device {index}")


def _is_of(devices: Any, index: int) -> bool:
    return devices == "all" or (isinstance(devices, list) and index in devices)


def _counted(devices: Mapping[Any, Any], profiles: Sequence[MigProfile]) -> Counter[int]:
    found: Counter[int] = Counter()
    for name, count in devices.items():
        if _count(name, count):
            found[_named(str(name), profiles).id] += count
    return found


def _count(name: Any, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 64:
        raise WishError(f"{name}: {count!r} is not a number of instances")
    return count


def to_mig_parted(config: str, index: int, wish: Mapping[int, int],
                  profiles: Sequence[MigProfile]) -> dict[str, Any]:
    names = {each.id: each.name for each in profiles}
    devices = {names[each]: count for each, count in sorted(wish.items()) if count}
    row: dict[str, Any] = {"devices": [index], "mig-enabled": True, "mig-devices": devices}
    return {"version": "v1", "mig-configs": {config: [row]}}


__all__ = ["NoLayoutError", "WishError", "from_mig_parted", "mig_parted_words", "parse_wish",
           "to_mig_parted", "wants_mode",
           "whole_profile", "wish_words"]
