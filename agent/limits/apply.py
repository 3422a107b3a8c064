"""Limits of GPUs: set one, take it back, and read what the driver then says; in one child process
for each request: a driver may hang in a setter as in any call, and then neither the readings nor
the agent hang with it.

The child (`main`) takes one request on its stdin and answers on its stdout."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gpudeck.contract.limits import Mode, TimedLimit
from gpudeck.contract.vendors import vendor_of
from gpudeck.system.child_processes import importable, without_tokens

from ..backends import Backend, GpuLimitControl, LimitsModule, backend_named
from ..readings import GpuLimits, GroupMemory, MigBoard
from ..tasks.redact import redact
from .timed_limits import NodeTime, judged

DONE_WITHIN_S = 15.0
# As NVML numbers them.
MODES: dict[Mode, int] = {"default": 0, "exclusive_process": 3}
UNSURE = "the driver did not answer"
NOT_READ = "the driver did not report its limits"
NO_DRIVER = "no driver that is read here has a GPU with this UUID"
NO_LIMITS = "limits of GPUs cannot be set through the backend {}"
READ_BACK_WITHIN_S = 2.0
READ_EVERY_S = 0.1


class LimitRequest(msgspec.Struct, frozen=True):
    kind: Literal["read", "power", "clocks", "unlock", "mode", "mig", "mig_mode", "create",
                  "destroy", "memory", "set_memory", "clear_memory"]
    uuids: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    groups: tuple[str, ...] = ()  # folders of control groups, one for each UUID


class LimitResponse(msgspec.Struct, frozen=True):
    """Response of a driver. `trouble`: it refused, or nothing could be asked."""

    limits: tuple[GpuLimits, ...] = ()
    mig: MigBoard | None = None
    trouble: str = ""
    memory: tuple[GroupMemory, ...] = ()


class LimitApplier:
    """Limits of the GPUs of a backend. `release_order`: a sentence while a vendor's driver must
    be released; it is not asked then."""

    def __init__(self, backend: Backend, options: str, release_order: Callable[[str], str]) -> None:
        self._backend, self._options = backend, options
        self._release_order = release_order

    def trouble(self, uuid: str = "") -> str:
        """Return why nothing can be set here at all, or nothing on this board; "": perhaps it
        can."""
        backend = self._backend.part_of(uuid) if uuid else self._backend
        if backend is None:
            return NO_DRIVER
        if backend.capabilities.can_set_limits(self._options):
            return ""
        return NO_LIMITS.format(backend.name)

    def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]:
        """Read the limits of boards. Those of another vendor, on which nothing can be set, hinder
        none."""
        troubles = {uuid: self.trouble(uuid) for uuid in uuids}
        settable = tuple(uuid for uuid, trouble in troubles.items() if not trouble)
        if settable or not troubles:
            answer = self._do(LimitRequest("read", settable))
            troubles |= dict.fromkeys(settable, answer.trouble or NOT_READ)
        else:
            answer = LimitResponse()
        return {uuid: GpuLimits(uuid, trouble=trouble) for uuid, trouble in troubles.items()} | {
            limits.uuid: limits for limits in answer.limits}

    def set_power(self, uuid: str, watts: float) -> str:
        """Set a power limit. "": the driver took it without a word, which proves nothing."""
        return self._do(LimitRequest("power", (uuid,), (watts,))).trouble

    def lock_clocks(self, uuid: str, low_mhz: float, high_mhz: float) -> str:
        return self._do(LimitRequest("clocks", (uuid,), (low_mhz, high_mhz))).trouble

    def unlock_clocks(self, uuid: str) -> str:
        return self._do(LimitRequest("unlock", (uuid,))).trouble

    def set_mode(self, uuid: str, mode: int) -> str:
        return self._do(LimitRequest("mode", (uuid,), (mode,))).trouble

    def mig(self, uuid: str) -> MigBoard:
        answer = self._do(LimitRequest("mig", (uuid,)))
        if answer.mig is None:
            return MigBoard(uuid, trouble=answer.trouble or UNSURE)
        return answer.mig

    def set_mig_mode(self, uuid: str, is_on: bool) -> str:
        """Switch MIG on or off, even while the driver must be released: it is released for this."""
        order = LimitRequest("mig_mode", (uuid,), (float(is_on),))
        return self._do(order, is_in_window=True).trouble

    def create_instance(self, uuid: str, profile: int, start: int) -> str:
        return self._do(LimitRequest("create", (uuid,), (profile, start))).trouble

    def destroy_instance(self, uuid: str, instance: int) -> str:
        return self._do(LimitRequest("destroy", (uuid,), (instance,))).trouble

    def memory(self, places: Sequence[tuple[str, str]]) -> list[GroupMemory]:
        """Read the memory that control groups may have of GPUs. `places`: UUIDs and folders."""
        own = [place for place in places if not self.trouble(place[0])]
        answer = self._do(LimitRequest("memory", tuple(uuid for uuid, _ in own),
                                       groups=tuple(group for _, group in own)))
        read = dict(zip(own, answer.memory, strict=False))
        return [read.get(place) or GroupMemory(*place, trouble=(
            self.trouble(place[0]) or answer.trouble or NOT_READ)) for place in places]

    def set_memory(self, uuid: str, group: str, limit_bytes: int) -> str:
        return self._do(LimitRequest("set_memory", (uuid,), (limit_bytes,), (group,))).trouble

    def clear_memory(self, uuid: str, group: str) -> str:
        return self._do(LimitRequest("clear_memory", (uuid,), groups=(group,))).trouble

    def _do(self, order: LimitRequest, is_in_window: bool = False) -> LimitResponse:
        trouble = self.trouble() or next(filter(None, map(self.trouble, order.uuids)), "")
        if trouble := trouble or ("" if is_in_window else self._release_order(
                self._backend.vendor or vendor_of(next(iter(order.uuids), "")))):
            return LimitResponse(trouble=trouble)
        if self._backend.capabilities.limits == "in process":
            return obey(self._backend, self._options, order)
        backend = self._backend if not order.uuids else self._backend.part_of(order.uuids[0])
        assert backend is not None  # else there is trouble
        command = [sys.executable, "-P", "-m", __name__, backend.name, self._options]
        try:
            child = subprocess.run(command, input=msgspec.msgpack.encode(order),
                                   capture_output=True, timeout=DONE_WITHIN_S, check=False,
                                   env=importable(__package__, without_tokens(os.environ)))
            return msgspec.msgpack.decode(child.stdout, type=LimitResponse)
        except subprocess.TimeoutExpired:
            return LimitResponse(trouble=f"{UNSURE} within {DONE_WITHIN_S:.0f} s; "
                                         "whether it was set is not known. See `dmesg`")
        except OSError as error:
            return LimitResponse(trouble=f"no process can be started ({error.strerror})")
        except msgspec.MsgspecError:
            words = redact(child.stderr.decode(errors="replace").strip())[-300:]
            return LimitResponse(trouble=f"{UNSURE}: the process that sets limits ended "
                                         f"({words or 'no word'})")


def obey(backend: Backend, options: str, order: LimitRequest) -> LimitResponse:
    module = backend.limits_module()
    try:
        limits = module.open_limits(options)
        try:
            if order.kind == "mig":
                return LimitResponse(mig=limits.mig(order.uuids[0]))
            if order.kind == "memory":
                return LimitResponse(memory=tuple(
                    _read_memory(limits, module, uuid, group)
                    for uuid, group in zip(order.uuids, order.groups, strict=True)))
            return LimitResponse(_execute(limits, module, order))
        finally:
            limits.close()
    except module.ERRORS as error:
        return LimitResponse(trouble=module.in_words(error)[:1_024])


def _execute(limits: GpuLimitControl, module: LimitsModule, order: LimitRequest
             ) -> tuple[GpuLimits, ...]:
    match order.kind:
        case "power":
            limits.set_power(order.uuids[0], *order.numbers)
        case "clocks":
            limits.lock_clocks(order.uuids[0], *order.numbers)
        case "unlock":
            limits.unlock_clocks(order.uuids[0])
        case "mode":
            limits.set_mode(order.uuids[0], int(order.numbers[0]))
        case "mig_mode":
            limits.set_mig_mode(order.uuids[0], bool(order.numbers[0]))
        case "create":
            limits.create_instance(order.uuids[0], *map(int, order.numbers))
        case "destroy":
            limits.destroy_instance(order.uuids[0], int(order.numbers[0]))
        case "set_memory":
            limits.set_memory(order.uuids[0], order.groups[0], int(order.numbers[0]))
        case "clear_memory":
            limits.set_memory(order.uuids[0], order.groups[0], None)
        case "read":
            return tuple(_read(limits, module, uuid) for uuid in order.uuids)
    return ()


def _read(limits: GpuLimitControl, module: LimitsModule, uuid: str) -> GpuLimits:
    """Read the limits of a GPU: one that is lost must not hide the others."""
    try:
        return limits.read(uuid)
    except module.ERRORS as error:
        return GpuLimits(uuid, trouble=module.in_words(error)[:1_024])


def _read_memory(limits: GpuLimitControl, module: LimitsModule, uuid: str, group: str
                 ) -> GroupMemory:
    try:
        return limits.memory(uuid, group)
    except module.ERRORS as error:
        return GroupMemory(uuid, group, trouble=module.in_words(error)[:1_024])


def clock_now(boot_id: str) -> NodeTime:
    return NodeTime(time.time(), boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))


def apply(applier: LimitApplier, limit: TimedLimit) -> str:
    """Set a limit. "": taken without a word, which proves nothing."""
    if limit.what == "power":
        return applier.set_power(limit.gpu_uuid, limit.wanted[0])
    return applier.lock_clocks(limit.gpu_uuid, *limit.wanted)


def undo(applier: LimitApplier, limit: TimedLimit) -> str:
    """Undo a limit: back to what was before it, or else to the board's own."""
    if limit.what == "clocks":
        return (applier.lock_clocks(limit.gpu_uuid, *limit.before) if limit.before
                else applier.unlock_clocks(limit.gpu_uuid))
    current = applier.read([limit.gpu_uuid])[limit.gpu_uuid]
    watts = limit.before[0] if limit.before else current.power_default_w
    if watts is None:
        return "neither the previous value nor the board's own limit is known"
    return applier.set_power(limit.gpu_uuid, watts)


