"""History under kill -9, flipped bits and cut files: nothing acked is lost, nothing is made up."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dashboard.history.ingest.headlog import MAGIC, HeadLogDamage, packed, scan
from dashboard.history.reads.embedded import EmbeddedHistory
from tests.faults.history_writer import REPOSITORY, SIZE, entry, numbered, replay
from tests.unit.histories import START, Source, differences

KILLS = int(os.environ.get("GPUDECK_HISTORY_KILLS", "4"))
FLIPS = int(os.environ.get("GPUDECK_HISTORY_FLIPS", "40"))
REOPEN_S = 2.0


def run_and_kill(folder: Path, seed: int, first: int, after: int) -> int:
    """Start a writer, kill it some time after `after` seconds, and return the last acked second."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.history_writer", str(folder), str(seed), str(first)],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acked = first - 1
    for line in writer.stdout:
        acked = int(line)
        if acked >= first + after:
            break
    time.sleep(random.random() * 0.05)  # anywhere in what it does next
    writer.kill()
    rest, _ = writer.communicate(timeout=30)
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(whole[-1]) if whole else acked


def reopen(folder: Path, seed: int, last: int) -> tuple[EmbeddedHistory, Source]:
    began = time.process_time()
    history = EmbeddedHistory(folder / "history")
    history.open()
    log = replay(folder, history)
    log.close()
    assert time.process_time() - began < REOPEN_S
    source = Source(seed, *SIZE)
    for t in range(START, last + 1):
        numbered(source, t)
    return history, source


def check(folder: Path, seed: int, last: int) -> None:
    history, source = reopen(folder, seed, last)
    wrong = differences(history, source, START, last + 1)
    assert wrong == [], f"seed {seed}: {len(wrong)} differ, first {wrong[:3]}"
    assert history.info().quarantined == []
    hours = history.series(source.all_uuids, ["power_w"], START, last + 1, 3_600, ("n",))
    # The log may have one second more than was acked.
    stored = sum(isinstance(row["power_w"], float) for row in source.truth.values())
    assert stored <= int(hours["power_w_n"].sum()) <= stored + len(source.all_uuids)


def test_no_acked_second_is_lost_or_doubled(tmp_path: Path) -> None:
    run_kills(tmp_path, KILLS)


@pytest.mark.soak
def test_soak_no_acked_second_is_lost_or_doubled(tmp_path: Path) -> None:
    run_kills(tmp_path, int(os.environ.get("GPUDECK_SOAK_HISTORY_KILLS", "200")))


def run_kills(folder: Path, kills: int) -> None:
    seed, first, last = random.randrange(10**9), START, START
    for _kill in range(kills):
        last = run_and_kill(folder, seed, first, random.randint(20, 250))
        check(folder, seed, last)
        first = last + 1
        if first - START > 1_500:
            shutil.rmtree(folder)
            folder.mkdir()
            first = START
    print(f"history: {kills} kills, 0 acked seconds lost, seed {seed}")


# -- bits


def write_some(folder: Path, seconds: int) -> tuple[int, int]:
    """Write some history to files and to the log; return the seed and the end."""
    seed = random.randrange(10**9)
    run_and_kill(folder, seed, START, seconds)
    return seed, START + seconds


def test_every_byte_of_the_logs_end_cut_or_flipped_is_seen(tmp_path: Path) -> None:
    source = Source(1, *SIZE)
    entries = [entry(row, seq, row.second) for seq, t in enumerate(range(START, START + 40), 1)
               for row in numbered(source, t)]
    data = MAGIC + packed(entries)
    for at in range(max(len(MAGIC), len(data) - 4_096), len(data)):
        damage = HeadLogDamage()
        records = list(scan(data[:at], damage))
        assert records == entries[: len(records)]
        assert damage.torn_bytes or len(packed(records)) + len(MAGIC) == at
        flipped = bytearray(data)
        flipped[at] ^= 1 << random.randrange(8)
        damage = HeadLogDamage()
        records = list(scan(bytes(flipped), damage))
        assert all(record in entries for record in records)
        assert damage.torn_bytes or damage.bad_records


def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(tmp_path: Path) -> None:
    run_flips(tmp_path, FLIPS)


@pytest.mark.soak
def test_soak_a_flipped_bit_anywhere_is_found_or_changes_nothing(tmp_path: Path) -> None:
    run_flips(tmp_path, int(os.environ.get("GPUDECK_SOAK_HISTORY_FLIPS", "2000")))


def run_flips(folder: Path, flips: int) -> None:
    whole, broken = folder / "whole", folder / "broken"
    whole.mkdir()
    seed, end = write_some(whole, 340)
    _, source = reopen(whole, seed, end)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    reported = silent = 0
    for _ in range(flips):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(whole, broken)
        flip(broken / random.choice(files))
        history = EmbeddedHistory(broken / "history")
        history.open()
        log = replay(broken, history)
        log.close()
        wrong = differences(history, source, START, end)
        lies = [difference for difference in wrong if not difference.startswith("missing")]
        assert lies == [], f"seed {seed}: silently wrong: {lies[:3]}"
        info = history.info()
        is_reported = bool(info.quarantined or info.counts["damaged_lines"] or log.damage.torn_bytes
                           or log.damage.bad_records)
        assert is_reported or not wrong, f"seed {seed}: {len(wrong)} seconds lost without a word"
        reported += is_reported
        silent += not is_reported
    print(f"history: {flips} flips, {reported} told, {silent} without consequence, 0 wrong")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
