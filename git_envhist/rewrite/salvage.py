"""Find damaged refs, and rebuild timelines and notes from everything that our packs still contain.

Refs: one that cannot be read, or leads to a missing object, makes the user's own `git gc`, `push` and `clone` fail;
it is logged and removed.

Notes: lines are only ever added, so every later version of a timeline's notes contains the earlier lines, in trees
that share most objects. `merge_note_versions` merges all readable versions; a tree with a lost commit is
recognized by the snapshots that it names.

Snapshots: commits in our packs that no ref reaches are found by reading all commits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime

from git_envhist.disk import Durability, append_line, cannot_write, state_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed, GitKilled
from git_envhist.git.cat_file import CatFile
from git_envhist.git.current_actor import time_of
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate, Repository
from git_envhist.git.running_git import HASH_BYTES
from git_envhist.lazy import dataclass
from git_envhist.model import Snapshot
from git_envhist.objects.commits import Commit, parse_commit
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import DIRECTORY, TreeEntry, decode_tree
from git_envhist.platform import open_file_only
from git_envhist.rewrite.commits import ChainCommit, read_chain, read_chain_commit
from git_envhist.rewrite.timeline import read_trash
from git_envhist.snapshots.log import read_snapshot
from git_envhist.snapshots.note_records import HASH
from git_envhist.snapshots.notes import MESSAGE, move_notes
from git_envhist.snapshots.restarted_timelines import read_restarted
from git_envhist.snapshots.rewritten_ids import current_commit, read_rewritten
from git_envhist.snapshots.staging import Staging, open_published

PLACES = ("refs/envhist/", "refs/notes/envhist/")
ASIDE = "set-aside"
WARNING = r"ignoring (?:broken ref|ref with broken name) (\S+)"


@dataclass(frozen=True, slots=True)
class DamagedRef:
    """A ref of ours that git cannot follow."""

    ref: str
    content: str
    """The content of the ref, or the part of it that could be read."""
    why: str


@dataclass(frozen=True, slots=True)
class RefListing:
    """Our refs."""

    readable: dict[str, str]
    """Each ref and its commit."""
    bad: tuple[DamagedRef, ...]


def read_refs(repository: Repository) -> RefListing:
    """Return all of our refs. Raise `GitFailed` if git cannot list any (a damaged packed-refs)."""
    done = repository.git.try_run("for-each-ref", "--format=%(objectname) %(refname)", *PLACES)
    if done.status != 0:
        raise GitFailed(f"the refs of the repository cannot be read: {done.complaint}")
    found = {ref: oid for oid, _, ref in (line.partition(" ") for line in os.fsdecode(done.out).splitlines())}
    bad = {ref: DamagedRef(ref, content, "it names nothing") for ref, content in _unreadable(repository)}
    for ref in re.findall(WARNING, done.complaint if done.err else ""):
        bad.setdefault(ref, DamagedRef(ref, "", "it names nothing"))
    for ref, oid in found.items():
        if ref not in bad and (kind := _kind(repository, oid)) != "commit":
            bad[ref] = DamagedRef(ref, oid, "its object is missing" if kind is None else f"it names a {kind}")
    return RefListing({ref: oid for ref, oid in found.items() if ref not in bad}, tuple(bad.values()))


def set_aside(repository: Repository, bad: DamagedRef) -> str:
    """Log the content of a ref and remove the ref. Return the path of the log."""
    note = log_removed(repository, f"ref {bad.ref} {bad.content or '?'}")
    try:
        repository.move_refs(
            [
                RefUpdate(
                    bad.ref, None, bad.content if HASH_BYTES.fullmatch(f"{bad.content}\n".encode()) else None
                )
            ]
        )
    except (GitFailed, OSError):
        # git does not delete refs that it cannot read, so move the ref's file.
        path = os.path.join(repository.common_dir, bad.ref)
        lock = os.open(path + ".lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.rename(path, os.path.join(os.path.dirname(note), bad.ref.replace("/", "%2f")))
        except OSError as error:
            raise cannot_write(error, path) from error
        finally:
            os.close(lock)
            os.unlink(path + ".lock")
    repository.sync_refs([bad.ref])
    return note


def log_removed(repository: Repository, line: str) -> str:
    """Add a line to the log of removed refs and commits, durably. Return its path."""
    place = state_directory(os.path.join(repository.common_state, ASIDE))
    path = os.path.join(place, "list")
    time = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        append_line(path, os.fsencode(f"{time} {line}"), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, path) from error
    return path


def set_aside_commits(common_state: str) -> list[str]:
    """Return the ids of the commits in the log: their remaining objects are not garbage."""
    try:
        with open(
            os.path.join(common_state, ASIDE, "list"),
            encoding="utf-8",
            errors="replace",
            opener=open_file_only,
        ) as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    return [
        found[-1] for found in words if len(found) > 1 and HASH_BYTES.fullmatch(f"{found[-1]}\n".encode())
    ]


def _unreadable(repository: Repository) -> Iterator[tuple[str, str]]:
    """Yield (ref, content) of our loose refs that contain no hash; git ignores some of them."""
    for place in PLACES:
        for directory, _, names in os.walk(os.path.join(repository.common_dir, place)):
            for name in names:
                path = os.path.join(directory, name)
                if name.endswith(".lock"):
                    continue
                try:
                    with open(path, "rb", opener=open_file_only) as file:
                        content = file.read(100)
                except OSError:
                    content = b""
                if not HASH_BYTES.fullmatch(content) and not content.startswith(b"ref: "):
                    shown = re.sub(rb"[^0-9a-zA-Z]", b"?", content).decode("ascii")
                    yield os.path.relpath(path, repository.common_dir), shown


def _kind(repository: Repository, oid: str) -> str | None:
    done = repository.git.ask("cat-file", "-t", oid)
    return os.fsdecode(done.out).strip() if done.status == 0 else None


UNKNOWN_COMMITTER = b"git-envhist <> 0 +0000"


def merge_note_versions(
    repository: Repository,
    timeline: str,
    tip: str | None,
    snapshots: Collection[str],
    commits: dict[str, Commit],
) -> str | None:
    """Merge all versions of a timeline's notes. Return the new notes commit, or None if nothing is left.

    `tip`: the commit of its ref; `snapshots`: the commits that the notes are about; `commits`: every commit in our
    packs.
    """
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    with closing(own):
        found = _NotesUnion(repository, own)
        notes = {oid: one for oid, one in commits.items() if one.message == MESSAGE}
        others = _objects_of_others(repository, timeline)
        versions = sorted((one for oid, one in notes.items() if oid not in others), key=_time_of)
        for commit in versions:
            if found.is_about(bytes.fromhex(commit.tree), snapshots):
                found.add(bytes.fromhex(commit.tree))
        # Probably the newest version: its commit was lost.
        for tree in _without_commit(repository, own, commits.values()):
            if tree.hex() not in others:
                found.add_lost(tree, snapshots)
        # As git reads it: the user may have written a note with plain git.
        found.add_by_git(tip)
        return _write(repository, found, versions[-1].committer if versions else UNKNOWN_COMMITTER)


def _time_of(commit: Commit) -> tuple[object, ...]:
    return (time_of(commit.committer),)


def _objects_of_others(repository: Repository, timeline: str) -> frozenset[str]:
    """Return the objects of other writers' notes, which must not be merged."""
    tips = [tip for ref, tip in repository.list_refs(NOTES_REFS).items() if ref != NOTES_REFS + timeline]
    words = ("rev-list", "--objects", "--ignore-missing", "--missing=allow-any", *tips)
    listed = repository.git.ask(*words).out if tips else b""
    return frozenset(line[: 2 * repository.hash_length].decode("ascii") for line in listed.splitlines())


