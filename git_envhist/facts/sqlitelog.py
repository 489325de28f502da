"""What lies over the file of a SQLite database: the log of what was written since, or the journal of what was before.

A log (`-wal`) is a run of pages, each with a sum over all before it; those up to the last that ends a transaction
count. A journal (`-journal`) holds pages as they were before a transaction that did not end, and puts them back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from git_envhist.facts.sqlitefile import MalformedDatabase

LOG_MAGIC = (0x377F0682, 0x377F0683)
LOG_HEAD, FRAME_HEAD = 32, 24
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
JOURNAL_HEAD = 28
WITHOUT_NUMBER = 0xFFFFFFFF
SUMMED = 8 << 20
"""Of a longer log the sums are not computed: that it belongs together is then told by its salts alone."""
MASK = 0xFFFFFFFF


class WalPages:
    """Pages that stand in the place of those of the file."""

    def __init__(self, data: bytes, page_size: int, places: dict[int, int]) -> None:
        self.page_size = page_size
        self._data = data
        self._places = places

    def page(self, number: int) -> bytes | None:
        at = self._places.get(number)
        return None if at is None else self._data[at : at + self.page_size]


def read_log(data: bytes) -> WalPages | None:
    """The pages that a log ends with; None where nothing in it counts."""
    if len(data) < LOG_HEAD + FRAME_HEAD:
        return None
    magic, _, page_size = struct.unpack_from(">III", data)
    if magic not in LOG_MAGIC or not _is_page_size(page_size):
        return None
    order = ">" if magic & 1 else "<"
    sums = _summed(order, data[:24], (0, 0))
    if sums != struct.unpack_from(">II", data, 24):
        return None
    places: dict[int, int] = {}
    pending: dict[int, int] = {}
    for number, is_end, at in _frames(data, page_size, order, sums):
        pending[number] = at
        if is_end:
            places.update(pending)
            pending = {}
    return WalPages(data, page_size, places) if places else None


def _frames(
    data: bytes, page_size: int, order: str, sums: tuple[int, int]
) -> Iterator[tuple[int, bool, int]]:
    """(page, whether it ends a transaction, where its bytes are), as long as they belong to this log."""
    salts = data[16:24]
    step = FRAME_HEAD + page_size
    for at in range(LOG_HEAD, len(data) - step + 1, step):
        number, size = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != salts or not number:
            return
        if len(data) <= SUMMED:
            sums = _summed(order, data[at : at + 8] + data[at + FRAME_HEAD : at + step], sums)
            if sums != struct.unpack_from(">II", data, at + 16):
                return
        yield number, size != 0, at + FRAME_HEAD


def _summed(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for word in words:
        first = (first + word + second) & MASK
        second = (second + next(words) + first) & MASK
    return first, second


def read_journal(data: bytes) -> WalPages | None:
    """The pages that an unfinished transaction is undone with; None where there is none."""
    if data[:8] != JOURNAL_MAGIC or len(data) < JOURNAL_HEAD:
        return None
    if data.endswith(JOURNAL_MAGIC):
        # Whether it ended is told by a file that all databases of the transaction share.
        raise MalformedDatabase("it is in the middle of a transaction with other databases")
    sector, page_size = struct.unpack_from(">II", data, 20)
    if not _is_page_size(page_size) or not 32 <= sector <= 65536 or sector & (sector - 1):
        return None
    places: dict[int, int] = {}
    at = 0
    while data[at : at + 8] == JOURNAL_MAGIC and at + JOURNAL_HEAD <= len(data):
        count, nonce = struct.unpack_from(">II", data, at + 8)
        at += sector
        for number, place in _kept(data, at, count, nonce, page_size):
            places.setdefault(number, place)
            at = place + page_size + 4
        at = -(-at // sector) * sector
    return WalPages(data, page_size, places) if places else None


def _kept(data: bytes, at: int, count: int, nonce: int, page_size: int) -> Iterator[tuple[int, int]]:
    """(page, where its bytes are) of one part of a journal."""
    step = page_size + 8
    most = max(0, len(data) - at) // step
    for place in range(at, at + (most if count == WITHOUT_NUMBER else min(count, most)) * step, step):
        number = int.from_bytes(data[place : place + 4], "big")
        page = data[place + 4 : place + 4 + page_size]
        told = int.from_bytes(data[place + step - 4 : place + step], "big")
        if not number or (nonce + sum(page[page_size - 200 : 0 : -200])) & MASK != told:
            return
        yield number, place + 4


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0
