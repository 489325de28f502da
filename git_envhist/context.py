"""What every verb of a history leans on: its repository, its settings, its keys, its moments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from git_envhist.config import config_home, read_settings
from git_envhist.errors import SnapshotNotFound
from git_envhist.git.config import agent_of, current_actor, current_time, signature
from git_envhist.history.catalog import (
    judge_verdicts,
    list_timelines,
    newest_at,
    newest_snapshots,
    read_timeline,
    refuse_newer,
    world_of,
)
from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.lazy import once, replace
from git_envhist.model import CaptureProgress, CaptureResult, EnvPath, NoteRecord, Snapshot, SnapshotRef
from git_envhist.snapshots.fetched import (
    FetchedStore,
    is_fetched,
    with_fetched_objects,
    without_fetched_objects,
)
from git_envhist.snapshots.timelines import find_timeline

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CapturePipeline
    from git_envhist.config import Settings
    from git_envhist.discovery import OpenedRepository
    from git_envhist.git.repository import Repository
    from git_envhist.model import AgentName, ForkResult
    from git_envhist.secrets.identities import Identities
    from git_envhist.secrets.keys import KeyRing
    from git_envhist.snapshots.wrapped_keys import WrappedKeys


FETCH = "another fetch or import"


class HistoryContext:
    """A history that can be read and spoken of; each room adds its verbs to it, and `EnvHistory` is all of them."""

    def __init__(
        self,
        opened: OpenedRepository,
        environ: Mapping[str, str],
        *,
        workers: str = "spawn",
        directory: str = ".",
    ) -> None:
        self.repository: Repository = with_fetched_objects(opened.repository)
        self.settings = read_settings(opened.repository.read_config())
        self.directory = directory
        self._environ = dict(environ)
        self._workers = environ.get("GIT_ENVHIST_WORKERS") or workers
        self.warnings = list(opened.remarks)
        self.recovered_name: str | None = None
        """The warning that the name of the timeline had to be recovered."""
        self.waiting: Callable[[str], None] | None = None
        """Told for whom, where something shared has to wait: a program of ours says so."""
        self.step: Callable[[str], None] | None = None
        """Told how far a push or a fetch is, in a few words: a program of ours shows it."""
        self.forked: ForkResult | None = None  # what `fork` made, where this is what it gave

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables under which this history was opened."""
        return self._environ

    @property
    def timeline(self) -> str | None:
        """The name of this working tree's timeline; None before its first capture."""
        found = find_timeline(self.repository, self.settings)
        if found.remark is not None:
            self.recovered_name = found.remark
            self._tell(found.remark)
        return found.name

    @once
    def keys(self) -> KeyRing:
        from git_envhist.secrets.keys import KeyRing  # loaded late: keeps envlog fast

        state, home = self.repository.common_state, config_home(self._environ)
        return KeyRing(state, home, self.settings.key_in, self._wrapped_keys)

    def _wrapped_keys(self) -> WrappedKeys:
        from git_envhist.snapshots.wrapped_keys import (
            WrappedKeys,  # loaded late: keys that others wrapped are rare
        )

        return WrappedKeys(self.repository, lambda: identities_of(self.settings, self._environ))

    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]:
        """The snapshots of a timeline, newest first."""
        name = timeline or self.timeline
        found = read_timeline(self.repository, name, limit, self._tell) if name else []
        return judge_verdicts(found, lambda: self.keys)

    def timelines(self) -> tuple[str, ...]:
        """The names of all timelines that are known here, this working tree's own first."""
        return list_timelines(self.repository, self.timeline)

    def newest(self, limit: int) -> list[Snapshot] | None:
        """The newest of all timelines; None where it takes reading all of them to know."""
        tips = newest_at(self.repository)
        if tips is None:
            return None
        own = self.timeline
        ordered = {
            name: tips[name] for name in sorted(tips, key=lambda name: (is_fetched(name), name != own))
        }
        return newest_snapshots(
            ordered, lambda name, most: Timeline.of(name, self.log(most, name)).snapshots, limit
        )

    def resolve(self, text: str) -> Snapshot:
        """The snapshot that some words mean."""
        from git_envhist.history.resolve import resolve  # loaded late: keeps envlog fast

        try:
            found = resolve(text, self.world, self.now)
        except SnapshotNotFound:
            refuse_newer(self.repository.git, text)
            raise
        return self.judge(found)

    def judge(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, and whether a key that is here signed it, or an allowed SSH signer its timeline."""
        from git_envhist.snapshots.message import with_trust  # loaded late: keeps a capture fast

        found = with_trust(snapshot, self.keys.get)
        if found.trusted or not is_fetched(found.timeline):
            return found
        return replace(found, trusted=found.commit in self._vouched(found.timeline))

    def _vouched(self, timeline: str) -> frozenset[str]:
        """The snapshots of a fetched timeline that an allowed SSH signer vouched for."""
        from git_envhist.snapshots.seen_heads import vouched_by_ssh  # loaded late: keeps envlog fast

        known: dict[str, frozenset[str]] = self.__dict__.setdefault("_vouched_known", {})
        if timeline not in known:
            known[timeline] = vouched_by_ssh(FetchedStore.of(self.repository), timeline)
        return known[timeline]

    @once
    def world(self) -> Catalog:
        """All that a revision can speak of."""
        return self._read_world()

    def _read_world(self) -> Catalog:
        return world_of(
            self.timeline or "", self.timelines, self.log, self.repository.git, self.settings.has_remote
        )

    @once
    def now(self) -> datetime:
        """This moment, or the one that GIT_COMMITTER_DATE sets."""
        return self._read_clock()

    def _read_clock(self) -> datetime:
        return current_time(self.repository.git, self._environ)

    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes:
        """The plain bytes of a sealed file; `SealingError` where the key is not here."""
        from git_envhist.secrets.seal import unseal  # loaded late: keeps envlog fast

        return unseal(self.keys.to_open, path, b"file", blob)

    @once
    def _capturing(self) -> CapturePipeline:
        from git_envhist.capture.pipeline import CapturePipeline  # loaded late: keeps envlog fast

        own = without_fetched_objects(self.repository)
        return CapturePipeline(own, self.settings, self.keys, self._workers, self._environ)

    @once
    def _seeing(self) -> CapturePipeline:
        """What takes a moment, and reads those that were fetched, too."""
        return replace(self._capturing, repository=self.repository)

    def bring(self, snapshot: Snapshot, *paths: EnvPath) -> Snapshot:
        """The snapshot; where it was fetched, its lists are here then, and these paths (the top: all of it)."""
        if is_fetched(snapshot.timeline):
            from git_envhist.remote.fetch import fetch_missing  # loaded late: most snapshots are ours

            fetch_missing(self.repository, self._environ, snapshot, paths, self._waits_for(FETCH))
        else:
            refuse_endless_trees(self, [snapshot])
        return snapshot

    def _waits_for(self, whom: str) -> Callable[[], None]:
        def wait() -> None:
            if self.waiting is not None:
                self.waiting(whom)
            self.happened("waiting", whom)

        return wait

    def forget_world(self) -> None:
        """To whoever keeps a history open, words mean what is there now."""
        self.__dict__.pop("world", None)
        self.__dict__.pop("_vouched_known", None)

    @property
    def agent(self) -> AgentName | None:
        """The agent in whose name this history is used; None where a person does."""
        return agent_of(self._environ)

    @property
    def progress(self) -> Callable[[CaptureProgress], None] | None:
        """Told how far a verb has come that was given nobody else to tell."""
        return None

    def happened(self, event: str, *about: object) -> None:
        """Whoever wants to hear of it may be told; a program of ours says it itself."""

    def _tell(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def _snapshot(self, revision: SnapshotRef) -> Snapshot:
        if isinstance(revision, CaptureResult):
            # Where nothing had changed, none was made: the newest holds what was here.
            return revision.snapshot or self.resolve("@")
        return self.resolve(revision) if isinstance(revision, str) else revision

    def _tree(self, moment_of: SnapshotRef | None) -> str | None:
        return None if moment_of is None else self.bring(self._snapshot(moment_of)).tree

    def tell(
        self, snapshot: Snapshot, *records: NoteRecord, files: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Add records to the note of a moment, and beside the notes the files that they speak of."""
        from git_envhist.snapshots.publish import add_note_records  # loaded late: keeps envlog fast

        line = signature(current_actor(self.settings, self._environ), self.now)
        if is_fetched(snapshot.timeline):
            from git_envhist.snapshots.notes import mark_fetched_notes

            mark_fetched_notes(FetchedStore.of(self.repository))
        add_note_records(self.repository, self.settings, snapshot, records, line, files or {})
        self.forget_world()
        self.happened("told", snapshot, *records)


def refuse_endless_trees(history: HistoryContext, snapshots: Iterable[Snapshot]) -> None:
    """Refuse trees without end, of what plain git brought: nobody has looked at that yet."""
    unknown = [one for one in snapshots if not (one.trusted or is_fetched(one.timeline))]
    unseen = [one.tree for one in unknown if not history.judge(one).trusted]
    if unseen:
        from git_envhist.snapshots.tree_size import refuse_too_large  # loaded late: most snapshots are ours

        refuse_too_large(history.repository.git, unseen)


def identities_of(settings: Settings, environ: Mapping[str, str]) -> Identities:
    """Return the private keys of this user, which open what others sealed."""
    from git_envhist.secrets.identities import Identities  # loaded late: likewise

    home = environ.get("HOME") or os.path.expanduser("~")
    return Identities(settings.identity, home, config_home(environ))