def not_undone(applier: LimitApplier, limit: TimedLimit) -> str:
    """Return why a limit is still set; "": it is not, or that cannot be read."""
    current = applier.read([limit.gpu_uuid])[limit.gpu_uuid]
    if current.trouble:
        return current.trouble
    if limit.what == "power" and limit.before and current.power_w is not None and (
            abs(current.power_w - limit.before[0]) >= 1.0):
        return f"the driver reports {current.power_w:.0f} W, not {limit.before[0]:.0f} W"
    if limit.what == "clocks" and current.tells_lock and (
            current.locked_mhz != (limit.before or None)):
        return "the driver still says that clocks are locked"
    return ""


def judged_now(applier: LimitApplier, limit: TimedLimit) -> TimedLimit:
    """Judge a limit that was just set: a driver takes a moment to report the value."""
    until = time.monotonic() + READ_BACK_WITHIN_S
    while True:
        current = applier.read([limit.gpu_uuid]).get(limit.gpu_uuid)
        now = judged(limit, current, time.time())
        if now.state in ("in_force", "unknown") or time.monotonic() > until:
            return now
        time.sleep(READ_EVERY_S)


def main(argv: Sequence[str]) -> int:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a driver library prints must not land in the answer
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LimitRequest)
    out.write(msgspec.msgpack.encode(obey(backend_named(argv[0]), argv[1], order)))
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
