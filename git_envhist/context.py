"""HistoryContext: the history of one environment, as the packages that work on it see it.

A context has the repository, the settings, the keys, the clock, and the catalog of all timelines. It resolves
revisions, judges signatures and adds records to notes. `EnvHistory` in `api` is the one class above it: it adds the
verbs, and implements `fetch_missing`, `fetch_blobs` and `notify`, which need packages above this module.

A host program keeps a context open for long, so each verb reads settings that changed and looks up timelines again.
A command of ours reads them once: it opens its context with `one_command`.
"""

from __future__ import annotations

import os
from _thread import _local as local
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from git_envhist.config import config_home, read_settings
from git_envhist.errors import SealingError, SnapshotNotFound
from git_envhist.git.current_actor import agent_of, current_actor, current_time, signature
from git_envhist.git.list_config import list_config
from git_envhist.history.catalog import (
    judge_verdicts,
    list_timelines,
    newest_at,
    newest_snapshots,
    read_catalog,
    read_timeline,
    refuse_newer,
)
from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.lazy import once, replace
from git_envhist.model import CaptureResult, EnvPath, NoteRecord, Snapshot, SnapshotRef
from git_envhist.printable_text import replace_surrogates
from git_envhist.snapshots.fetched_store import (
    FetchedStore,
    is_fetched,
    with_fetched_objects,
    without_fetched_objects,
)
from git_envhist.worktree.timeline_name import ensure_timeline, find_timeline

if TYPE_CHECKING:
    from git_envhist.config import Settings
    from git_envhist.discovery import OpenedRepository
    from git_envhist.git.repository import Repository
    from git_envhist.history.search import ReadVersion
    from git_envhist.model import AgentName, ForkResult
    from git_envhist.secrets.identities import Identities
    from git_envhist.secrets.keys import KeyRing
    from git_envhist.snapshots.wrapped_keys import WrappedKeys

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Modification time, size and inode of each configuration file; None for a file that does not exist."""


class _ThreadCache(local):
    """Lookups of a thread's current verb; another thread has its own."""

    catalog: Catalog | None = None
    now: datetime | None = None
    vouched: dict[str, frozenset[str]] | None = None
    """By fetched timeline: the snapshots that an allowed SSH signer vouched for."""


