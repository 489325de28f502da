"""Erases paths from every snapshot, from the trash, and from whatever else of ours holds them.

There is no way back: nothing is kept of what goes. First every timeline is rewritten, then what might remember it is
forgotten, and at last the packs are written without it. Killed anywhere, the same words finish it.

What is not ours is told and not touched: git's own objects where the file was committed or staged, and what was pushed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from git_envhist.capture.known_verdicts import VerdictLog
from git_envhist.capture.probe_worker import FileTriggers, compile_file_triggers
from git_envhist.checks.sandbox import hidden_base, open_base
from git_envhist.checks.sandbox import sweep as sweep_areas
from git_envhist.context import HistoryContext
from git_envhist.disk import COMMON_LOCK, cannot_write, locked, state_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed, Refused, SnapshotNotFound, UnfinishedRestore
from git_envhist.git.cat_file import CatFile
from git_envhist.git.config import current_actor, signature
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate, Repository, states_of
from git_envhist.lazy import dataclass, field, replace
from git_envhist.maintenance.gc import NOTHING_STAYS, collect
from git_envhist.maintenance.repack import RepositoryBusy
from git_envhist.model import EnvPath, Fact, NoteRecord, SnapshotId
from git_envhist.model.storage import PurgeResult, PushedTimeline, RemainingObject
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.paths import join
from git_envhist.probes import tree_probes
from git_envhist.remote.bundle import working_directory
from git_envhist.remote.export import EXPORT_DIRECTORY as EXPORT
from git_envhist.remote.export import IMPORT_DIRECTORY as IMPORT
from git_envhist.remote.remotes import find_remote, remote_key
from git_envhist.remote.upload import read_remote_state, remotes_directory
from git_envhist.rewrite.commits import ChainCommit, CommitChange
from git_envhist.rewrite.erase import Eraser, lies_in
from git_envhist.rewrite.salvage import lost_snapshots
from git_envhist.rewrite.timeline import (
    TimelineRewriter,
    TimelineState,
    TimelineTarget,
    forget_caches,
)
from git_envhist.secrets.keys import SigningKey
from git_envhist.secrets.seal import sealed_key_id
from git_envhist.snapshots.fetched import FetchedStore, split_name, without_fetched_objects
from git_envhist.snapshots.layout import ATTACHMENTS, FACTS, stored_places
from git_envhist.snapshots.message import FindKey, signed_again
from git_envhist.snapshots.names import RESERVED, stored_name
from git_envhist.snapshots.notes import every_note, move_notes
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.records import (
    SUFFIX,
    VERDICT,
    format_record,
    read_fact,
    read_fact_text,
    read_record,
    write_facts,
)
from git_envhist.snapshots.sealed_facts import FindFactsKey, open_facts, seal_facts
from git_envhist.snapshots.staging import Staging, sweep
from git_envhist.worktree.unfinished_restore import restore_directory

# What verdicts say they were reached on, where that was erased since: a digest is a guess's confirmation.
#
# Whoever has all of a tree but a short secret can try what its `Env-Content` would be. After an erasure the snapshots
# say a keyed digest of theirs; here the notes of all timelines and the private list of checks follow. What is the
# content of a snapshot as it stands now is left as it is; everything else becomes its keyed digest, the same
# everywhere, so that what was equal stays equal.

TREES = ("tree_before", "tree_after")

Digest = Callable[[str], str]
"""What is said in the place of a digest."""


def keyed_digest(key: SigningKey, content: str) -> str:
    """What takes the place of the digest of something that was erased."""
    return key.mac(b"purged\0" + content.encode("utf-8", "replace"))


class DigestEraser:
    """Has verdicts say nothing of what was erased."""

    def __init__(self, history: HistoryContext, repository: Repository, links: Iterable[ChainCommit]) -> None:
        """`links`: every snapshot there is now, on a chain or in the trash."""
        self._history = history
        self._repository = repository
        self._ids: dict[str, SnapshotId] = {}
        self._contents: set[str] = set()
        for link in links:
            self._ids[link.commit] = link.id
            self._contents.add(link.content)
        self._key = history.keys.current()

    def forget(self) -> None:
        """Have none of them stand in the notes, or in the list of checks."""
        for ref in self._repository.list_refs(NOTES_REFS):
            self._renew(ref)
        VerdictLog(self._repository.common_state).rewrite(self._digest)

    def _digest(self, content: str) -> str:
        return content if content in self._contents or not content else keyed_digest(self._key, content)

    def _renew(self, ref: str) -> None:
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
        """By commit, the notes that are to be other ones."""
        found = {}
        for commit, text in every_note(self._repository.git, ref).items():
            told = b"".join(
                rekeyed_record(
                    line, self._ids.get(commit, SnapshotId(commit)), self._digest, self._history.keys.get
                )
                for line in text.splitlines(keepends=True)
            )
            if told != text:
                found[commit] = told
        return found


def rekeyed_record(line: bytes, snapshot: SnapshotId, digest: Digest, find_key: FindKey) -> bytes:
    """A line of a note, with other digests; signed again by the key that had signed it, where that is here."""
    record = read_record(line) if b"tree_" in line else None
    if record is None or record.kind != VERDICT:
        return line
    changed = _changed(record, digest)
    if not changed:
        return line
    try:
        return format_record(signed_again(record, changed, snapshot, find_key))
    except ValueError:  # written by hand, with what none of ours holds
        return line


def _changed(record: NoteRecord, digest: Digest) -> Mapping[str, str]:
    told = {name: value for name in TREES if isinstance(value := record.fields.get(name), str)}
    return {name: new for name, value in told.items() if (new := digest(value)) != value}


# The facts of a snapshot without those that were read from paths which it shall not have had.

BY_FILE = frozenset(("declared", "env", "redis", "sqlite", "tools"))
"""Probes that name the file of each thing: of its directory nothing else was read from it."""


VARIABLES = "env"
FACTS_OF_VARIABLES = b"/".join((RESERVED, FACTS, VARIABLES.encode("ascii")))


def facts_less(probe: str, text: bytes, paths: Collection[bytes], find_key: FindFactsKey) -> bytes:
    """Return the text of a probe's facts without what is told of some paths, or was read from them."""
    if not probe.endswith(SUFFIX):
        return _less(probe, text, paths)
    probe = probe.removesuffix(SUFFIX)
    sealed, key_id = open_facts(find_key, probe, text), sealed_key_id(text)
    key = find_key(key_id) if key_id is not None else None
    if sealed is None or key is None:
        return b""  # it may tell of them, and cannot be looked into
    plain = write_facts(probe, sealed.version, sealed.lines)
    less = _less(probe, plain, paths)
    left = read_fact_text(probe, less)
    return text if less == plain or left is None else seal_facts(key, probe, left.version, left.lines)


