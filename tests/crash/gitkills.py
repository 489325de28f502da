"""Killing every git child process of every command: `python -m tests.crash.gitkills [COMMAND…] [--ways …] [--step N]`.

A git process may be killed (by the kernel without memory, or by an operator): before it does anything, after half of
its output, or at its end. Its output must then be ignored: no snapshot is lost, no file of the environment changes
unexpectedly, and the same command run again does its work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.campaign import sealed_repo
from tests.crash.faults import age_locks
from tests.objects.packing import noise
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo, Result

COMMANDS: dict[str, tuple[str, ...]] = {
    "capture": ("envlog", "capture", "another"),
    "log": ("envlog",),
    "diff": ("envdiff", "first..now"),
    "restore": ("envrestore", "second"),
    "restore to an older HEAD": ("envrestore", "--head", "first"),
    "restore and keep the code": ("envrestore", "--keep-tracked", "first"),
    "restore one path": ("envrestore", "first", "--", "notes.txt"),
    "undo": ("envrestore", "--undo"),
    "fork": ("envlog", "fork", "second", "../fork"),
    "name": ("envlog", "name", "other", "second"),
    "drop": ("envlog", "drop", "second"),
    "prune": ("envlog", "prune", "--keep-last=2"),
    "purge": ("envlog", "purge", "creds"),
    "gc": ("envlog", "gc"),
    "fsck": ("envlog", "fsck"),
    "repair": ("envlog", "fsck", "--repair"),
    "push": ("envlog", "push", "--yes"),
    "fetch": ("envlog", "fetch"),
    "export": ("envlog", "export", "../out.envhist.tar.zst", "--force"),
}
RESTORES = {name for name in COMMANDS if name.startswith(("restore", "undo"))}
NAMES = ("first", "second", "third", "fourth")
MAY_GO = {"prune": {"first", "second"}, "drop": {"second"}}

WRAPPER = """\
#!/bin/sh
echo . >>'{count}'
case " $* " in
*" $KILLED_AT "*) ;;
*) [ "#$(($(wc -l <'{count}')))" = "$KILLED_AT" ] || exec '{real}' "$@" ;;
esac
echo "$*" >'{count}.met'
case "$KILLED_HOW:$*" in
before:*|half:*cat-file*--batch|half:*cat-file*--batch-command*) ;;
half:*) '{real}' "$@" >'{count}.out'; head -c "$(($(wc -c <'{count}.out') / 2))" '{count}.out' ;;
*) '{real}' "$@" ;;
esac
kill -KILL $$
"""
WAYS = ("before", "half", "after")


@dataclass(frozen=True)
class Template:
    """A repository to copy, and its files at each snapshot."""

    place: Path
    repo: Repo
    moments: dict[str, Listing]
    wanted: dict[str, Listing]
    """The environment after a completed restore."""


def make(repo: Repo) -> Template:
    """Make snapshots with names of two code commits, with sealed files, pushed to a remote and fetched by another."""
    repo.git("init", "-q", "--bare", "../there")
    repo.git("remote", "add", "origin", "../there")
    repo.write(".gitignore", "creds\ncache/\n.env\n")
    moments = {}
    for number, name in enumerate(NAMES):
        repo.write("app.py", f"print({number})\n")
        if number % 2 == 0:
            repo.commit(f"code {number}")
        repo.write("creds", f"xyzzy {number}")
        repo.write(".env", f"SECRET=abcdefgh{number}\n")
        repo.write("notes.txt", f"notes {number}\n" * 50)
        repo.write("cache/same", noise(3000, 7))
        repo.write(f"cache/only-{number}", noise(3000, number))
        if number:
            (repo.path / f"cache/only-{number - 1}").unlink()
        repo.run("envlog", "capture", name, "--name", name, check=True)
        moments[name] = listing(repo.path)
        if name == "second":
            repo.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "fetch", check=True)
    # Changes to undo and to keep: a finished restore, and later edits.
    repo.run("envrestore", "third", check=True)
    repo.write("notes.txt", "edited since\n")
    unfinished = Template(repo.path.parent, repo, moments, {})
    return replace(unfinished, wanted=dict(_ends_of(unfinished)))


def _ends_of(template: Template) -> Iterator[tuple[str, Listing]]:
    for name in RESTORES:
        with copied(template) as repo:
            repo.run(*COMMANDS[name], check=True)
            yield name, listing(repo.path)


@contextmanager
def copied(template: Template) -> Iterator[Repo]:
    """Return a copy of the repository and of its remotes."""
    with tempfile.TemporaryDirectory(prefix="killed-", dir=template.place.parent) as place:
        shutil.copytree(template.place, place, symlinks=True, dirs_exist_ok=True)
        yield Repo(Path(place) / template.repo.path.relative_to(template.place), template.repo.env)


def with_a_killed_git(repo: Repo, words: tuple[str, ...], way: str, when: str) -> Result:
    """Run a program; `when`: `#7` is the seventh git that it starts, other words select gits with these words."""
    place = repo.path.parent / "killing"
    place.mkdir()
    real = shutil.which("git", path=repo.env["PATH"])
    (place / "git").write_text(WRAPPER.format(real=real, count=place / "count"))
    (place / "git").chmod(0o755)
    path = os.pathsep.join((str(place), repo.env["PATH"]))
    done = repo.run(*words, env={"PATH": path, "KILLED_AT": when, "KILLED_HOW": way})
    met = (place / "count.met").exists()
    shutil.rmtree(place)
    return done if met else Result(NOT_MET, b"", b"")


NOT_MET = 999


def one(template: Template, command: str, way: str, when: str) -> tuple[Result, list[str]]:
    """Run a command and kill its n-th git; return the command's result and the problems."""
    with copied(template) as repo:
        here, before = listing(repo.path), _state(repo)
        done = with_a_killed_git(repo, COMMANDS[command], way, when)
        if done.status == NOT_MET:
            return done, []
        wrong = list(_judge(template, repo, command, done, here, before))
        return done, wrong + list(_judge_again(template, repo, command, here))


