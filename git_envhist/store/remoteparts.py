"""Uploads in parts, where all at once would be more than a host takes in one pack.

What is to leave is divided; each part is a commit of a flat tree and goes to `refs/envhist/upload/<ours>/<part>` first.
When all parts are there, the push of the timelines themselves sends what is left (commits and trees), and then the
upload refs go. Nobody sees a timeline of which anything is missing.

The commits and trees of the parts are kept in a directory of objects of ours until then: so a push that was broken off
knows, by the refs that it left there, what has arrived already. Not one object is written into the repository.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

from git_envhist.store.durable import cannot_write
from git_envhist.store.git import Git
from git_envhist.store.locks import state_directory
from git_envhist.store.quoting import quote_alternate
from git_envhist.store.remoteload import OutgoingObject
from git_envhist.store.remoterefs import UPLOAD

NOBODY = {
    b"GIT_AUTHOR_NAME": b"git-envhist", b"GIT_AUTHOR_EMAIL": b"", b"GIT_AUTHOR_DATE": b"1000000000 +0000",
    b"GIT_COMMITTER_NAME": b"git-envhist", b"GIT_COMMITTER_EMAIL": b"", b"GIT_COMMITTER_DATE": b"1000000000 +0000",
}  # fmt: skip


def divide(leaving: Iterable[OutgoingObject], most: int) -> Iterator[list[OutgoingObject]]:
    """The blobs among what leaves, in parts that take no more than `most` each (or are one blob)."""
    part: list[OutgoingObject] = []
    size = 0
    for one in leaving:
        if one.kind != "blob":
            continue
        if part and size + one.stored > most:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.stored
    if part:
        yield part


class Parts:
    """The parts of one upload."""

    def __init__(self, git: Git, place: str, objects_dir: str, name: str) -> None:
        """`name`: under which they stand there."""
        self.place = place
        self._objects = os.path.join(place, "objects")
        self._objects_dir = objects_dir
        self._prefix = f"{UPLOAD}{name}/"
        self._git = git

    @property
    def git(self) -> Git:
        """git, seeing the parts too."""
        return self._git.with_objects(self._objects) if os.path.isdir(self._objects) else self._git

    @property
    def environment(self) -> dict[bytes, bytes]:
        """What lets a git see them, and write there what it writes."""
        if not os.path.isdir(self._objects):
            return {}
        return {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(self._objects),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(self._objects_dir)),
        }

    def left_there(self, uploads: Mapping[str, str]) -> dict[str, str]:
        """Those of the upload refs there that are ours."""
        return {ref: oid for ref, oid in uploads.items() if ref.startswith(self._prefix)}

    def make(self, part: Sequence[OutgoingObject]) -> tuple[str, str]:
        """(ref, commit) of a part."""
        state_directory(self.place)
        state_directory(self._objects)
        environment = {**NOBODY, **self.environment}
        rows = "".join(f"100644 blob {one.oid}\t{number:08x}\n" for number, one in enumerate(part))
        tree = self._git.run("mktree", stdin=rows.encode("ascii"), environment=environment).strip()
        words = ("commit-tree", "-m", "a part of an upload", tree)
        commit = self._git.run(*words, environment=environment).decode("ascii").strip()
        return f"{self._prefix}p{commit[:20]}", commit

    def forget(self) -> None:
        """They have arrived, and are needed no more."""
        try:
            shutil.rmtree(self.place)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot_write(error, self.place) from error
