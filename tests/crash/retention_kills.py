"""Kill drop, prune and purge at their system calls: `python -m tests.crash.retention_kills [VERB…] [--kinds …]
[--step N]`.

A kill must lose nothing; every snapshot keeps its names, and the same command again gives the result of one without a
kill.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.crash.campaign import KILL, sealed_repo
from tests.crash.faults import age_locks, traced
from tests.retention.test_purge import holding
from tests.support.repository import Repo, Result

VERBS = {
    "drop": ("drop", "second", "third"),
    "prune": ("prune", "--keep-last=1"),
    "undrop": ("undrop", "zero"),
    "purge": ("purge", "creds"),
}
NAMES = ("first", "second", "third", "fourth")
KINDS = ("rename", "sync", "unlink", "mkdir", "spawn")


@dataclass(frozen=True)
class Known:
    """Names and environment of every snapshot on the timeline and in the trash, by id."""

    names: dict[str, list[str]]
    trees: dict[str, dict[str, str]]
    trash: dict[str, str]


def prepare(repo: Repo) -> None:
    """Make five snapshots, one in the trash; all contain a file to be purged."""
    for number, name in enumerate(("zero", *NAMES)):
        repo.write("creds", f"xyzzy {number}")
        repo.write("kept", f"kept {number}" * 50)
        words = () if name in ("second", "third") else ("--name", name)
        repo.run("envlog", "capture", name, *words, check=True)
    (repo.path / "creds").unlink()
    repo.run("envlog", "drop", "zero", check=True)


def read_state(repo: Repo) -> Known:
    """Read the names and environments with the programs."""
    listed = json.loads(repo.run("envlog", "--json", check=True).out)
    trash = json.loads(repo.run("envlog", "undrop", "--json", check=True).out)["trash"]
    return Known(
        {one["id"]: one["names"] for one in listed},
        {one["id"]: _tree(repo, one["commit"]) for one in listed},
        {one["id"]: one["intent"] for one in trash},
    )


def _tree(repo: Repo, commit: str) -> dict[str, str]:
    rows = repo.git("ls-tree", "-r", commit).splitlines()
    split = (row.partition("\t") for row in rows if "\t.envhist/" not in row)
    return {path: head for head, _, path in split}


def words_of(repo: Repo, verb: str) -> tuple[str, ...]:
    """Return the command line; snapshots are named by intent, because they may be dropped."""
    first, *rest = VERBS[verb]
    return (first, *(f":/{word}" if verb == "drop" else word for word in rest))


def judge(repo: Repo, verb: str, before: Known) -> list[str]:
    """Return the problems after a kill."""
    checked = repo.run_git("fsck", "--connectivity-only", "--no-dangling", check=False)
    wrong = [f"fsck: {checked.out}{checked.err}"] if checked.status or checked.out.strip() else []
    after = read_state(repo)
    lost = {*before.names, *before.trash} - {*after.names, *after.trash}
    wrong += [f"lost: {one}" for one in sorted(lost)]
    for one, names in after.names.items():
        if one in before.names and names != before.names[one]:
            wrong.append(f"{one} was named {before.names[one]}, and is named {names}")
        if one in before.trees:
            less = {path for path in before.trees[one] if verb == "purge" and path == "creds"}
            kept = {path: row for path, row in before.trees[one].items() if path not in less}
            if {path: row for path, row in after.trees[one].items() if path not in less} != kept:
                wrong.append(f"{one} holds something else")
    return wrong


def finish(repo: Repo, verb: str, wanted: Known) -> list[str]:
    """Run the command again and capture; return the problems."""
    age_locks(repo)
    done = repo.run("envlog", *words_of(repo, verb))
    # Steps completed before the kill are not repeated.
    wrong = [] if done.status in (0, 4) else [f"again: {done.status}: {done.err}"]
    if verb == "drop" and done.status == 4:
        for word in VERBS[verb][1:]:
            repo.run("envlog", "drop", f":/{word}")
    after = read_state(repo)
    if (after.names.keys(), after.trash.keys()) != (wanted.names.keys(), wanted.trash.keys()):
        wrong.append(f"not as without a kill: {sorted(after.names)} {sorted(after.trash)}")
    if verb == "purge" and (left := holding(repo, b"creds", b"xyzzy")):
        wrong.append(f"still there: {left}")
    taken = repo.run("envlog", "capture", "after")
    if taken.status != 0 or taken.err:
        wrong.append(f"the next capture: {taken.status}: {taken.err}")
    return wrong


def killed_at(template: Repo, verb: str, kind: str, when: int, wanted: Known) -> tuple[Result, list[str]]:
    """Kill the command at one call on a copy of the repository; return the result."""
    with tempfile.TemporaryDirectory(prefix="kept-", dir=template.path.parent) as place:
        repo = Repo(Path(place) / "repo", template.env)
        shutil.copytree(template.path, repo.path, symlinks=True)
        before = read_state(repo)
        done = repo.run("envlog", *words_of(repo, verb), prefix=traced(kind, KILL, str(when)))
        return done, [*judge(repo, verb, before), *finish(repo, verb, wanted)]


def without_a_kill(template: Repo, verb: str) -> Known:
    """Return the result of the command without a kill."""
    with tempfile.TemporaryDirectory(prefix="kept-", dir=template.path.parent) as place:
        repo = Repo(Path(place) / "repo", template.env)
        shutil.copytree(template.path, repo.path, symlinks=True)
        repo.run("envlog", *words_of(repo, verb), check=True)
        return read_state(repo)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("verbs", nargs="*", default=list(VERBS))
    words.add_argument("--kinds", default=",".join(KINDS))
    words.add_argument("--step", type=int, default=1, help="kill at every n-th call")
    asked = words.parse_args()
    failed = 0
    print("| verb | killed at | points | wrong |\n| --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="retention_kills-") as place:
        template = sealed_repo(Path(place))
        prepare(template)
        for verb in asked.verbs:
            wanted = without_a_kill(template, verb)
            for kind in asked.kinds.split(","):
                points, wrong, when = 0, [], 1
                while True:
                    done, found = killed_at(template, verb, kind, when, wanted)
                    wrong += [f"{kind} {when}: {line}" for line in found]
                    if done.status == 0 and not done.err:
                        break
                    points, when = points + 1, when + asked.step
                failed += len(wrong)
                print(
                    f"| {verb} | {kind} | {points} | {len(wrong)} |",
                    *wrong,
                    sep="\n  " if wrong else "",
                    flush=True,
                )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
