"""Layout of MIG on a board, and one instance of it created or destroyed, through NVML.

A placement goes in by reference: by value pynvml takes the struct for a pointer, and the process
dies, as it does on the fake of the tests. Unverified on hardware.
"""

from collections.abc import Iterator
from ctypes import byref, c_uint
from math import ceil
from typing import Any

import pynvml
from msgspec.structs import replace

from gpudeck.mig.boards import MigProfile

from ...readings import MigBoard, MigInstanceSeen

ENUMERATORS = 0x40  # of profiles; 0x11 are in use, with gaps
_ME = (0x7, 0xB)  # of those with media extensions, where the driver tells no names
_NO_SUCH_CALL = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)


def board(uuid: str) -> MigBoard:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        now, pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return MigBoard(uuid, trouble="this board cannot be split by MIG")
    is_on, is_pending = now == pynvml.NVML_DEVICE_MIG_ENABLE, now != pending
    profiles = tuple(_profiles(handle, is_on))
    layout = MigBoard(uuid, is_on, is_pending, _is_resetless(handle), profiles)
    if not is_on:
        return layout
    devices = _devices(handle)
    return replace(layout, instances=tuple(
        instance for profile in profiles for instance in _instances(handle, profile, devices)))


def set_mode(uuid: str, is_on: bool) -> None:
    """Set the mode. A refusal comes as a value, and leaves the mode pending: what was asked is
    taken back then, or the board would change at its next reset, when nobody expects it."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    now, _ = pynvml.nvmlDeviceGetMigMode(handle)
    status = pynvml.nvmlDeviceSetMigMode(handle, int(is_on))
    if status != pynvml.NVML_SUCCESS:
        if now != int(is_on):
            pynvml.nvmlDeviceSetMigMode(handle, now)
        raise pynvml.NVMLError(status)


def _is_resetless(handle: Any) -> bool:
    """Return whether the mode changes without a reset: field 184, from Hopper on. Elsewhere the
    mode needs a reset, and in a virtual machine whose host blocks that the board is lost until its
    host is mended (github.com/kubernetes-sigs/dra-driver-nvidia-gpu, 883)."""
    try:
        [answer] = pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED])
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return False
    return bool(answer.nvmlReturn == pynvml.NVML_SUCCESS and answer.value.uiVal == 1)


def create(uuid: str, profile: int, start: int) -> None:
    """Create a GPU instance with one compute instance that takes all of it; else none."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    place = next((placement for placement in _placements(handle, profile)
                  if placement.start == start), None)
    if place is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile, byref(place))
    try:
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _whole(instance))
    except pynvml.NVMLError:
        pynvml.nvmlGpuInstanceDestroy(instance)
        raise


def destroy(uuid: str, instance_id: int) -> None:
    """Destroy an instance, its compute instances first: a driver refuses one that a process
    uses."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, instance_id)
    for part in _parts(instance):
        pynvml.nvmlComputeInstanceDestroy(part)
    pynvml.nvmlGpuInstanceDestroy(instance)


def _profiles(handle: Any, is_on: bool) -> Iterator[MigProfile]:
    """Yield the profiles. With the mode off the second version, which has names, calls every
    profile unsupported."""
    for number in range(ENUMERATORS):
        try:
            info = _profile(handle, number, 2 if is_on else 1)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                continue  # a gap
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                return
            raise
        places = _placements(handle, info.id)
        if places:
            name = _name(info, number)
            yield MigProfile(info.id, name, info.sliceCount, places[0].size,
                             tuple(sorted(placement.start for placement in places)),
                             info.instanceCount, "+me" in name)


def _profile(handle: Any, number: int, version: int) -> Any:
    try:
        return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=version)
    except pynvml.NVMLError as error:
        if error.value not in _NO_SUCH_CALL:
            raise
    return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=1)


def _name(info: Any, number: int) -> str:
    """Return the name that NVIDIA gives it; by slices and memory where the driver has no name."""
    name = getattr(info, "name", b"")
    words = (name.decode(errors="replace") if isinstance(name, bytes) else str(name))
    return words.removeprefix("MIG ").strip()[:64] or (
        f"{info.sliceCount}g.{ceil(info.memorySizeMB / 1024)}gb{'+me' * (number in _ME)}")


def _placements(handle: Any, profile: int) -> list[Any]:
    count = c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, None, byref(count))
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, placements, byref(count))
    return list(placements)[:count.value]


def _instances(handle: Any, profile: MigProfile, devices: dict[int, list[str]]
               ) -> Iterator[MigInstanceSeen]:
    count = c_uint(0)
    instances = (pynvml.c_nvmlGpuInstance_t * profile.most)()
    pynvml.nvmlDeviceGetGpuInstances(handle, profile.id, instances, byref(count))
    for instance in list(instances)[:count.value]:
        info = pynvml.nvmlGpuInstanceGetInfo(instance)
        yield MigInstanceSeen(info.id, info.profileId, info.placement.start,
                              tuple(devices.get(info.id, ())), bool(_parts(instance)))


def _devices(handle: Any) -> dict[int, list[str]]:
    """Return the UUIDs of MIG devices, by their GPU instance."""
    uuids: dict[int, list[str]] = {}
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                raise
            continue
        uuids.setdefault(pynvml.nvmlDeviceGetGpuInstanceId(device), []).append(
            str(pynvml.nvmlDeviceGetUUID(device)))
    return uuids


def _part_profiles(instance: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, number, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1)
        except pynvml.NVMLError as error:
            if error.value not in (pynvml.NVML_ERROR_NOT_SUPPORTED,
                                   pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise


def _parts(instance: Any) -> list[Any]:
    parts: list[Any] = []
    for profile in _part_profiles(instance):
        count = c_uint(0)
        handles = (pynvml.c_nvmlComputeInstance_t * max(profile.instanceCount, 1))()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, handles, byref(count))
        parts += list(handles)[:count.value]
    return parts


def _whole(instance: Any) -> int:
    """Return the profile of a compute instance that has every slice."""
    profiles = [*_part_profiles(instance)]
    if not profiles:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return int(max(profiles, key=lambda profile: profile.sliceCount).id)
