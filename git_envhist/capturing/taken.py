"""An environment as it was taken, and what can be told of it."""

from __future__ import annotations

from git_envhist.capture.descent import display_path
from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.records import SIZE, WIDTH
from git_envhist.capture.statcache import CachedFacts
from git_envhist.capturing.assembly import BuiltTree, count_added_paths
from git_envhist.capturing.gather import ScanResult
from git_envhist.capturing.merge import RecordChanges
from git_envhist.capturing.survey import CaptureScope
from git_envhist.model import ChangeCount, EnvPath, MissingPath, MissingReason
from git_envhist.values import dataclass, field

LARGEST_SHOWN = 5
SEALED = b" as=sealed"


@dataclass(slots=True)
class CapturedEnvironment:
    """An environment, taken: its trees stand in the staging."""

    gathered: ScanResult
    assembled: BuiltTree
    records: DirectoryRecords
    survey: CaptureScope
    tip: str | None
    base: str | None
    merged: RecordChanges
    facts: dict[str, CachedFacts]
    """What the snapshot says beside the files that the cache relies on."""
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    base_manifest: bytes | None = None
    """The manifest of the snapshot that the cache relies on."""
    changed: ChangeCount | None = None
    """What differs from that snapshot, where it is known without comparing."""

    @property
    def files(self) -> int:
        return self.records.files

    @property
    def out_of_reach(self) -> list[MissingPath]:
        """What nothing can be renamed into: what is not here, and what is mounted, captured or not."""
        crossed = [MissingPath(EnvPath(path), MissingReason.MOUNT) for path in self.survey.crossed]
        return [*self.gathered.missing, *crossed]

    def first_count(self) -> ChangeCount:
        """What a first snapshot adds: everything."""
        return ChangeCount(added=count_added_paths(self.records))

    def largest(self) -> tuple[tuple[EnvPath, int, int], ...]:
        """The directories at the top by size, with the files and bytes below them."""
        sums: dict[bytes, list[int]] = {}
        for path in self.records:
            record = self.records.get(path)
            assert record is not None
            row = sums.setdefault(path.partition(b"/")[0], [0, 0])
            row[0] += len(record.names)
            row[1] += sum(record.cells[SIZE::WIDTH])
        rows = [(EnvPath(display_path(name)), files, size) for name, (files, size) in sums.items() if name]
        return tuple(sorted(rows, key=lambda row: -row[2])[:LARGEST_SHOWN])

    def seals_now(self) -> bool:
        """Whether a file that was looked at just now stands sealed in the snapshot."""
        return any(SEALED in encoded for encoded in self.gathered.directories.values())
