"""GPUs for a Python program: `with claim(gpus=2, model="a100", mem="40G") as lease: ...`."""

import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from gpudeck.contract.pool_messages import (
    AskClaim,
    ClaimRefused,
    ClaimWaits,
    GiveBack,
    Leased,
    LeasedGpu,
    LeaseEnded,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import parse_span
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.connection import (
    AGAIN_EVERY_S,
    ClaimWaitsError,
    PoolConnection,
    bind_process,
    reconnect,
    wait_for,
)
from gpudeck.pool.core.claims import CPU_MILLI, WHOLE_MILLI
from gpudeck.pool.core.host_resources import only_counted
from gpudeck.pool.environment import EnvironmentChange, environment
from gpudeck.pool.frameworks import memory_mib, memory_part

P = ParamSpec("P")
T = TypeVar("T")
ANSWERS_WITHIN_S = 5.0
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
TOO_LATE = ("CUDA is initialised in this process already, so it would not see the leased "
            "GPUs: claim them before anything uses a GPU")


@dataclass(frozen=True, slots=True)
class HeldLease:
    id: str
    gpus: tuple[LeasedGpu, ...]
    env: dict[str, str]
    _lease: Leased

    def torch(self) -> list[Any]:
        """Return its GPUs as `torch.device`. Sets the limit of memory of a part of a GPU, which
        caps PyTorch's own allocator alone."""
        torch, part = import_module("torch"), memory_part(self._lease)
        devices = [torch.device("cuda", index) for index in range(len(self.gpus))]
        for device in devices if part is not None else ():
            torch.cuda.set_per_process_memory_fraction(part, device)
        return devices

    def tensorflow(self) -> list[Any]:
        """Return its GPUs as physical devices. TensorFlow takes memory as it comes to need it, of a
        part of a GPU up to its limit, instead of nearly all at once."""
        config, part = import_module("tensorflow").config, memory_part(self._lease)
        most = None if part is None else memory_mib(self._lease, part)
        devices = list(config.list_physical_devices("GPU"))
        for device in devices:
            if most is None:
                config.experimental.set_memory_growth(device, True)
            else:
                config.set_logical_device_configuration(
                    device, [config.LogicalDeviceConfiguration(memory_limit=most)])
        return devices


@contextmanager
def claim(gpus: int = 1, *, model: str = "", mem: str | None = None, share: int | None = None,
          term: str | None = None, wait: str | None = None, priority: int | None = None,
          preemptible: bool = False, suspendable: bool = False, cpus: int | None = None,
          ram: str | None = None) -> Iterator[HeldLease]:
    """Hold GPUs of this node while the block runs, and select them for CUDA in the environment of
    this process. Waits for its turn, `wait` at most. With `preemptible`, claims of higher priority
    may take them back; with `suspendable` as well, this process is suspended for that instead of
    ended, where its node can. Raises CommandError, and RuntimeError where CUDA has been initialised
    already: it would not look again."""
    if is_cuda_initialised():
        raise RuntimeError(TOO_LATE)
    request = claim_request(gpus, model, mem, share, term, wait, priority, preemptible, suspendable,
                            cpus, ram)
    pool, lease = _obtain(request)
    if words := only_counted(lease):
        print(words, file=sys.stderr)
    change, own_pid = environment(lease, "auto", boards_seen()), os.getpid()
    before = set_environment(change)
    try:
        yield HeldLease(lease.lease_id, lease.gpus, dict(change.set), lease)
    finally:
        put_back(before)
        if os.getpid() == own_pid:  # a fork that leaves the block has nothing to give back
            give_back(pool, lease.lease_id)


def _obtain(request: AskClaim) -> tuple[PoolConnection, Leased]:
    """Get a lease and bind it to this process. If the agent restarts meanwhile, ask it again."""
    pool = PoolConnection(os.environ)
    while True:
        try:
            lease = wait_for(pool, request, _print_place)
            bind(pool, lease)
            return pool, lease
        except ClaimWaitsError:
            continue
        except BaseException as error:
            pool.close()  # an interrupted claim leaves the queue
            if not isinstance(error, CommandError) or error.code != ExitCode.UNREACHABLE:
                raise
        print("lost the agent; asking again when it is back", file=sys.stderr)
        pool = reconnect(os.environ)


def give_back(pool: PoolConnection, lease_id: str) -> None:
    """Give back a lease. The outcome of the work does not depend on the agent: one that is away is
    notified when it is back, while this process lives."""
    if not _is_given_back(pool, lease_id):
        give_back_later(lease_id)


def give_back_later(lease_id: str) -> None:
    """Give back a lease as soon as an agent answers."""
    threading.Thread(target=_give_back_when_answered, args=(lease_id,), daemon=True).start()


def _is_given_back(pool: PoolConnection, lease_id: str) -> bool:
    try:
        pool.send(GiveBack(lease_id))
        while not isinstance(message := pool.receive(ANSWERS_WITHIN_S), LeaseEnded | ClaimRefused):
            pass  # other messages meanwhile
    except CommandError:
        return False
    finally:
        pool.close()
    return not (isinstance(message, ClaimRefused) and message.is_full)


def _give_back_when_answered(lease_id: str) -> None:
    while True:
        try:
            if _is_given_back(PoolConnection(os.environ), lease_id):
                return
        except CommandError:
            pass
        time.sleep(AGAIN_EVERY_S)


def with_gpus(gpus: int = 1, *, model: str = "", mem: str | None = None, wait: str | None = None
              ) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function: with `@with_gpus(1)` each call runs on GPUs that are leased for it."""
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def leased(*args: P.args, **kwargs: P.kwargs) -> T:
            with claim(gpus, model=model, mem=mem, wait=wait):
                return function(*args, **kwargs)
        return leased
    return decorate


def is_cuda_initialised() -> bool:
    """Return whether CUDA is initialised, without a side effect: a library that is not loaded is
    not loaded for it, and before cuInit every call says so (CUDA driver API 6.3)."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return int(cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != NOT_INITIALIZED


def claim_request(gpus: int, model: str, mem: str | None, share: int | None, term: str | None,
                  wait: str | None, priority: int | None, preemptible: bool, suspendable: bool,
                  cpus: int | None, ram: str | None) -> AskClaim:
    """Return the request for a claim of this process. Raises ValueError with a sentence."""
    if suspendable and not preemptible:
        raise ValueError("suspendable=True says how its GPUs are taken back: add preemptible=True")
    return AskClaim(
        request_id=uuid4().hex[:16], is_run=True, gpus=gpus,
        models=tuple(word.strip() for word in model.split("|") if word.strip()),
        share_milli=WHOLE_MILLI if share is None else share * 10,
        mem_bytes=None if mem is None else parse_size(mem),
        term_s=None if term is None else parse_span(term),
        wait_s=None if wait is None else parse_span(wait), priority=priority,
        cpu_milli=None if cpus is None else cpus * CPU_MILLI,
        ram_bytes=None if ram is None else parse_size(ram),
        is_preemptible=preemptible, is_suspendable=suspendable,
        shape=os.path.basename(sys.argv[0])[:256])


def bind(pool: PoolConnection, lease: Leased) -> None:
    """Bind a lease to this process, with which it ends. Raises CommandError."""
    pidfd = os.pidfd_open(os.getpid())
    try:
        bind_process(pool, lease.lease_id, pidfd)
    finally:
        os.close(pidfd)


def _print_place(waits: ClaimWaits) -> None:
    print(f"waiting for GPUs, number {waits.place}: {waits.why}", file=sys.stderr)


def set_environment(change: EnvironmentChange) -> dict[str, str | None]:
    names = (*change.set, *change.unset)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(change.set)
    for name in change.unset:
        os.environ.pop(name, None)
    return before


def put_back(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