def _state(repo: Repo) -> tuple[str, ...]:
    return repo.git("symbolic-ref", "HEAD"), repo.git("rev-parse", "HEAD"), repo.git("ls-files", "--stage")


def _judge(
    template: Template, repo: Repo, command: str, done: Result, here: Listing, before: tuple[str, ...]
) -> Iterator[str]:
    if done.status < 0 or any(word in done.err for word in ("Traceback", "unexpected", "report")):
        yield f"status {done.status}: {done.err}"
    if complaint := git_fsck(repo.path):
        yield f"git fsck: {complaint}"
    if "--head" not in COMMANDS[command] and _state(repo) != before:
        yield "HEAD, its branch or the index is another one"
    if command not in RESTORES and listing(repo.path) != here:
        yield "the environment was touched"


def _judge_again(template: Template, repo: Repo, command: str, here: Listing) -> Iterator[str]:
    """Run the same command again without a kill."""
    age_locks(repo)
    if command in RESTORES:
        yield from _end(template, repo, command, here)
    else:
        again = repo.run(*COMMANDS[command])
        # Steps completed before the kill are not repeated, except on the remote.
        if again.status not in (0, 1, 4) and "it was fetched" not in again.err:
            yield f"again: {again.status}: {again.out}{again.err}"
    listed = {
        name for one in json.loads(repo.run("envlog", "--json", check=True).out) for name in one["names"]
    }
    if lost := set(NAMES) - listed - MAY_GO.get(command, set()):
        yield f"lost: {sorted(lost)}"
    checked = repo.run("envlog", "fsck")
    if checked.status != 0:
        yield f"fsck: {checked.out}{checked.err}"
    for name in sorted({"first", "third"} & listed):
        to = repo.path.parent / f"to-{name}"
        repo.run("envrestore", name, "--to", str(to), check=True)
        there = listing(to)
        gone = {b"creds"} if command == "purge" else set()
        if {path: row for path, row in template.moments[name].items() if path not in gone} != there:
            yield f"{name} is another one"
    taken = repo.run("envlog", "capture", "after")
    if taken.status != 0 or taken.err:
        yield f"the next capture: {taken.status}: {taken.err}"


def _end(template: Template, repo: Repo, command: str, here: Listing) -> Iterator[str]:
    """Check that an interrupted restore can be continued, or that nothing changed."""
    now = listing(repo.path)
    if now != here and now != template.wanted[command]:
        went_on = repo.run("envrestore", "--continue")
        if went_on.status != 0:
            yield f"--continue: {went_on.status}: {went_on.out}{went_on.err}"
        if listing(repo.path) != template.wanted[command]:
            yield "it was restored in part"
    elif repo.run("envrestore", "--continue").status == 0 and listing(repo.path) != template.wanted[command]:
        yield "--continue reached another state"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("commands", nargs="*", default=list(COMMANDS), metavar="COMMAND")
    words.add_argument("--ways", default=",".join(WAYS))
    words.add_argument("--step", type=int, default=1, help="kill every n-th git")
    asked = words.parse_args()
    failed = 0
    print("| command | its git is killed | points | wrong |\n| --- | --- | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory(prefix="gitkills-", dir=os.environ.get("TMPDIR")) as place:
        (Path(place) / "template").mkdir()
        template = make(sealed_repo(Path(place) / "template"))
        for command in asked.commands:
            for way in asked.ways.split(","):
                points, wrong, when = 0, [], 1
                while True:
                    done, found = one(template, command, way, f"#{when}")
                    if done.status == NOT_MET:
                        break
                    wrong += [f"{when}: {line}" for line in found]
                    points, when = points + 1, when + asked.step
                failed += len(wrong)
                print(f"| {command} | {way} | {points} | {len(wrong)} |", *wrong, sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