def without_variable_names(probe: str, text: bytes) -> bytes:
    """Return the facts of variables without their lines, where these are not sealed; any other text as it is."""
    told = read_fact_text(probe, text) if probe == VARIABLES else None
    return write_facts(probe, told.version, []) if told is not None and told.lines else text


def _less(probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
    told = read_fact_text(probe, text)
    if told is None:
        # Of a later version, or nobody's: what it says cannot be told apart.
        return text if not any(path in text for path in paths) else b""
    kept = [line for line in told.lines if not _is_meant(probe, read_fact(probe, line), paths)]
    return text if len(kept) == len(told.lines) else write_facts(probe, told.version, kept)


def _is_meant(probe: str, fact: Fact | None, paths: Collection[bytes]) -> bool:
    if fact is None:
        return True
    key, by = _raw(fact.key), join(fact.at, _raw(fact.by))
    if lies_in(fact.at, paths) or lies_in(key, paths) or lies_in(by, paths):
        return True
    return probe not in BY_FILE and any(_was_read_from(probe, fact.at, path) for path in paths)


def _was_read_from(probe: str, directory: bytes, path: bytes) -> bool:
    above, _, name = path.rpartition(b"/")
    return above == directory and any(probe in wake.probes(name) for wake in _wake().at(directory))


@cache
def _wake() -> FileTriggers:
    return compile_file_triggers(tree_probes())


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# What may hold a path beside our snapshots: what was sent, what was fetched, reflogs, git's own objects.

KEY = re.compile(r"[0-9a-f]{16}")
URL = re.compile(r"remote\.(.+)\.(?:push)?url")
OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
THEIRS = (
    *("--exclude=refs/envhist/*", "--exclude=refs/notes/envhist/*"),
    *("--all", "--reflog", "--indexed-objects"),
)
GOING = ".going-"
"""Behind the name of the repository of what was fetched, while it is taken away."""
IN_HISTORY, IN_GIT, NOWHERE = "history", "git", "unreached"


def pushed_timelines(
    repository: Repository, directory: str, paths: Sequence[EnvPath], stored: Sequence[bytes] = ()
) -> tuple[PushedTimeline, ...]:
    """Where timelines went that held one of the paths, as far as is remembered here.

    `stored`: more paths, spelled as in the trees of snapshots.

    Of what is not here any more nobody can tell; then it is taken for granted where anything of ours holds one.
    """
    place = remotes_directory(repository.common_state)
    keys = sorted(name for name in os.listdir(place) if KEY.fullmatch(name)) if os.path.isdir(place) else []
    names = _names(repository, directory) if keys else {}
    specs = [*_all_specs(paths), *(b":(top,literal)" + path for path in stored)]
    found = []
    for key in keys:
        memory = read_remote_state(repository.common_state, key)
        for ref, oid in memory.put:
            if ref.startswith(TIMELINE_REFS) and _was_held(repository.git, oid, specs):
                name, shown = names.get(key, ("", memory.address))
                found.append(PushedTimeline(name, shown, ref.removeprefix(TIMELINE_REFS)))
    return tuple(dict.fromkeys(found))


def fetched_contains(repository: Repository, paths: Sequence[EnvPath]) -> bool:
    """Whether what was fetched or imported holds one of the paths."""
    fetched = FetchedStore.of(repository)
    if not fetched.exists:
        return False
    held = _held(fetched.git, "--all", _all_specs(paths)) if paths else False
    if held is None:
        raise GitFailed(
            "whether what was fetched holds it cannot be told: it is damaged",
            hint=f"take '{fetched.path}' away, and fetch again where it is still shared; nothing was changed",
        )
    return held


def imported_here(repository: Repository) -> tuple[str, ...]:
    """The timelines that an import brought: no remote gives them again."""
    fetched = FetchedStore.of(repository)
    names = fetched.timelines() if fetched.exists else []
    return tuple(name for name in names if fetched.was_imported(split_name(name)[0]))


def forget_fetched(repository: Repository, *, holds: bool) -> None:
    """Take away what was fetched, where it holds one of the paths: it comes again from where it is still shared."""
    fetched = FetchedStore.of(repository)
    _finish_forgetting(fetched)
    if holds:
        with fetched.lock_for_receiving():
            os.rename(fetched.path, fetched.path + GOING + os.urandom(6).hex())
        _finish_forgetting(fetched)


def _finish_forgetting(fetched: FetchedStore) -> None:
    """Take away what is on its way out; a kill may have come before the end of it."""
    place, name = os.path.split(fetched.path)
    for one in os.listdir(place) if os.path.isdir(place) else ():
        if one.startswith(name + GOING):
            try:
                shutil.rmtree(os.path.join(place, one))
            except OSError as error:
                raise cannot_write(error, os.path.join(place, one)) from error


def forget_workplaces(repository: Repository) -> None:
    """What an export or an import left that was killed."""
    for name in (EXPORT, IMPORT):
        if os.path.isdir(os.path.join(repository.common_state, name)):
            with working_directory(repository.common_state, name):
                pass


def forget_reflogs(repository: Repository) -> None:
    """We write none; git does under `core.logAllRefUpdates=always` when others move our refs."""
    refs = [*repository.list_refs("refs/envhist/"), *repository.list_refs(NOTES_REFS)]
    words = ("reflog", "expire", "--expire=all", "--expire-unreachable=all")
    for start in range(0, len(refs), 200):
        # It fails where there is none; what it did not come to would still be reached.
        repository.git.ask(*words, *refs[start : start + 200])
    for prefix in ("refs/envhist", "refs/notes/envhist"):
        shutil.rmtree(os.path.join(repository.common_dir, "logs", prefix), ignore_errors=True)


def remaining_objects(repository: Repository, erased: Sequence[bytes]) -> Iterator[RemainingObject]:
    """Of objects that were erased, those that the repository has all the same, and why."""
    asked = "".join(f"{oid.hex()}\n" for oid in erased).encode("ascii")
    told = repository.git.run("cat-file", "--batch-check", stdin=asked).decode("ascii", "replace")
    words = (line.split(" ") for line in told.splitlines())
    # What is empty says nothing.
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
    # Half an answer would call something unreached that is needed: all of it, or none.
    told = git.run("rev-list", "--objects", *which)
    rows = (line.partition(b" ") for line in told.splitlines())
    found = {oid.decode("ascii"): path for oid, _, path in rows}
    return [(oid, found[oid]) for oid in sorted(sought) if oid in found]


def _all_specs(paths: Sequence[EnvPath]) -> list[bytes]:
    return [spec for path in paths for spec in _pathspecs(path)]


def _was_held(git: Git, tip: str, specs: Sequence[bytes]) -> bool:
    held = _held(git, tip, specs)
    return held if held is not None else _held(git, OURS[0], specs) is not False


def _held(git: Git, where: str, specs: Sequence[bytes]) -> bool | None:
    """Whether a chain ever held one of the paths; None where not all of it is here to tell."""
    done = git.ask("rev-list", "--max-count=1", where, "--", *specs)
    return bool(done.out.strip()) if done.status == 0 else None


def _pathspecs(path: EnvPath) -> Iterator[bytes]:
    for directory, name in stored_places(path):
        for link in (False, True):
            stored = stored_name(name, top=not directory, link=link)
            yield b":(top,literal)" + (directory + b"/" + stored if directory else stored)


def _names(repository: Repository, directory: str) -> dict[str, tuple[str, str]]:
    """By their keys, the remotes that have a name here."""
    found = {}
    names = {told[1] for key, _ in repository.read_config() if (told := URL.fullmatch(key))}
    for name in sorted(names):
        with suppress(EnvhistError):
            remote = find_remote(repository, name, directory)
            found[remote_key(remote)] = (remote.name, remote.shown)
    return found


ATTACHED = os.fsdecode(RESERVED + b"/" + ATTACHMENTS)
SET_ASIDE = ("damaged", "set-aside")
CONTENT, MISSING, COMPLETE, STORY = "Env-Content", "Env-Missing", "Env-Complete", "Env-Story"


class PathNotFound(SnapshotNotFound):
    """No snapshot holds such a path."""

    code = "no-such-path"

    def __init__(self, path: str) -> None:
        super().__init__(path, hint="what no snapshot holds is gone; 'git envlog -- <path>' tells of a path")
        self.message = f"no snapshot holds '{path}'"
        self.args = (self.message,)


@dataclass(slots=True)
class _PurgeTotals:
    """What was found in all timelines, by commits."""

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
        """Erase them; `PathNotFound` where nothing holds any, after what nothing holds any more was cleaned away.

        `variable_names`: also the names of variables that earlier versions stored without sealing them. `force`:
        ignore a git of another user if the system hides in which repository it works.
        """
        repository = self._repository
        self._variable_names = variable_names
        self._refuse_left()
        self._refuse_left_behind()
        # Asked while what was sent can still be read here.
        stored = (FACTS_OF_VARIABLES,) if variable_names else ()
        sent = pushed_timelines(repository, self._history.directory, paths, stored)
        fetched = fetched_contains(repository, paths)
        imported = imported_here(repository) if fetched else ()
        tally = _PurgeTotals()
        for timeline in self._timelines():
            self._erase_from(timeline, paths, tally, dry_run=dry_run)
        if not dry_run:
            forget_fetched(repository, holds=fetched)
            self._forget(force=force)
        nowhere = [os.fsdecode(path) for path in paths if path not in tally.found and not fetched]
        if nowhere and len(nowhere) == len(paths) and not variable_names:
            raise PathNotFound(nowhere[0])
        tally.warnings.update(dict.fromkeys(f"no snapshot holds '{path}'" for path in nowhere))
        tally.warnings.update(dict.fromkeys(self._not_looked_into()))
        top = os.fsencode(repository.root)
        return PurgeResult(
            tuple(paths),
            len(tally.snapshots),
            len(tally.in_trash),
            sent if tally.snapshots or tally.in_trash or fetched else (),
            fetched,
            () if dry_run else self._left(tally),
            tuple(path for path in paths if os.path.lexists(os.path.join(top, path))),
            len(tally.attached),
            len(tally.mentioned),
            dry_run,
            tuple(tally.warnings),
            variable_names,
            imported,
        )

    def _left(self, tally: _PurgeTotals) -> tuple[RemainingObject, ...]:
        try:
            return tuple(remaining_objects(self._repository, list(tally.erased)))
        except GitFailed as failed:
            told = f"it is erased; what of yours still has the same content cannot be told: {failed.message}"
            tally.warnings[told] = None
            return ()

    def _not_looked_into(self) -> Iterator[str]:
        """What a repair set aside is nobody's to change, and may hold anything."""
        for name in SET_ASIDE:
            place = os.path.join(self._repository.common_state, name)
            if os.path.isdir(place) and os.listdir(place):
                yield f"what 'git envlog fsck --repair' set aside was not looked into: '{place}'"

    def _refuse_left(self) -> None:
        """What a restore left half done holds bytes of its own."""
        for state in states_of(self._repository):
            if os.path.lexists(os.path.join(restore_directory(state), "journal")):
                raise UnfinishedRestore

    def _refuse_left_behind(self) -> None:
        """What a timeline had before it began anew is on no chain that could be rewritten."""
        for timeline in lost_snapshots(self._repository):
            raise Refused(
                f"moments from before '{timeline}' began anew may hold it, too",
                hint="put them back first: git envlog fsck --repair",
            )

    def _timelines(self) -> list[str]:
        heads = [ref.removeprefix(TIMELINE_REFS) for ref in self._repository.list_refs(TIMELINE_REFS)]
        return sorted({*heads, *(bundle.timeline for bundle in self._rewriting.bundles())} - {""})

    def _erase_from(
        self, timeline: str, paths: Sequence[EnvPath], tally: _PurgeTotals, *, dry_run: bool
    ) -> None:
        """Erase them from one timeline and its trash."""
        repository = self._repository

        def decide(stand: TimelineState, staging: Staging) -> TimelineTarget:
            with (
                CatFile(repository.git) as reader,
                PackWriter(staging.pack_dir, repository.object_format) as writer,
            ):
                eraser = Eraser(reading(reader), writer, repository.hash_length, paths, self._facts_less)
                changes = self._changes(stand, eraser, reader, tally)
                tally.found.update(eraser.found)
                tally.erased.update(eraser.erased)
                if dry_run or not changes:
                    return TimelineTarget(stand.links)
                pack = writer.finish()
            trash = tuple((bundle, bundle.links) for bundle in stand.trash)
            return TimelineTarget(
                stand.links, trash, changes=changes, packs=(pack,) if pack is not None else ()
            )

        done = self._rewriting.rewrite(timeline, decide, keeps=False)
        tally.warnings.update(dict.fromkeys(done.warnings))

    def _facts_less(self, probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
        if self._variable_names:
            text = without_variable_names(probe, text)
        return facts_less(probe, text, paths, self._history.keys.get) if paths else text

    def _changes(
        self, stand: TimelineState, eraser: Eraser, reader: CatFile, tally: _PurgeTotals
    ) -> dict[str, CommitChange]:
        """By commit, what each snapshot is without them."""
        changes: dict[str, CommitChange] = {}
        in_trash = [link for bundle in stand.trash for link in bundle.links]
        for link in (*stand.links, *in_trash):
            tree = eraser.erase(link.tree) if link.snapshot else link.tree
            if tree != link.tree:
                changes[link.commit] = CommitChange(tree, self._trailers(link, eraser, tree))
                (tally.in_trash if link.in_trash else tally.snapshots)[link.commit] = None
            intent = link.data.message.rpartition(b"\n\n")[0]
            if any(bytes(path) in intent for path in eraser.paths):
                tally.mentioned[link.commit] = None
            if link.snapshot and reader.read(f"{link.tree}:{ATTACHED}") is not None:
                tally.attached[link.commit] = None
        ids = {link.id for link in (*stand.links, *in_trash) if link.commit in changes}
        for link in in_trash:
            # What it said of the one before it is told anew when it is brought back.
            if link.commit in changes or link.after in ids:
                told = changes.get(link.commit, CommitChange(link.tree))
                changes[link.commit] = CommitChange(told.tree, {**told.trailers, STORY: ""})
        return changes

    def _trailers(self, link: ChainCommit, eraser: Eraser, tree: str) -> dict[str, str | None]:
        # Keyed, for it says something of what is gone; equal environments stay equal.
        told: dict[str, str | None] = {}
        if eraser.paths:
            told[CONTENT] = keyed_digest(self._history.keys.current(), link.content)
        if link.partial:
            missing = eraser.missing_in(tree)
            told[MISSING] = str(missing) if missing else None
            told[COMPLETE] = "partial" if missing else "yes"
        return told

    def _forget(self, *, force: bool) -> None:
        """Have nothing of ours hold what no snapshot holds any more."""
        repository = self._repository
        stands = [self._rewriting.stand(timeline) for timeline in self._timelines()]
        trash = (link for stand in stands for bundle in stand.trash for link in bundle.links)
        chains = (link for stand in stands for link in stand.links)
        DigestEraser(self._history, repository, (*chains, *trash)).forget()
        forget_caches(repository)
        remotes = remotes_directory(repository.common_state)
        for name in os.listdir(remotes) if os.path.isdir(remotes) else ():
            if name.endswith(".upload"):
                shutil.rmtree(os.path.join(remotes, name), ignore_errors=True)
        forget_workplaces(repository)
        for base in (hidden_base(repository.common_state), open_base(self._history.environ)):
            sweep_areas(base)
        forget_reflogs(repository)
        # What an earlier run put aside when it was killed comes back, and goes with the rest.
        git = repository.git
        sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
        try:
            collect(replace(repository, ignores_hidden=force), keep_since=NOTHING_STAYS)
        except RepositoryBusy as busy:
            told = f"no snapshot holds it any more, but {busy.message}"
            raise RepositoryBusy(told, hint=busy.hint) from busy


def reading(reader: CatFile) -> Callable[[bytes], bytes]:
    """Return a function that reads an object; `Damaged` where it is missing."""

    def read(oid: bytes) -> bytes:
        answer = reader.read(oid.hex())
        if answer is None:
            raise Damaged(f"an object of a snapshot is missing: '{oid.hex()}'", hint="git envlog fsck")
        return answer.data

    return read
