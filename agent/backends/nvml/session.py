"""Session with NVML: how it is opened, and how a reader notices that what it has open is not what
is there.

NVML is opened once per process. After an unload, an upgrade or a new numbering a fresh process is
needed: this one has the old library mapped for good, and handles that may mean other boards
(pitfalls.md A.1, A.6). errors.LIFE lists how each case is reported.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from .. import ReaderUnavailableError, StaleReaderError
from .board import NvmlBoard
from .driver import VERSION, driver_version
from .errors import NO_DRIVER, unavailable

LIBRARY = "libnvidia-ml.so.1"
# A board that fell off the bus may only come back to a fresh process. That costs the others a
# reading or two, so seldom; where all are lost there is nothing to disturb.
RENEW_SOME_LOST_S = 600.0
RENEW_ALL_LOST_S = 60.0


@dataclass(frozen=True, slots=True)
class NvmlOpenedBoard:
    """Result of opening one index: what the driver gave us, or did not."""

    index: int
    handle: Any
    uuid: str
    code: int  # 0: it is open


class NvmlSession:
    """Session from init to the moment at which only a fresh process helps."""

    def __init__(self) -> None:
        try:
            # NO_GPUS: a driver without a GPU is a state of its own, not an error.
            pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
            self.count = int(pynvml.nvmlDeviceGetCount())
            self.cuda = cuda_version()
        except pynvml.NVMLError as error:
            raise _unopened(error) from error
        except pynvml.NVMLLibraryMismatchError as error:
            raise unavailable(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from error
        self._lost_since: float | None = None

    def check(self, boards: Sequence[NvmlBoard]) -> None:
        """Check, after a reading and before it counts, that all handles were, to the end of it,
        those of the boards that we take them for. If not, the reading is discarded."""
        try:
            driver = str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            _check_driver(error)
            driver = self.driver
        if driver != self.driver:
            raise unavailable("changed", f"{self.driver} is now {driver}")
        for board in boards:
            if board.handle is not None and not board.asleep:
                _check_identity(board)

    def renew_if_lost(self, boards: Sequence[NvmlBoard], now: float) -> None:
        lost_count = sum(board.lost_at is not None for board in boards)
        if not lost_count:
            self._lost_since = None
            return
        self._lost_since = now if self._lost_since is None else self._lost_since
        patience_s = RENEW_ALL_LOST_S if lost_count == len(boards) else RENEW_SOME_LOST_S
        if now - self._lost_since > patience_s:
            raise StaleReaderError

    def close(self) -> None:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            print(f"nvmlShutdown: {error}", file=sys.stderr)


def open_board(index: int) -> NvmlOpenedBoard:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return NvmlOpenedBoard(index, handle, str(pynvml.nvmlDeviceGetUUID(handle)), 0)
    except pynvml.NVMLError as error:
        _check_driver(error)
        print(f"GPU {index} cannot be opened: {error}", file=sys.stderr)
        return NvmlOpenedBoard(index, None, "", int(error.value))


def none_opened(results: Sequence[NvmlOpenedBoard], sleeping: int) -> ReaderUnavailableError:
    """Return why the driver counts boards and gives us none of them."""
    if sleeping and not results:
        return unavailable("asleep")
    codes = {result.code for result in results}
    if codes == {pynvml.NVML_ERROR_GPU_IS_LOST}:
        return unavailable("all_lost")
    if blocked := codes & {pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_OPERATING_SYSTEM}:
        return unavailable(max(blocked))
    return unavailable("no_gpus")


def _check_driver(error: pynvml.NVMLError) -> None:
    if error.value in NO_DRIVER:
        raise unavailable(error.value) from error


def _check_identity(board: NvmlBoard) -> None:
    """Check a handle's UUID, which is in the library's memory: asking costs microseconds."""
    try:
        uuid = str(pynvml.nvmlDeviceGetUUID(board.handle))
    except pynvml.NVMLError as error:
        _check_driver(error)
        if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # the handle means nothing any more
            raise unavailable("renumbered") from error
        return  # lost, or a board that answers nothing: its values say so
    if uuid != board.facts.uuid:
        raise unavailable("renumbered")


def notes(boards: Sequence[NvmlBoard], shut: Sequence[NvmlOpenedBoard]) -> str:
    """Return what is wrong with single boards while the rest is read, and what to do; what is wrong
    with several alike is said once."""
    alike: dict[str, list[int]] = {}
    for board in boards:
        if note := board.note():
            alike.setdefault(note, []).append(board.facts.index)
    sentences = [f"GPU {first} {note}"
                 + (f" The same: GPU {', '.join(map(str, rest))}." if rest else "")
                 for note, (first, *rest) in alike.items()]
    return " ".join((*sentences, *map(_shut_note, shut)))


def _shut_note(result: NvmlOpenedBoard) -> str:
    if result.code == pynvml.NVML_ERROR_GPU_IS_LOST:
        return f"GPU {result.index} is lost, and which one is not known: see `dmesg`."
    return (f"GPU {result.index} cannot be opened (error {result.code}): has the agent's user "
            "access to its /dev/nvidia*?")


def _unopened(error: Any) -> ReaderUnavailableError:
    code = int(error.value)
    module = driver_version()
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND and module is not None:
        return unavailable(code, f"the kernel module, {module}, is loaded: its library is missing "
                                 "here, or not on the path of libraries")
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        library = library_version()
        return unavailable(code, f"library {library or 'of unknown version'}, module "
                                 f"{module or 'of unknown version'}")
    is_known = code in (pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, *NO_DRIVER)
    return unavailable(code, "" if is_known else error)


def cuda_version() -> str | None:
    """Return the CUDA version; None: the driver does not say."""
    with suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        version = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        return f"{version // 1000}.{version % 1000 // 10}"
    return None


def library_path() -> str | None:
    """Return the file that this process has mapped, once it was opened."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[5] for line in lines if "libnvidia-ml.so" in line)
    return next(paths, None)


def library_version() -> str | None:
    """Return the version that its files carry in their name: libnvidia-ml.so.550.54.15."""
    match = VERSION.search((library_path() or "").rpartition("libnvidia-ml.so.")[2])
    return match[1] if match else None

