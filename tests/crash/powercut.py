"""Power failures during captures, as root: `python -m tests.crash.powercut [--cuts N] [--captures N] [--seed N]
[--options …]`.

Captures run in a repository on a separate ext4, on a disk that records every write and flush (`disk`). The disk is
then cut at random positions, mounted (its journal is replayed) and checked: everything reported as captured is
complete, the tip is one that a capture made, git fsck finds nothing wrong, the next capture needs no help.
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import sealed_environment
from tests.crash.disk import Platter, Write, apply, read_log
from tests.crash.faults import age_locks, change, debris
from tests.end_to_end.captures import assert_holds, history
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.programs import CHECKOUT, make_programs
from tests.support.repository import Repo, make_repo
from tests.support.trees import File, build

SIZE = "64M"
NAMESPACE = "ENVHIST_POWERCUT_INSIDE"


class CannotBeHad(Exception):
    """This machine lacks loop devices or FUSE, or does not permit them."""


@dataclass
class Told:
    """A reported capture, and the length of the log at that time."""

    began: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    held: dict[str, Listing] = field(default_factory=dict)

    def surely(self, at: int) -> list[str]:
        """Return what must exist if the log ends here."""
        return [one for one, when in zip(self.ids, self.said, strict=True) if when <= at]

    def possibly(self, at: int) -> list[str]:
        return [one for one, when in zip(self.ids, self.began, strict=True) if when < at]


def in_own_mounts(module: str) -> None:
    """Restart in a private mount namespace."""
    if NAMESPACE not in os.environ:
        os.chdir(CHECKOUT)
        os.environ[NAMESPACE] = "1"
        here = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", "--propagation=private", *here])


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cuts", type=int, default=300)
    words.add_argument("--captures", type=int, default=12)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument(
        "--options", default="defaults", help="mount options of the file system that loses power"
    )
    asked = words.parse_args()
    in_own_mounts("tests.crash.powercut")
    seed = asked.seed if asked.seed is not None else int(time.time())
    with tempfile.TemporaryDirectory(prefix="powercut-") as place:
        try:
            figures, wrong = campaign(Path(place), asked.captures, asked.cuts, seed, asked.options)
        except CannotBeHad as reason:
            print(f"cannot be had: {reason}")
            return 77
    print("| mounted with | cuts | old tip | new tip | wrong |\n| --- | --- | --- | --- | --- |")
    print(f"| {asked.options} | {asked.cuts} | {figures['old']} | {figures['new']} | {len(wrong)} |")
    print("\n".join([f"seed {seed}", *wrong]))
    return 1 if wrong else 0


def campaign(
    place: Path, captures: int, cuts: int, seed: int, options: str
) -> tuple[Counter[str], list[str]]:
    chance = random.Random(seed)
    image, log = place / "image", place / "log"
    told = Told()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    must("mkfs.ext4", "-q", "-F", image)
    seal(place)
    with mounted(image, place / "work", options):
        prepare(make_repo(place / "work/repo"))
    shutil.copy(image, place / "platter")
    with on_logged_disk(image, log, place, options) as work:
        take(Repo(work / "repo", dict(os.environ)), captures, log, told)
    writes = list(read_log(log))
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    platter = Platter(place / "platter", writes)
    for at in sorted(chance.randrange(len(writes) + 1) for _ in range(cuts)):
        lucky = platter.cut(at, chance)
        subprocess.run(["cp", "--sparse=always", place / "platter", place / "cut"], check=True)
        apply(place / "cut", lucky)
        with mounted(place / "cut", place / "work", options):
            wrong += [f"at {at}: {line}" for line in judge(place / "work/repo", told, writes, at, figures)]
    platter.close()
    return figures, wrong


def seal(place: Path) -> None:
    """Isolate the tests: keys and programs are not on the disk that loses power."""
    for name in ("home", "programs"):
        (place / name).mkdir()
    programs = make_programs(place / "programs")
    path = os.pathsep.join((str(programs), os.path.dirname(sys.executable), os.environ["PATH"]))
    os.environ.update({**sealed_environment(place / "home"), "PATH": path})


def prepare(repo: Repo) -> None:
    build({b"d%d/f%d" % (n % 7, n): File(b"first %d" % n * 40) for n in range(60)}, repo.path)
    repo.write(".env.local", b"API_KEY=1234\n")
    repo.git("config", "envhist.workers", "2")


def take(repo: Repo, captures: int, log: Path, told: Told) -> None:
    """Capture repeatedly; record the files as `find` shows them."""
    for number in range(captures):
        if number:
            change(repo, f"step {number}")
        # Manual changes may be lost as usual; only captures are tested.
        held = listing(repo.path, top=True)
        told.began.append(log.stat().st_size)
        words = ["git-envlog", "capture", "--porcelain", "-m", f"step {number}"]
        running = subprocess.Popen(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE)
        assert running.stdout is not None
        commit = running.stdout.readline().decode().strip()
        told.said.append(log.stat().st_size)
        told.ids.append(commit)
        told.held[commit] = held
        assert running.wait() == 0


def judge(path: Path, told: Told, writes: list[Write], at: int, figures: Counter[str]) -> list[str]:
    """Return the problems after a cut."""
    reached = writes[at - 1].end if at else 0
    repo = Repo(path, dict(os.environ))
    wrong = []
    if complaint := git_fsck(path):
        wrong.append(f"fsck: {complaint}")
    found = history(repo)
    surely, possibly = told.surely(reached), told.possibly(reached)
    figures["new" if len(found) > len(surely) else "old"] += 1
    if not len(surely) <= len(found) <= len(possibly) or found[::-1] != told.ids[: len(found)]:
        wrong.append(f"reported: {surely}, started: {possibly}, found: {found}")
    wrong += [line for commit in found[:2] for line in _incomplete(repo, commit, told.held[commit])]
    age_locks(repo)
    done = repo.run("envlog", "capture", "--porcelain", "-m", "after the cut")
    if done.status != 0 or done.err:
        return [*wrong, f"the next capture ended with {done.status}: {done.err}"]
    wrong += _incomplete(repo, done.out.strip(), listing(path, top=True))
    return [*wrong, *(f"left behind: {name}" for name in debris(repo))]


def _incomplete(repo: Repo, commit: str, wanted: Listing) -> list[str]:
    try:
        assert_holds(repo, commit, wanted)
    except AssertionError as error:
        return [f"{commit} is not whole: {str(error)[:2000]}"]
    return []


@contextmanager
def mounted(image: Path, place: Path, options: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    must("mount", "-o", f"loop,{options}", image, place)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def on_logged_disk(image: Path, log: Path, place: Path, options: str) -> Iterator[Path]:
    """Mount the image through the recording disk; unmounting writes and records everything."""
    served = place / "served"
    served.mkdir()
    words = [sys.executable, "-m", "tests.crash.disk", str(image), str(log), str(served)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout is not None
    try:
        if server.stdout.readline() != b"ready\n":
            raise CannotBeHad(server.communicate()[1].decode()[-300:])
        with mounted(served / "disk", place / "work", options):
            yield place / "work"
        must("umount", served)
    finally:
        server.kill()
        server.communicate()


def must(*words: str | Path) -> None:
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise CannotBeHad(str(missing)) from missing
    if done.returncode != 0:
        raise CannotBeHad(f"{words[0]}: {done.stderr.decode().strip()}")


if __name__ == "__main__":
    sys.exit(main())
