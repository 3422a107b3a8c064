"""Wished layouts of a board as people write them: "2x 3g.40gb + 1x 1g.10gb", or the file of
NVIDIA's mig-parted, which many have already. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpudeck.mig.boards import MigProfile
from gpudeck.mig.planner import NoLayoutError

NOTHING = "none"
OFF = "off"  # no instance, and the mode off too
NEAR = 0.1  # of the memory in two names of one profile
_SIZE = re.compile(r"([1-9])g\.([0-9]+)gb((?:\+[a-z.]+)?)")
_PART_OF = re.compile(r"^[1-9]c\.")
_PART = re.compile(r"(?:(\d{1,2})\s*[xX]?\s+|(\d{1,2})[xX]\s*)?([1-9]g\.[0-9]+gb(?:\+[a-z.]+)?)")


class WishError(ValueError):
    """Error, for people: the part of a wish that is not understood."""


def parse_wish(text: str, profiles: Sequence[MigProfile]) -> Counter[int]:
    """Parse a wish into counts by profile id. "none" and "off": whole again, no instance."""
    counts: Counter[int] = Counter()
    if text.strip().lower() in (NOTHING, OFF):
        return counts
    # The plus sign of "1g.10gb+me" has no space around it.
    for part in re.split(r"\s+\+\s+|\s*,\s*", text.strip()):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise WishError(f"{part[:40]!r} is not part of a layout; write for example "
                            "'2x 3g.40gb + 1x 1g.10gb', none or off")
        count = int(match[1] or match[2] or 1)
        if count:
            counts[_profile_of(match[3], profiles).id] += count
    return counts


def wants_mode(text: str) -> bool | None:
    """Return whether MIG has to be on for it; None: it stays as it is."""
    return {NOTHING: None, OFF: False}.get(text.strip().lower(), True)


def wish_words(wish: Mapping[int, int], profiles: Sequence[MigProfile]) -> str:
    names = {profile.id: profile.name for profile in profiles}
    order = [profile.id for profile in profiles]
    return " + ".join(f"{wish[key]}x {names[key]}" for key in order if wish.get(key)) or NOTHING


def _profile_of(name: str, profiles: Sequence[MigProfile]) -> MigProfile:
    same = next((profile for profile in profiles if profile.name == name), None)
    profile = same or _alike(name, profiles)
    if profile is None:
        raise WishError(f"this board has no profile {name}; it has "
                        f"{', '.join(other.name for other in profiles)}")
    return profile


def _alike(name: str, profiles: Sequence[MigProfile]) -> MigProfile | None:
    """Find a profile by its slices and its memory: drivers name one profile differently, such as
    1g.23gb and 1g.24gb of a GB200."""
    size = _SIZE.fullmatch(name)
    if size is None:
        return None
    alike = [profile for profile in profiles if (its := _SIZE.fullmatch(profile.name)) is not None
             and (its[1], its[3]) == (size[1], size[3])
             and abs(int(its[2]) - int(size[2])) <= NEAR * int(its[2])]
    return alike[0] if len(alike) == 1 else None


def whole_profile(name: str) -> str:
    """Return the profile of the whole instance, of which a name such as "1c.3g.40gb" is a part."""
    return _PART_OF.sub("", name)


def mig_parted_words(document: Any, config: str, index: int) -> str:
    """Format it as a text, for a node whose profiles are not known here."""
    devices = _devices(document, config, index)
    for name, count in devices.items():
        _count(name, count)
    return " + ".join(f"{count}x {name}" for name, count in devices.items() if count) or NOTHING


def from_mig_parted(document: Any, config: str, index: int, profiles: Sequence[MigProfile]
                    ) -> Counter[int]:
    """Read what a configuration of a mig-parted file wants from the board with that number."""
    return _count_profiles(_devices(document, config, index), profiles)


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


def _count_profiles(devices: Mapping[Any, Any], profiles: Sequence[MigProfile]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for name, count in devices.items():
        if _count(name, count):
            counts[_profile_of(str(name), profiles).id] += count
    return counts


def _count(name: Any, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 64:
        raise WishError(f"{name}: {count!r} is not a number of instances")
    return count


def to_mig_parted(config: str, index: int, wish: Mapping[int, int],
                  profiles: Sequence[MigProfile]) -> dict[str, Any]:
    names = {profile.id: profile.name for profile in profiles}
    devices = {names[profile_id]: count for profile_id, count in sorted(wish.items()) if count}
    row: dict[str, Any] = {"devices": [index], "mig-enabled": True, "mig-devices": devices}
    return {"version": "v1", "mig-configs": {config: [row]}}


__all__ = ["NoLayoutError", "WishError", "from_mig_parted", "mig_parted_words", "parse_wish",
           "to_mig_parted", "wants_mode",
           "whole_profile", "wish_words"]
