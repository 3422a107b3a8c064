"""A Kubernetes Job for what a claim asks for. Pure.

Labels are those of NVIDIA's GPU feature discovery, AMD's labeller, Intel's and Ascend's plugins;
shares are HAMi's resources.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gpudeck.language.sizes import sold_bytes
from gpudeck.pool.core.fragmentation import accepts

NVIDIA = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
# The driver's names with hyphens for spaces, as feature discovery writes them.
PRODUCTS = (
    "Tesla-T4", "Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB", "Tesla-V100-PCIE-16GB",
    "Tesla-V100-PCIE-32GB", "Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB",
    "Tesla-V100-SXM3-32GB", "Tesla-V100S-PCIE-32GB", "NVIDIA-A10", "NVIDIA-A10G", "NVIDIA-A30",
    "NVIDIA-A40", "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A100-SXM4-40GB",
    "NVIDIA-A100-SXM4-80GB", "NVIDIA-RTX-A6000", "NVIDIA-L4", "NVIDIA-L40", "NVIDIA-L40S",
    "NVIDIA-RTX-6000-Ada-Generation", "NVIDIA-GeForce-RTX-3090", "NVIDIA-GeForce-RTX-4090",
    "NVIDIA-GeForce-RTX-5090", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL", "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H200", "NVIDIA-H200-NVL", "NVIDIA-GH200-480GB", "NVIDIA-B200", "NVIDIA-GB200",
)
# Of others a model is the value of this label, by the beginning of the resource's name.
MODEL_LABELS = {"amd.com/": "amd.com/gpu.product-name", "gpu.intel.com/": "gpu.intel.com/product",
                "huawei.com/": "accelerator"}
ASCEND = "huawei.com/Ascend910"
PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
HOST = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
LABEL_VALUE = re.compile(PART)
NAME = re.compile(HOST)
LABEL_KEY = re.compile(rf"(?:{HOST}(?:\.{HOST})*/)?{PART}")
RESOURCE = re.compile(rf"{HOST}(?:\.{HOST})*/{PART}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
MACHINES = (8, 4, 2, 1)


def validated(kind: re.Pattern[str], what: str, text: str) -> str:
    """Return a text that matches. Raises ValueError with a sentence."""
    if not kind.fullmatch(text) or len(text) > 317:
        raise ValueError(f"{text[:80]!r} is no {what}")
    return text


def resource_name(text: str) -> str:
    return validated(RESOURCE, "name of a resource of Kubernetes, such as nvidia.com/gpu", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Job to write. `share_pct`: of one GPU, by HAMi. `node_labels`: further labels of its
    nodes."""

    name: str
    namespace: str | None
    image: str
    command: Sequence[str]
    resource: str
    gpus: int
    share_pct: int | None
    mem_bytes: int | None
    models: Sequence[str]
    term_s: float | None
    node_labels: Mapping[str, str]
    cpus: int | None
    ram_bytes: int | None


def job(request: JobRequest) -> dict[str, Any]:
    """Return the manifest of a Job. Kubernetes reads `$$` in a command as `$`, and `$(NAME)` as a
    variable. Raises ValueError with a sentence."""
    annotations: dict[str, str] = {}
    selector, terms = dict(request.node_labels), []
    limits: dict[str, int | str] = {request.resource: request.gpus}
    if request.share_pct is not None:
        limits |= _share(request)
        if request.models:
            annotations["nvidia.com/use-gputype"] = ",".join(request.models)
    elif request.resource == NVIDIA:
        terms = _boards(request, selector)
    else:
        _other_boards(request, selector)
    limits |= _if(cpu=request.cpus, memory=request.ram_bytes and _quantity(request.ram_bytes))
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": terms}]}}}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": request.name} | _if(namespace=request.namespace),
        "spec": {"backoffLimit": 0}
        | _if(activeDeadlineSeconds=request.term_s and int(request.term_s))
        | {"template": _if(metadata=_if(annotations=annotations)) | {"spec": {
            "restartPolicy": "Never",
            **_if(nodeSelector=selector, affinity=terms and affinity),
            "containers": [{"name": "main", "image": request.image,
                            "command": [word.replace("$", "$$") for word in request.command],
                            "resources": {"limits": limits}}]}}}}


