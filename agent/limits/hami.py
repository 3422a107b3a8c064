"""The file that HAMi-core shares between tasks: which memory limits it says. Read only. Pure.

Layout 1.2 of Project-HAMi/HAMi-core (multiprocess/multiprocess_memory_limit.h); an older one is
told by magic, version and size, and not read.
"""

import struct

MAGIC, MAJOR, SIZE = 19_920_718, 1, 2_008_952
HEAD = 1_728  # all before the limits of compute
_COUNT_AT, _UUIDS_AT, _LIMITS_AT, _MOST, _UUID = 56, 64, 1_600, 16, 96


def limits(head: bytes, size: int) -> dict[str, int] | None:
    """Return the limits by GPU, in bytes; 0 is none and is left out. None: this is no such file."""
    if size != SIZE or len(head) < HEAD:
        return None
    magic, major = struct.unpack_from("<ii", head)
    (count,) = struct.unpack_from("<Q", head, _COUNT_AT)
    if magic != MAGIC or major != MAJOR or count > _MOST:
        return None
    limits_bytes = struct.unpack_from(f"<{_MOST}Q", head, _LIMITS_AT)
    return {_name(head, at): limits_bytes[at] for at in range(count) if limits_bytes[at]}


def _name(head: bytes, at: int) -> str:
    raw = head[_UUIDS_AT + at * _UUID:][:_UUID].split(b"\0", 1)[0]
    return raw.decode("ascii", "replace")
