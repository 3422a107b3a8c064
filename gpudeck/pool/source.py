"""A resource manager's Python interface, as its users know it, on the pool of a hub, which
GPUDECK_HUB and GPUDECK_TOKEN name: docs/resource-manager.md."""

import getpass
import logging
import os
import socket
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from gpudeck.client.hub import LONG_S, HubConnection, client_of, typed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.claim import TOO_LATE, is_cuda_initialised

log = logging.getLogger("gpudeck.pool.source")


# What that interface had besides, and what does its work here.
ABSENT = {
    "create_tensorflow_model_with_gpu": "build the model yourself after "
        "setup_tensorflow_gpu(config): run the lines in its `code`, which set the memory limit",
    "create_pytorch_model_with_gpu": "build the model yourself after setup_pytorch_gpu(config): "
        "run the lines in its `code`, then move the model to `cuda`",
    "AlgorithmTrainingEngine": "start the training with `gpudeck run --gpus N -- python "
        "train.py`, or hold the GPUs around it with `with gpudeck.pool.claim.claim(gpus=N):`",
}


def __getattr__(name: str) -> Any:
    """Raise ImportError for an absent name of that interface, so that an import explains it."""
    if name in ABSENT:
        raise ImportError(_absent(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _absent(name: str) -> str:
    return f"gpudeck has no {name}: {ABSENT[name]}"


@dataclass(slots=True)
class TrainingGPUConfig:
    """GPUs that a training needs. `memory_gb`: of each board, at least. `gpu_memory_fraction` None:
    memory as it is needed. `cpus`, `ram`: of the node; `ram` is a size, such as 64G."""

    gpu_count: int
    gpu_type: str | None
    memory_gb: float | None
    distributed_training: bool = False
    mixed_precision: bool = False
    gpu_memory_fraction: float | None = 0.8
    cpus: int | None = None
    ram: str | None = None

    @property
    def wants(self) -> tuple[object, ...]:
        return self.gpu_count, self.gpu_type, self.memory_gb, self.cpus, self.ram

    @property
    def body(self) -> dict[str, Any]:
        """Body of a request. An older hub knows neither `cpus` nor `ram_bytes`."""
        fields = asdict(self)
        cpus, ram = fields.pop("cpus"), fields.pop("ram")
        return fields | ({} if cpus is None else {"cpus": cpus}) | (
            {} if ram is None else {"ram_bytes": ram})


@dataclass(frozen=True, slots=True)
class GPUNode:
    """GPUs of one model on one node. None: not known."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float | None
    utilization: float | None


@dataclass(frozen=True, slots=True)
class AllocatedNode:
    node_name: str
    lease_id: str
    gpu_uuids: tuple[str, ...]
    expires_at: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class GPUSetup:
    """Setup of a framework. `success` False: go on with the CPU, for `reason`. `code`: lines for
    this program to run."""

    success: bool
    environment: dict[str, str]
    code: list[str]
    reason: str
    node_name: str | None = None
    gpu_uuids: tuple[str, ...] = ()


class GPUResourceManager:
    """Raises CommandError where the hub does not answer, refuses, or has no pool."""

    def __init__(self, hub: HubConnection, owner: str) -> None:
        self._hub = hub
        self._owner = owner
        self._leases: list[tuple[tuple[object, ...], AllocatedNode]] = []  # with what was wanted

    def validate_gpu_requirements(self, config: TrainingGPUConfig) -> bool:
        """Check whether they could ever be met; if not, the reason is logged."""
        answer = self._post("validate", config.body)
        if not answer["valid"]:
            log.warning("no such GPUs: %s", answer["reason"])
        return bool(answer["valid"])

    def allocate_gpu_resources(self, config: TrainingGPUConfig) -> AllocatedNode | None:
        answer = self._post("allocate", config.body | {"owner": self._owner})
        if not answer["success"]:
            log.warning("no GPU is leased, continuing on the CPU: %s", answer["reason"])
            return None
        node = typed(AllocatedNode, answer)
        self._leases.append((config.wants, node))
        return node

    def cleanup_gpu_resources(self, node: AllocatedNode | GPUNode | str | None, count: int
                              ) -> bool:
        """Return what this program leased there, the newest first; a lease goes back whole.
        False: not as many as `count`, as where there is no node because none was allocated."""
        if node is None:
            return count == 0
        name = node if isinstance(node, str) else node.node_name
        for entry in reversed(self._leases):
            lease = entry[1]
            is_it = lease == node if isinstance(node, AllocatedNode) else lease.node_name == name
            if is_it and len(lease.gpu_uuids) <= count and self._post(
                    "release", {"lease_id": lease.lease_id})["success"]:
                self._leases.remove(entry)
                count -= len(lease.gpu_uuids)
        return count == 0

    def get_available_gpu_nodes(self) -> list[GPUNode]:
        return [typed(GPUNode, node) for node in self._hub.get("gpu/nodes")["nodes"]]

    def get_gpu_monitoring_data(self) -> dict[str, Any]:
        return self._hub.get("gpu/monitoring")

    def set_up(self, framework: str, config: TrainingGPUConfig) -> GPUSetup:
        """Set up the newest lease of such a configuration, of this program or else of its user.
        Sets the environment of this process where its GPUs are here."""
        lease = next((lease for needs, lease in reversed(self._leases)
                      if needs == config.wants), None)
        setup = typed(GPUSetup, self._post(f"setup-{framework}", config.body | (
            {"owner": self._owner} if lease is None else {"lease_id": lease.lease_id})))
        if not setup.success:
            log.warning("no GPU is set up, continuing on the CPU: %s", setup.reason)
        elif setup.node_name == socket.gethostname() or set(setup.gpu_uuids) <= {*boards_seen()}:
            if is_cuda_initialised():
                raise RuntimeError(TOO_LATE)
            os.environ.update(setup.environment)
        else:
            log.warning("the GPUs are on %s: start the program there, with this environment",
                        setup.node_name)
        return setup

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._hub.ask_for("POST", f"gpu/{path}", body, LONG_S)


@dataclass(frozen=True, slots=True)
class TensorFlowGPUIntegration:
    manager: GPUResourceManager

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_absent(name) if name in ABSENT else name)

    def setup_tensorflow_gpu(self, config: TrainingGPUConfig) -> GPUSetup:
        return self.manager.set_up("tensorflow", config)


@dataclass(frozen=True, slots=True)
class PyTorchGPUIntegration:
    manager: GPUResourceManager

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_absent(name) if name in ABSENT else name)

    def setup_pytorch_gpu(self, config: TrainingGPUConfig) -> GPUSetup:
        return self.manager.set_up("pytorch", config)


@cache
def get_gpu_resource_manager() -> GPUResourceManager:
    hub = os.environ.get("GPUDECK_HUB")
    if not hub:
        raise CommandError("name the hub in GPUDECK_HUB, such as https://hub.example.org",
                           ExitCode.USAGE)
    client, _ = client_of(hub, None, os.environ.get("GPUDECK_CA_FILE"))
    return GPUResourceManager(client.hub, getpass.getuser())


def get_tensorflow_gpu_integration() -> TensorFlowGPUIntegration:
    return TensorFlowGPUIntegration(get_gpu_resource_manager())


def get_pytorch_gpu_integration() -> PyTorchGPUIntegration:
    return PyTorchGPUIntegration(get_gpu_resource_manager())
