"""What a kubelet answers to List of its PodResources API (v1): the devices of each container. Pure.

    ListPodResourcesResponse  1: PodResources  (1: name, 2: namespace, 3: ContainerResources)
    ContainerResources        2: ContainerDevices  (1: resource name, 2: device ids)

Field numbers are those of api.proto; fields that are not known are passed over.
"""

from collections.abc import Iterator

from gpudeck.kubernetes import MAX_POD_GPUS, MAX_PODS_WITH_GPUS, PodGpus

from .core import KubernetesTextError, is_gpu

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
MOST_PODS = 10_000
NOT_UNDERSTOOD = "the kubelet answers what is not understood"


def pods_with_gpus(answer: bytes) -> tuple[PodGpus, ...]:
    """Devices as their plugin calls them: NVIDIA's are UUIDs, with `::N` of shared ones."""
    found: list[PodGpus] = []
    for pod in _parts(answer, 1):
        gpus = tuple(sorted({
            _text(device).partition("::")[0][:128]
            for container in _parts(pod, 3) for devices in _parts(container, 2)
            if is_gpu(_text(next(_parts(devices, 1), b""))) for device in _parts(devices, 2)}))
        if gpus:
            found.append(PodGpus(_text(next(_parts(pod, 2), b""))[:128],
                                 _text(next(_parts(pod, 1), b""))[:256], gpus[:MAX_POD_GPUS]))
    return tuple(found[:MAX_PODS_WITH_GPUS])


def _parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """Each value of a field that is text or a message."""
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
        if kind == _BYTES and key >> 3 == wanted:
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
    return "".join(each if each.isprintable() else " " for each in value.decode(errors="replace"))
