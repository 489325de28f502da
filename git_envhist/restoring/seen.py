"""What the capture of what is here saw of each file: one that still looks so need not be read again."""

from __future__ import annotations

from git_envhist.capture.descent import REALM_MARK, join
from git_envhist.capture.known import CacheDamaged, Records
from git_envhist.capture.records import CTIME, INODE, MTIME, SIZE, WIDTH
from git_envhist.model import EnvPath

Row = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


class Seen:
    """Rows by realm and path."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._directories: dict[bytes, dict[bytes, Row]] = {}

    def __call__(self, realm: bytes, path: EnvPath) -> Row | None:
        """What was seen at a path; None where that was too young to be relied on, or is not known any more."""
        above, _, name = path.rpartition(b"/")
        directory = (
            join(REALM_MARK + realm, above) if realm and above else REALM_MARK + realm if realm else above
        )
        if directory not in self._directories:
            self._directories[directory] = self._rows(directory)
        row = self._directories[directory].get(name)
        # A change time of zero stands for one that proves nothing.
        return row if row is not None and row[4] != 0 else None

    def _rows(self, directory: bytes) -> dict[bytes, Row]:
        try:
            record = self._records.get(directory)
        except CacheDamaged:
            return {}
        if record is None:
            return {}
        cells, device = record.cells, record.device
        return {
            name: (device, cells[at + INODE], cells[at + SIZE], cells[at + MTIME], cells[at + CTIME])
            for name, at in zip(record.names, range(0, len(cells), WIDTH), strict=True)
        }
