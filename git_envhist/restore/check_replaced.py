"""Check the entries that a restore will replace: they must be as the side `before` of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from git_envhist.model import EntryKind, EnvPath, PlanAction, PlanStep, SkippedPath
from git_envhist.platform import SYSTEM
from git_envhist.restore.compare_files import content_matches
from git_envhist.restore.disk_entry import DiskEntry, may_match_entry, stat_entry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.set_metadata import read_xattrs
from git_envhist.restore.swap import CHANGED, CREATED, GONE
from git_envhist.restore.write_entry import Contents

KnownStat = Callable[[bytes, EnvPath], "tuple[int, int, int, int, int] | None"]
"""Return (device, inode, size, mtime, ctime) of a captured file, given root and path; None if unknown."""
Parent = Callable[[bytes, EnvPath], tuple[int, bytes]]
"""Return the open directory and the last name, given root and path."""
UNIT = "skipped with the database it belongs to"


def no_known_stat(root: bytes, path: EnvPath) -> tuple[int, int, int, int, int] | None:
    """Return None: the contents are compared."""
    return None


class ReplacedEntries:
    """The entries on disk that the steps of a plan replace."""

    def __init__(self, disk: EnvironmentDisk, contents: Contents, known: KnownStat) -> None:
        self._disk = disk
        self._contents = contents
        self._known = known
        self.skipped: list[SkippedPath] = []

    def of(self, steps: Iterable[PlanStep]) -> Iterator[tuple[int, DiskEntry | None]]:
        """Yield the number of each executable step with the entry at its path; skipped steps are in `skipped`."""
        steps = list(steps)
        vacated = {(step.root, step.path) for step in steps if step.action is PlanAction.REMOVE}
        found: list[tuple[int, PlanStep, DiskEntry | None]] = []
        broken: set[int] = set()
        with self._disk.keep_open() as parent:
            for number, step in enumerate(steps):
                now, reason = self._check(parent, step, (step.root, step.path) in vacated)
                if reason is None:
                    found.append((number, step, now))
                    continue
                self.skipped.append(SkippedPath(step.shown, reason))
                if step.unit is not None:
                    broken.add(step.unit)
        for number, step, now in found:
            if step.unit in broken:
                self.skipped.append(SkippedPath(step.shown, UNIT))
            else:
                yield number, now

    def _check(self, parent: Parent, step: PlanStep, vacated: bool) -> tuple[DiskEntry | None, str | None]:
        try:
            directory, name = parent(step.root, step.path)
            now = stat_entry(directory, name)
            if step.before is None:
                return None, CREATED if now is not None and not vacated else None
            if now is None:
                return None, GONE
            return now, None if self._matches(directory, name, step, now) else CHANGED
        except FileNotFoundError:
            return None, GONE if step.before is not None else "its directory no longer exists"
        except OSError as error:
            return None, error.strerror or str(error)

    def _matches(self, directory: int, name: bytes, step: PlanStep, now: DiskEntry) -> bool:
        before = step.before
        assert before is not None
        if not may_match_entry(before, now):
            return False
        if before.kind is EntryKind.DIRECTORY:
            return True
        row = (now.device, now.inode, now.size, now.mtime_ns, now.ctime_ns)
        if self._known(step.root, step.path) == row:
            return True
        if SYSTEM.proc and read_xattrs(b"/proc/self/fd/%d/%b" % (directory, name)) != dict(before.xattrs):
            return False
        if step.action is not PlanAction.ADJUST and not content_matches(
            directory, name, step.root, before, self._contents
        ):
            return False
        # The file must not have changed while it was compared.
        return stat_entry(directory, name) == now
