"""History and its archive as Prometheus text. Pure."""

from collections.abc import Iterator

from gpudeck.prometheus.text import family_by, single

from .files.archive_mover import ArchiveMover
from .reads.protocol import History


def history_families(history: History) -> Iterator[str]:
    info = history.info()
    for name, help, of in (
        ("gpudeck_history_bytes", "Size of history on disk, by kind.", "bytes"),
        ("gpudeck_history_files", "Files of history, by kind.", "files"),
        ("gpudeck_history_rows", "Rows of history in files, by kind.", "rows"),
        ("gpudeck_history_oldest_timestamp_seconds", "Start of history.", "oldest"),
    ):
        yield family_by(name, "gauge", help, "kind", {
            kind: float(numbers[of]) for kind, numbers in info.kinds.items()
            if numbers.get(of) is not None})
    yield single("gpudeck_history_open_rows", "gauge", "GPU-seconds not yet in a file.",
                 float(info.open_seconds))
    yield single("gpudeck_history_quarantined_files", "gauge", "Damaged files that were set aside.",
                 float(len(info.quarantined)))
    yield single("gpudeck_history_cache_bytes", "gauge",
                 "Columns of history's files that are kept unpacked in memory.",
                 float(info.counts["cache_bytes"]))
    yield family_by("gpudeck_history_cache_reads_total", "counter",
                    "Columns of row groups that were read, by whether they were in memory.",
                    "cached", {"yes": float(info.counts["cache_hits"]),
                               "no": float(info.counts["cache_misses"])})
    yield single("gpudeck_history_failed", "gauge", "1: history cannot be written.",
                 float(info.error is not None))


def archive_families(archive: ArchiveMover, now: float) -> Iterator[str]:
    info = archive.info()
    yield single("gpudeck_archive_bytes", "gauge", "Size of history in the archive.",
                 float(info.bytes))
    yield single("gpudeck_archive_files", "gauge", "Files of history in the archive.",
                 float(info.files))
    yield single("gpudeck_archive_waiting_files", "gauge",
                 "Files of history that are old enough for the archive and not there yet.",
                 float(info.waiting_files))
    yield single("gpudeck_archive_failed", "gauge", "1: nothing is archived; the log says why.",
                 float(info.error is not None))
    yield single("gpudeck_archive_failures_total", "counter",
                 "Attempts that failed since the hub started.", float(info.failures))
    if archive.is_at_seal:
        yield single("gpudeck_archive_behind_seconds", "gauge",
                     "Age of the oldest second that is not archived.",
                     info.behind_s(now))
        yield single("gpudeck_archive_joining", "gauge",
                     "1: what the archive has of before this hub took over is not in its history "
                     "yet.", float(info.is_joining))
