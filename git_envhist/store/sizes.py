"""What objects are and how large, from their headers: asked before anything that somebody else made is inflated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from git_envhist.errors import Damaged, GitFailed
from git_envhist.store.child import GitStream
from git_envhist.store.git import Git

FORMAT = "--batch-check=%(objectname) %(objecttype) %(objectsize)"


class ObjectHeader(NamedTuple):
    """What the header of an object says."""

    kind: str
    size: int


class HeaderReader:
    """Asks git for the headers of objects by their raw ids; to be closed."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._child: GitStream | None = None
        self._known: dict[bytes, ObjectHeader] = {}

    def of(self, oid: bytes) -> ObjectHeader:
        """The header of one object; `Damaged` where there is none."""
        if oid not in self._known:
            self._known[oid] = _read_line(oid, self._ask(oid))
        return self._known[oid]

    def of_many(self, oids: Iterable[bytes]) -> dict[bytes, ObjectHeader]:
        """Those of many, for less."""
        wanted = sorted(set(oids) - self._known.keys())
        if wanted:
            asked = b"".join(oid.hex().encode("ascii") + b"\n" for oid in wanted)
            lines = self._git.run("cat-file", FORMAT, stdin=asked).splitlines()
            if len(lines) != len(wanted):
                raise GitFailed("git does not say how large objects are")
            self._known.update((oid, _read_line(oid, line)) for oid, line in zip(wanted, lines, strict=True))
        return self._known

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ask(self, oid: bytes) -> bytes:
        if self._child is None:
            self._child = GitStream(self._git, "cat-file", FORMAT, talks=True)
        line = b""
        try:
            self._child.write(oid.hex().encode("ascii") + b"\n")
            while not line.endswith(b"\n"):
                chunk = self._child.read()
                if not chunk:
                    break
                line += chunk
        except BrokenPipeError:
            pass
        except BaseException:
            # Its answer would be taken for that of the next question.
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()  # a single damaged object must not hide all the others
        return line


def known_sizes(git: Git, oids: Iterable[bytes]) -> dict[bytes, int]:
    """How large those objects are that are here; of a fetched moment some may be elsewhere still."""
    asked = sorted(set(oids))
    if not asked:
        return {}
    lines = git.run("cat-file", FORMAT, stdin=b"".join(oid.hex().encode("ascii") + b"\n" for oid in asked))
    told = (line.split() for line in lines.splitlines())
    return {bytes.fromhex(words[0].decode("ascii")): int(words[2]) for words in told if len(words) == 3}


def _read_line(oid: bytes, line: bytes) -> ObjectHeader:
    words = line.split()
    if len(words) != 3 or not words[2].isdigit():
        raise Damaged(
            f"an object is missing: {oid.hex()}", hint="'git envlog fsck' says what else is missing"
        )
    return ObjectHeader(words[1].decode("ascii"), int(words[2]))
