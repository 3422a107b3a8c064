"""A CUDA task by the driver's library alone: `python busy.py BYTES`. Holds that much memory,
computes in short kernels, and writes a line every 0.2 s, so that a test that pauses it can see that
it stands still. Ends on SIGTERM as any program does."""

import ctypes
import sys
import time

# Each thread spins for so many cycles: work without memory, on any board since Volta.
PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .u64 %r<5>;
    .reg .pred %p;
    ld.param.u64 %r1, [cycles];
    mov.u64 %r2, %clock64;
AGAIN:
    mov.u64 %r3, %clock64;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %p, %r4, %r1;
    @%p bra AGAIN;
    ret;
}
\x00"""
CYCLES = 20_000_000  # about 10 ms
BLOCKS, THREADS = 132, 128


class Cuda:
    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise SystemExit(f"{name} answers {code}")


def main(argv: list[str]) -> int:
    cuda = Cuda()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda("cuDeviceGet", ctypes.byref(device), 0)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    memory = ctypes.c_void_p()
    cuda("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(int(argv[0])))
    module, spin = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(module), PTX)
    cuda("cuModuleGetFunction", ctypes.byref(spin), module, b"spin")
    cycles = ctypes.c_ulonglong(CYCLES)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(cycles), ctypes.c_void_p))
    print("ready", flush=True)
    printed_at, rounds = time.monotonic(), 0
    while True:
        cuda("cuLaunchKernel", spin, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, arguments, None)
        cuda("cuCtxSynchronize")
        rounds += 1
        if time.monotonic() - printed_at >= 0.2:
            printed_at = time.monotonic()
            print("round", rounds, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
