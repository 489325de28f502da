"""Looks at what stands where a restore would put something else: it must be what the side before holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from git_envhist.model import EntryKind, EnvPath, PlanAction, PlanStep, SkippedPath
from git_envhist.platform import SYSTEM
from git_envhist.restore.attributes import read_xattrs
from git_envhist.restore.compare_files import content_matches
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import DiskEntry, look, may_match_entry
from git_envhist.restore.swap import CAME, CHANGED, GONE
from git_envhist.restore.write_entry import Contents

Known = Callable[[bytes, EnvPath], "tuple[int, int, int, int, int] | None"]
"""(root, path) -> device, inode, size, mtime and ctime, as the capture of the side before had them."""
Parent = Callable[[bytes, EnvPath], tuple[int, bytes]]
"""(root, path) -> the open directory that it stands in, and its name there."""
UNIT = "what belongs to it is left alone"


def nothing_is_known(root: bytes, path: EnvPath) -> tuple[int, int, int, int, int] | None:
    """Without a capture's word the bytes themselves are looked at."""
    return None


class ReplacedEntries:
    """Who stands where, for every step that can be made."""

    def __init__(self, door: RestoreDisk, contents: Contents, known: Known) -> None:
        self._door = door
        self._contents = contents
        self._known = known
        self.left_alone: list[SkippedPath] = []

    def of(self, steps: Iterable[PlanStep]) -> Iterator[tuple[int, DiskEntry | None]]:
        """The number of each step and who stands at its path, less those that are left alone."""
        steps = list(steps)
        vacated = {(step.root, step.path) for step in steps if step.action is PlanAction.REMOVE}
        found: list[tuple[int, PlanStep, DiskEntry | None]] = []
        broken: set[int] = set()
        with self._door.staying() as parent:
            for number, step in enumerate(steps):
                victim, why = self._look(parent, step, (step.root, step.path) in vacated)
                if why is None:
                    found.append((number, step, victim))
                    continue
                self.left_alone.append(SkippedPath(step.shown, why))
                if step.unit is not None:
                    broken.add(step.unit)
        for number, step, victim in found:
            if step.unit in broken:
                self.left_alone.append(SkippedPath(step.shown, UNIT))
            else:
                yield number, victim

    def _look(self, parent: Parent, step: PlanStep, vacated: bool) -> tuple[DiskEntry | None, str | None]:
        try:
            directory, name = parent(step.root, step.path)
            now = look(directory, name)
            if step.before is None:
                return None, CAME if now is not None and not vacated else None
            if now is None:
                return None, GONE
            return now, None if self._is_as_saved(directory, name, step, now) else CHANGED
        except FileNotFoundError:
            return None, GONE if step.before is not None else "the directory it belongs in is gone"
        except OSError as error:
            return None, error.strerror or str(error)

    def _is_as_saved(self, directory: int, name: bytes, step: PlanStep, now: DiskEntry) -> bool:
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
        # What was read must be what was looked at.
        return look(directory, name) == now
