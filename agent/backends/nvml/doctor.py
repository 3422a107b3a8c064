"""NVIDIA's driver, its library and its GPUs, as `gpudeck doctor` sees them."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from gpudeck.contract.vendors import NVIDIA
from gpudeck.contract.vendors import PCI as PCI_VENDORS
from gpudeck.system.child_processes import importable, without_tokens

from ..check import PCI, DoctorCheck, pci_boards
from .driver import DEVICE_FILES, driver_version
from .report import BoardReport, DriverReport, last_report

# A first start without persistence mode takes seconds per board. Beside boards of another vendor,
# which work on, nobody waits so long for one that hangs.
DRIVER_WITHIN_S, BESIDE_OTHERS_WITHIN_S = 20.0, 5.0
DEVICES = Path(DEVICE_FILES).parent
VENDOR = NVIDIA
ABSENT = "there is none in this machine"
PACKAGES = ("nvidia-ml-py", "pynvml")
FILES = ("/proc/driver/nvidia/version",)
ENVIRONMENT = ("CUDA_", "NVIDIA_")
HANGS = ("look for processes in state D and for Xid or NVRM lines in `dmesg`; a reboot may be "
         "needed. gpudeck shows this node's values as stale until then, and continues")


def boards(pci: Path = PCI, devices: Path = DEVICES) -> int:
    """Return how many there are; where PCI shows none (WSL, some containers), whether its driver is
    there."""
    return pci_boards(PCI_VENDORS[NVIDIA], pci) or int(driver_version() is not None
                                              or any(devices.glob("nvidia*")))


def checks(released: str, is_alone: bool) -> Iterator[DoctorCheck]:
    within_s = DRIVER_WITHIN_S if is_alone else BESIDE_OTHERS_WITHIN_S
    report = let_go(released) if released else ask_driver(within_s)
    yield from driver_checks(report, within_s)
    yield device_check(report)


def package_conflict(versions: Mapping[str, str]) -> tuple[str, str] | None:
    if versions.get("pynvml", "13").startswith("13"):
        return None
    return ("The package `pynvml` and nvidia-ml-py both own pynvml.py",
            "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py")


def ask_driver(within_s: float = DRIVER_WITHIN_S) -> DriverReport:
    """Ask in a process. One that hangs inside the driver is left behind: killing it there has
    frozen whole boards. It ends by itself if the driver ever answers."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", f"{__package__}.report"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=importable(__package__, without_tokens(os.environ)), start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired as late:
        assert child.stdout is not None
        child.stdout.close()
        child.returncode = 0  # nobody waits for it: Python would warn of a process left running
        return last_report(late.stdout or b"")
    return last_report(output)


def let_go(released: str) -> DriverReport:
    """Report without asking: to ask the driver would open it, and on some machines load it
    again."""
    return DriverReport(module_version=driver_version(), state="released", detail=released)


def driver_checks(report: DriverReport, within_s: float = DRIVER_WITHIN_S
                  ) -> Iterator[DoctorCheck]:
    yield _library(report)
    yield _driver(report, within_s)
    if not report.boards:
        why = {"no_gpus": "no GPU", "released": "nothing reads the driver now"}.get(
            report.state, "no driver that answers")
        yield DoctorCheck("gpus", "GPUs", "problem" if report.state == "no_gpus" else "not checked",
                          report.detail if report.state == "no_gpus" else why)
        return
    yield _gpus(report)
    yield _metrics(report.boards)
    yield _persistence(report.boards)


def _library(report: DriverReport) -> DoctorCheck:
    check = partial(DoctorCheck, "library", "NVIDIA library")
    if report.state == "no_library":
        return check("problem", *_cut(report.detail))
    if report.library is None:
        return check("not checked", "it was not opened")
    version = f", version {report.library_version}" if report.library_version else ""
    return check("ok", f"{report.library}{version}")


