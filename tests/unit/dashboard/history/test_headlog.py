"""The head log: what was appended comes back, what is torn or flipped is found."""

import errno
import os
import random
import zlib
from pathlib import Path

import msgspec
import pytest

from dashboard.history.ingest.headlog import (
    GROUP_BYTES,
    HEAD,
    MAGIC,
    HeadLog,
    HeadLogDamage,
    HeadLogEntry,
    packed,
    scan,
)


def entries(count: int, start: int = 1) -> list[HeadLogEntry]:
    return [HeadLogEntry(f"n{seq % 3}", "s", seq, float(seq),
                         random.randbytes(random.randint(1, 400)))
            for seq in range(start, start + count)]


def opened(folder: Path) -> tuple[HeadLog, list[HeadLogEntry]]:
    log = HeadLog(folder / "headlog")
    contents = list(log.read())
    log.open()
    return log, contents


def stored_entries(folder: Path) -> list[HeadLogEntry]:
    return list(HeadLog(folder / "headlog").read())


def segment(folder: Path) -> Path:
    return sorted((folder / "headlog").glob("head-*.log"))[-1]


def test_what_was_appended_comes_back_in_order(tmp_path: Path) -> None:
    log, contents = opened(tmp_path)
    assert contents == []
    batch = entries(50)
    for at in range(0, 50, 7):
        log.append(batch[at : at + 7])
    log.close()
    log, contents = opened(tmp_path)
    assert contents == batch
    more = entries(5, 51)
    log.append(more)
    log.close()
    assert stored_entries(tmp_path) == batch + more
    assert segment(tmp_path).stat().st_mode & 0o077 == 0


def test_what_is_still_wanted_is_kept(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    for entry in (batch := entries(6)):
        log.append([entry])
        log.rotate()
        log.drop_old(3)
    assert stored_entries(tmp_path) == batch[2:]
    log.drop_old(None)
    log.close()
    assert stored_entries(tmp_path) == batch[5:]


def test_an_entry_of_before_it_had_a_second_is_read(tmp_path: Path) -> None:
    old = msgspec.msgpack.encode(["n", "s", 1, 2.0, b"x"])
    data = MAGIC + HEAD.pack(len(old), zlib.crc32(old)) + old
    assert list(scan(data, HeadLogDamage())) == [HeadLogEntry("n", "s", 1, 2.0, b"x", 0, False)]


def test_a_log_of_one_entry_per_record_is_read_and_gone_on_with(tmp_path: Path) -> None:
    batch = entries(5)
    (tmp_path / "headlog").mkdir()
    bodies = list(map(msgspec.msgpack.encode, batch))
    (tmp_path / "headlog" / "head-00000001.log").write_bytes(MAGIC + b"".join(
        HEAD.pack(len(body), zlib.crc32(body)) + body for body in bodies))
    log, contents = opened(tmp_path)
    assert contents == batch
    log.append(more := entries(3, 6))
    log.close()
    assert stored_entries(tmp_path) == batch + more
    assert (log.damage.bad_records, log.damage.torn_bytes) == (0, 0)


def test_a_record_holds_no_more_than_a_flip_may_cost() -> None:
    sizes = (10, 900, GROUP_BYTES, 40_000)
    batch = [HeadLogEntry("n", "s", seq, 0.0, random.randbytes(random.choice(sizes)))
             for seq in range(1, 200)]
    data = packed(batch)
    at, contents = 0, []
    while at < len(data):
        size, _ = HEAD.unpack_from(data, at)
        at += HEAD.size
        group = msgspec.msgpack.decode(data[at : at + size], type=list[HeadLogEntry])
        assert len(group) == 1 or sum(len(one.payload) for one in group) <= GROUP_BYTES
        contents += group
        at += size
    assert contents == batch


def test_two_segments_are_kept(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    batch = entries(4)
    for entry in batch:
        log.append([entry])
        log.rotate()
        log.drop_old()
    assert len(list((tmp_path / "headlog").iterdir())) == 2
    log.close()
    assert stored_entries(tmp_path) == batch[-1:]


def test_cut_at_every_byte_of_the_tail(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    batch = entries(6)
    log.append(batch[:4])
    whole = log.length
    log.append(batch[4:5])
    one_more = log.length
    log.append(batch[5:])
    log.close()
    data = segment(tmp_path).read_bytes()
    for end in range(whole, len(data)):
        segment(tmp_path).write_bytes(data[:end])
        log, contents = opened(tmp_path)
        count = 4 if end < one_more else 5
        assert contents == batch[:count]
        assert log.damage.torn_bytes == end - (whole if count == 4 else one_more)
        fresh = entries(1, 90)
        log.append(fresh)  # right after what is whole
        log.close()
        assert stored_entries(tmp_path) == batch[:count] + fresh


def test_no_flipped_bit_passes(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    batch = entries(20)
    log.append(batch)
    log.close()
    data = segment(tmp_path).read_bytes()
    for _ in range(400):
        at, bit = random.randrange(len(data)), 1 << random.randrange(8)
        flipped = bytearray(data)
        flipped[at] ^= bit
        segment(tmp_path).write_bytes(flipped)
        log = HeadLog(tmp_path / "headlog")
        contents = list(log.read())
        assert all(entry in batch for entry in contents)
        assert len(contents) < 20
        assert log.damage.torn_bytes + log.damage.bad_records > 0


def test_a_flip_in_the_middle_costs_one_record(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    batch = entries(9)
    for entry in batch:
        log.append([entry])
    log.close()
    data = bytearray(segment(tmp_path).read_bytes())
    at = data.index(batch[4].payload)
    data[at] ^= 1
    segment(tmp_path).write_bytes(data)
    log, contents = opened(tmp_path)
    assert contents == batch[:4] + batch[5:]
    assert (log.damage.bad_records, log.damage.torn_bytes) == (1, 0)
    log.append(entries(1, 50))
    log.close()
    assert len(stored_entries(tmp_path)) == 9


@pytest.mark.parametrize("junk", [b"", b"GPUDECK", b"another file altogether"])
def test_a_segment_that_is_none_is_begun_anew(tmp_path: Path, junk: bytes) -> None:
    log, _ = opened(tmp_path)
    log.close()
    segment(tmp_path).write_bytes(junk)
    log, contents = opened(tmp_path)
    assert contents == []
    batch = entries(3)
    log.append(batch)
    log.close()
    assert stored_entries(tmp_path) == batch


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_failed_append_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    batch = entries(3)
    log.append(batch)
    good = log._file
    with Path("/dev/full").open("r+b", buffering=0) as full:
        log._file = full
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            log.append(entries(1, 10))
    log._file = good
    log.append(entries(1, 20))
    log.close()
    assert [entry.seq for entry in stored_entries(tmp_path)] == [1, 2, 3, 20]