def _if(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _quantity(size: int) -> str:
    """Write a size as Kubernetes writes memory, and no less."""
    return f"{size // 2**30}Gi" if size % 2**30 == 0 else f"{ceil(size / 2**20)}Mi"


def _share(request: JobRequest) -> dict[str, int]:
    if request.resource != NVIDIA:
        raise ValueError(f"a share is provided by HAMi, for {NVIDIA} alone; leave --resource out")
    part = request.share_pct or 0
    return {"nvidia.com/gpucores": part} | (
        {"nvidia.com/gpumem-percentage": part} if request.mem_bytes is None else
        {"nvidia.com/gpumem": request.mem_bytes // 2**20})


def _boards(request: JobRequest, selector: dict[str, str]) -> list[dict[str, Any]]:
    """Return what selects the boards: a selector takes one value, several boards that go by one
    name are an affinity."""
    terms: list[dict[str, Any]] = []
    models = tuple(model.replace(" ", "-") for model in request.models)
    products = [product for product in PRODUCTS if accepts(models, product)]
    if not products:
        raise ValueError(
            f"no board that is known here is called {' or '.join(request.models)!r}; name the "
            f"label that your nodes have: --node-label {PRODUCT}=... (kubectl get nodes -L "
            f"{PRODUCT})")
    if models and len(products) == 1:
        selector[PRODUCT] = products[0]
    elif models:
        terms.append({"key": PRODUCT, "operator": "In", "values": products})
    if request.mem_bytes is not None:
        least_mib = sold_bytes(request.mem_bytes) // 2**20
        terms.append({"key": "nvidia.com/gpu.memory", "operator": "Gt",
                      "values": [str(least_mib - 1)]})
    if terms:
        selector["nvidia.com/gpu.present"] = "true"
    return terms


def _other_boards(request: JobRequest, selector: dict[str, str]) -> None:
    label = next((label for begin, label in MODEL_LABELS.items()
                  if request.resource.startswith(begin)), None)
    if request.mem_bytes is not None:
        raise ValueError(f"no label of nodes with {request.resource} says how much memory a board "
                         "has; leave --mem out, or name a label with --node-label")
    if len(request.models) > 1 or (request.models and label is None):
        raise ValueError(f"name the label that nodes with {request.resource} have: --node-label "
                         f"{label or 'KEY'}=...")
    if label is not None and request.models:
        selector[label] = validated(LABEL_VALUE, f"value of the label {label}", request.models[0])
    elif request.resource == ASCEND:
        selector["accelerator"] = "huawei-Ascend910"


def node_pools(request: JobRequest) -> list[str]:
    """Describe which machines fit, and how many such jobs run on one."""
    if request.share_pct is not None:
        count = 100 // request.share_pct
        return [f"Node pool: machines with HAMi; one GPU runs {count} of these jobs at a time."]
    sizes = [f"one with {size} runs {size // request.gpus}" for size in MACHINES
             if size >= request.gpus]
    return [f"Node pool: machines with {request.gpus} GPU{'s' * (request.gpus > 1)} or more" + (
        f"; of these jobs {', '.join(sizes)} at a time." if sizes else ".")]


# -- YAML in which every text is quoted, so that none means anything else


def yaml_text(value: Mapping[str, Any]) -> str:
    return "\n".join(_mapping(value, "")) + "\n"


def _mapping(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, entry in value.items():
        head = f"{indent}{key if re.fullmatch(r'[A-Za-z]+', key) else quoted(key)}:"
        if isinstance(entry, Mapping):
            yield head
            yield from _mapping(entry, indent + "  ")
        elif isinstance(entry, list) and entry and isinstance(entry[0], Mapping):
            yield head
            for item in entry:
                first, *rest = _mapping(item, indent + "    ")
                yield f"{indent}  - {first.strip()}"
                yield from rest
        else:
            yield f"{head} {_scalar(entry)}"


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """Quote a text. Raises ValueError for what is none, such as bytes of a file's name."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("a word of the command is not UTF-8")
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
