"""Known bytes for each capture, and a check that its snapshot returns them through plain git and through a second
reader."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from git_envhist import EnvHistory
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.support.snapshot import read_back

PLACE = "env/"
LARGE = 40_000


@dataclass
class Taken:
    """The files that each snapshot captured, in the order of the captures."""

    repo: Repo
    files: dict[str, bytes] = field(default_factory=dict)
    """The files as they are now."""
    snapshots: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of each snapshot, by commit."""
    packs: set[str] = field(default_factory=set)
    """The names of all packs of git-envhist that were seen, including those merged since."""

    def write(self, step: int) -> None:
        """Write new bytes, bytes that were there before and a new name, and remove one file."""
        wanted = {
            "state": f"{step} ".encode() * 100,
            f"deep/d{step % 5}/file": f"deep {step}".encode() * 10,
            "again": f"{step % 3}".encode() * 200,
            "large": hashlib.shake_256(b"%d" % (step // 10)).digest(LARGE),
            f"new/{step}": b"%d" % step,
        }
        self.files |= {PLACE + name: content for name, content in wanted.items()}
        for name in (*wanted,):
            self.repo.write(PLACE + name, wanted[name])
        if step >= 20:
            gone = f"{PLACE}new/{step - 20}"
            del self.files[gone]
            (self.repo.path / gone).unlink()
        # Also store the bytes as objects of the user, which git's maintenance may prune at any time.
        names = [PLACE + name for name in wanted]
        self.repo.git("hash-object", "-w", *names, check=False)

    def capture(self, step: int, *, by_command: bool = False) -> None:
        """Take a snapshot and remember the files that it captured."""
        if by_command:
            words = ("capture", "--porcelain", "-m", f"step {step}")
            commit = self.repo.run("envlog", *words, check=True).out.strip()
        else:
            snapshot = EnvHistory.open(str(self.repo.path), workers="here").capture(f"step {step}").snapshot
            assert snapshot is not None
            commit = str(snapshot.id)
        assert commit not in self.snapshots
        self.snapshots[commit] = dict(self.files)
        self.packs.update(path.stem for path in (self.repo.path / ".git/objects/pack").glob("*.keep"))

    def wrong(self, *, read_every: int = 1) -> list[str]:
        """Return a line for each snapshot that is not listed or not as captured, and for a complaint of git fsck."""
        found = [f"fsck: {complaint}"] if (complaint := git_fsck(self.repo.path)) else []
        listed = self.repo.run("envlog", "--format=%H", "-n", "100000", check=True).out.split()
        if listed != [*reversed(self.snapshots)]:
            found.append(
                f"{len(self.snapshots)} snapshots were taken, but {len(listed)} are listed, or in another order"
            )
        for number, (commit, files) in enumerate(self.snapshots.items()):
            stored = self._stored(commit)
            if stored is None:
                found.append(f"{commit}, number {number}, cannot be read by git")
                continue
            if stored != {path: _blob(content) for path, content in files.items()}:
                found.append(f"{commit} contains other bytes than were captured")
            if number % read_every == 0 and self._read(commit) != files_by_sha256(files):
                found.append(f"{commit} reads back differently from what was captured")
        return found

    def _stored(self, commit: str) -> dict[str, str] | None:
        done = self.repo.run_git("ls-tree", "-r", commit, PLACE, check=False)
        if done.status:
            return None
        return {line.partition("\t")[2]: line.split()[2] for line in done.out.splitlines()}

    def _read(self, commit: str) -> dict[str, str | None]:
        listing = read_back(self.repo, commit).listing
        found = {path.decode(): entry for path, entry in listing.items() if entry.kind == "f"}
        return {path: entry.sha256 for path, entry in found.items() if path.startswith(PLACE)}


def files_by_sha256(files: dict[str, bytes]) -> dict[str, str | None]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
