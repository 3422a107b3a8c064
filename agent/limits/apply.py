"""Set and read limits of GPUs, in one child process for each request: a driver may hang in a setter
as in any call, and then neither the readings nor the agent hang with it.

The child (`main`) takes one request on its stdin and answers on its stdout.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gpudeck.child_processes import importable, without_tokens
from gpudeck.limits import Mode

from ..backends import Backend, GpuLimitControl, LimitsModule, backend_named
from ..readings import GpuLimits
from ..tasks.redact import redact

DONE_WITHIN_S = 15.0
# As NVML numbers them.
MODES: dict[Mode, int] = {"default": 0, "exclusive_process": 3}
UNSURE = "the driver did not answer"
NO_LIMITS = "limits of Gpus cannot be set through the backend {}"


class LimitRequest(msgspec.Struct, frozen=True):
    kind: Literal["read", "power", "clocks", "unlock", "mode"]
    uuids: tuple[str, ...]
    numbers: tuple[float, ...] = ()


class LimitResponse(msgspec.Struct, frozen=True):
    """`trouble`: the driver refused, or nothing could be asked."""

    limits: tuple[GpuLimits, ...] = ()
    trouble: str = ""


class LimitApplier:
    """`release_order`: a sentence while the driver must be released; nothing is asked then."""

    def __init__(self, backend: Backend, options: str, release_order: Callable[[], str]) -> None:
        self._backend, self._options = backend, options
        self._release_order = release_order

    def trouble(self) -> str:
        """Why nothing can be set here at all; "": perhaps it can."""
        if self._backend.capabilities.can_set_limits(self._options):
            return ""
        return NO_LIMITS.format(self._backend.name)

    def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]:
        answer = self._do(LimitRequest("read", tuple(uuids)))
        if answer.trouble:
            return {uuid: GpuLimits(uuid, trouble=answer.trouble) for uuid in uuids}
        return {limits.uuid: limits for limits in answer.limits}

    def set_power(self, uuid: str, watts: float) -> str:
        """"": the driver took it without a word, which proves nothing."""
        return self._do(LimitRequest("power", (uuid,), (watts,))).trouble

    def lock_clocks(self, uuid: str, low_mhz: float, high_mhz: float) -> str:
        return self._do(LimitRequest("clocks", (uuid,), (low_mhz, high_mhz))).trouble

    def unlock_clocks(self, uuid: str) -> str:
        return self._do(LimitRequest("unlock", (uuid,))).trouble

    def set_mode(self, uuid: str, mode: int) -> str:
        return self._do(LimitRequest("mode", (uuid,), (mode,))).trouble

    def _do(self, order: LimitRequest) -> LimitResponse:
        if trouble := self.trouble() or self._release_order():
            return LimitResponse(trouble=trouble)
        if self._backend.capabilities.limits == "in process":
            return obey(self._backend, self._options, order)
        command = [sys.executable, "-P", "-m", __name__, self._backend.name, self._options]
        try:
            done = subprocess.run(command, input=msgspec.msgpack.encode(order),
                                  capture_output=True, timeout=DONE_WITHIN_S, check=False,
                                  env=importable(__package__, without_tokens(os.environ)))
            return msgspec.msgpack.decode(done.stdout, type=LimitResponse)
        except subprocess.TimeoutExpired:
            return LimitResponse(trouble=f"{UNSURE} within {DONE_WITHIN_S:.0f} s; "
                                         "whether it was set is not known. See `dmesg`")
        except OSError as error:
            return LimitResponse(trouble=f"no process can be started ({error.strerror})")
        except msgspec.MsgspecError:
            words = redact(done.stderr.decode(errors="replace").strip())[-300:]
            return LimitResponse(trouble=f"{UNSURE}: the process that sets limits ended "
                                         f"({words or 'no word'})")


def obey(backend: Backend, options: str, order: LimitRequest) -> LimitResponse:
    module = backend.limits_module()
    try:
        limits = module.open_limits(options)
        try:
            return LimitResponse(_done(limits, module, order))
        finally:
            limits.close()
    except module.ERRORS as error:
        return LimitResponse(trouble=module.in_words(error)[:1_024])


def _done(limits: GpuLimitControl, module: LimitsModule, order: LimitRequest
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
        case "read":
            return tuple(_read(limits, module, uuid) for uuid in order.uuids)
    return ()


def _read(limits: GpuLimitControl, module: LimitsModule, uuid: str) -> GpuLimits:
    """One that is lost must not hide the others."""
    try:
        return limits.read(uuid)
    except module.ERRORS as error:
        return GpuLimits(uuid, trouble=module.in_words(error)[:1_024])


def main(argv: Sequence[str]) -> int:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a driver library prints must not land in the answer
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LimitRequest)
    out.write(msgspec.msgpack.encode(obey(backend_named(argv[0]), argv[1], order)))
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