def _without_commit(repository: Repository, own: OwnPacks, commits: Iterable[Commit]) -> list[bytes]:
    """Return the trees in our packs that belong to no readable commit."""
    ids = {oid for pack in own.packs for oid in pack.index.names()}
    asked = b"".join(b"%b\n" % oid.hex().encode("ascii") for oid in ids)
    listed = repository.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
    trees = {
        bytes.fromhex(line[5:].decode("ascii")) for line in listed.splitlines() if line.startswith(b"tree ")
    }
    return sorted(trees - {bytes.fromhex(commit.tree) for commit in commits})


class _NotesUnion:
    """The union of several versions of notes: lines by snapshot, attached files by path, oldest first."""

    def __init__(self, repository: Repository, own: OwnPacks) -> None:
        self.texts: dict[str, dict[bytes, None]] = {}
        self.files: dict[bytes, bytes] = {}
        self._repository = repository
        self._own = own
        self._seen: set[tuple[bytes, bytes]] = set()
        self._known: dict[bytes, frozenset[bytes]] = {}

    def is_about(self, tree: bytes, snapshots: Collection[str]) -> bool:
        """Return whether a tree is a version of the notes on these snapshots."""
        below = {name: oid for name, mode, oid in self._entries(tree) if mode == DIRECTORY and len(name) == 2}
        words = (one.encode("ascii") for one in snapshots)
        return any(word[:2] in below and word[2:] in self._names(below[word[:2]]) for word in words)

    def _names(self, tree: bytes) -> frozenset[bytes]:
        # Versions share most trees: read each once.
        if tree not in self._known:
            self._known[tree] = frozenset(name for name, _, _ in self._entries(tree))
        return self._known[tree]

    def add(self, tree: bytes, above: bytes = b"") -> None:
        """Add everything readable below a tree."""
        for name, mode, oid in self._entries(tree):
            path = above + name
            if (path, oid) not in self._seen:
                self._seen.add((path, oid))
                if mode == DIRECTORY:
                    self.add(oid, path + b"/")
                else:
                    self._add_file(path, oid)

    def add_lost(self, tree: bytes, snapshots: Collection[str]) -> None:
        """Add a tree without commit: a whole version, or one directory of it, recognized by the rest of the ids."""
        if self.is_about(tree, snapshots):
            self.add(tree)
        for one in self._begins_with(tree, snapshots):
            self.add(tree, one.encode("ascii") + b"/")

    def _begins_with(self, tree: bytes, snapshots: Collection[str]) -> set[str]:
        names = self._names(tree)
        return {one[:2] for one in snapshots if one[2:].encode("ascii") in names}

    def add_by_git(self, tip: str | None) -> None:
        """Add the notes that git reads at a commit."""
        found = self._repository.git.ask("rev-parse", "--verify", "--quiet", f"{tip}^{{tree}}")
        if found.status == 0:
            self.add(bytes.fromhex(found.out.decode("ascii").strip()))

    def _add_file(self, path: bytes, oid: bytes) -> None:
        data = self._read(oid)
        commit = path.replace(b"/", b"").decode("utf-8", "replace")
        if data is not None and HASH.fullmatch(commit):
            self.texts.setdefault(commit, {}).update(
                dict.fromkeys(line + b"\n" for line in data.splitlines())
            )
        elif data is not None:
            self.files[path] = data

    def _entries(self, tree: bytes) -> list[TreeEntry]:
        data = self._read(tree)
        try:
            return decode_tree(data, self._repository.hash_length) if data is not None else []
        except Damaged:
            return []

    def _read(self, oid: bytes) -> bytes | None:
        try:
            return self._own.read(oid)[1]
        except (KeyError, Damaged):
            pass
        # One git per object: it exits at an object that it cannot read.
        with CatFile(self._repository.git) as reader:
            try:
                answer = reader.read(oid.hex())
            except GitKilled:
                raise
            except (Damaged, GitFailed):
                return None
        return answer.data if answer is not None else None


