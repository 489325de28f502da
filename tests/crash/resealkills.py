"""`git envlog key new --reseal` killed at its calls: `python -m tests.crash.resealkills [--kinds …] [--step N]`.

After each kill every sealed file, attachment and output opens as before, and the same command completes the work.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.crash.campaign import KILL, sealed_repo
from tests.crash.faults import age_locks, traced
from tests.retention.test_purge import objects
from tests.support.repository import Repo, Result

KINDS = ("rename", "sync", "unlink", "mkdir", "spawn")
RESEAL = ("envlog", "key", "new", "--reseal")


@dataclass(frozen=True)
class Opened:
    """Everything that a reader with the keys sees of a history."""

    files: dict[str, list[str]]
    """By snapshot id: the contents of its sealed files."""
    trash: frozenset[str]
    attached: dict[str, str]
    outputs: dict[str, int]
    """How often the details of a snapshot contain its check's output."""
    notes: dict[str, list[str]]


def prepare(repo: Repo) -> None:
    """Make two timelines and a snapshot in the trash, with everything that is sealed: files, facts, attachments,
    outputs."""
    repo.write("early.txt", "attached at once")
    repo.write(".env", "API_KEY=first\n")
    repo.write("deep/prod.env", "B=1\n")
    repo.run("envlog", "capture", "one", "--attach", "early.txt", "--name", "first", check=True)
    repo.write(".env", "API_KEY=second\nOTHER=1\n")
    repo.run("envlog", "capture", "two", check=True)
    repo.write(".env", "API_KEY=third\n")
    repo.run("envlog", "capture", "three", "--verify", "echo the output", check=True)
    repo.run("envlog", "note", "first", "-m", "a remark", check=True)
    repo.run("envlog", "drop", "@~1", check=True)
    repo.git("add", "-f", "early.txt")
    repo.git("commit", "-q", "-m", "base")
    repo.git("worktree", "add", "-q", "other")
    other = Repo(repo.path / "other", repo.env)
    other.write(".env", "API_KEY=other\n")
    other.run("envlog", "capture", "elsewhere", check=True)


def read_state(repo: Repo) -> Opened:
    """Read everything that is sealed."""
    listed = json.loads(repo.run("envlog", "--all", "--json", check=True).out)
    ids = [one["id"] for one in listed]
    shown = {one: json.loads(repo.run("envlog", "show", one, "--json", check=True).out) for one in ids}
    place = Path(tempfile.mkdtemp(dir=repo.path.parent))
    repo.run("envrestore", "--attachments", str(place / "attached"), "first", check=True)
    attached = {path.name: path.read_text() for path in (place / "attached").iterdir()}
    shutil.rmtree(place)
    return Opened(
        {
            one: [repo.run("envlog", "show", f"{one}:{path}").out for path in (".env", "deep/prod.env")]
            for one in ids
        },
        frozenset(
            one["id"] for one in json.loads(repo.run("envlog", "undrop", "--json", check=True).out)["trash"]
        ),
        attached,
        {one: repo.run("envlog", "show", one, check=True).out.count("the output\n") for one in ids},
        {one: [str(note) for note in shown[one].get("notes", ())] for one in ids},
    )


def sealed_with_others(repo: Repo) -> list[str]:
    """Return the objects of files that are not sealed with the newest key; notes keep theirs."""
    current = (repo.path / ".git/envhist/keys/current").read_text().strip()
    found = objects(repo.path / ".git").items()
    return [
        oid
        for oid, data in found
        if data.startswith(b"envhist-sealed 1\n")
        and current.encode() not in data[:60]
        and b"kind file" in data[:200]
    ]


def killed_at(template: Repo, kind: str, when: int, wanted: Opened) -> tuple[Result, list[str]]:
    """Kill the command at one call on a copy of the repository; return the problems then, and after the next run."""
    with tempfile.TemporaryDirectory(prefix="reseal-", dir=template.path.parent) as place:
        repo = Repo(Path(place) / "repo", template.env)
        shutil.copytree(template.path, repo.path, symlinks=True)
        repo.git("worktree", "repair", str(repo.path / "other"))
        done = repo.run(*RESEAL, prefix=traced(kind, KILL, str(when)))
        wrong = [] if read_state(repo) == wanted else [f"after the kill: {read_state(repo)}"]
        age_locks(repo)
        again = repo.run(*RESEAL)
        wrong += [f"again: {again.status}: {again.err}"] if again.status else []
        wrong += [] if read_state(repo) == wanted else [f"after the next run: {read_state(repo)}"]
        wrong += [f"sealed with an older key: {one}" for one in sealed_with_others(repo)]
        checked = repo.run("envlog", "fsck")
        wrong += [f"fsck: {checked.out}{checked.err}"] if checked.status else []
        taken = repo.run("envlog", "capture", "after")
        wrong += [f"the next capture: {taken.err}"] if taken.status or taken.err else []
        return done, wrong


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kinds", default=",".join(KINDS))
    words.add_argument("--step", type=int, default=1, help="kill at every n-th call")
    asked = words.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="resealkills-") as place:
        template = sealed_repo(Path(place))
        prepare(template)
        wanted = read_state(template)
        for kind in asked.kinds.split(","):
            points, when = 0, 1
            while True:
                done, wrong = killed_at(template, kind, when, wanted)
                for line in wrong:
                    print(f"{kind} {when}: {line}", flush=True)
                failed += len(wrong)
                if done.status == 0:
                    break
                points, when = points + 1, when + asked.step
            print(f"{kind}: killed at {points} calls", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
