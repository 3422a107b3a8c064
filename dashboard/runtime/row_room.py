"""Room that rows take on disk. Pure."""

# SQLite keeps only the beginning of a row that is longer than a quarter of a page, and puts the
# rest on overflow pages (sqlite.org/fileformat2.html, 1.6).
PAGE_BYTES, MORE_PAGE_BYTES = 4_096, 4_092
SHORT_BYTES, BEGINNING_BYTES = 1_002, 489
HEAD_BYTES = 20


def room_of(body: bytes, *keys: str) -> int:
    """Return about how many bytes a row takes, with its keys in the table and in an index. Keys
    come in no order: pages are then two thirds full."""
    key_bytes = sum(len(key.encode()) for key in keys)
    row, pages = HEAD_BYTES + key_bytes + len(body), 0
    if row > SHORT_BYTES:
        pages, more = divmod(row - BEGINNING_BYTES, MORE_PAGE_BYTES)
        if BEGINNING_BYTES + more > SHORT_BYTES:
            pages, more = pages + 1, 0
        row = BEGINNING_BYTES + more
    return (row + HEAD_BYTES + key_bytes) * 3 // 2 + pages * PAGE_BYTES
