"""Flip bits and truncate files at random places: `python -m tests.maintenance.rot [--times N]` prints a table.

Each round damages one file of the store (a pack, an index, a ref, a cache; before and after `gc`) in a copy. Then: a
full check finds the damage, unless no program reads the changed bytes; everything that it does not report is read back
byte for byte; after a repair every remaining snapshot is intact, all that were not reported remain, and the user's own
`git fsck`, `gc`, `clone --mirror` and `push --mirror` succeed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.model import FsckReport
from tests.crash.campaign import sealed_repo
from tests.objects.packing import noise
from tests.support.repository import Repo

KINDS = ("packs", "indexes", "refs", "notes", "caches")


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--times", type=int, default=100)
    words.add_argument("--seed", default="rot")
    asked = words.parse_args()
    rng = random.Random(asked.seed)
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rot-") as place:
        models = [make(Path(place) / name, packed) for name, packed in (("plain", False), ("packed", True))]
        for number in range(asked.times):
            kind = KINDS[number % len(KINDS)]
            repo = rng.choice(models)
            outcome = once(repo, Path(place) / "copy", kind, rng, wrong)
            counts[kind, outcome] += 1
            counts[kind, "times"] += 1
    columns = ("times", "found", "harmless", "repaired", "set aside")
    print("| damaged | " + " | ".join(columns) + " | wrong |")
    print("| --- | " + " | ".join("---:" for _ in columns) + " | ---: |")
    for kind in KINDS:
        cells = " | ".join(str(counts[kind, column]) for column in columns)
        print(f"| {kind} | {cells} | {sum(one.startswith(kind) for one in wrong)} |")
    print("\n".join(wrong))
    return 1 if wrong else 0


def make(place: Path, packed: bool) -> Repo:
    """Create a history of snapshots that share some files and differ in others, with names and a big file."""
    place.mkdir()
    repo = sealed_repo(place)
    repo.write("code/main.py", "print(1)\n")
    repo.commit("code")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("big.bin", noise(8_500_000))
    for number in range(6):
        repo.write("app.py", "".join(f"line {line} of {number}\n" for line in range(200 + number)))
        repo.write(f"once/{number}", noise(2_000, number))
        captured = history.capture(f"moment {number}")
        history.name(f"name-{number}", captured.snapshot or "@")
        (repo.path / f"once/{number}").unlink()
    if packed:
        history.gc("now")
    return repo


def once(model: Repo, place: Path, kind: str, rng: random.Random, wrong: list[str]) -> str:
    """Damage a copy at one place, check, repair and judge it. Return the result as a word."""
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run(["cp", "-a", str(model.path), str(place)], check=True)
    repo = Repo(place, model.env)
    before = contents(repo)
    what = damage(repo, kind, rng)
    try:
        history = EnvHistory.open(str(place), workers="here", one_command=True)
        found = history.fsck()
        named = {broken.commit for broken in found.broken}
        repaired = EnvHistory.open(str(place), workers="here", one_command=True).fsck(repair=True)
        reported = judge(repo, before, named, found, repaired)
        if reported is None:
            counts = "harmless" if found.is_whole else "found"
            return counts if found.is_whole or not repaired.repaired else _outcome(repaired)
    except Exception as error:  # every failure counts, whatever its kind
        reported = f"{type(error).__name__}: {error}"
    wrong.append(f"{kind}: {what}: {reported}")
    return "found"


def _outcome(repaired: FsckReport) -> str:
    text = " ".join(repaired.repaired)
    return "set aside" if "set aside;" in text else "repaired" if " back from " in text else "found"


def damage(repo: Repo, kind: str, rng: random.Random) -> str:
    """Flip a bit of a file, or truncate it."""
    git_dir = repo.path / ".git"
    packs = sorted(
        path for path in (git_dir / "objects/pack").glob("*.pack") if path.with_suffix(".keep").exists()
    )
    files = {
        "packs": packs,
        "indexes": [path.with_suffix(".idx") for path in packs],
        "refs": [path for path in (git_dir / "refs/envhist").rglob("*") if path.is_file()],
        "notes": [path for path in (git_dir / "refs/notes").rglob("*") if path.is_file()],
        "caches": sorted(path for path in (git_dir / "envhist/cache").iterdir() if path.is_file()),
    }[kind]
    path = rng.choice(files)
    os.chmod(path, 0o644)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.3:
        length = rng.randrange(len(content))
        path.write_bytes(content[:length])
        return f"{path.name} cut to {length} of {len(content)}"
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"{path.name} flipped at {at} of {len(content)}"


def contents(repo: Repo) -> dict[str, tuple[str, ...]]:
    """Return the ids of all files of each snapshot by intent, as git lists them."""
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads", check=False)
    listed = repo.run_git("log", "--format=%H%x09%s", ref, check=False)
    found = {}
    for line in listed.out.splitlines():
        commit, _, intent = line.partition("\t")
        found[intent] = tuple(repo.git("ls-tree", "-r", commit).splitlines())
    return found


def judge(
    repo: Repo, before: dict[str, tuple[str, ...]], named: set[str], found: FsckReport, repaired: FsckReport
) -> str | None:
    """Return a description of an error, or None."""
    if not repaired.is_whole:
        return f"not whole after a repair: {repaired.faults[:2]} {[one.paths for one in repaired.broken][:2]}"
    after = contents(repo)
    if changed := [intent for intent, files in after.items() if before.get(intent) != files]:
        return f"other files in {changed}"
    lost = set(before) - set(after)
    # If a commit itself is lost, the snapshots before it are not known to exist.
    is_cut_off = any(one.snapshot is None for one in found.broken)
    is_cut_off |= any(fault.kind == "ref" for fault in found.faults)
    if len(lost) > len(found.broken) and not is_cut_off:
        return f"lost {sorted(lost)}, named {len(found.broken)}"
    for files in after.values():
        ids = "".join(line.split()[2] + "\n" for line in files)
        if " missing" in repo.git("cat-file", "--batch-check", input=ids):
            return "something is missing"
    for words in (
        ("fsck", "--full", "--strict", "--no-dangling"),
        ("gc", "-q", "--prune=now"),
        ("clone", "-q", "--mirror", ".", str(repo.path.parent / "mirror")),
    ):
        shutil.rmtree(repo.path.parent / "mirror", ignore_errors=True)
        done = repo.run_git(*words, check=False)
        if done.status != 0:
            return f"git {words[0]}: {done.err.strip()[:200]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