def _driver(report: DriverReport, within_s: float) -> DoctorCheck:
    check = partial(DoctorCheck, "driver", "NVIDIA driver")
    if report.state == "hung":
        return check("problem", f"the driver does not answer: nothing came within {within_s:.0f} s",
                     HANGS)
    if report.state == "released":
        return check("warning", report.detail, "run `gpudeck release` when the driver is ready")
    if report.state == "no_library":
        return check("not checked",
                     f"kernel module {report.module_version}" if report.module_version
                     else "no library, and no kernel module to be seen")
    if report.state not in ("ok", "no_gpus"):
        return check("problem", *_cut(report.detail))
    words = f"version {report.driver or report.module_version or 'unknown'}"
    if report.cuda is not None:
        words += f", CUDA {report.cuda}"
    library, module = report.library_version, report.module_version
    if library and module and library != module:
        return check("warning", f"{words}; the library is of {library}, the kernel module of "
                                f"{module}",
                     "reload the module or reboot")
    return check("ok", words)


def _cut(detail: str) -> tuple[str, str]:
    """Split our sentences, which say what is wrong, a colon, what to do."""
    wrong, colon, remedy = detail.partition(": ")
    return (wrong, remedy) if colon else (detail, "see `dmesg`")


def _gpus(report: DriverReport) -> DoctorCheck:
    names = Counter(board.name for board in report.boards)
    words = ", ".join(f"{count} x {name}" for name, count in names.items())
    wrong = [f"GPU {board.index} is {board.state}" for board in report.boards
             if board.state not in ("ok", "asleep")]
    detail = report.detail
    if wrong or "is lost" in detail or "cannot be opened" in detail:
        return DoctorCheck("gpus", "GPUs", "problem", "; ".join([words, *wrong]), detail)
    if "must be reset" in detail or "say 0" in detail:
        return DoctorCheck("gpus", "GPUs", "warning", words, detail)
    return DoctorCheck("gpus", "GPUs", "ok", f"{words}. {detail}".strip())  # asleep is no fault


def _metrics(boards: tuple[BoardReport, ...]) -> DoctorCheck:
    denied = sorted({key for board in boards for key in board.denied})
    unsupported = sorted({key for board in boards for key in board.unsupported})
    words = "; ".join(filter(None, (
        f"denied: {', '.join(denied)}" if denied else "",
        f"not supported by every GPU here: {', '.join(unsupported)}" if unsupported else "",
    ))) or "every GPU reports every metric"
    if denied:
        return DoctorCheck("metrics", "Metrics", "warning", words,
                           "give the agent CAP_SYS_ADMIN, or do without these numbers")
    return DoctorCheck("metrics", "Metrics", "ok", words)


def _persistence(boards: tuple[BoardReport, ...]) -> DoctorCheck:
    off = [str(board.index) for board in boards if board.persistence is False]
    if off:
        return DoctorCheck(
            "persistence", "Persistence mode", "warning",
            f"off on GPU {', '.join(off)}: power limits and clocks fall back, and the first call "
            "takes seconds, whenever no process has the GPU open",
            "run nvidia-persistenced, or `sudo nvidia-smi -pm 1`")
    if all(board.persistence is None for board in boards):
        return DoctorCheck("persistence", "Persistence mode", "not checked", "no GPU reports it")
    return DoctorCheck("persistence", "Persistence mode", "ok", "on")


def device_check(report: DriverReport, devices: Path = DEVICES) -> DoctorCheck:
    check = partial(DoctorCheck, "devices", "Device files")
    files = sorted(path for path in devices.glob("nvidia*") if path.is_char_device())
    if not files and report.state == "ok":  # a fake library, or a driver that works another way
        return check("not checked", "no /dev/nvidia* here, and it works")
    if not files and not report.module_version:
        return check("not checked", "there is no /dev/nvidia*")
    if not files:
        return check("problem", "there is no /dev/nvidia*",
                     "run `sudo nvidia-modprobe -u -c=0`; in a container, start it with --gpus all")
    shut = [path.name for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if shut:
        return check("problem", f"no access to {', '.join(shut)}",
                     "give the agent's user read and write access to /dev/nvidia*")
    return check("ok", f"{len(files)} files, all open to us")
