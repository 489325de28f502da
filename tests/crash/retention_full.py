"""Full or failing disks during drop, prune, purge, gc and repair: `python -m tests.crash.retention_full [VERB…]`.

Each command fails at its first, second, third… call of a kind and at all later ones. It prints one line, loses
nothing, and leaves no lock or incomplete file; with free space the same command succeeds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash import repairkills
from tests.crash.campaign import sealed_repo
from tests.crash.faults import age_locks, debris, traced
from tests.crash.retention_kills import Known, judge, prepare, read_state
from tests.retention.test_purge import holding
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result

VERBS: dict[str, tuple[str, ...]] = {
    "drop": ("drop", ":/second", ":/third"),
    "undrop": ("undrop", "zero"),
    "prune": ("prune", "--keep-last=1"),
    "thin": ("gc", "--auto"),
    "purge": ("purge", "creds"),
    "gc": ("gc", "--prune=now"),
    "repair": ("fsck", "--repair"),
}
KINDS = ("pwrite64", "sync", "rename", "mkdir")
"""Calls that write packs, but not calls on pipes to other processes."""
ERRORS = ("ENOSPC", "EDQUOT", "EIO")
ROOM, ROOM_STEP = "3m", 4096
"""A separate file system, filled up so that nothing, one page, two pages… are free."""
KNOWN_LEFT = frozenset(
    ("damaged", "set-aside", "rewritten", "rewritten.new", "trouble", "checks", "trouble.new")
)


def ready(repo: Repo, verb: str) -> None:
    """Prepare the repository for the command."""
    if verb == "repair":
        repairkills.prepare(repo)
        return
    prepare(repo)
    if verb == "thin":
        for key, number in (("keepLast", 1), ("keepDaily", 0), ("keepWeekly", 0)):
            repo.git("config", f"envhist.{key}", str(number))


@contextmanager
def copy_of(template: Repo, verb: str) -> Iterator[Repo]:
    with tempfile.TemporaryDirectory(prefix="full-", dir=template.path.parent) as place:
        repo = Repo(Path(place) / "repo", template.env)
        shutil.copytree(template.path, repo.path, symlinks=True)
        if verb == "repair":
            repairkills.contents(repo)
        yield repo


def badly_told(done: Result, error: str = "") -> list[str]:
    """Check the printed error: one line, its reason, a hint."""
    lines = done.err.splitlines()
    if any(word in done.err for word in ("Traceback", "unexpected failure")):
        return [f"reported as a defect: {done.err}"]
    if done.status in (0, 1):
        return []
    errors = [line for line in lines if line.startswith("error: ")]
    if done.status != 128 or len(errors) != 1 or done.out:
        return [f"{done.status}: {done.out}{done.err}"]
    return []


def after_it(repo: Repo, verb: str, wanted: Known) -> list[str]:
    """Run the command again with free space; return the problems."""
    age_locks(repo)
    done = repo.run("envlog", *VERBS[verb])
    # Steps completed before the failure are not repeated.
    wrong = [] if done.status in (0, 4) else [f"again: {done.status}: {done.err}"]
    if verb == "drop" and done.status == 4:
        for word in VERBS[verb][1:]:
            repo.run("envlog", "drop", word)
    after = read_state(repo)
    if (after.names.keys(), after.trash.keys()) != (wanted.names.keys(), wanted.trash.keys()):
        wrong.append(f"not as without it: {sorted(after.names)} {sorted(after.trash)}")
    if verb == "purge" and (left := holding(repo, b"creds", b"xyzzy")):
        wrong.append(f"still there: {left}")
    if complaint := git_fsck(repo.path):
        wrong.append(f"git fsck: {complaint}")
    taken = repo.run("envlog", "capture", "after")
    if taken.status != 0 or taken.err:
        wrong.append(f"the next capture: {taken.status}: {taken.err}")
    return wrong + [f"left behind: {one}" for one in debris(repo) if Path(one).name not in KNOWN_LEFT]


def without_it(template: Repo, verb: str) -> Known:
    """Return the result of the command without a fault."""
    with copy_of(template, verb) as repo:
        repo.run("envlog", *VERBS[verb], check=True)
        return read_state(repo)


def refused_at(template: Repo, verb: str, kind: str, error: str, when: int, wanted: Known) -> list[str]:
    """Return the problems after a disk failed from one call on."""
    with copy_of(template, verb) as repo:
        before = read_state(repo) if verb != "repair" else wanted
        done = repo.run("envlog", *VERBS[verb], prefix=traced(kind, f"error={error}", f"{when}+"))
        if done.status == 0 and not done.err:
            return ["succeeded"]
        wrong = badly_told(done, error)
        if verb != "repair":
            wrong += judge(repo, "purge" if verb == "purge" else "drop", before)
        return wrong + after_it(repo, verb, wanted)


def row(template: Repo, verb: str, kind: str, error: str, wanted: Known, step: int) -> tuple[int, list[str]]:
    """Return the number of points, and findings."""
    points, wrong, quiet, when = 0, list[str](), 0, 1
    while quiet < 2 and points < 150:
        found = refused_at(template, verb, kind, error, when, wanted)
        if found == ["succeeded"]:
            quiet += 1
        else:
            points, quiet = points + 1, 0
            wrong += [f"{kind} {when}: {line}" for line in found]
        when += step
    return points, wrong


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path, leave: int) -> Path:
    """Fill the file system up to a number of free bytes."""
    filler, found = place / "filler", os.statvfs(place)
    filler.write_bytes(b"\0" * (found.f_bavail * found.f_frsize - leave))
    return filler


def without_room(template: Repo, verb: str, leave: int, wanted: Known, small: Path) -> list[str] | None:
    """Return the problems with a number of bytes left; None if that was enough."""
    shutil.copytree(template.path, small / "one", symlinks=True)
    repo = Repo(small / "one", template.env)
    if verb == "repair":
        repairkills.contents(repo)
    before = read_state(repo) if verb != "repair" else wanted
    filler = fill(small, leave)
    done = repo.run("envlog", *VERBS[verb])
    wrong = badly_told(done)
    # git does not report why it could not write a lock file.
    if done.status == 128 and not any(one in done.err.lower() for one in ("no space left", "disk is full")):
        wrong.append(f"the error does not name the full disk: {done.err}")
    if verb != "repair":
        # Everything can be read on a full disk, too.
        wrong += judge(repo, "purge" if verb == "purge" else "drop", before)
    filler.unlink()
    wrong += after_it(repo, verb, wanted)
    shutil.rmtree(repo.path)
    return None if done.status == 0 and not done.err and not wrong else wrong


def room_row(template: Repo, verb: str, wanted: Known, step: int) -> tuple[int, list[str]]:
    points, wrong, quiet, leave = 0, list[str](), 0, 0
    small = template.path.parent / "small"
    with mounted(small):
        while quiet < 3 and points < 150:
            found = without_room(template, verb, leave, wanted, small)
            quiet = quiet + 1 if found is None else 0
            points += found is not None
            wrong += [f"{leave} left: {line}" for line in found or ()]
            leave += ROOM_STEP * step
    return points, wrong


def _rows(
    template: Repo, verb: str, wanted: Known, asked: argparse.Namespace
) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    if asked.room:
        yield "a full disk", room_row(template, verb, wanted, asked.step)
    for kind in asked.kinds.split(",") if asked.kinds else ():
        for error in asked.errors.split(","):
            yield f"{error} at {kind}", row(template, verb, kind, error, wanted, asked.step)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("verbs", nargs="*", default=list(VERBS))
    words.add_argument("--kinds", default=",".join(KINDS))
    words.add_argument("--errors", default=",".join(ERRORS))
    words.add_argument("--room", action="store_true", help="also on a full file system (as root)")
    words.add_argument("--step", type=int, default=1, help="fail at every n-th call")
    asked = words.parse_args()
    failed = 0
    print("| verb | refused | points | wrong |\n| --- | --- | ---: | ---: |", flush=True)
    for verb in asked.verbs:
        with tempfile.TemporaryDirectory(prefix="retention_full-") as place:
            template = sealed_repo(Path(place))
            ready(template, verb)
            wanted = without_it(template, verb)
            for told, (points, wrong) in _rows(template, verb, wanted, asked):
                failed += len(wrong)
                line = f"| {verb} | {told} | {points} | {len(wrong)} |"
                print(line, *wrong, sep="\n  " if wrong else "", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
