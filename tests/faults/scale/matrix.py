"""Matrix: each fault once, what was seen of it, and what is counted at the end."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.faults.fleet import FINAL
from tests.faults.scale.commands import list_commands
from tests.faults.scale.count import SampleCount, count_mirrored, count_samples
from tests.faults.scale.faults import MINUTE, Fault
from tests.faults.scale.site import ScaleSite
from tests.patience import GIVE_UP_S


@dataclass(frozen=True)
class Form:
    nodes: int
    calm_s: float  # before a fault and after it
    is_timed: bool  # a busy machine does not fail for how long something took


FULL, QUICK = Form(100, 8.0, True), Form(12, 3.0, False)


@dataclass
class Row:
    """Observation of one fault. Samples and commands are those of its time."""

    fault: str
    start: float
    end: float
    blind_s: float  # nobody was shown the whole fleet
    within_s: float
    first_broken_record: object  # of the audit log
    failed_orders: int  # those that no hub took
    samples: int = 0
    missing: int = 0
    duplicates: int = 0
    commands: dict[str, int] = field(default_factory=dict)  # by end state
    duplicate_commands: int = 0

    @property
    def flaws(self) -> list[str]:
        flaws = {"no sample": not self.samples, "samples missing": self.missing,
                 "samples doubled": self.duplicates, "no command": not self.commands,
                 "commands doubled": self.duplicate_commands,
                 "commands without an end": not self.commands.keys() <= {*FINAL},
                 "audit log broken": self.first_broken_record is not None,
                 "not seen in time": self.blind_s > self.within_s}
        return [f"{self.fault}: {what}" for what, is_true in flaws.items() if is_true]

    @property
    def cells(self) -> tuple[str, ...]:
        states = ", ".join(f"{count} {state}" for state, count in self.commands.items())
        return (self.fault, f"{self.samples:,}", str(self.missing), str(self.duplicates),
                states, str(self.duplicate_commands), str(self.failed_orders),
                "whole" if self.first_broken_record is None else "broken", f"{self.blind_s:.1f} s")


HEADS = ("fault", "samples", "missing", "doubled", "commands", "doubled",
         "not taken", "audit", "not seen whole for")


@dataclass
class Outcome:
    rows: list[Row]
    flaws: list[str]
    samples: int = 0
    mirrored: int = 0  # of the samples, in VictoriaMetrics
    mirrored_twice: int = 0
    missing: list[tuple[str, int, float]] = field(default_factory=list)  # GPU, number, when

    @property
    def table(self) -> str:
        lines = [HEADS, *(row.cells for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join([*("  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines), "",
            f"{self.samples:,} samples in all; VictoriaMetrics has {self.mirrored:,} of them, "
            f"{self.mirrored_twice:,} twice", *(self.flaws or ["no flaw"])])


def run_matrix(site: ScaleSite, faults: Sequence[Fault], form: Form, report: Callable[[str], None]
               ) -> Outcome:
    site.wait_whole()
    rows = list[Row]()
    for fault in faults:
        rows.append(run_fault(site, fault, form))
        report(f"{fault.name}: not seen whole for {rows[-1].blind_s:.1f} s")
    for commander in site.commanders:
        commander.stop_ordering()
    site.settle()
    lost_ids = _add_commands(site, rows)
    report("counting")
    if form.is_timed:  # else the mirror has had no time for the last minute
        MINUTE.wait()
    samples = count_samples(site)
    _add_samples(site, samples, rows)
    mirrored = count_mirrored(site, samples.due)
    flaws = [*(flaw for row in rows for flaw in row.flaws),
             *(f"command {lost_id} is not listed" for lost_id in lost_ids),
             *_flaws_beside(samples, rows)]
    return Outcome(rows, flaws, len(samples.due), len(mirrored),
                   sum(times > 1 for times in mirrored.values()),
                   [(gpu, number, site.taken_at(gpu, number)) for gpu, number in samples.missing])


def run_fault(site: ScaleSite, fault: Fault, form: Form) -> Row:
    start = time.time()
    time.sleep(form.calm_s)
    fault.when.wait()
    fault_at, failures = time.time(), _failures(site)
    fault.run(site)
    site.wait_whole()
    time.sleep(form.calm_s)
    end = time.time()
    return Row(fault.name, start, end, site.viewer.blind_s(fault_at, end),
               fault.within_s if form.is_timed else GIVE_UP_S,
               site.active.get("/api/v1/audit/verify")["broken"], _failures(site) - failures)


def _failures(site: ScaleSite) -> int:
    return sum(commander.failures for commander in site.commanders)


def _add_commands(site: ScaleSite, rows: Sequence[Row]) -> list[str]:
    """Add commands to their rows. Return those that a hub took and does not list."""
    for commander in site.commanders:
        commander.follow(site.active)  # what is asked about is answered
    commands = list_commands(site.active)
    duplicates = set[str]().union(*(commander.duplicates for commander in site.commanders))
    for command_id, item in commands.items():
        for row in _rows_at(rows, item["requested_at"]):
            row.commands = dict(Counter(row.commands) + Counter([item["state"]]))
            row.duplicate_commands += command_id in duplicates
    return [command_id for commander in site.commanders for command_id in commander.order_ids
            if command_id not in commands]


def _add_samples(site: ScaleSite, samples: SampleCount, rows: Sequence[Row]) -> None:
    for name, keys in (("samples", samples.due), ("missing", samples.missing),
                       ("duplicates", samples.duplicates)):
        for gpu, number in keys:
            for row in _rows_at(rows, site.taken_at(gpu, number)):
                setattr(row, name, getattr(row, name) + 1)


def _rows_at(rows: Sequence[Row], at: float) -> list[Row]:
    return [row for row in rows if row.start <= at < row.end]


def _flaws_beside(samples: SampleCount, rows: Sequence[Row]) -> list[str]:
    """Return flaws of samples that were taken between rows, before or after them."""
    beside = {"missing": len(samples.missing) - sum(row.missing for row in rows),
              "doubled": len(samples.duplicates) - sum(row.duplicates for row in rows)}
    return [f"{count} {what} beside all rows" for what, count in beside.items() if count]
