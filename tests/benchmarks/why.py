"""Time `why`, `blame` and `-S` on a long timeline beside git on the same data: `python -m tests.benchmarks.why`.

One real capture gives the first tree; each later snapshot changes one file, and is a commit with the message and the
signature that a capture writes. The same trees without our own entries are commits of a branch, for git.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.git.current_actor import identity_line
from git_envhist.git.repository import TIMELINE_REFS, RefUpdate
from git_envhist.model import ChangeCount
from git_envhist.objects.commits import encode_commit
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import DIRECTORY, FILE, decode_by_name, encode_tree
from git_envhist.snapshots.message import mac_input, read_message, with_mac, write_message
from git_envhist.snapshots.staging import Staging
from git_envhist.snapshots.stored_names import RESERVED
from tests.benchmarks.many_snapshots import sealed
from tests.benchmarks.scratch import Scratch

PER_DIRECTORY = 100
HOT = 40
"""Each HOT-th snapshot changes the file that is asked about."""
RUNS = 3
Tree = dict[bytes, tuple[int, bytes]]


def place(number: int) -> tuple[bytes, bytes]:
    """Return the directory and the name of a file."""
    return b"d%03d" % (number // PER_DIRECTORY), b"f%05d.txt" % number


def content(number: int, version: int) -> bytes:
    lines = [b"line %d of file %d" % (line, number) for line in range(60)]
    lines[version % 60] = b"changed %d in version %d" % (number, version)
    return b"\n".join(lines) + b"\n"


def build(top: Path, files: int, snapshots: int) -> None:
    """Capture a tree of files, then append snapshots that change one file each."""
    for number in range(files):
        directory, name = (os.fsdecode(part) for part in place(number))
        (top / directory).mkdir(exist_ok=True)
        (top / directory / name).write_bytes(content(number, 0))
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    captured = history.capture("first")
    assert captured.snapshot is not None
    repository = history.repository
    with Staging.create(repository.common_state, repository.pack_dir) as staging:
        writer = PackWriter(staging.pack_dir, repository.object_format)
        tip, plain = append(history, writer, files, snapshots)
        staging.journal_commit(tip)
        pack = writer.finish()
        staging.publish([pack] if pack else [])
        moves = [(TIMELINE_REFS + str(history.timeline), tip), ("refs/heads/plain", plain)]
        repository.move_refs([RefUpdate(ref, new, repository.resolve_ref(ref)) for ref, new in moves])


def append(history: EnvHistory, writer: PackWriter, files: int, number: int) -> tuple[str, str]:
    """Write the commits; return the tips of the timeline and of the branch."""
    git, key = history.repository.git, history.keys.current()
    newest = history.resolve("@")
    raw = git.run("cat-file", "commit", newest.commit).partition(b"\n\n")[2]
    first = replace(read_message(raw).draft, changed=ChangeCount(0, 1, 0))

    def read(name: str) -> Tree:
        return decode_by_name(git.run("cat-file", "tree", name), 20)

    def write(tree: Tree) -> bytes:
        return writer.add(b"tree", encode_tree([(name, *item) for name, item in tree.items()]))

    top = read(newest.tree)
    below = {
        name: read(oid.hex()) for name, (mode, oid) in top.items() if mode == DIRECTORY and name != RESERVED
    }
    tip, plain, at = str(newest.commit), "", newest.at
    for count in range(1, number):
        at += timedelta(minutes=3)
        changed = 0 if count % HOT == 0 else count * 37 % files
        directory, name = place(changed)
        below[directory][name] = (FILE, writer.add(b"blob", content(changed, count)))
        top[directory] = (DIRECTORY, write(below[directory]))
        author = identity_line("A Developer", "dev@example.com", at)
        tree = write(top).hex()
        message = write_message(replace(first, intent=b"step %d" % count))
        message = with_mac(message, key.mac(mac_input(tree, author, message)))
        tip = writer.add(b"commit", encode_commit(tree, tip, author, author, message)).hex()
        own = write({name: item for name, item in top.items() if name != RESERVED}).hex()
        plain = writer.add(b"commit", encode_commit(own, plain or None, author, author, b"step\n")).hex()
    return tip, plain


def timed(top: Path, words: Sequence[str]) -> float:
    """Return the median processor seconds of a command and its children: other load does not change them."""
    seconds = []
    for _ in range(RUNS):
        began = spent()
        subprocess.run(words, cwd=top, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        seconds.append(spent() - began)
    return statistics.median(seconds)


def spent() -> float:
    """Return the processor seconds of all children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(top: Path, number: int) -> list[tuple[str, float, str, float | None]]:
    """Return our command with its seconds, and git's with its."""
    directory, name = (os.fsdecode(part) for part in place(0))
    path, ours = f"{directory}/{name}", ["git", "--no-pager", "envlog"]
    text = f"in version {number // HOT * HOT // 2}"
    git = ["git", "--no-pager"]
    pairs = [
        ("why <path>, first step", [*ours, "why", "-n1", "--at", "@", path], "git log -1 -- <path>",
         [*git, "log", "-1", "plain", "--", path]),
        ("why --all <path>", [*ours, "why", "--all", "--at", "@", path], "git log -- <path>",
         [*git, "log", "plain", "--", path]),
        ("why <path>:<line>", [*ours, "why", "-n1", "--at", "@", f"{path}:5"], "git blame -L",
         [*git, "blame", "-L5,5", "plain", "--", path]),
        ("blame <path>", [*ours, "blame", path], "git blame", [*git, "blame", "plain", "--", path]),
        ("-S <text>", [*ours, "-S", text, "--oneline"], "git log -S", [*git, "log", "-S", text, "plain", "--"]),
    ]  # fmt: skip
    return [(own, timed(top, words), other, timed(top, theirs)) for own, words, other, theirs in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--snapshots", type=int, default=10_000)
    chosen = parser.parse_args()
    with Scratch() as scratch, sealed(scratch.base / "home"):
        top = scratch.base / "repo"
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        build(top, chosen.files, chosen.snapshots)
        print(
            f"{chosen.snapshots:,} snapshots of {chosen.files:,} files; processor seconds, median of {RUNS}\n"
        )
        print("| command | seconds | git | seconds |\n| --- | ---: | --- | ---: |")
        for own, seconds, other, theirs in rows(top, chosen.snapshots):
            print(f"| `{own}` | {seconds:.2f} | `{other}` | {theirs:.2f} |")


if __name__ == "__main__":
    main()
