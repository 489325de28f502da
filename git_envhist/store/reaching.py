"""What a repository still reaches: from every place that git itself holds on to, and from what was set aside.

git looks at what a cleaning of its own looks at: every ref, the HEAD and the index of each working tree, and what the
reflogs name. Of what comes of it we keep those objects that stand in our packs, in git's order and with the path under
which git came to each: by both it finds later which of them resemble each other.

A ref that cannot be read is an error, never passed over: what only it reaches would look like garbage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from git_envhist.errors import GitFailed
from git_envhist.store.child import GitStream
from git_envhist.store.git import Git, memory_file
from git_envhist.system import open_file_only
from git_envhist.values import dataclass

ROOTS = ("--all", "--reflog", "--indexed-objects")
OURS = ("refs/envhist/", "refs/notes/envhist/")
NOT_OURS = (*(f"--exclude={place}*" for place in OURS), *ROOTS)
"""The same, without what a history of ours leads to."""
PROMISED = "--missing=allow-promisor"
"""What a partial clone left out is not missing."""
PSEUDO = (
    "ORIG_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "FETCH_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/autostash",
    "rebase-merge/orig-head",
    "rebase-apply/autostash",
    "rebase-apply/orig-head",
)
"""git's own cleaning takes no heed of most of these. Whoever finds one there has something half done."""
LENGTHS = (40, 64)
HINT = "'git fsck' and 'git envlog fsck' say what is damaged; nothing was removed"


@dataclass(frozen=True, slots=True)
class Tips:
    """What every ref and HEAD named at one moment."""

    ids: frozenset[str]


def tips_of(git: Git) -> Tips:
    """Where the refs stand; an error where one of them cannot be read."""
    done = git.run("for-each-ref", "--format=%(objectname)")
    head = git.ask("rev-parse", "--verify", "--quiet", "HEAD").out
    return Tips(frozenset(os.fsdecode(done + head).split()))


def reachable_objects(
    git: Git,
    is_wanted: Callable[[bytes], bool],
    *,
    roots: Iterable[str] = ROOTS,
    more: Iterable[str] = (),
    since: Tips | None = None,
) -> dict[bytes, bytes]:
    """The wanted objects that anything reaches, each with a path; `GitFailed` where that cannot be known.

    `roots`: where to begin, in the words of `git rev-list`; `more`: further ids, as far as they are there. `since`:
    what came after these, at least.
    """
    old = since.ids if since is not None else ()
    lines = [*_present(git, more), *(f"^{tip}" for tip in _present(git, old))]
    found: dict[bytes, bytes] = {}
    for line in _lines(_paranoid(git), ("rev-list", "--objects", *roots, PROMISED, "--stdin"), lines):
        name, _, path = line.partition(b" ")
        oid = _object_id(name)
        if is_wanted(oid):
            found.setdefault(oid, path)
    return found


def _object_id(name: bytes) -> bytes:
    try:
        return bytes.fromhex(name.decode("ascii"))
    except ValueError:
        # Its pipe failed in the middle of a line.
        raise GitFailed("git rev-list printed an incomplete line", hint="run the command again") from None


def present_objects_of(
    git: Git, commits: Iterable[str], is_wanted: Callable[[bytes], bool]
) -> dict[bytes, bytes]:
    """What is still there of some snapshots that are not whole, each with a path."""
    words = ("rev-list", "--objects", "--no-walk", "--ignore-missing", "--missing=allow-any", "--stdin")
    found: dict[bytes, bytes] = {}
    lines = _present(git, commits)
    with suppress(GitFailed):
        for line in _lines(git, words, lines) if lines else ():
            name, _, path = line.partition(b" ")
            oid = _object_id(name)
            if is_wanted(oid):
                found.setdefault(oid, path)
    return found


def git_dirs_of(common_dir: str) -> tuple[str, ...]:
    """The git directories of all working trees."""
    place = os.path.join(common_dir, "worktrees")
    linked = os.listdir(place) if os.path.isdir(place) else ()
    return (common_dir, *(os.path.join(place, name) for name in linked))


def unreferenced_tips(git_dirs: Iterable[str], *, ours: bool = True) -> list[str]:
    """The ids that no ref of git's lists, and that whoever works in these git directories goes by.

    `ours`: with what a history of ours leads to.
    """
    found: list[str] = []
    for directory in git_dirs:
        found += _half_done(directory)
        # Refs of one working tree alone (a bisect, a rebase) are listed to a git that stands in it.
        told = Git(directory, None).ask("for-each-ref", "--format=%(objectname) %(refname)")
        rows = (line.partition(" ") for line in os.fsdecode(told.out).splitlines())
        found += [oid for oid, _, ref in rows if ours or not ref.startswith(OURS)]
    return found


def _half_done(directory: str) -> Iterator[str]:
    """What stands in the files by which something half done is remembered."""
    for name in PSEUDO:
        try:
            with open(os.path.join(directory, name), "rb", opener=open_file_only) as file:
                lines = file.read(1 << 16).splitlines()
        except OSError:
            continue
        words = (os.fsdecode(line.split()[0]) for line in lines if line.split())
        yield from (word for word in words if len(word) in LENGTHS)


def _present(git: Git, ids: Iterable[str]) -> list[str]:
    """Those that are there: a name of what went long ago would end everything."""
    asked = sorted(set(ids))
    if not asked:
        return []
    told = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in asked).encode()
    )
    return [line for line in os.fsdecode(told).splitlines() if len(line) in LENGTHS]


def _paranoid(git: Git) -> Git:
    # Before 2.34 git passed over refs that are broken, unless it was told.
    careful = git.with_alternates(*git.alternates)
    careful.environment[b"GIT_REF_PARANOIA"] = b"1"
    return careful


def _lines(git: Git, words: tuple[str, ...], asked: Iterable[str]) -> Iterator[bytes]:
    source = memory_file("".join(f"{line}\n" for line in asked).encode("ascii"))
    child = GitStream(git, *words, source=source)
    rest = b""
    try:
        while chunk := child.read(1 << 20):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
    finally:
        done = child.close()
    if done.status != 0:
        raise GitFailed(f"what is still needed cannot be told: {done.complaint}", hint=HINT)
