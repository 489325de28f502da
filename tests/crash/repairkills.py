"""Kill repair at its system calls: `python -m tests.crash.repairkills [DAMAGE…] [--kinds …] [--step N]`.

After each kill fsck completes, and the next repair gives the result of one without a kill, with all snapshots and
names. Every damaged pack is kept, and git fsck finds nothing wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.campaign import KILL, sealed_repo
from tests.crash.faults import age_locks, debris, traced
from tests.crash.retention_kills import Known, read_state
from tests.objects.packing import damage, flip, noise
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result

KINDS = ("rename", "sync", "unlink", "mkdir", "write", "spawn")
REPAIR = ("fsck", "--repair")


def prepare(repo: Repo) -> None:
    """Make snapshots that share a file and differ in others, with names, each in separate packs."""
    repo.write("kept", noise(2000, 99))
    for number in range(5):
        repo.write(f"d/only-{number}", noise(3000, number))
        repo.run("envlog", "capture", f"moment {number}", "--name", f"name-{number}", check=True)
        (repo.path / f"d/only-{number}").unlink()
    repo.run("envlog", "drop", "name-4", check=True)


def contents(repo: Repo) -> None:
    """Damage contents of one snapshot only, and contents that are also in the working tree."""
    flip_in(repo, f"{moment(repo, 1)}:d/only-1", f"{moment(repo, 0)}:kept")


def commit(repo: Repo) -> None:
    """Damage a snapshot's commit in the middle of the chain, and an index."""
    pack, _ = place_of(repo, repo.git("rev-parse", f"{moment(repo, 0)}:d/only-0"))
    flip_in(repo, moment(repo, 2))
    damage(pack.with_suffix(".idx"), lambda content: flip(content, len(content) - 3))


def refs(repo: Repo) -> None:
    """Damage the ref of the timeline, and the notes."""
    [notes] = repo.git("for-each-ref", "--format=%(refname)", "refs/notes/envhist").split()
    blobs = [line.split()[2] for line in repo.git("ls-tree", "-r", notes).splitlines()]
    flip_in(repo, blobs[0])
    [head] = (path for path in (repo.path / ".git/refs/envhist/heads").rglob("*") if path.is_file())
    head.write_text("not a hash\n")


DAMAGES: dict[str, Callable[[Repo], None]] = {"contents": contents, "commit": commit, "refs": refs}


def moment(repo: Repo, number: int) -> str:
    return repo.git("rev-parse", f":/^moment {number}")


def flip_in(repo: Repo, *names: str) -> None:
    """Flip a bit in the packed bytes of some objects."""
    for pack, middle in [place_of(repo, repo.git("rev-parse", name)) for name in names]:
        damage(pack, lambda content, at=middle: flip(content, at))  # type: ignore[misc]


def place_of(repo: Repo, oid: str) -> tuple[Path, int]:
    """Return the pack of an object, and the middle of its packed bytes."""
    for pack in sorted((repo.path / ".git/objects/pack").glob("*.pack")):
        for line in repo.git("verify-pack", "-v", str(pack), check=False).splitlines():
            words = line.split()
            if words and words[0] == oid:
                return pack, int(words[4]) + int(words[3]) // 2 + 1
    raise AssertionError(f"{oid} is in no pack")


def damaged_packs(repo: Repo) -> set[str]:
    """Return the packs that git cannot verify, by contents."""
    packs = (repo.path / ".git/objects/pack").glob("*.pack")
    return {_sum(pack) for pack in packs if repo.run_git("verify-pack", str(pack), check=False).status != 0}


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def everything(repo: Repo) -> set[str]:
    return {_sum(path) for path in (repo.path / ".git").rglob("*") if path.is_file()}


def judge(repo: Repo, bad: set[str], wanted: Known) -> list[str]:
    """Return the problems after a kill, and after another repair."""
    wrong = [] if bad <= everything(repo) else ["a damaged pack is nowhere"]
    age_locks(repo)
    looked = repo.run("envlog", "fsck", "--quick")
    if looked.status not in (0, 1) or "Traceback" in looked.err or "unexpected" in looked.err:
        wrong.append(f"fsck --quick: {looked.status}: {looked.err}")
    done = repo.run("envlog", *REPAIR)
    if done.status != 0:
        return [*wrong, f"again: {done.status}: {done.out}{done.err}"]
    if (after := read_state(repo)) != wanted:
        wrong.append(f"not as without a kill: {after}, but {wanted}")
    wrong += [] if bad <= everything(repo) else ["a damaged pack is nowhere then"]
    if complaint := git_fsck(repo.path):
        wrong.append(f"git fsck: {complaint}")
    taken = repo.run("envlog", "capture", "after")
    if taken.status != 0 or taken.err:
        wrong.append(f"the next capture: {taken.status}: {taken.err}")
    known = {"envhist/damaged", "envhist/set-aside", "envhist/rewritten", "envhist/rewritten.new"}
    return wrong + [f"left behind: {name}" for name in debris(repo) if name not in known]


def copied(template: Repo, break_it: Callable[[Repo], None]) -> Iterator[Repo]:
    with tempfile.TemporaryDirectory(prefix="mended-", dir=template.path.parent) as place:
        repo = Repo(Path(place) / "repo", template.env)
        shutil.copytree(template.path, repo.path, symlinks=True)
        break_it(repo)
        yield repo


def killed_at(
    template: Repo, break_it: Callable[[Repo], None], kind: str, when: int, wanted: Known
) -> tuple[Result, list[str]]:
    for repo in copied(template, break_it):
        bad = damaged_packs(repo)
        done = repo.run("envlog", *REPAIR, prefix=traced(kind, KILL, str(when)))
        return done, judge(repo, bad, wanted)
    raise AssertionError


def without_a_kill(template: Repo, break_it: Callable[[Repo], None]) -> Known:
    for repo in copied(template, break_it):
        repo.run("envlog", *REPAIR, check=True)
        return read_state(repo)
    raise AssertionError


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("damages", nargs="*", default=list(DAMAGES), metavar="DAMAGE")
    words.add_argument("--kinds", default=",".join(KINDS))
    words.add_argument("--step", type=int, default=1, help="kill at every n-th call")
    asked = words.parse_args()
    failed = 0
    print("| damaged | killed at | points | wrong |\n| --- | --- | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory(prefix="repairkills-", dir=os.environ.get("TMPDIR")) as place:
        template = sealed_repo(Path(place))
        prepare(template)
        for name in asked.damages:
            wanted = without_a_kill(template, DAMAGES[name])
            for kind in asked.kinds.split(","):
                points, wrong, when = 0, [], 1
                while True:
                    done, found = killed_at(template, DAMAGES[name], kind, when, wanted)
                    wrong += [f"{kind} {when}: {line}" for line in found]
                    if done.status == 0:
                        break
                    points, when = points + 1, when + asked.step
                failed += len(wrong)
                print(f"| {name} | {kind} | {points} | {len(wrong)} |", *wrong, sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