class HistoryContext(ABC):
    """The history of one environment: what its verbs read and share."""

    def __init__(
        self,
        opened: OpenedRepository,
        environ: Mapping[str, str],
        *,
        workers: str = "spawn",
        directory: str = ".",
        one_command: bool = False,
    ) -> None:
        """`one_command`: this process runs one command and ends; settings and timelines are read once."""
        self.repository: Repository = with_fetched_objects(opened.repository)
        self.directory = directory
        self.environ = dict(environ)
        self.workers = environ.get("GIT_ENVHIST_WORKERS") or workers
        self.one_command = one_command
        self.warnings = list(opened.remarks)
        self.recovered_name: str | None = None
        """The warning that the name of the timeline had to be recovered."""
        self.waiting: Callable[[str], None] | None = None
        """Called with what a verb waits for, e.g. "another push"."""
        self.step: Callable[[str], None] | None = None
        """Called with how far a push or a fetch is, in a few words."""
        self.forked: ForkResult | None = None
        """The result of `fork`, if this is the history that it returned."""
        self._seen = _ThreadCache()
        self._settings = read_settings(opened.repository.read_config())
        self._config_files: tuple[str, ...] = ()
        self._config_stamp: Stamp | None = None

    @property
    def settings(self) -> Settings:
        """git's configuration under `envhist.*`; a host program's is read again when a file of it changed."""
        if not self.one_command and (
            self._config_stamp is None or _stamp(self._config_files) != self._config_stamp
        ):
            self._read_settings()
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings
        self._config_files, self._config_stamp = (), None

    @once
    def keys(self) -> KeyRing:
        """The keys that seal and sign the snapshots of this repository."""
        from git_envhist.secrets.keys import KeyRing  # loaded late: keeps envlog fast

        state, home = self.repository.common_state, config_home(self.environ)
        return KeyRing(state, home, self.settings.key_in, self._wrapped_keys)

    @property
    def timeline(self) -> str | None:
        """The name of this working tree's timeline; None before its first capture."""
        found = find_timeline(self.repository, self.settings)
        if found.remark is not None:
            self.recovered_name = found.remark
            self.warn(found.remark)
        return found.name

    @property
    def agent(self) -> AgentName | None:
        """The agent that uses this history; None for a person."""
        return agent_of(self.environ)

    @property
    def signature(self) -> bytes:
        """Author and time of a commit made now, as git writes them."""
        return signature(current_actor(self.settings, self.environ), self.now)

    # Read snapshots.

    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]:
        """Return the snapshots of a timeline, newest first."""
        name = timeline or self.timeline
        found = read_timeline(self.repository, name, limit, self.pushed_tip, self.warn) if name else []
        return judge_verdicts(found, lambda: self.keys)

    def timelines(self) -> tuple[str, ...]:
        """Return the names of all stored timelines, this working tree's own first."""
        return list_timelines(self.repository, self.timeline)

    def newest(self, limit: int) -> list[Snapshot] | None:
        """Return the newest snapshots of all timelines; None if that takes reading all of them."""
        tips = newest_at(self.repository)
        if tips is None:
            return None
        own = self.timeline
        ordered = {
            name: tips[name] for name in sorted(tips, key=lambda name: (is_fetched(name), name != own))
        }
        return newest_snapshots(
            ordered, lambda name, limit: Timeline.of(name, self.log(limit, name)).snapshots, limit
        )

    @property
    def catalog(self) -> Catalog:
        """Everything that a revision can refer to. Read once per call, or once per process with `one_command`."""
        found = self._seen.catalog
        if found is None:
            found = self._seen.catalog = read_catalog(
                self.timeline or "", self.timelines, self.log, self.repository.git, self.settings.has_remote
            )
        return found

    @property
    def now(self) -> datetime:
        """The current time, or the one that GIT_COMMITTER_DATE sets; the same during one verb."""
        found = self._seen.now
        if found is None:
            found = self._seen.now = current_time(self.repository.git, self.environ)
        return found

    def refresh(self) -> None:
        """Forget what this thread has looked up; a command of ours keeps its clock."""
        self._seen.catalog = self._seen.vouched = None
        if not self.one_command:
            self._seen.now = None

    def resolve(self, text: str) -> Snapshot:
        """Return the snapshot that a revision means."""
        from git_envhist.history.resolve import resolve  # loaded late: keeps envlog fast

        self._begin_verb()
        text = text if self.one_command else replace_surrogates(text)
        try:
            found = resolve(text, self.catalog, self.now)
        except SnapshotNotFound:
            refuse_newer(self.repository.git, text)
            raise
        return self.judge(found)

    def judge(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with `trusted`: signed by a key that exists here, or vouched for by an SSH signer."""
        from git_envhist.snapshots.message import with_trust  # loaded late: keeps a capture fast

        found = with_trust(snapshot, self.keys.get)
        if found.trusted or not is_fetched(found.timeline):
            return found
        return replace(found, trusted=found.commit in self._vouched(found.timeline))

    def snapshot_of(self, revision: SnapshotRef) -> Snapshot:
        """Return the snapshot that a revision, a snapshot or a capture's result refers to."""
        self._begin_verb()
        if isinstance(revision, CaptureResult):
            # A capture without changes made no snapshot: the newest one equals the working tree.
            return revision.snapshot or self.resolve("@")
        return self.resolve(revision) if isinstance(revision, str) else revision

    def snapshots_of(self, revisions: Iterable[SnapshotRef]) -> list[Snapshot]:
        """Return the snapshots that revisions and ranges refer to, each once, in the order given."""
        from git_envhist.history.resolve import snapshots_of_range  # loaded late: keeps envlog fast

        self._begin_verb()
        found: dict[str, Snapshot] = {}
        for one in revisions:
            in_range = None
            if isinstance(one, str) and ".." in one:
                in_range = snapshots_of_range(one, self.catalog, self.now)
            for snapshot in [self.snapshot_of(one)] if in_range is None else in_range:
                found[snapshot.id] = snapshot
        return list(found.values())

    # Contents.

    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes:
        """Return the plain bytes of a sealed file; raise `SealingError` if its key is missing here."""
        from git_envhist.secrets.seal import unseal  # loaded late: keeps envlog fast

        return unseal(self.keys.to_open, path, b"file", blob)

    def with_contents(self, snapshot: Snapshot, *paths: EnvPath) -> Snapshot:
        """Fetch missing contents of these paths if the snapshot was fetched; return the snapshot.

        The path of the top means all contents. Raise `TreeTooLarge` for trees of unlimited size that plain git
        brought: those of a fetch were checked when they arrived.
        """
        if is_fetched(snapshot.timeline):
            self.fetch_missing(snapshot, paths)
        else:
            refuse_oversized_trees(self, [snapshot])
        return snapshot

    def tree_of(self, revision: SnapshotRef | None) -> str | None:
        """Return the tree of a snapshot; None for None."""
        return None if revision is None else self.with_contents(self.snapshot_of(revision)).tree

    # Write.

    def add_records(
        self, snapshot: Snapshot, *records: NoteRecord, files: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Add records to the note of a snapshot, and to the tree of the notes the files that they name."""
        from git_envhist.snapshots.publish import add_note_records  # loaded late: keeps envlog fast

        line = self.signature
        if is_fetched(snapshot.timeline):
            from git_envhist.snapshots.notes import (
                record_note_on_fetched,  # loaded late: most snapshots are ours
            )

            record_note_on_fetched(FetchedStore.of(self.repository))

        def own_timeline() -> str:
            return ensure_timeline(self.repository, self.settings)

        add_note_records(self.repository, own_timeline, snapshot, records, line, files or {})
        self.refresh()
        self.notify("noted", snapshot, *records)

    def warn(self, sentence: str) -> None:
        """Add a warning, unless it was given already."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    # Implemented by `EnvHistory`.

    @abstractmethod
    def fetch_missing(self, snapshot: Snapshot, paths: Sequence[EnvPath]) -> None:
        """Fetch the missing objects of a fetched snapshot: its list of paths, and the contents of the given paths."""

    @abstractmethod
    def fetch_blobs(self, snapshot: Snapshot, blobs: Sequence[str]) -> None:
        """Fetch blobs of a fetched snapshot that are not stored yet."""

    @abstractmethod
    def pushed_tip(self, remote: str, timeline: str) -> str | None:
        """Return the commit that a push left as the tip of a timeline at a remote; None if nothing was pushed."""

    @abstractmethod
    def notify(self, event: str, *about: object) -> None:
        """Call the handlers of an event."""

    # Internals.

    def _begin_verb(self) -> None:
        """Look up everything again in a host program, where other processes work between two verbs."""
        if not self.one_command:
            self.refresh()

    def _reopen_fetched(self) -> None:
        """See the repository of fetched timelines after it was created or changed."""
        self.repository = with_fetched_objects(without_fetched_objects(self.repository))
        self.refresh()

    def _wrapped_keys(self) -> WrappedKeys:
        from git_envhist.snapshots.wrapped_keys import WrappedKeys  # loaded late: most keys are our own

        return WrappedKeys(self.repository, lambda: identities_of(self.settings, self.environ))

    def _vouched(self, timeline: str) -> frozenset[str]:
        from git_envhist.snapshots.seen_heads import commits_signed_by_ssh  # loaded late: keeps envlog fast

        known = self._seen.vouched
        if known is None:
            known = self._seen.vouched = {}
        if timeline not in known:
            known[timeline] = commits_signed_by_ssh(FetchedStore.of(self.repository), timeline)
        return known[timeline]

    def _read_settings(self) -> None:
        files = self._usual_config_files()
        before = _stamp(files)
        config, named = list_config(self.repository.git.environment, self.repository.root)
        # A file that git includes and that changes while git reads it is seen by the next verb.
        others = tuple(sorted(set(named).difference(files)))
        # A fetch in another thread may have created the repository of fetched timelines just now.
        self.repository = with_fetched_objects(
            without_fetched_objects(replace(self.repository, config=config))
        )
        self._settings = read_settings(config)
        self._config_files, self._config_stamp = (*files, *others), (*before, *_stamp(others))

    def _usual_config_files(self) -> tuple[str, ...]:
        """Return the files where git looks, existing or not; `HEAD` because an include may depend on the branch."""
        common, own = self.repository.common_dir, self.repository.git_dir
        home = self.environ.get("HOME") or os.path.expanduser("~")
        files = [os.path.join(common, "config"), os.path.join(own, "config.worktree"), f"{own}/HEAD"]
        files += [f"{home}/.gitconfig", f"{config_home(self.environ)}/git/config", "/etc/gitconfig"]
        named = [self.environ.get(name) for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")]
        return tuple(sorted({*files, *filter(None, named)}))


def _stamp(files: Iterable[str]) -> Stamp:
    return tuple(map(_stat, files))


def _stat(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def refuse_oversized_trees(context: HistoryContext, snapshots: Iterable[Snapshot]) -> None:
    """Raise `TreeTooLarge` if an unsigned snapshot that plain git brought has trees of unlimited size."""
    unknown = [one for one in snapshots if not (one.trusted or is_fetched(one.timeline))]
    unseen = [one.tree for one in unknown if not context.judge(one).trusted]
    if unseen:
        from git_envhist.snapshots.oversized_trees import (
            refuse_oversized,  # loaded late: most snapshots are ours
        )

        refuse_oversized(context.repository.git, unseen)


def version_reader(context: HistoryContext) -> ReadVersion:
    """Return a function that reads a file on one side of a snapshot's step, or returns None if its key is missing."""
    from git_envhist.snapshots.reader import FileReader  # loaded late: keeps envlog fast

    git, pack_dir = context.repository.git, context.repository.pack_dir

    def blocks(tree: str, path: EnvPath) -> Iterator[bytes]:
        with closing(FileReader(git, tree, context.open_sealed, pack_dir)) as reader:
            yield from reader.read(path)

    def read(snapshot: Snapshot, commit: str | None, path: EnvPath) -> Iterable[bytes] | None:
        if commit is None:
            return None
        tree = git.run("rev-parse", "--verify", f"{commit}^{{tree}}").decode("ascii").strip()
        context.with_contents(replace(snapshot, tree=tree), path)
        found = blocks(tree, path)
        try:
            return chain((next(found, b""),), found)
        except SealingError:
            context.warn("some sealed files were not searched: their key is missing here")
            return None

    return read


def identities_of(settings: Settings, environ: Mapping[str, str]) -> Identities:
    """Return the private keys of this user, which open what others sealed."""
    from git_envhist.secrets.identities import Identities  # loaded late: keys of others are rare

    home = environ.get("HOME") or os.path.expanduser("~")
    return Identities(settings.identity, home, config_home(environ))
