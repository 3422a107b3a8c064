"""Answer of a kubelet to List of its PodResources API (v1): the devices of each container. Pure.

    ListPodResourcesResponse  1: PodResources  (1: name, 2: namespace, 3: ContainerResources)
    ContainerResources        2: ContainerDevices  (1: resource name, 2: device ids)

Field numbers are those of api.proto; unknown fields are ignored.
"""

from collections.abc import Iterator

from gpudeck.contract.kubernetes import MAX_POD_GPUS, MAX_PODS_WITH_GPUS, PodGpus
from gpudeck.language.printable import printable

from .core import KubernetesTextError, is_gpu

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
MOST_PODS = 10_000
NOT_UNDERSTOOD = "the kubelet answers what is not understood"


def pods_with_gpus(answer: bytes) -> tuple[PodGpus, ...]:
    """Return the pods that have GPUs. Devices are named as by their plugin: NVIDIA's are UUIDs,
    where `::N` of shared ones is cut off."""
    pods: list[PodGpus] = []
    for pod in _parts(answer, 1):
        gpus = tuple(sorted({
            _text(device).partition("::")[0][:128]
            for container in _parts(pod, 3) for devices in _parts(container, 2)
            if is_gpu(_text(next(_parts(devices, 1), b""))) for device in _parts(devices, 2)}))
        if gpus:
            pods.append(PodGpus(_text(next(_parts(pod, 2), b""))[:128],
                                _text(next(_parts(pod, 1), b""))[:256], gpus[:MAX_POD_GPUS]))
    return tuple(pods[:MAX_PODS_WITH_GPUS])


def _parts(message: bytes, field_number: int) -> Iterator[bytes]:
    """Yield each value of a field that is text or a message. Raises KubernetesTextError."""
    at, count = 0, 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        size = {_EIGHT: 8, _FOUR: 4}.get(kind)
        if kind == _VARINT:
            _, at = _number(message, at)
            continue
        if kind == _BYTES:
            size, at = _number(message, at)
        if size is None or at + size > len(message):
            raise KubernetesTextError(NOT_UNDERSTOOD)
        if kind == _BYTES and key >> 3 == field_number:
            count += 1
            if count > MOST_PODS:
                raise KubernetesTextError(f"the kubelet lists more than {MOST_PODS} items")
            yield message[at:at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(at, min(at + 10, len(message))):  # noqa: B020
        value |= (message[at] & 0x7F) << shift
        shift += 7
        if message[at] < 0x80:
            return value, at + 1
    raise KubernetesTextError(NOT_UNDERSTOOD)


def _text(value: bytes) -> str:
    return printable(value.decode(errors="replace"), " ")
