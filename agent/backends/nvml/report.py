"""Report of a driver, for `gpudeck doctor`; made in a separate process, as a driver may hang.

Written line by line, the library first: of one that hangs it is then known which one it was.
"""

import sys
from contextlib import suppress
from typing import Any

import msgspec
import pynvml
from msgspec import Struct

from ...readings import Reading
from .. import ReaderUnavailableError
from .driver import driver_version
from .reader import NvmlReader
from .session import cuda_version, library_path, library_version


class BoardReport(Struct, frozen=True):
    index: int
    uuid: str
    name: str
    state: str
    persistence: bool | None  # None: it does not say
    unsupported: tuple[str, ...]
    denied: tuple[str, ...]


class DriverReport(Struct, frozen=True):
    """Facts of a driver, and what it allows; None: not known, or not known yet."""

    library: str | None = None
    library_version: str | None = None
    module_version: str | None = None
    driver: str | None = None
    cuda: str | None = None
    state: str = "hung"
    detail: str = ""
    boards: tuple[BoardReport, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DriverReport)


def main() -> int:
    report = DriverReport(module_version=driver_version())
    _write(report)
    _query("nvmlInitWithFlags", pynvml.NVML_INIT_FLAG_NO_GPUS)  # the reader below says what fails
    report = msgspec.structs.replace(report, library=library_path(),
                                     library_version=library_version(), cuda=cuda_version())
    _write(report)
    try:
        reader = NvmlReader()
        reading = reader.read()
    except ReaderUnavailableError as why:
        _write(msgspec.structs.replace(report, state=why.state, detail=why.detail))
        return 0
    _write(msgspec.structs.replace(
        report, state="ok", detail=reading.detail, driver=reading.driver_version,
        boards=tuple(_boards(reading))))
    return 0


def _write(report: DriverReport) -> None:
    sys.stdout.buffer.write(_encoder.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def last_report(output: bytes) -> DriverReport:
    """Return the newest whole line that the process wrote."""
    whole = output.rpartition(b"\n")[0].splitlines()
    return _decoder.decode(whole[-1]) if whole else DriverReport()


def _query(name: str, *arguments: Any) -> Any:
    """Call NVML; None: it does not say."""
    with suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return getattr(pynvml, name)(*arguments)
    return None


def _boards(reading: Reading) -> Any:
    for gpu, facts in zip(reading.gpus, reading.facts, strict=True):
        lacks: dict[str, tuple[str, ...]] = {
            word: tuple(sorted(key for key, why in facts.missing.items() if why == word))
            for word in ("unsupported", "denied")}
        asleep = f"GPU {facts.index} is asleep" in reading.detail
        yield BoardReport(
            facts.index, gpu.uuid, facts.name, "asleep" if asleep else gpu.state,
            None if asleep or gpu.state != "ok" else _persistence(gpu.uuid),
            lacks["unsupported"], lacks["denied"])


def _persistence(uuid: str) -> bool | None:
    handle = _query("nvmlDeviceGetHandleByUUID", uuid)
    mode = None if handle is None else _query("nvmlDeviceGetPersistenceMode", handle)
    return None if mode is None else bool(mode)


if __name__ == "__main__":
    sys.exit(main())
