"""Bundles of git's: timelines with their notes and every object they lead to, written and read with suspicion.

One is written by a repository of its own that lives for as long as that takes and sees our objects; not a ref and not
an object is written into the user's. One is read into a directory of objects of its own: git checks every object and
every link between them there, and only what is whole is moved to where it is used.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

from git_envhist.errors import Damaged
from git_envhist.store.archive import BundleStream
from git_envhist.store.bounds import (
    LISTED,
    STREAMED,
    DecompressionBomb,
    ResourceLimits,
    limit_error,
    limits_for_pack,
    refuse_large,
    refuse_without_room,
)
from git_envhist.store.child import GitStream
from git_envhist.store.chosen import SelectedSnapshots
from git_envhist.store.durable import cannot_write, sync_directory
from git_envhist.store.git import Git, GitResult, why_it_failed
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.objects import CatFile
from git_envhist.store.remoterefs import HEADS, NOTES, is_timeline
from git_envhist.store.unfolding import TreeSizer, trees_of_moments, trees_of_notes
from git_envhist.values import dataclass

REF = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")
FIRST = {b"# v2 git bundle": "sha1", b"# v3 git bundle": ""}
FORMAT = b"@object-format="
LONGEST_LINE = 4096
MOST_LINES = 20_000
SUFFIXES = (".pack", ".rev", ".idx")
"""In this order they become visible: git sees a pack when its index appears."""


@contextmanager
def workplace(state: str, name: str, waiting: Callable[[], None] | None = None) -> Iterator[str]:
    """A directory to work in, alone; what somebody left there who was killed goes first."""
    place = state_directory(os.path.join(state_directory(state), name))
    with locked(os.path.join(place, "lock"), waiting=waiting):
        work = os.path.join(place, "work")
        try:
            shutil.rmtree(work, ignore_errors=True)
            os.mkdir(work, 0o700)
            yield work
        except OSError as error:
            raise cannot_write(error, place) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def make_repository(path: str, object_format: str, alternates: Sequence[str]) -> Git:
    """A repository for a while, which sees the objects of others."""
    git = Git(path, None, alternates=tuple(alternates))
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", path)
    return git


def write_bundle(git: Git, path: str, chosen: Sequence[SelectedSnapshots]) -> None:
    """A bundle of some timelines."""
    refs = refs_of(chosen)
    text = "".join(f"create {ref} {oid}\n" for ref, oid in refs.items())
    git.run("update-ref", "--stdin", stdin=text.encode("ascii"))
    done = _held(git, ResourceLimits(), (), "bundle", "create", "--quiet", path, "--all")
    if done.status != 0:
        raise why_it_failed(done)


def refs_of(chosen: Sequence[SelectedSnapshots]) -> dict[str, str]:
    """The refs that a bundle holds."""
    heads = {HEADS + one.timeline: one.head for one in chosen}
    return {**heads, **{NOTES + one.timeline: one.notes for one in chosen if one.notes is not None}}


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """What a bundle brought, checked and not yet where it is used."""

    heads: Mapping[str, str]
    notes: Mapping[str, str]
    git: Git
    """Sees the objects that came, and no others."""


def take_bundle(bundle: BundleStream, git_dir: str, objects: str, object_format: str) -> CheckedBundle:
    """Check a bundle into a directory of objects: each is what its id says, nothing is missing, all is well-formed."""
    heads, notes = _read_refs(bundle, object_format)
    git = Git(git_dir, None)
    git.environment[b"GIT_OBJECT_DIRECTORY"] = os.fsencode(objects)
    os.makedirs(os.path.join(objects, "pack"))
    bounds = _index(git, bundle, notes.values())
    tips = "".join(f"{oid}\n" for oid in (*heads.values(), *notes.values()))
    done = _held(git, bounds, iter([tips.encode("ascii")]), "rev-list", "--objects", "--quiet", "--stdin")
    if done.status != 0:
        raise limit_error(done, bounds, objects, "is not whole")
    with CatFile(git) as reader:
        trees = [*trees_of_notes(git, notes.values()), *trees_of_moments(git, heads.values())]
        if TreeSizer(reader, 20 if object_format == "sha1" else 32).find_endless(trees) is not None:
            raise DecompressionBomb(
                "what was exported holds trees that stand for more paths than an environment has"
            )
    return CheckedBundle(heads, notes, git)


def _read_refs(bundle: BundleStream, object_format: str) -> tuple[dict[str, str], dict[str, str]]:
    told = FIRST.get(bundle.line(LONGEST_LINE))
    if told is None:
        raise Damaged("what was exported is no bundle that this version reads")
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    for _ in range(MOST_LINES):
        line = bundle.line(LONGEST_LINE)
        if not line:
            break
        if line.startswith(FORMAT):
            told = line.removeprefix(FORMAT).decode("ascii", "replace")
            continue
        found = REF.fullmatch(line.decode("ascii", "replace"))
        place = next((p for p in (HEADS, NOTES) if found is not None and found[2].startswith(p)), None)
        if found is None or place is None or not is_timeline(found[2].removeprefix(place)):
            raise Damaged("what was exported holds a ref that no export has")
        (heads if place == HEADS else notes)[found[2].removeprefix(place)] = found[1]
    if (told or "sha1") != object_format:
        raise Damaged(f"what was exported is in the object format '{told or 'sha1'}', not '{object_format}'")
    if not heads or set(notes) - set(heads):
        raise Damaged("what was exported holds no timeline")
    return heads, notes


def _index(git: Git, bundle: BundleStream, notes: Iterable[str]) -> ResourceLimits:
    place = os.fsdecode(git.environment[b"GIT_OBJECT_DIRECTORY"])
    refuse_without_room(place, bundle.size)
    parts = bundle.rest()
    first = next(parts, b"")
    bounds = limits_for_pack(first, bundle.size)
    words = ("index-pack", "--stdin", "--strict", "--threads=4", f"--max-input-size={bundle.size}")
    done = _held(git, bounds, chain((first,), parts), *STREAMED, *words)
    if done.status != 0:
        raise limit_error(done, bounds, place, "is damaged or was made to harm")
    refuse_large(git, notes, git.run("cat-file", "--batch-all-objects", "--unordered", "--buffer", LISTED))
    return bounds


def _held(git: Git, bounds: ResourceLimits, said: Iterable[bytes], *words: str) -> GitResult:
    child = GitStream(git, *words, talks=True)
    try:
        # It waits for its first byte until it is held.
        bounds.hold(child.process)
        # Where git ends before its input does, it says why.
        with suppress(BrokenPipeError):
            for part in said:
                child.write(part)
        return child.finish()
    except BaseException:
        # It may have much to do still, and nobody wants it any more.
        child.stop()
        raise
    finally:
        child.close()


def publish(taken: str, objects_dir: str) -> None:
    """Move what was checked to where it is used, whole and durable."""
    source, goal = os.path.join(taken, "pack"), os.path.join(objects_dir, "pack")
    try:
        with suppress(FileExistsError):
            os.mkdir(goal)
        names = sorted(os.listdir(source))
        for suffix in SUFFIXES:
            for name in (name for name in names if name.endswith(suffix)):
                os.rename(os.path.join(source, name), os.path.join(goal, name))
        sync_directory(goal)
    except OSError as error:
        raise cannot_write(error, objects_dir) from error
