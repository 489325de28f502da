"""Power failures during push, fetch and import, as root: `python -m tests.crash.sharedcut [--cuts N] [--rounds N]
[--options …]`.

Two repositories are on a disk that records every write (`disk`): one captures, drops and pushes, the other fetches,
gets contents on demand, and imports. The remote is on another disk and keeps its power; it records the position in
the log when its refs move. The disk is cut at random positions, the remote is reset to its state at that time, and
both continue: git fsck finds nothing wrong, imported snapshots exist without their file, a push of rewritten
snapshots is recognized as the repository's own and succeeds, a fetch completes, and fetched contents can be read.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.disk import Platter, apply, read_log
from tests.crash.faults import age_locks
from tests.crash.powercut import CannotBeHad, in_own_mounts, mounted, must, on_logged_disk, seal
from tests.remote.conftest import hook, make_remote, refs
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, make_repo

LINE = "lab/one-000001"
STEPS: tuple[tuple[str, ...], ...] = (
    ("ours", "capture", "first"),
    ("ours", "push", "--yes"),
    ("theirs", "fetch"),
    ("ours", "capture", "second"),
    ("ours", "capture", "third"),
    ("ours", "export", "{file}", LINE),
    ("theirs", "import", "--as", "came{number}", "{file}"),
    ("ours", "push"),
    ("theirs", "restore", "origin/" + LINE),
    ("ours", "drop", "@~1"),
    ("ours", "push"),
    ("theirs", "fetch"),
)
"""The steps of one round."""
OURS = ("refs/envhist/heads", "refs/notes")


@dataclass(frozen=True)
class Act:
    """A step, and the position in the log before and after it."""

    words: tuple[str, ...]
    began: int
    said: int


@dataclass(frozen=True)
class Place:
    """The remote, which keeps its power."""

    top: Path
    log: Path

    @property
    def bare(self) -> Repo:
        return Repo(self.top / "srv.git", dict(os.environ))

    def stood_at(self, reached: int) -> Path:
        """Return the state of the remote at a position of the log."""
        moved = [(int(one.name), one) for one in (self.top / "stood").iterdir()]
        return max((size, one) for size, one in moved if size <= reached)[1]


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cuts", type=int, default=200)
    words.add_argument("--rounds", type=int, default=2)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument(
        "--options", default="defaults", help="mount options of the file system that loses power"
    )
    asked = words.parse_args()
    in_own_mounts("tests.crash.sharedcut")
    seed = asked.seed if asked.seed is not None else int(time.time())
    with tempfile.TemporaryDirectory(prefix="sharedcut-") as place:
        try:
            figures, wrong = campaign(Path(place), asked.rounds, asked.cuts, seed, asked.options)
        except CannotBeHad as reason:
            print(f"cannot be had: {reason}")
            return 77
    print("| mounted with | cuts in | cuts | wrong |\n| --- | --- | ---: | ---: |")
    for verb, number in sorted(figures.items()):
        print(f"| {asked.options} | {verb} | {number} | {sum(f' {verb}:' in one for one in wrong)} |")
    print("\n".join([f"seed {seed}", *wrong]))
    return 1 if wrong else 0


def campaign(place: Path, rounds: int, cuts: int, seed: int, options: str) -> tuple[Counter[str], list[str]]:
    chance = random.Random(seed)
    image, log = place / "image", place / "log"
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    must("mkfs.ext4", "-q", "-F", image)
    seal(place)
    there = Place(place, log)
    make_remote(there.bare.path)
    with mounted(image, place / "work", options):
        prepare(place, there.bare.path)
    shutil.copy(image, place / "platter")
    (place / "stood").mkdir()
    shutil.copytree(there.bare.path, place / "stood" / "0")
    # Record moved refs with the position in the log before the push ends.
    keep = f'cp -r . "{place}/stood/new" && mv "{place}/stood/new" "{place}/stood/$(stat -c %s {log})"\n'
    hook(there.bare, keep, "post-receive")
    with on_logged_disk(image, log, place, options) as work:
        acts = list(take(work, rounds, there))
    writes = list(read_log(log))
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    platter = Platter(place / "platter", writes)
    for at in sorted(chance.randrange(1, len(writes) + 1) for _ in range(cuts)):
        lucky = platter.cut(at, chance)
        subprocess.run(["cp", "--sparse=always", place / "platter", place / "cut"], check=True)
        apply(place / "cut", lucky)
        reached = writes[at - 1].end
        under = next((act.words[1] for act in acts if act.began < reached < act.said), "nothing")
        figures[under] += 1
        done = [act for act in acts if act.said <= reached]
        with mounted(place / "cut", place / "work", options):
            found = judge(place / "work", done, there, reached)
            wrong += [f"at {at}: {under}: {line}" for line in found]
    platter.close()
    return figures, wrong


def prepare(place: Path, bare: Path) -> None:
    for name in ("ours", "theirs"):
        repo = make_repo(place / "work" / name)
        repo.git("remote", "add", "origin", f"file://{bare}")
    (place / "work/ours/.git/config").open("a").write(f"[envhist]\n\ttimeline = {LINE}\n")


def take(work: Path, rounds: int, there: Place) -> Iterator[Act]:
    """Run the steps."""
    for number in range(rounds):
        for step, (who, verb, *words) in enumerate(STEPS):
            if verb == "capture":
                for name in range(6):
                    (work / "ours" / f"file{name}").write_text(f"{number} {step} {name}\n" * 400)
            began = there.log.stat().st_size
            told = [word.format(file=there.top / f"{number}.tar.zst", number=number) for word in words]
            run(work / who, verb, *told, out=there.top / f"out{number}", check=True)
            yield Act((who, verb, *told), began, there.log.stat().st_size)


def run(place: Path, verb: str, *words: str, out: Path, check: bool = False) -> list[str]:
    """Run one step; return the problems."""
    repo = Repo(place, dict(os.environ))
    said = ("envrestore", "--to", str(out)) if verb == "restore" else ("envlog", verb)
    done = repo.run(*said, *words)
    assert not check or done.status == 0, (verb, words, done.err)
    return [] if done.status == 0 else [f"{verb} {' '.join(words)} ended with {done.status}: {done.err}"]


def judge(work: Path, done: list[Act], there: Place, reached: int) -> list[str]:
    """Return the problems after a cut."""
    shutil.rmtree(there.bare.path)
    shutil.copytree(there.stood_at(reached), there.bare.path)
    (there.bare.path / "hooks/post-receive").unlink(missing_ok=True)
    ours, theirs = (Repo(work / name, dict(os.environ)) for name in ("ours", "theirs"))
    wrong = []
    for repo in (ours, theirs):
        age_locks(repo)
        wrong += [f"fsck: {complaint}"] if (complaint := git_fsck(repo.path)) else []
    for act in done:
        if act.words[1] == "import":
            wrong += had(theirs.path, f"{act.words[3]}/{LINE}", there.top)
    wrong += _listed(theirs)
    return wrong + _goes_on(ours, theirs, there)


def _listed(theirs: Repo) -> list[str]:
    done = theirs.run("envlog", "--all")
    return [] if done.status == 0 else [f"the snapshots cannot be listed: {done.err}"]


def _goes_on(ours: Repo, theirs: Repo, there: Place) -> list[str]:
    wrong = []
    (ours.path / "file0").write_text("after the cut\n")
    for verb, *words in (("capture", "after"), ("capture", "once more"), ("drop", "@~1"), ("push", "--yes")):
        wrong += run(ours.path, verb, *words, out=there.top)
    if refs(there.bare, *OURS) != refs(ours, *OURS):
        wrong.append(f"there is {refs(there.bare, *OURS)}, here {refs(ours, *OURS)}")
    wrong += [f"the remote: {complaint}"] if (complaint := git_fsck(there.bare.path)) else []
    wrong += run(theirs.path, "fetch", out=there.top)
    wrong += had(theirs.path, f"origin/{LINE}", there.top)
    again = theirs.run("envlog", "fetch")
    return wrong if "up to date" in again.out else [*wrong, f"a second fetch prints: {again.out}{again.err}"]


def had(place: Path, revision: str, top: Path) -> list[str]:
    out = top / "had"
    shutil.rmtree(out, ignore_errors=True)
    wrong = run(place, "restore", revision, out=out)
    return wrong or ([] if (out / "file5").is_file() else [f"{revision} holds too little"])


if __name__ == "__main__":
    sys.exit(main())
