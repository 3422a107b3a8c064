"""A board as the kernel's own driver shows it: what is the same for every vendor."""

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from gpudeck.contract.vendors import PCI
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import LOST, UNKNOWN, UNSUPPORTED, WIDTH, Absence, metric

from ..readings import GpuReading
from . import ReaderUnavailableError
from .metric_row import MetricRow
from .sysfs import Answer, is_asleep, number, pci_address, properties, sensors, text, word

# Of the machine first, which a container with the machine's processes sees: its image has none, or
# one that it has on every machine.
MACHINE_IDS = (Path("/proc/1/root/etc/machine-id"), Path("/etc/machine-id"))
NO_MACHINE = "uninitialized"  # systemd's, in an image that was never started
NAMES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))
FAILED_READS_MAX = 5


class SysfsBoard(ABC):
    """Board that is read from files. A vendor's class says what it is called, and fills the rows
    and the facts."""

    VENDOR = ""
    DRIVER = ""  # where the kernel does not say which one has it

    def __init__(self, folder: Path, index: int, machine_ids: tuple[Path, ...] = MACHINE_IDS,
                 names: tuple[Path, ...] = NAMES) -> None:
        self._folder = folder
        self._driver = properties(text(folder / "uevent")).get("DRIVER", self.DRIVER)
        self.address = pci_address(folder)
        self.asleep = is_asleep(folder)
        self._sensors = sensors(folder, self._driver)
        self._now = 0.0
        self._failed_reads = 0  # in a row
        self._missing_fast: Mapping[str, str] = {}
        self._missing_slow: Mapping[str, str] = {}
        self.facts = GpuFacts(uuid=self._identity(machine_ids), index=index,
                              name=self._name(names), pci_bus_id=self.address or None)
        self._has_facts = False

    # of each vendor

    @abstractmethod
    def _begin(self) -> None:
        """Read what several values of this reading come from."""

    @abstractmethod
    def _fast(self) -> MetricRow: ...

    @abstractmethod
    def _slow(self) -> MetricRow: ...

    @abstractmethod
    def _asleep_row(self) -> MetricRow: ...

    @abstractmethod
    def _read_facts(self) -> None: ...

    @abstractmethod
    def mem_used_now(self) -> float | None: ...

    @abstractmethod
    def energy_now(self) -> float | None: ...

    # the same for all

    def read(self, slow: bool, now: float) -> GpuReading:
        self._now = now
        if not self._folder.is_dir():
            return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, bytes([LOST]) * WIDTH)
        self.asleep = is_asleep(self._folder)
        if self.asleep:
            row = self._asleep_row()
            return GpuReading(self.facts.uuid, "ok", tuple(row.values), bytes(row.absent))
        if not os.path.isdir(self._sensors.get("", "")):  # a driver that came again renumbers them
            self._sensors = sensors(self._folder, self._driver)
        self._begin()
        slow = slow or not self._has_facts
        if slow:
            self._read_facts()
            self._has_facts = True
        row, slow_row = self._fast(), self._slow() if slow else None
        self._note_missing(row, slow_row)
        fails = UNKNOWN in row.absent and not any(
            why == Absence.PRESENT for why in row.absent)
        self._failed_reads = self._failed_reads + 1 if fails else 0
        return GpuReading(
            self.facts.uuid, "error" if self._failed_reads >= FAILED_READS_MAX else "ok",
            tuple(row.values), bytes(row.absent),
            slow=() if slow_row is None else tuple(slow_row.values),
            slow_absent=b"" if slow_row is None else bytes(slow_row.absent))

    def note(self) -> str:
        """Return what is wrong with it, and what to do; it comes after its name."""
        if self.asleep:
            return "is asleep (powered down) and was not woken to be read."
        if self._failed_reads >= FAILED_READS_MAX:
            return f"answers nothing: look for {self._driver} in `dmesg`; it may be in a reset."
        return ""

    def _note_missing(self, row: MetricRow, slow_row: MetricRow | None) -> None:
        fast = row.missing()
        if slow_row is not None:
            self._missing_slow = slow_row.missing()
        if slow_row is not None or fast is not self._missing_fast:
            self._missing_fast, missing = fast, {**fast, **self._missing_slow}
            if missing != self.facts.missing:
                self.facts = structs.replace(self.facts, missing=missing)

    def _number(self, name: str) -> Answer:
        return number(f"{self._folder}/{name}")

    def _first(self, *names: str) -> Answer:
        """Return the first of these sensors' files that is there."""
        folder = self._sensors.get("")
        answer: Answer = UNSUPPORTED
        for name in names:
            answer = UNSUPPORTED if folder is None else number(f"{folder}{name}")
            if answer is not UNSUPPORTED:
                break
        return answer

    def _sensor(self, kind: str, label: str, ending: str) -> Answer:
        """Return a sensor's number by its label: its place differs between boards."""
        path = self._sensors.get(f"{kind} {label}")
        return UNSUPPORTED if path is None else number(f"{path}_{ending}")

    def _watts(self, name: str) -> float | None:
        return _in_range(self._first(name), 1e-6, "power_w")

    def _celsius(self, label: str, ending: str, key: str) -> float | None:
        limit = _in_range(self._sensor("temp", label, ending), 1e-3, key)
        return limit if limit is not None and limit > 0 else None

    def _identity(self, machine_ids: tuple[Path, ...]) -> str:
        """Return an identity for a board that has no serial number: made of this machine and its
        slot. Raises ReaderUnavailableError where it is not known which machine this is: boards of
        others would have the same."""
        machine = next((name for path in machine_ids if (name := word(path)) not in (
            "", NO_MACHINE)), None)
        if machine is None:
            raise ReaderUnavailableError("failed", (
                "this machine has no /etc/machine-id, by which its boards are distinguished from "
                "those of others: run `systemd-machine-id-setup`, or mount the machine's file into "
                "the agent's container."))
        place = uuid.uuid5(uuid.NAMESPACE_OID, f"{machine} {self.address}")
        return f"{self.VENDOR.upper()}-{place}"

    def _name(self, lists: tuple[Path, ...]) -> str:
        """Return the chip's name of the machine's list of PCI devices."""
        pci = properties(text(self._folder / "uevent")).get("PCI_ID", "").lower()
        chip = pci.partition(":")[2]
        for path in lists:
            if chip and (name := _listed(path, PCI[self.VENDOR].removeprefix("0x"), chip)):
                return f"{self.VENDOR} {name}"[:128]
        return f"{self.VENDOR} GPU {pci}".strip()


def whole(value: Answer) -> int | None:
    return None if isinstance(value, Absence) or value <= 0 else int(value)


def _in_range(value: Answer, scale: float, key: str) -> float | None:
    sane = not isinstance(value, Absence) and 0 <= value * scale <= metric(key).high
    return value * scale if sane and not isinstance(value, Absence) else None


def _listed(path: Path, vendor: str, chip: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    is_vendor = False
    for line in lines:
        if line[:1] not in ("\t", "#", ""):
            is_vendor = line.startswith(f"{vendor} ")
        elif is_vendor and line.startswith(f"\t{chip} "):
            return line.split(None, 1)[1].strip()
    return ""
