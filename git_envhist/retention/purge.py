"""Erase paths from every snapshot, from the trash, and from everything else of ours that contains them.

There is no undo. First every timeline is rewritten, then caches and private lists are cleared, and finally the packs
are rewritten without the erased objects. After a kill, the same command completes it.

Data that is not ours is reported and not changed: git's own objects if the file was committed or staged, and pushed
timelines.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from git_envhist.capture.file_triggers import FileTriggers, compile_file_triggers
from git_envhist.capture.verdict_log import VerdictLog
from git_envhist.checks.sandbox import mounted_base, unmounted_base
from git_envhist.checks.sandbox import sweep as sweep_areas
from git_envhist.context import HistoryContext
from git_envhist.disk import cannot_write, state_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed, Refused, SnapshotNotFound, UnfinishedRestore
from git_envhist.git.cat_file import CatFile
from git_envhist.git.current_actor import current_actor, signature
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate, Repository, state_directories
from git_envhist.lazy import dataclass, field, replace
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.maintenance.gc import KEEP_NOTHING, collect_garbage
from git_envhist.maintenance.repack import RepositoryBusy
from git_envhist.model import EnvPath, Fact, NoteRecord, SnapshotId
from git_envhist.model.retention import PurgeResult, PushedTimeline, RemainingObject
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.paths import join
from git_envhist.probes import file_probes
from git_envhist.remote.bundle import working_directory
from git_envhist.remote.export_and_import import EXPORT_DIRECTORY as EXPORT
from git_envhist.remote.export_and_import import IMPORT_DIRECTORY as IMPORT
from git_envhist.remote.remotes import find_remote, remote_key
from git_envhist.remote.upload import read_remote_state, remotes_directory
from git_envhist.rewrite.commits import ChainCommit, CommitChange
from git_envhist.rewrite.erase import Eraser, is_inside
from git_envhist.rewrite.salvage import lost_snapshots
from git_envhist.rewrite.timeline import (
    TimelineRewriter,
    TimelineState,
    TimelineTarget,
    clear_caches,
)
from git_envhist.secrets.keys import SigningKey
from git_envhist.secrets.seal import sealed_key_id
from git_envhist.snapshots.fact_text import SUFFIX, read_fact, read_fact_text, write_facts
from git_envhist.snapshots.fetched_store import FetchedStore, split_name, without_fetched_objects
from git_envhist.snapshots.layout import ATTACHMENTS, FACTS, stored_places
from git_envhist.snapshots.message import FindKey, signed_again
from git_envhist.snapshots.note_records import VERDICT, format_record, read_record
from git_envhist.snapshots.notes import move_notes, read_all_notes
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.sealed_facts import FindFactsKey, open_facts, seal_facts
from git_envhist.snapshots.staging import Staging, sweep
from git_envhist.snapshots.stored_names import RESERVED, stored_name
from git_envhist.worktree.unfinished_restore import restore_directory

# Digests in verdicts: a reader of a tree without one short secret could test guesses of it against its `Env-Content`.
# So after an erasure snapshots have a keyed digest instead; here the notes of all timelines and the private list of
# checks are changed in the same manner. Digests of current snapshots stay; all others are replaced by the same keyed
# digest everywhere, so that equal ones stay equal.

TREES = ("tree_before", "tree_after")

Digest = Callable[[str], str]
"""Returns the replacement of a digest."""


def keyed_digest(key: SigningKey, content: str) -> str:
    """Return the keyed digest that replaces the digest of erased content."""
    return key.mac(b"purged\0" + content.encode("utf-8", "replace"))


class DigestEraser:
    """Replace digests of erased content in verdicts."""

    def __init__(self, history: HistoryContext, repository: Repository, links: Iterable[ChainCommit]) -> None:
        """`links`: every current snapshot, on a chain or in the trash."""
        self._history = history
        self._repository = repository
        self._ids: dict[str, SnapshotId] = {}
        self._contents: set[str] = set()
        for link in links:
            self._ids[link.commit] = link.id
            self._contents.add(link.content)
        self._key = history.keys.current()

    def replace_digests(self) -> None:
        """Replace the digests in all notes and in the list of checks."""
        for ref in self._repository.list_refs(NOTES_REFS):
            self._rewrite_notes(ref)
        VerdictLog(self._repository.common_state).rewrite(self._digest)

    def _digest(self, content: str) -> str:
        return content if content in self._contents or not content else keyed_digest(self._key, content)

    def _rewrite_notes(self, ref: str) -> None:
        repository = self._repository
        line = signature(current_actor(self._history.settings, self._history.environ), self._history.now)
        common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
        with locked(common, limited=True):
            tip = repository.resolve_ref(ref)
            texts = self._texts(ref) if tip is not None else {}
            if not texts:
                return
            with (
                Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
                CatFile(repository.git) as reader,
                PackWriter(staging.pack_dir, repository.object_format) as writer,
            ):
                new = move_notes(
                    reader,
                    writer,
                    tip,
                    {commit: [] for commit in texts},
                    more=texts,
                    identity=line,
                    object_format=repository.object_format,
                )
                pack = writer.finish()
                assert new is not None
                assert pack is not None
                git = repository.git
                sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
                staging.journal_commit(new)
                staging.publish([pack])
                repository.move_refs([RefUpdate(ref, new, tip)])
                repository.sync_refs([ref])

    def _texts(self, ref: str) -> dict[str, bytes]:
        """Return the notes that must change, by commit."""
        found = {}
        for commit, text in read_all_notes(self._repository.git, ref).items():
            new = b"".join(
                rekeyed_record(
                    line, self._ids.get(commit, SnapshotId(commit)), self._digest, self._history.keys.get
                )
                for line in text.splitlines(keepends=True)
            )
            if new != text:
                found[commit] = new
        return found


def rekeyed_record(line: bytes, snapshot: SnapshotId, digest: Digest, find_key: FindKey) -> bytes:
    """Return a line of a note with the digests of the rewritten trees, signed again if its key is known."""
    record = read_record(line) if b"tree_" in line else None
    if record is None or record.kind != VERDICT:
        return line
    changed = _changed(record, digest)
    if not changed:
        return line
    try:
        return format_record(signed_again(record, changed, snapshot, find_key))
    except ValueError:  # written by hand, with values that this program does not write
        return line


def _changed(record: NoteRecord, digest: Digest) -> Mapping[str, str]:
    values = {name: value for name in TREES if isinstance(value := record.fields.get(name), str)}
    return {name: new for name, value in values.items() if (new := digest(value)) != value}


# Facts without those that were read from erased paths.

BY_FILE = frozenset(("declared", "env", "redis", "sqlite", "tools"))
"""Probes that name the file of each fact: a fact does not depend on other files of its directory."""


VARIABLES = "env"
FACTS_OF_VARIABLES = b"/".join((RESERVED, FACTS, VARIABLES.encode("ascii")))


def facts_without(probe: str, text: bytes, paths: Collection[bytes], find_key: FindFactsKey) -> bytes:
    """Return the text of a probe's facts without those about some paths, or read from them."""
    if not probe.endswith(SUFFIX):
        return _without(probe, text, paths)
    probe = probe.removesuffix(SUFFIX)
    sealed, key_id = open_facts(find_key, probe, text), sealed_key_id(text)
    key = find_key(key_id) if key_id is not None else None
    if sealed is None or key is None:
        return b""  # it may be about them, and cannot be opened
    plain = write_facts(probe, sealed.version, sealed.lines)
    reduced = _without(probe, plain, paths)
    left = read_fact_text(probe, reduced)
    return text if reduced == plain or left is None else seal_facts(key, probe, left.version, left.lines)