def _write(repository: Repository, found: _NotesUnion, identity: bytes) -> str | None:
    with (
        CatFile(repository.git) as reader,
        Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
        PackWriter(staging.pack_dir, repository.object_format) as writer,
    ):
        made = move_notes(
            reader,
            writer,
            None,
            {},
            more={commit: b"".join(lines) for commit, lines in found.texts.items()},
            files=found.files,
            identity=identity,
            object_format=repository.object_format,
        )
        pack = writer.finish()
        if made is not None:
            staging.journal_commit(made)
            staging.publish([pack] if pack else [])
            staging.make_permanent()
    return made


# Snapshots in our packs that no ref reaches.


def newest_readable(repository: Repository, ref: str) -> str | None:
    """Return the newest readable commit of a lost ref, or None if the packs contain none."""
    if ref.startswith(TIMELINE_REFS):
        found = _without_older(
            repository, snapshots_outside_trash(repository, ref.removeprefix(TIMELINE_REFS))
        )
        return _newest(found).commit if found else None
    if ref.startswith(NOTES_REFS):
        return merge_readable_notes(repository, ref)
    return None


def _without_older(repository: Repository, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Remove commits that a rewrite replaced: they lead to dropped or erased snapshots."""
    rewritten = read_rewritten(repository.common_state)
    present = {one.commit for one in found}
    return [
        one
        for one in found
        if (now := current_commit(rewritten, one.commit)) == one.commit or now not in present
    ]


def _newest(found: Sequence[Snapshot]) -> Snapshot:
    followed = {one.parent for one in found}
    return max((one for one in found if one.commit not in followed), key=lambda one: one.at)


def snapshots_of(repository: Repository, timeline: str, *, dropped: bool = True) -> list[Snapshot]:
    """Return every snapshot of a timeline in our packs, reachable or not; `dropped`: include the trash."""
    found = []
    for oid, data in _commits(repository):
        with suppress(EnvhistError):
            snapshot = read_snapshot(oid, data)
            is_meant = snapshot.timeline == timeline and snapshot.format
            if is_meant and (dropped or not read_chain_commit(oid, data).in_trash):
                found.append(snapshot)
    return found


def snapshots_outside_trash(repository: Repository, timeline: str) -> list[Snapshot]:
    """Return the snapshots of a timeline that were neither dropped nor set aside."""
    with CatFile(repository.git) as reader:
        dropped_ids = {link.id for bundle in read_trash(repository, reader) for link in bundle.links}
    removed = frozenset(set_aside_commits(repository.common_state))
    found = snapshots_of(repository, timeline, dropped=False)
    broken = {one.id for one in found if one.commit in removed}
    return [one for one in found if one.id not in dropped_ids | broken]


def unreached_snapshots(repository: Repository, timeline: str, reached: Collection[str]) -> list[Snapshot]:
    """Return the snapshots of a timeline in our packs besides those with the commits in `reached`."""
    found = _without_older(repository, snapshots_outside_trash(repository, timeline))
    known = [one for one in found if one.commit in reached]
    ids = {one.id for one in known}
    # If another capture moves the ref first, a capture commits its tree again: the same snapshot has two commits.
    contents = {(one.tree, one.author) for one in known}
    return [one for one in found if one.id not in ids and (one.tree, one.author) not in contents]


def lost_snapshots(repository: Repository) -> dict[str, tuple[ChainCommit, ...]]:
    """Return the snapshots of each restarted timeline that no ref reaches, oldest first."""
    found = {name: _unreached_links(repository, name) for name in read_restarted(repository.common_state)}
    return {name: links for name, links in found.items() if links}


def _unreached_links(repository: Repository, timeline: str) -> tuple[ChainCommit, ...]:
    with CatFile(repository.git) as reader:
        try:
            chain = read_chain(reader, repository.resolve_ref(TIMELINE_REFS + timeline))
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return ()  # a repair replaces this ref first
        known = {link.id for link in chain}
        # If another capture moves the ref first, a capture commits its tree again: the same snapshot has two commits.
        known_content = {(link.tree, link.data.committer) for link in chain}
        found = [
            one
            for one in _without_older(repository, snapshots_outside_trash(repository, timeline))
            if one.id not in known
        ]
        answers = reader.read_many([one.commit for one in found])
        links = [
            read_chain_commit(one.commit, answer.data)
            for one, answer in zip(found, answers, strict=True)
            if answer
        ]
    return _in_order([link for link in links if (link.tree, link.data.committer) not in known_content])


def _in_order(links: Sequence[ChainCommit]) -> tuple[ChainCommit, ...]:
    """Sort by time; within one second, each after the one that it follows."""
    known = {link.commit: link for link in links}

    def depth(link: ChainCommit) -> int:
        steps, following = 0, link.parent
        while following is not None and following in known:
            steps, following = steps + 1, known[following].parent
        return steps

    ordered = sorted(links, key=lambda link: (link.data.at, depth(link)))
    return tuple({link.id: link for link in ordered}.values())


def older_than(
    repository: Repository, timeline: str, links: Sequence[ChainCommit]
) -> tuple[ChainCommit, ...]:
    """Return the snapshots before a chain with an unreadable parent, oldest first."""
    known = {link.id for link in links}
    before = time_of(links[0].data.committer)
    with CatFile(repository.git) as reader:
        known |= {link.id for bundle in read_trash(repository, reader) for link in bundle.links}
        older = [
            one for one in snapshots_of(repository, timeline) if one.id not in known and one.at <= before
        ]
        if not older:
            return ()
        newest = _newest(older)
        return tuple(link for link in read_chain(reader, newest.commit) if link.id not in known)


def merge_readable_notes(repository: Repository, ref: str) -> str | None:
    """Return a new notes commit merged from all readable versions, or None if nothing is readable."""
    timeline = ref.removeprefix(NOTES_REFS)
    snapshots = {one.commit for one in snapshots_of(repository, timeline)}
    commits = {oid: parse_commit(data) for oid, data in _commits(repository)}
    return merge_note_versions(repository, timeline, repository.resolve_ref(ref), snapshots, commits)


def _commits(repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Yield (id, bytes) of every readable commit in our packs."""
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    with closing(own):
        ids = {oid for pack in own.packs for oid in pack.index.names()}
        asked = b"".join(b"%b\n" % oid.hex().encode("ascii") for oid in ids)
        # Fail if git fails: an incomplete list would look complete.
        listed = repository.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
        for line in listed.splitlines():
            if line.startswith(b"commit "):
                name = line[7:].decode("ascii")
                with suppress(Damaged, KeyError):
                    yield name, own.read(bytes.fromhex(name))[1]
