"""The verbs of a single moment, as `EnvHistory` has them: what is said of it, and what it holds."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from git_envhist.core import HistoryContext
from git_envhist.errors import SnapshotNotFound
from git_envhist.history.timeline import by_name, next_name_time
from git_envhist.lookup import path_below
from git_envhist.model import EnvPath, Moment, Snapshot
from git_envhist.spelling import replace_surrogates
from git_envhist.store.records import name_record, remark_record

if TYPE_CHECKING:
    from git_envhist.store.files import FileReader


class Moments(HistoryContext):
    """Names, remarks and files of moments."""

    def name(self, name: str, revision: Moment = "@", *, remove: bool = False) -> Snapshot:
        """Give a moment a name, or take it away."""
        name = replace_surrogates(name)
        snapshot = self._snapshot(revision)
        line = self.world.timeline(snapshot.timeline) or self.world.own
        self.tell(snapshot, name_record(name, next_name_time(line, name, self.now), removed=remove))
        return snapshot

    def remove_name(self, name: str) -> Snapshot:
        """Take a name away from the moment that bears it."""
        spots = [spot for line in self.world.timelines() for spot in by_name(line, name)]
        if not spots:
            raise SnapshotNotFound(name, hint="no snapshot bears this name")
        return self.name(name, spots[0].snapshot, remove=True)

    def note(self, text: str, revision: Moment = "@") -> Snapshot:
        """Add to the story of a moment."""
        from git_envhist.capture.masking import mask_text  # loaded late: keeps envlog fast

        snapshot = self._snapshot(revision)
        masked = mask_text(text)
        self.tell(snapshot, remark_record(masked, self.now))
        return snapshot

    def read_file(self, revision: Moment, path: str | bytes | os.PathLike[str]) -> bytes:
        """The bytes of a file as they were at a moment; the path is below the top."""
        wanted = EnvPath(os.fsencode(path))
        with closing(self.reader(self.bring(self._snapshot(revision), wanted))) as reader:
            return b"".join(reader.read(wanted))

    def reader(self, snapshot: Snapshot) -> FileReader:
        """Reads what a snapshot holds; to be closed."""
        from git_envhist.store.files import FileReader  # loaded late: keeps envlog fast

        return FileReader(self.repository.git, snapshot.tree, self.open_sealed, self.repository.objects_dir)

    def environment_path(self, path: bytes) -> EnvPath:
        """The path below the top of the environment that words on the command line mean."""
        return path_below(os.fsencode(self.repository.root), os.fsencode(self.directory), path)