def without_variable_names(probe: str, text: bytes) -> bytes:
    """Return unsealed facts of variables without their lines; any other text unchanged."""
    parsed = read_fact_text(probe, text) if probe == VARIABLES else None
    return write_facts(probe, parsed.version, []) if parsed is not None and parsed.lines else text


def _without(probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
    parsed = read_fact_text(probe, text)
    if parsed is None:
        # Of a later version, or not ours: its facts cannot be separated.
        return text if not any(path in text for path in paths) else b""
    lines = [line for line in parsed.lines if not _is_erased(probe, read_fact(probe, line), paths)]
    return text if len(lines) == len(parsed.lines) else write_facts(probe, parsed.version, lines)


def _is_erased(probe: str, fact: Fact | None, paths: Collection[bytes]) -> bool:
    if fact is None:
        return True
    key, by = _raw(fact.key), join(fact.at, _raw(fact.by))
    if is_inside(fact.at, paths) or is_inside(key, paths) or is_inside(by, paths):
        return True
    return probe not in BY_FILE and any(_was_read_from(probe, fact.at, path) for path in paths)


def _was_read_from(probe: str, directory: bytes, path: bytes) -> bool:
    above, _, name = path.rpartition(b"/")
    return above == directory and any(probe in wake.probes(name) for wake in _wake().at(directory))


@cache
def _wake() -> FileTriggers:
    return compile_file_triggers(file_probes())


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# Other places that may contain a path: pushed and fetched timelines, reflogs, git's own objects.

KEY = re.compile(r"[0-9a-f]{16}")
URL = re.compile(r"remote\.(.+)\.(?:push)?url")
OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
THEIRS = (
    *("--exclude=refs/envhist/*", "--exclude=refs/notes/envhist/*"),
    *("--all", "--reflog", "--indexed-objects"),
)
REMOVED_MARK = ".going-"
"""Suffix of the fetched repository's name while it is being removed."""
IN_HISTORY, IN_GIT, NOWHERE = "history", "git", "unreached"


def pushed_timelines(
    repository: Repository, directory: str, paths: Sequence[EnvPath], stored: Sequence[bytes] = ()
) -> tuple[PushedTimeline, ...]:
    """Return the pushed timelines that contained one of the paths, as far as recorded here.

    `stored`: more paths, spelled as in the trees of snapshots. If a pushed chain no longer exists here, it counts as
    containing the path if any current chain does.
    """
    place = remotes_directory(repository.common_state)
    keys = sorted(name for name in os.listdir(place) if KEY.fullmatch(name)) if os.path.isdir(place) else []
    names = _names(repository, directory) if keys else {}
    specs = [*_all_specs(paths), *(b":(top,literal)" + path for path in stored)]
    found = []
    for key in keys:
        memory = read_remote_state(repository.common_state, key)
        for ref, oid in memory.put:
            if ref.startswith(TIMELINE_REFS) and _contained(repository.git, oid, specs):
                name, shown = names.get(key, ("", memory.address))
                found.append(PushedTimeline(name, shown, ref.removeprefix(TIMELINE_REFS)))
    return tuple(dict.fromkeys(found))


def fetched_contains(repository: Repository, paths: Sequence[EnvPath]) -> bool:
    """Return whether a fetched or imported timeline contains one of the paths."""
    fetched = FetchedStore.of(repository)
    if not fetched.exists:
        return False
    contained = _contains(fetched.git, "--all", _all_specs(paths)) if paths else False
    if contained is None:
        raise GitFailed(
            "cannot check the fetched timelines: their repository is damaged",
            hint=f"nothing was changed; remove '{fetched.path}' and fetch again",
        )
    return contained


def imported_timelines(repository: Repository) -> tuple[str, ...]:
    """Return the imported timelines, which no remote can provide again."""
    fetched = FetchedStore.of(repository)
    names = fetched.timelines() if fetched.exists else []
    return tuple(name for name in names if fetched.was_imported(split_name(name)[0]))


def delete_fetched(repository: Repository, *, holds: bool) -> None:
    """Delete the repository of fetched timelines if it contains one of the paths. It can be fetched again."""
    fetched = FetchedStore.of(repository)
    _finish_forgetting(fetched)
    if holds:
        with fetched.lock_for_receiving():
            os.rename(fetched.path, fetched.path + REMOVED_MARK + os.urandom(6).hex())
        _finish_forgetting(fetched)


def _finish_forgetting(fetched: FetchedStore) -> None:
    """Complete a deletion that may have been killed."""
    place, name = os.path.split(fetched.path)
    for one in os.listdir(place) if os.path.isdir(place) else ():
        if one.startswith(name + REMOVED_MARK):
            try:
                shutil.rmtree(os.path.join(place, one))
            except OSError as error:
                raise cannot_write(error, os.path.join(place, one)) from error


def delete_temporary_directories(repository: Repository) -> None:
    """Delete the working directories of killed exports and imports."""
    for name in (EXPORT, IMPORT):
        if os.path.isdir(os.path.join(repository.common_state, name)):
            with working_directory(repository.common_state, name):
                pass


def delete_reflogs(repository: Repository) -> None:
    """Delete reflogs of our refs. We write none; git does with `core.logAllRefUpdates=always`."""
    refs = [*repository.list_refs("refs/envhist/"), *repository.list_refs(NOTES_REFS)]
    words = ("reflog", "expire", "--expire=all", "--expire-unreachable=all")
    for start in range(0, len(refs), 200):
        # The command fails if there are none; anything left would still be reached.
        repository.git.ask(*words, *refs[start : start + 200])
    for prefix in ("refs/envhist", "refs/notes/envhist"):
        shutil.rmtree(os.path.join(repository.common_dir, "logs", prefix), ignore_errors=True)


def remaining_objects(repository: Repository, erased: Sequence[bytes]) -> Iterator[RemainingObject]:
    """Yield the erased objects that the repository still has, with the reason."""
    asked = "".join(f"{oid.hex()}\n" for oid in erased).encode("ascii")
    listed = repository.git.run("cat-file", "--batch-check", stdin=asked).decode("ascii", "replace")
    words = (line.split(" ") for line in listed.splitlines())
    # Empty objects reveal nothing.
    present = {word[0] for word in words if len(word) == 3 and word[2] != "0"}
    for where, which in ((IN_HISTORY, OURS), (IN_GIT, THEIRS)):
        for oid, path in _reached(repository.git, which, present):
            present.discard(oid)
            yield RemainingObject(oid, where, path)
    for oid in sorted(present):
        yield RemainingObject(oid, NOWHERE, b"")


def _reached(git: Git, which: Sequence[str], wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    sought = set(wanted)
    if not sought:
        return []
    # Fail if git fails: in an incomplete list, an object that git uses would look unused.
    listed = git.run("rev-list", "--objects", *which)
    rows = (line.partition(b" ") for line in listed.splitlines())
    found = {oid.decode("ascii"): path for oid, _, path in rows}
    return [(oid, found[oid]) for oid in sorted(sought) if oid in found]


def _all_specs(paths: Sequence[EnvPath]) -> list[bytes]:
    return [spec for path in paths for spec in _pathspecs(path)]


def _contained(git: Git, tip: str, specs: Sequence[bytes]) -> bool:
    contained = _contains(git, tip, specs)
    return contained if contained is not None else _contains(git, OURS[0], specs) is not False


def _contains(git: Git, where: str, specs: Sequence[bytes]) -> bool | None:
    """Return whether a chain ever contained one of the paths; None if it cannot be read completely."""
    done = git.ask("rev-list", "--max-count=1", where, "--", *specs)
    return bool(done.out.strip()) if done.status == 0 else None


def _pathspecs(path: EnvPath) -> Iterator[bytes]:
    for directory, name in stored_places(path):
        for link in (False, True):
            stored = stored_name(name, top=not directory, link=link)
            yield b":(top,literal)" + (directory + b"/" + stored if directory else stored)


def _names(repository: Repository, directory: str) -> dict[str, tuple[str, str]]:
    """Return the named remotes by their keys."""
    found = {}
    names = {url[1] for key, _ in repository.read_config() if (url := URL.fullmatch(key))}
    for name in sorted(names):
        with suppress(EnvhistError):
            remote = find_remote(repository, name, directory)
            found[remote_key(remote)] = (remote.name, remote.shown)
    return found


ATTACHED = os.fsdecode(RESERVED + b"/" + ATTACHMENTS)
SET_ASIDE = ("damaged", "set-aside")
CONTENT, MISSING, COMPLETE, STORY = "Env-Content", "Env-Missing", "Env-Complete", "Env-Story"


class PathNotFound(SnapshotNotFound):
    """No snapshot contains the path."""

    code = "no-such-path"

    def __init__(self, path: str) -> None:
        super().__init__(path, hint="list the snapshots that changed a path: git envlog -- <path>")
        self.message = f"no snapshot contains '{path}'"
        self.args = (self.message,)


@dataclass(slots=True)
class _PurgeTotals:
    """Findings in all timelines, by commit."""

    snapshots: dict[str, None] = field(default_factory=dict)
    in_trash: dict[str, None] = field(default_factory=dict)
    attached: dict[str, None] = field(default_factory=dict)
    mentioned: dict[str, None] = field(default_factory=dict)
    found: dict[EnvPath, None] = field(default_factory=dict)
    erased: dict[bytes, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)


class Purger:
    """Erases paths from a history."""

    def __init__(self, history: HistoryContext) -> None:
        self._history = history
        self._repository: Repository = without_fetched_objects(history.repository)
        self._rewriting = TimelineRewriter(history)
        self._variable_names = False

    def purge(
        self,
        paths: Sequence[EnvPath],
        *,
        variable_names: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> PurgeResult:
        """Erase paths. Raise `PathNotFound` if nothing contains any; unreachable objects are removed even then.

        `variable_names`: also erase names of variables that earlier versions stored unsealed. `force`: ignore a git
        of another user if the system hides in which repository it works.
        """
        repository = self._repository
        self._variable_names = variable_names
        self._refuse_unfinished_restore()
        self._refuse_lost_snapshots()
        # Before the rewrite, while the pushed commits can still be read here.
        stored = (FACTS_OF_VARIABLES,) if variable_names else ()
        pushed = pushed_timelines(repository, self._history.directory, paths, stored)
        fetched = fetched_contains(repository, paths)
        imported = imported_timelines(repository) if fetched else ()
        totals = _PurgeTotals()
        for timeline in self._timelines():
            self._erase_from(timeline, paths, totals, dry_run=dry_run)
        if not dry_run:
            delete_fetched(repository, holds=fetched)
            self._clean_up(force=force)
        self._warn_of_paths_not_found(paths, totals, fetched=fetched)
        totals.warnings.update(dict.fromkeys(self._set_aside_warnings()))
        # Listed before the result is made, because the list may add a warning.
        left = () if dry_run else self._remaining(totals)
        top = os.fsencode(repository.root)
        return PurgeResult(
            paths=tuple(paths),
            snapshots=len(totals.snapshots),
            in_trash=len(totals.in_trash),
            sent=pushed if totals.snapshots or totals.in_trash or fetched else (),
            fetched=fetched,
            left=left,
            here=tuple(path for path in paths if os.path.lexists(os.path.join(top, path))),
            attached=len(totals.attached),
            mentioned=len(totals.mentioned),
            dry_run=dry_run,
            warnings=tuple(totals.warnings),
            variable_names=variable_names,
            imported=imported,
        )

    def _warn_of_paths_not_found(
        self, paths: Sequence[EnvPath], totals: _PurgeTotals, *, fetched: bool
    ) -> None:
        """Add a warning for each path that nothing contains; raise `PathNotFound` if nothing contains any."""
        missing = [os.fsdecode(path) for path in paths if path not in totals.found and not fetched]
        if missing and len(missing) == len(paths) and not self._variable_names:
            raise PathNotFound(missing[0])
        totals.warnings.update(dict.fromkeys(f"no snapshot contains '{path}'" for path in missing))

    def _remaining(self, totals: _PurgeTotals) -> tuple[RemainingObject, ...]:
        try:
            return tuple(remaining_objects(self._repository, list(totals.erased)))
        except GitFailed as failed:
            warning = f"erased, but your own objects with the same content cannot be listed: {failed.message}"
            totals.warnings[warning] = None
            return ()

    def _set_aside_warnings(self) -> Iterator[str]:
        """Yield warnings about data that a repair set aside: it may contain the paths and is not changed."""
        for name in SET_ASIDE:
            place = os.path.join(self._repository.common_state, name)
            if os.path.isdir(place) and os.listdir(place):
                yield f"data set aside by 'git envlog fsck --repair' was not searched: '{place}'"

    def _refuse_unfinished_restore(self) -> None:
        """Refuse while an unfinished restore exists: it has copies of files."""
        for state in state_directories(self._repository):
            if os.path.lexists(os.path.join(restore_directory(state), "journal")):
                raise UnfinishedRestore

    def _refuse_lost_snapshots(self) -> None:
        """Refuse while snapshots of a restarted timeline are on no chain: they could not be rewritten."""
        for timeline in lost_snapshots(self._repository):
            raise Refused(
                f"snapshots older than the restart of '{timeline}' may contain it too",
                hint="recover them first: git envlog fsck --repair",
            )

    def _timelines(self) -> list[str]:
        heads = [ref.removeprefix(TIMELINE_REFS) for ref in self._repository.list_refs(TIMELINE_REFS)]
        return sorted({*heads, *(entry.timeline for entry in self._rewriting.trash_entries())} - {""})

    def _erase_from(
        self, timeline: str, paths: Sequence[EnvPath], totals: _PurgeTotals, *, dry_run: bool
    ) -> None:
        """Erase the paths from one timeline and its trash."""
        repository = self._repository

        def decide(state: TimelineState, staging: Staging) -> TimelineTarget:
            with (
                CatFile(repository.git) as reader,
                PackWriter(staging.pack_dir, repository.object_format) as writer,
            ):
                eraser = Eraser(
                    object_reader(reader), writer, repository.hash_length, paths, self._facts_without
                )
                changes = self._changes(state, eraser, reader, totals)
                totals.found.update(eraser.found)
                totals.erased.update(eraser.erased)
                if dry_run or not changes:
                    return TimelineTarget(state.links)
                pack = writer.finish()
            trash = tuple((entry, entry.links) for entry in state.trash)
            return TimelineTarget(
                state.links, trash, changes=changes, packs=(pack,) if pack is not None else ()
            )

        done = self._rewriting.rewrite(timeline, decide, keeps=False)
        totals.warnings.update(dict.fromkeys(done.warnings))

    def _facts_without(self, probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
        if self._variable_names:
            text = without_variable_names(probe, text)
        return facts_without(probe, text, paths, self._history.keys.get) if paths else text

    def _changes(
        self, state: TimelineState, eraser: Eraser, reader: CatFile, totals: _PurgeTotals
    ) -> dict[str, CommitChange]:
        """Return the new content of each changed snapshot, by commit."""
        changes: dict[str, CommitChange] = {}
        in_trash = [link for entry in state.trash for link in entry.links]
        for link in (*state.links, *in_trash):
            tree = eraser.erase(link.tree) if link.snapshot else link.tree
            if tree != link.tree:
                changes[link.commit] = CommitChange(tree, self._trailers(link, eraser, tree))
                (totals.in_trash if link.in_trash else totals.snapshots)[link.commit] = None
            intent = link.data.message.rpartition(b"\n\n")[0]
            if any(bytes(path) in intent for path in eraser.paths):
                totals.mentioned[link.commit] = None
            if link.snapshot and reader.read(f"{link.tree}:{ATTACHED}") is not None:
                totals.attached[link.commit] = None
        ids = {link.id for link in (*state.links, *in_trash) if link.commit in changes}
        for link in in_trash:
            # The summary relative to its predecessor is written again when it is restored.
            if link.commit in changes or link.after in ids:
                known = changes.get(link.commit, CommitChange(link.tree))
                changes[link.commit] = CommitChange(known.tree, {**known.trailers, STORY: ""})
        return changes

    def _trailers(self, link: ChainCommit, eraser: Eraser, tree: str) -> dict[str, str | None]:
        # Keyed, because the digest depends on erased content; equal environments stay equal.
        trailers: dict[str, str | None] = {}
        if eraser.paths:
            trailers[CONTENT] = keyed_digest(self._history.keys.current(), link.content)
        if link.partial:
            missing = eraser.missing_in(tree)
            trailers[MISSING] = str(missing) if missing else None
            trailers[COMPLETE] = "partial" if missing else "yes"
        return trailers

    def _clean_up(self, *, force: bool) -> None:
        """Remove erased data from everything else of ours."""
        repository = self._repository
        states = [self._rewriting.state(timeline) for timeline in self._timelines()]
        trash = (link for state in states for entry in state.trash for link in entry.links)
        chains = (link for state in states for link in state.links)
        DigestEraser(self._history, repository, (*chains, *trash)).replace_digests()
        clear_caches(repository)
        remotes = remotes_directory(repository.common_state)
        for name in os.listdir(remotes) if os.path.isdir(remotes) else ():
            if name.endswith(".upload"):
                shutil.rmtree(os.path.join(remotes, name), ignore_errors=True)
        delete_temporary_directories(repository)
        for base in (mounted_base(repository.common_state), unmounted_base(self._history.environ)):
            sweep_areas(base)
        delete_reflogs(repository)
        # Packs moved aside by an earlier run that was killed are restored, and removed with the rest.
        git = repository.git
        sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
        try:
            collect_garbage(replace(repository, ignores_hidden=force), keep_since=KEEP_NOTHING)
        except RepositoryBusy as busy:
            message = f"no snapshot contains it any more, but {busy.message}"
            raise RepositoryBusy(message, hint=busy.hint) from busy


def object_reader(reader: CatFile) -> Callable[[bytes], bytes]:
    """Return a function that reads an object, and raises `Damaged` if it is missing."""

    def read(oid: bytes) -> bytes:
        answer = reader.read(oid.hex())
        if answer is None:
            raise Damaged(f"an object of a snapshot is missing: '{oid.hex()}'", hint="git envlog fsck")
        return answer.data

    return read
