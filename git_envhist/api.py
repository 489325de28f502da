"""A piece of work between two moments: what was there before it, what came of it, and the way back where it failed."""

from __future__ import annotations

import os
import re
import sys
from _thread import _local as local
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar, cast, overload

from git_envhist.around import Forget, Handler, Handlers, HistoryEvent
from git_envhist.config import Settings, config_home, read_settings
from git_envhist.context import FETCH, HistoryContext, refuse_endless_trees
from git_envhist.discovery import open_repository
from git_envhist.disk import system_errors
from git_envhist.errors import EnvhistError, SnapshotNotFound, UsageError
from git_envhist.git.config import agent_variables, current_actor, list_config
from git_envhist.git.process import Git
from git_envhist.git.repository import TRASH_REFS
from git_envhist.history.catalog import as_sequence, path_below, refuse_unknown
from git_envhist.history.timeline import by_name, next_name_time, subject
from git_envhist.lazy import once, replace
from git_envhist.model import (
    TOP,
    AgentName,
    Attachment,
    CaptureProgress,
    CaptureResult,
    EnvPath,
    RestoreResult,
    Snapshot,
    SnapshotAttachments,
    SnapshotDiff,
    SnapshotId,
    SnapshotRef,
    Trigger,
    VerdictStatus,
)
from git_envhist.platform import COPIES, own_command
from git_envhist.snapshots.fetched import is_fetched, seeing_fetched, without_fetched
from git_envhist.snapshots.records import name_record, remark_record
from git_envhist.text import replace_surrogates

if TYPE_CHECKING:
    from typing import Self, Unpack

    from git_envhist.capture.captured_tree import LiveTree
    from git_envhist.capture.pipeline import CaptureKeywords, CapturePipeline
    from git_envhist.checks.checks import Checks
    from git_envhist.discovery import InitKeywords, OpenedRepository
    from git_envhist.git.repository import Repository
    from git_envhist.history.timeline import Catalog
    from git_envhist.integrations.base import InstallTarget
    from git_envhist.model import (
        BisectResult,
        CheckResult,
        DiskUsage,
        ForkPlan,
        FsckReport,
        GcResult,
        RecoveryResult,
        RestorePlan,
        RunResult,
    )
    from git_envhist.model.storage import (
        DropResult,
        ExportResult,
        FetchResult,
        ImportResult,
        PruneResult,
        PurgeResult,
        PushResult,
    )
    from git_envhist.model.work import IntegrationChange, IntegrationStatus, RecentChanges
    from git_envhist.remote.sign import Signing
    from git_envhist.restore.options import RestoreKeywords, RestoreOptions
    from git_envhist.restore.restorer import Restorer
    from git_envhist.retention.drop import SnapshotDropper
    from git_envhist.retention.prune import Pruner
    from git_envhist.snapshots.reader import FileReader
    from git_envhist.tracking.attachments import Value
    from git_envhist.tracking.effects import Effects, Observations
    from git_envhist.tracking.tasks import Tasks


# What is being done on a timeline beside its files: tasks of a piece of work, and what happens outside the machine.


class Doing:
    """The part of a history that tells of it."""

    @property
    def tasks(self: AroundHistory) -> Tasks:  # type: ignore[misc]
        """The tasks of this timeline."""
        from git_envhist.tracking.tasks import Tasks  # loaded late: most commands know of none

        return Tasks(self)

    @property
    def effects(self: AroundHistory) -> Effects:  # type: ignore[misc]
        """What was done outside the machine."""
        from git_envhist.tracking.effects import Effects  # loaded late: likewise

        return Effects(self)

    @property
    def observed(self: AroundHistory) -> Observations:  # type: ignore[misc]
        """Checkpoints of the platform below us that were made without us."""
        from git_envhist.tracking.effects import Observations  # loaded late: likewise

        return Observations(self)


# The verbs of what is kept with a moment beside the environment, as `EnvHistory` has them.

CONVERSATION, TOOL_OUTPUTS = "conversation.json", "tool-outputs.json"
NUMBERED = r"[0-9]+-(?=.)"
"""What is attached by a capture has its number in front; compiled where it is used."""


class Keeping(HistoryContext):
    """A conversation, outputs of tools, files: attached to a moment, and given back byte for byte."""

    def attach(
        self,
        moment: SnapshotRef = "@",
        *,
        conversation: Sequence[Value] | None = None,
        tool_outputs: Sequence[Value] | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        attached: Sequence[tuple[str, bytes]] = (),
    ) -> Snapshot:
        """Keep something with a moment that is there, sealed; what had the same name before is replaced.

        `files` are read, `attached` is (name, bytes); a conversation and outputs of tools are lists of plain values.
        """
        from git_envhist.capture.pipeline import read_attachment  # loaded late: few moments have one
        from git_envhist.snapshots.records import attached_record  # loaded late: likewise
        from git_envhist.tracking.attachments import seal_attachment  # loaded late: likewise

        said = attachment_files(conversation, tool_outputs)
        things = [*said, *(read_attachment(os.fspath(file)) for file in as_sequence(files)), *attached]
        snapshot = self._snapshot(moment)
        key, format_ = self.keys.current(), self.repository.object_format
        sealed = [seal_attachment(snapshot, name, data, key, format_) for name, data in things]
        if not sealed:
            return snapshot
        records = [attached_record(one.attached, self.now) for one in sealed]
        self.tell(snapshot, *records, files={one.path: one.content for one in sealed})
        return replace(snapshot, attached=_joined(snapshot.attached, [one.attached for one in sealed]))

    def attachments(self, revision: SnapshotRef = "@") -> tuple[tuple[str, bytes], ...]:
        """(name, bytes) of what was attached to a moment: a conversation, outputs of tools, files."""
        from git_envhist.tracking.attachments import attachments_of  # loaded late: few moments have one

        return attachments_of(self, self._snapshot(revision))

    def get(self, revision: SnapshotRef = "@") -> SnapshotAttachments:
        """A moment as it is known now, and all that was kept with it, as it was given."""
        from git_envhist.tracking.attachments import (
            decode,  # loaded late: likewise
            snapshot_lists,  # loaded late: likewise
        )

        self.forget_world()
        # What somebody holds was read when it was taken: what was said since stands in the notes.
        words = revision if isinstance(revision, str) else revision.id or "@"
        snapshot = self.resolve(words)
        there = self.attachments(snapshot)
        last = {re.sub(NUMBERED, "", name): data for name, data in there}
        lists = [decode(last[name]) if name in last else None for name in (CONVERSATION, TOOL_OUTPUTS)]
        return SnapshotAttachments(
            snapshot, lists[0], lists[1], there, *snapshot_lists(self.repository.git, snapshot)
        )


def attachment_files(
    conversation: Sequence[Value] | None, tool_outputs: Sequence[Value] | None
) -> list[tuple[str, bytes]]:
    """(name, bytes) of a conversation and of outputs of tools, where there are any."""
    from git_envhist.tracking.attachments import encode  # loaded late: likewise

    lists = {CONVERSATION: conversation, TOOL_OUTPUTS: tool_outputs}
    return [(name, encode(values)) for name, values in lists.items() if values is not None]


def _joined(before: tuple[Attachment, ...], new: list[Attachment]) -> tuple[Attachment, ...]:
    return tuple({one.name: one for one in (*before, *new)}.values())


# What is kept and what goes: moments let go and brought back, thinned by a policy, paths erased from all of them.


class Retaining(HistoryContext):
    """The part of a history that lets go."""

    def drop(self, *revisions: SnapshotRef, dry_run: bool = False) -> DropResult:
        """Let moments go: for 30 days `undrop` brings them back; ranges are all moments in them."""
        return self.dropping.drop(self._snapshots(revisions), dry_run=dry_run)

    def undrop(self, *revisions: str) -> DropResult:
        """Bring back what was let go."""
        return self.dropping.undrop([self.dropping.find(one) for one in revisions])

    def prune(
        self,
        *,
        keep_last: int | None = None,
        keep_hourly: int | None = None,
        keep_daily: int | None = None,
        keep_weekly: int | None = None,
        every: bool = False,
        dry_run: bool = False,
    ) -> PruneResult:
        """Thin the timeline (`every`: all of this repository) by a policy; what somebody said something of stays.

        Kept are the newest `keep_last`, as many of those that somebody gave words, and of so many hours, days and
        weeks the newest each, one with words before what came by itself. Where one of them is said, the others count
        as none; where none is, `envhist.keep*` says. What goes lies in the trash for 30 days.

        >>> for number in range(4):
        ...     _ = history.capture(f"step {number}")
        >>> pruned = history.prune(keep_last=2, dry_run=True)
        >>> pruned.gone, [(one.snapshot.intent, one.why) for one in pruned.timelines[0].decisions][1:3]
        (2, [('step 2', 'last 2'), ('step 1', 'nothing keeps it')])
        >>> history.prune(keep_last=2).gone, len(history.log())
        (2, 2)
        """
        from git_envhist.retention.prune import own_timelines, policy_from_options, policy_of

        names = own_timelines(self) if every else [self.timeline] if self.timeline else []
        policy = policy_from_options(keep_last, keep_hourly, keep_daily, keep_weekly) or policy_of(
            self.settings
        )
        return self.pruning.prune(policy, names, dry_run=dry_run)

    def thin(self) -> None:
        """What is done by itself once a day: by what is configured, within `envhist.maxSize`."""
        from git_envhist.retention.prune import Pruner  # loaded late: once a day

        Pruner(self, gentle=True).by_itself()

    def purge(
        self,
        *paths: str | os.PathLike[str],
        variable_names: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> PurgeResult:
        """Erase paths of the environment from every snapshot and the trash, for good; nothing brings them back.

        `variable_names`: erase the names of variables that earlier versions stored without sealing them. `force`:
        ignore a git of another user if the system hides in which repository it works.
        """
        from git_envhist.retention.purge import Purger  # loaded late: keeps envlog fast

        top, here = os.fsencode(self.repository.root), os.fsencode(self.directory)
        meant = [path_below(top, here, os.fsencode(path)) for path in paths]
        return Purger(self).purge(meant, variable_names=variable_names, dry_run=dry_run, force=force)

    @once
    def pruning(self) -> Pruner:
        """What thins the timelines."""
        from git_envhist.retention.prune import Pruner  # loaded late: likewise

        return Pruner(self)

    @once
    def dropping(self) -> SnapshotDropper:
        """The trash, and the way into it."""
        from git_envhist.retention.drop import SnapshotDropper  # loaded late: keeps envlog fast

        return SnapshotDropper(self)

    def _snapshots(self, revisions: tuple[SnapshotRef, ...]) -> list[Snapshot]:
        """The moments that are meant, each once, in the order of the words."""
        from git_envhist.history.resolve import resolve_range, snapshots_in_range  # loaded late: likewise

        found: dict[str, Snapshot] = {}
        for one in revisions:
            if isinstance(one, str) and ".." in one:
                span = resolve_range(one, self.world, self.now)
                some = (
                    list(snapshots_in_range(span, self.world.own))
                    if span.start is not None
                    else [self.resolve(one)]
                )
            else:
                some = [self._snapshot(one)]
            found.update({snapshot.id: snapshot for snapshot in some})
        return list(found.values())


# The verbs of a single moment, as `EnvHistory` has them: what is said of it, and what it holds.


class Moments(HistoryContext):
    """Names, remarks and files of moments."""

    def name(self, name: str, revision: SnapshotRef = "@", *, remove: bool = False) -> Snapshot:
        """Give a moment a name, or take it away."""
        name = replace_surrogates(name)
        snapshot = self._snapshot(revision)
        line = self.world.timeline(snapshot.timeline) or self.world.own
        self.tell(snapshot, name_record(name, next_name_time(line, name, self.now), removed=remove))
        return snapshot

    def remove_name(self, name: str) -> Snapshot:
        """Take a name away from the moment that bears it."""
        spots = [spot for line in self.world.timelines() for spot in by_name(line, name)]
        if not spots:
            raise SnapshotNotFound(name, hint="no snapshot bears this name")
        return self.name(name, spots[0].snapshot, remove=True)

    def note(self, text: str, revision: SnapshotRef = "@") -> Snapshot:
        """Add to the story of a moment."""
        from git_envhist.secrets.masking import mask_text  # loaded late: keeps envlog fast

        snapshot = self._snapshot(revision)
        masked = mask_text(text)
        self.tell(snapshot, remark_record(masked, self.now))
        return snapshot

    def read_file(self, revision: SnapshotRef, path: str | bytes | os.PathLike[str]) -> bytes:
        """The bytes of a file as they were at a moment; the path is below the top."""
        wanted = EnvPath(os.fsencode(path))
        with closing(self.reader(self.bring(self._snapshot(revision), wanted))) as reader:
            return b"".join(reader.read(wanted))

    def reader(self, snapshot: Snapshot) -> FileReader:
        """Reads what a snapshot holds; to be closed."""
        from git_envhist.snapshots.reader import FileReader  # loaded late: keeps envlog fast

        return FileReader(self.repository.git, snapshot.tree, self.open_sealed, self.repository.objects_dir)

    def environment_path(self, path: bytes) -> EnvPath:
        """The path below the top of the environment that words on the command line mean."""
        return path_below(os.fsencode(self.repository.root), os.fsencode(self.directory), path)


# The verbs of going back, as `EnvHistory` has them.


class Returning(HistoryContext):
    """Back to a moment, and forth again."""

    @overload
    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[True],
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: bool = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult | RestorePlan:
        """Go back to a moment; what is here is saved first, `undo` brings it back. A dry run gives the plan alone.

        `verify`: then run this command, or the check that the moment was judged by; `RestoreResult.checked` says what
        came of it, and where it did not pass, `undo` is the way back.

        What can be asked for by name, as `git envrestore` has it: `paths` (git's pathspecs, as from the top) and `only`
        (packages, env, databases, files) choose; `keep_new` removes nothing, `keep_code` leaves what HEAD tracks;
        `head` also moves HEAD; `relocate` rewrites what names another place; `services` brings their state along;
        `force` and `foreign` override a refusal that names them (`roots`: in additional roots too). Called: `progress`,
        how far it is; `waiting`, somebody else holds the environment; `planned`, with the plan, before anything is
        saved (what it raises stops the restore); `saved`, with the moment that holds what was here. `wish`: all of it
        as one value.
        """
        snapshot = self._snapshot(revision)
        if dry_run:
            return self.going.to(snapshot, self._wish(wished, wish, dry_run=True)).plan
        # Whether there is a check at all is known before anything is changed.
        # What a capture gave was read before it was checked.
        command = self.checks.recorded(self.resolve(snapshot.id)) if verify is True else verify or None
        restored = self._told_of(self.going.to(snapshot, self._wish(wished, wish)))
        return restored if command is None else self._checked(restored, command)

    def foresee(self, revision: SnapshotRef, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """What a restore would come to: its plan, and all that goes with it or would not; nothing is changed.

        It is asked by the same names as `restore`.
        """
        return self.going.to(self._snapshot(revision), self._wish(wished, dry_run=True))

    def write_to(
        self, revision: SnapshotRef, directory: str | os.PathLike[str], **wished: Unpack[RestoreKeywords]
    ) -> RestoreResult:
        """Write a moment into a directory of its own; nothing here is touched.

        It is asked by the same names as `restore`, as far as they have a meaning there.
        """
        return self.going.write_to(self._snapshot(revision), str(directory), self._wish(wished))

    def undo(self, steps: int = 1, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """Go to the newest earlier state that differs from what is here now, so many steps back.

        It is asked by the same names as `restore`.
        """
        return self._told_of(self.going.undo(steps, self._wish(wished)))

    def redo(self, steps: int = 1, **wished: Unpack[RestoreKeywords]) -> RestoreResult:
        """Go forth again, where nothing new has come since the last undo; asked by the same names as `restore`."""
        return self._told_of(self.going.redo(steps, self._wish(wished)))

    def finish_restore(self) -> RecoveryResult:
        """Finish a restore that was broken off."""
        return self.going.ended(self.going.finish())

    def take_back_restore(self) -> RecoveryResult:
        """Take back a restore that was broken off: the environment is as it was before it."""
        return self.going.ended(self.going.take_back())

    @once
    def going(self) -> Restorer:
        """Back, forth, and what goes with it."""
        from git_envhist.restore.restorer import Restorer  # loaded late: keeps envlog fast

        def with_trash(timeline: str) -> tuple[list[Snapshot], frozenset[SnapshotId]]:
            from git_envhist.retention.drop import SnapshotDropper  # loaded late: hardly any undo meets one

            return SnapshotDropper(self).line_with_trash(timeline)

        return Restorer(self, self._seeing, with_trash)

    def _wish(
        self, wished: RestoreKeywords, wish: RestoreOptions | None = None, *, dry_run: bool = False
    ) -> RestoreOptions:
        from git_envhist.restore.options import restore_options  # loaded late: keeps envlog fast

        if self.progress is not None:
            wished.setdefault("progress", self.progress)
        return restore_options(wish, wished, dry_run)

    @once
    def checks(self) -> Checks:
        """Checks, and what they came to."""
        from git_envhist.checks.checks import Checks  # loaded late: most captures check nothing

        return Checks(self, self._capturing)

    def _checked(self, restored: RestoreResult, command: str) -> RestoreResult:
        checked = self.checks.after_restore(restored, command)
        self.happened("verified", checked)
        return replace(restored, checked=checked)

    def _told_of(self, restored: RestoreResult) -> RestoreResult:
        self.happened("restored", restored)
        return restored


# What a history can do with others: push, fetch, export, import.

PUSH = "another push"


class Sharing:
    """The part of a history that others see, and that came from them."""

    repository: Repository

    def push(  # type: ignore[misc]
        self: AroundHistory,
        remote: str | None = None,
        *timelines: str,
        delete: Sequence[str] = (),
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
        yes: bool = False,
        dry_run: bool = False,
        most: int | None = None,
    ) -> PushResult:
        """Send timelines (this working tree's, where none is named) with their notes and names to a remote.

        The first push there lists what would leave in the clear and is refused without `yes`; `dry_run` tells the same
        and sends nothing. `delete`: timelines that are taken away there; `allow`: paths that may leave with a token
        in them, or too large; `most`: so many bytes at once at most. What is refused is sent nowhere.

        >>> import subprocess
        >>> _ = subprocess.run(["git", "init", "-q", "--bare", "../shared.git"], check=True)
        >>> _ = history.capture("to be shared")
        >>> history.push("../shared.git", dry_run=True).first
        True
        >>> history.push("../shared.git")
        Traceback (most recent call last):
            ...
        git_envhist.remote.push.FirstPush: the first push to 'shared-...' (...): nothing was sent
        >>> [one.outcome.value for one in history.push("../shared.git", yes=True).timelines]
        ['new']
        """
        from git_envhist.remote.push import PushOptions, push  # loaded late: most commands send nothing

        paths = tuple(map(os.fsencode, as_sequence(allow)))
        wish = PushOptions(remote, timelines, as_sequence(delete), paths, yes, dry_run, most)
        self._remotes_are_of_now()
        return push(
            self.repository,
            self._environ,
            self.directory,
            self.timeline,
            wish,
            self._waits_for(PUSH),
            self.step,
            self._signing(),
        )

    def _signing(self: AroundHistory) -> Signing:  # type: ignore[misc]
        from git_envhist.git.config import current_actor, signature  # loaded late: likewise
        from git_envhist.remote.sign import Signing  # loaded late: likewise
        from git_envhist.secrets.ssh_signatures import SshSettings  # loaded late: likewise

        ssh = SshSettings.of(self.repository.read_config())
        line = signature(current_actor(self.settings, self._environ), self.now)
        current = self.keys.current_id()
        key = self.keys.get(current) if current is not None else None
        return Signing(key, ssh, self._environ, line, self.keys)

    def fetch(  # type: ignore[misc]
        self: AroundHistory, remote: str | None = None, *, full: bool = False, accept_rollback: bool = False
    ) -> FetchResult:
        """Bring the timelines of a remote beside ours; `full`: with all their contents.

        A timeline that is not as its head was signed is refused (`FetchResult.bad`) without `accept_rollback`.
        """
        from git_envhist.remote.fetch import fetch  # loaded late: likewise

        self._remotes_are_of_now()
        waiting = self._waits_for(FETCH)
        done = fetch(
            self.repository,
            self._environ,
            self.directory,
            remote,
            full=full,
            find_key=self.keys.get,
            accept_rollback=accept_rollback,
            waiting=waiting,
            step=self.step,
        )
        self._came()
        return done

    def export(  # type: ignore[misc]
        self: AroundHistory,
        file: str | os.PathLike[str],
        *revisions: str,
        force: bool = False,
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
    ) -> ExportResult:
        """Write moments (revisions, ranges; none: all of this timeline) with notes and names into a file.

        `force`: over a file that is there; `allow`: paths that may leave with a token in them.

        >>> _ = history.capture("to go along", name="there")
        >>> history.export("../moments.envhist.tar.zst", "there").timelines[0][1][0].intent
        'to go along'
        >>> [(came, moments) for _, came, moments in history.import_("../moments.envhist.tar.zst").timelines]
        [(<FetchOutcome.NEW: 'new'>, 1)]
        """
        from git_envhist.git.config import current_actor, signature  # loaded late: likewise
        from git_envhist.remote.export import ExportOptions, choose, export  # loaded late: likewise

        self.forget_world()
        chosen = choose(revisions, self.world, self.now)
        for snapshot in chosen:
            self.bring(snapshot, TOP)
        line = signature(current_actor(self.settings, self._environ), self.now)
        wish = ExportOptions(force, tuple(map(os.fsencode, as_sequence(allow))))
        waiting = self._waits_for("another export")
        return export(self.repository, os.fspath(file), chosen, self.world, self.keys, line, wish, waiting)

    def import_(  # type: ignore[misc]
        self: AroundHistory, file: str | os.PathLike[str], *, name: str | None = None
    ) -> ImportResult:
        """Bring what a file of an export holds in beside ours, as `<name>/<timeline>`."""
        from git_envhist.remote.export import import_archive  # loaded late: likewise

        self._remotes_are_of_now()
        done = import_archive(self.repository, os.fspath(file), name, self._tell, self._waits_for(FETCH))
        self._came()
        return done

    def _remotes_are_of_now(self: AroundHistory) -> Settings:  # type: ignore[misc]
        # Whoever keeps a history open reads git's configuration again where settings are asked for.
        return self.settings

    def _came(self: AroundHistory) -> None:  # type: ignore[misc]
        self.repository = seeing_fetched(without_fetched(self.repository))
        self.forget_world()


# How a history is kept in order: what nothing needs goes, what holds the space is told, whether all of it is whole.


class Upkeep(HistoryContext):
    """The part of a history that keeps it in order."""

    def gc(  # type: ignore[misc]
        self: AroundHistory,
        prune: str | None = None,
        *,
        empty_trash: bool = False,
        force: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> GcResult:
        """Take away what nothing reaches, and pack the rest well.

        `prune`: what nothing reaches goes where its pack was not used since then (`now`, `never`, `3 days ago`; two
        weeks ago where it is not said). `empty_trash`: dropped snapshots go for good first, and `prune` is `now`.
        `force`: ignore a git of another user if the system hides in which repository it works.
        """
        from git_envhist.maintenance.gc import clean  # loaded late: keeps envlog fast

        if empty_trash:
            self.dropping.empty_trash()
            self.forget_world()
            prune = prune or "now"
        repository = replace(self._capturing.repository, ignores_hidden=force)
        return clean(repository, prune, tell or _say_nothing)

    def fsck(
        self, *, quick: bool = False, repair: bool = False, tell: Callable[[str], None] | None = None
    ) -> FsckReport:
        """Whether every snapshot is whole, to the last byte; `quick`: whether all that they need is there.

        `repair`: what is lost is brought back where it can be, what cannot is set aside; nothing is deleted.
        """
        from git_envhist.maintenance.daily import forget_trouble  # loaded late: likewise

        if repair:
            from git_envhist.maintenance.repair import Repair  # loaded late: hardly ever

            health = Repair(self, self._capturing, tell or _say_nothing).run()
        else:
            from git_envhist.maintenance.fsck import check  # loaded late: keeps envlog fast

            found = check(self._capturing.repository, quick=quick, tell=tell or _say_nothing)
            health = found.health(quick=quick)
        if health.is_whole and not quick:
            forget_trouble(self.repository.common_state)
        self.forget_world()
        return health

    def du(  # type: ignore[misc]
        self: AroundHistory,
        *revisions: SnapshotRef,
        paths: Sequence[bytes] = (),
        tell: Callable[[str], None] | None = None,
    ) -> DiskUsage:
        """What holds the space: moments, directories, classes, and what each of them alone would free.

        `revisions`: what dropping these would free together; `paths`: what the history would lose without them.
        """
        from git_envhist.maintenance.disk_usage import SnapshotSet, measure  # loaded late: keeps envlog fast

        lines = {name: self.log(timeline=name) for name in self.timelines() if not is_fetched(name)}
        repository = self._capturing.repository
        trash = list(repository.list_refs(TRASH_REFS).values())
        told = repository.git.run("rev-list", *trash).split() if trash else []
        chosen = self._snapshots(revisions)
        moments = SnapshotSet(lines, [one.decode("ascii") for one in told])
        return measure(repository, moments, chosen, paths, tell or _say_nothing)

    @property
    def trouble(self) -> list[str]:
        """What the daily check found wrong, a sentence each."""
        from git_envhist.maintenance.daily import read_trouble  # loaded late: keeps a capture fast

        return read_trouble(self.repository.common_state)

    def daily(self: AroundHistory) -> None:  # type: ignore[misc]
        """What is done by itself once a day, and only as far as it is worth it; who is in the way is left alone."""
        from git_envhist.maintenance.gc import daily  # loaded late: once a day

        daily(self._capturing.repository, self.thin)


def _say_nothing(_: str) -> None:
    pass


# The verbs of checks, as `EnvHistory` has them.


class Asking(Returning):
    """Whether a moment works."""

    def verify(self, revision: SnapshotRef = "now", command: str | None = None) -> CheckResult:
        """Run a check on what is here now, or on an older moment in a throw-away environment of it."""
        checked = self.checks.run(
            revision if isinstance(revision, str) else self._snapshot(revision), command
        )
        self.happened("verified", checked)
        return checked

    def bisect(
        self, good: SnapshotRef | None = None, bad: SnapshotRef | None = None, command: str | None = None
    ) -> BisectResult:
        """The first moment where a check fails; from `good` to `@`, where they are not said."""
        ends = [one if one is None or isinstance(one, str) else self._snapshot(one) for one in (good, bad)]
        return self.checks.bisect(ends[0], ends[1], command)


# The verbs that take a moment, as `EnvHistory` has them: of the environment, or to hold it against another.


class Taking(Asking):
    """Captures and comparisons."""

    def capture(self, intent: bytes | str | None = None, **asked: Unpack[CaptureKeywords]) -> CaptureResult:
        """Take a snapshot of the whole environment; then check it, where that is asked for or configured.

        What can be asked for by name, as `git envlog capture` has it: `name`; `verify`, the command that says whether
        it works; `if_changed`, none where nothing changed; `strict`, refused where something cannot be read; `dry_run`,
        nothing is kept; `force`, also of a home directory; `meta`, values by keys; `external_id`, another program's id.

        Kept with it, sealed: `attach` (files), `attached` ((name, bytes)), `conversation` and `tool_outputs` (lists of
        plain values). Who causes it: `trigger`, `actor`, and `intent_source`, where the words come from. Called:
        `progress`, how far it is; `waiting`, somebody else holds the environment; `captured`, it is there, and is going
        to be checked; `watching`, while the check runs.
        """
        from git_envhist.capture.pipeline import capture_options  # loaded late: keeps envlog fast

        if asked.get("conversation") is not None or asked.get("tool_outputs") is not None:
            told = attachment_files(asked.get("conversation"), asked.get("tool_outputs"))
            asked["attached"] = (*asked.get("attached", ()), *told)
        asked.setdefault("progress", self.progress)
        request = capture_options(intent, asked)
        with system_errors(self.repository.git_dir):
            captured = self._capturing.capture(request)
        self.forget_world()
        request.captured(captured)
        wanted = asked.get("verify") or self.settings.verify
        done = self.checks.after_capture(captured, request, asked) if wanted else captured
        self.happened("captured", done)
        return done

    def diff(
        self,
        before: SnapshotRef | None = "@",
        after: SnapshotRef = "now",
        pathspecs: Sequence[str | bytes] = (),
        *,
        renames: int | None = None,
    ) -> SnapshotDiff:
        """Two moments side by side; `now` is the live environment. Git's pathspecs choose, as from the top.

        `renames`: a file that went and one that came are one change, where so many percent of them are alike.
        """
        from git_envhist.diff.facts import compare_moments  # loaded late: keeps envlog fast

        chosen = tuple(map(os.fsencode, as_sequence(pathspecs)))
        for one in (before, after) if renames is not None else ():
            if one is not None and one != "now":
                # What was moved is told by its contents.
                self.bring(self._snapshot(one), TOP)
        with self.sides(before, after) as (git, old, new):
            compared = compare_moments(git, old, new, chosen, renames, self.keys.opening)
            return SnapshotDiff(_called(before), _called(after), *compared)

    @contextmanager
    def sides(self, before: SnapshotRef | None, after: SnapshotRef) -> Iterator[tuple[Git, str | None, str]]:
        """(git, a tree, another), with `now` captured into a staging for as long as the context is open."""
        if "now" not in (before, after):
            yield self.repository.git, self._tree(before), self._tree(after) or ""
            return
        with self.present() as present:
            old = present.tree if before == "now" else self._tree(before)
            new = present.tree if after == "now" else self._tree(after)
            yield present.git, old, new or ""

    @contextmanager
    def present(self) -> Iterator[LiveTree]:
        """The live environment, captured into a staging that is thrown away."""
        from git_envhist.capture.captured_tree import LiveTree  # loaded late: with the capture itself

        with self._capturing.present() as held:
            yield LiveTree(self.repository.git.with_objects(held.staging.path), held.finish().tree)


def _called(moment_of: SnapshotRef | None) -> str:
    return moment_of or "" if isinstance(moment_of, str | None) else moment_of.id or "@"


# The verbs: everything that the programs do goes through here.
#
# Each room has a class with its verbs, on top of `HistoryContext`; here they become one, and a history is opened.


class AroundHistory(Taking, Moments, Keeping, Doing, Upkeep, Sharing, Retaining):
    """The history of one environment."""

    @classmethod
    def open(
        cls,
        directory: str = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        bare: bool = False,
    ) -> Self:
        """Return the history of the working tree that a directory is in.

        `workers`: a program of our own may be forked ("fork"), a host program must not be ("spawn").
        `bare`: open a bare repository too; its snapshots can be read and written into a new directory (`write_to`).
        """
        chosen = os.environ if environ is None else environ
        with system_errors(directory):
            opened = open_repository(directory, chosen, bare=bare)
            return cls(opened, chosen, workers=workers, directory=directory)

    @classmethod
    def init(cls, directory: str = ".", *, workers: str = "spawn", **wish: Unpack[InitKeywords]) -> Self:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's."""
        from git_envhist.discovery import InitKeywords, init_history  # loaded late: keeps envlog fast

        refuse_unknown("init", wish, InitKeywords.__annotations__)
        given = wish.get("environ")
        chosen = os.environ if given is None else given
        with system_errors(directory):
            return cls(init_history(directory, chosen, wish), chosen, workers=workers, directory=directory)

    def fork(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        foreign: bool = False,
        trigger: Trigger = Trigger.API,
        progress: Callable[[CaptureProgress], None] | None = None,
    ) -> Self:
        """A directory of its own that holds the environment of a moment, on a timeline that begins there.

        `branch`: made for it at the code commit of the moment; `relocate`: what names the old place is rewritten in it;
        `foreign`: also of what no key that is here signed. What was made stands in `.forked`.

        >>> moment = history.capture("to try two ways from")
        >>> attempt = history.fork(moment, "../attempt", branch="attempt")
        >>> attempt.forked.branch, attempt.forked.exact, attempt.log(limit=1)[0].intent
        ('attempt', True, 'forked from ...')
        """
        from git_envhist.fork import ForkOptions, fork  # loaded late: keeps envlog fast

        wish = ForkOptions(branch, relocate, foreign, trigger, progress or self.progress)
        source = self.judge(self._snapshot(revision))
        self.bring(source, EnvPath(b""))
        made, opened = fork(self._seeing, self.open_sealed, source, os.fspath(directory), wish)
        history = type(self)(opened, self._environ, workers=self._workers, directory=made.root)
        history.forked = made
        self.happened("forked", history)
        return history

    def plan_fork(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        foreign: bool = False,
    ) -> ForkPlan:
        """What `fork` would do with these arguments, refused as it would be; nothing is written."""
        from git_envhist.fork import ForkOptions, plan_fork  # loaded late: keeps envlog fast

        source = self.judge(self._snapshot(revision))
        return plan_fork(self._seeing, source, os.fspath(directory), ForkOptions(branch, relocate, foreign))


# The verbs that cause captures: a command between two moments, a watch, what git and agents call by themselves.

PROGRAM = "git-envhist"


class Causing(AroundHistory):
    """What captures, and when."""

    def run(self, words: Sequence[str], intent: str | None = None, *, verify: str | None = None) -> RunResult:
        """Run a command between two snapshots, at the top; what it wrote and how it ended stand with the second.

        >>> ran = history.run(["sh", "-c", "echo built > out; echo done"], "build it")
        >>> ran.status, ran.output, ran.after.snapshot.intent
        (0, b'done\\n', 'build it')
        """
        from git_envhist.integrations.run_command import run_with_snapshots

        if isinstance(words, str | bytes) or not words:
            raise UsageError(
                "a command is given word by word", hint='run(["npm", "test"]), or run(["sh", "-c", "…"])'
            )

        def capture(why: str, asked: CaptureKeywords) -> CaptureResult:
            return self.capture(why, **asked)

        return run_with_snapshots(capture, words, intent, verify, self._run_quietly)

    def _run_quietly(self, words: Sequence[str], keep: Callable[[bytes], None]) -> int:
        import subprocess  # loaded late: likewise

        from git_envhist.integrations.run_command import copy_until_exit, status_of  # loaded late: likewise

        try:
            child = subprocess.Popen(
                words,
                cwd=self.repository.root,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except (OSError, ValueError) as error:
            # A word may hold what no word of a command can: a zero byte, half of a letter.
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise EnvhistError(f"cannot run '{words[0]}': {reason}") from error
        with child:
            assert child.stdout is not None
            copy_until_exit(child.pid, [child.stdout.fileno()], lambda _source, data: keep(data))
            return status_of(child.wait())

    def watch(self, *, settle: float = 2.0) -> Iterator[CaptureResult]:
        """Capture whenever the environment has come to rest after a change; each is yielded, until somebody stops."""
        with closing(self.watched(settle)) as looks:
            yield from (one for one in looks if one is not None)

    def watched(self, settle: float, longest: float | None = None) -> Generator[CaptureResult | None]:
        """The same; with `longest` None comes at least every so many seconds."""
        from git_envhist.integrations.watch import watch_captures  # loaded late: only who watches needs it

        cls, environ, workers = type(self), self._environ, self._workers
        root = self.repository.root

        def open_history() -> AroundHistory:
            return cls.open(root, environ=environ, workers=workers)

        return watch_captures(open_history, self._tell, settle, longest)

    def install(
        self,
        agents: Sequence[str] = (),
        *,
        everywhere: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[IntegrationChange, ...]:
        """Have git, or coding agents, capture by themselves; told is every byte that was, or would be, written."""
        from git_envhist.integrations.install import (  # loaded late: hardly ever asked for
            install,
            named_integrations,
        )

        return install(
            self._place(everywhere, force), named_integrations(as_sequence(agents)), dry_run=dry_run
        )

    def uninstall(
        self, agents: Sequence[str] = (), *, everywhere: bool = False, dry_run: bool = False
    ) -> tuple[IntegrationChange, ...]:
        """Take away what `install` put in place; what nobody has changed since is what it was before."""
        from git_envhist.integrations.install import (  # loaded late: likewise
            all_integrations,
            named_integrations,
            uninstall,
        )

        wanted = named_integrations(as_sequence(agents)) if agents else all_integrations()
        return uninstall(self._place(everywhere, force=False), wanted, dry_run=dry_run)

    def status(self) -> IntegrationStatus:
        """What captures by itself here, when it last did, and what went wrong."""
        from git_envhist.integrations.status import read_status  # loaded late: likewise

        return read_status(self._place(everywhere=False, force=False, only_looks=True), self.settings)

    def _place(self, everywhere: bool, force: bool, *, only_looks: bool = False) -> InstallTarget:
        from git_envhist.integrations.base import InstallTarget  # loaded late: likewise

        if self.repository.plain and not (everywhere or only_looks):
            raise EnvhistError(
                f"'{self.repository.root}' is no git repository: no hook of git is called there",
                hint="capture by hand, or by an agent: install(agents=[…], everywhere=True)",
            )
        return InstallTarget(self.repository, self._environ, own_program(self._environ), everywhere, force)


def own_program(environ: dict[str, str]) -> str:
    """`git-envhist` of this very installation, by its absolute path."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), PROGRAM)
    import shutil  # loaded late: likewise

    found = beside if os.access(beside, os.X_OK) else shutil.which(PROGRAM, path=environ.get("PATH"))
    if found is None:
        raise EnvhistError(f"'{PROGRAM}' is neither beside '{sys.executable}' nor on the PATH")
    return os.path.abspath(found)


# git's configuration as it is while a program goes on: read again once one of its files is another.

T = TypeVar("T")
Stamp = tuple[tuple[int, int, int] | None, ...]
MADE_OF_THEM = ("_capturing", "_seeing", "going", "checks")
"""What is made once, of the settings among others."""


class ConfiguredHistory(AroundHistory):
    """A history whose settings are those of now: a handful of `stat` calls where a verb asks for them."""

    @property
    def settings(self) -> Settings:
        """git's configuration under `envhist.*`, as it is now."""
        if self._stamp is None or _stamp(self._files) != self._stamp:
            self._read_again()
        return self._settings

    @settings.setter
    def settings(self, read: Settings) -> None:
        self._settings = read
        self._files: tuple[str, ...] = ()
        self._stamp: Stamp | None = None

    @property
    def _capturing(self) -> CapturePipeline:
        return self._made_now("_capturing", lambda: super(ConfiguredHistory, self)._capturing)

    @property
    def _seeing(self) -> CapturePipeline:
        return self._made_now("_seeing", lambda: super(ConfiguredHistory, self)._seeing)

    @property
    def going(self) -> Restorer:
        """Back, forth, and what goes with it."""
        return self._made_now("going", lambda: super(ConfiguredHistory, self).going)

    @property
    def checks(self) -> Checks:
        """Checks, and what they came to."""
        return self._made_now("checks", lambda: super(ConfiguredHistory, self).checks)

    def _made_now(self, name: str, make: Callable[[], T]) -> T:
        read = self.settings
        made = make()
        # Another thread has read them anew meanwhile: what was made of the old ones must not stay.
        if self._settings is not read:
            self.__dict__.pop(name, None)
        return made

    def _read_again(self) -> None:
        files = self._usual_files()
        before = _stamp(files)
        config, named = list_config(self.repository.git.environment, self.repository.root)
        # What one of these becomes while git reads them is seen the next time.
        others = tuple(sorted(set(named).difference(files)))
        # Looked at again: a fetch in another thread may have brought something beside ours just now.
        own = without_fetched(replace(self.repository, config=config))
        self.repository = seeing_fetched(own)
        self._settings = read_settings(config)
        for made in MADE_OF_THEM:
            self.__dict__.pop(made, None)
        self._files, self._stamp = (*files, *others), (*before, *_stamp(others))

    def _usual_files(self) -> tuple[str, ...]:
        """Where git looks, whether there is something or not; `HEAD`, because a branch may bring files along."""
        common, own = self.repository.common_dir, self.repository.git_dir
        home = self._environ.get("HOME") or os.path.expanduser("~")
        places = [os.path.join(common, "config"), os.path.join(own, "config.worktree"), f"{own}/HEAD"]
        places += [f"{home}/.gitconfig", f"{config_home(self._environ)}/git/config", "/etc/gitconfig"]
        return tuple(sorted({*places, *_configuration_variables(self._environ)}))


def _configuration_variables(environ: Mapping[str, str]) -> list[str]:
    return [environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if environ.get(name)]


def _stamp(files: Iterable[str]) -> Stamp:
    return tuple(map(_seen, files))


def _seen(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# The verbs that look: a list by what is asked for, and what changed of late without any snapshot.

VERDICTS = (*(one.value for one in VerdictStatus), "none")


class LogKeywords(TypedDict, total=False):
    """What a list is to hold; several words of one kind are alternatives, several kinds must all hold."""

    since: str
    """As `git envlog` reads times: `2 hours ago`, `10:27`."""
    until: str
    grep: Sequence[str]
    """Patterns of which one is in the intent, a name or a note."""
    ignore_case: bool
    verdicts: Sequence[str]
    """`pass`, `fail`, `error`, `none`."""
    triggers: Sequence[str]
    paths: Sequence[str | bytes]
    """git's pathspecs, as from the top: the snapshots that changed what they mean."""
    summary: str
    """A text that the summary or a changed fact contains: a package, a variable, a count. When did flask appear?"""
    content: str
    """A text that was added to a file or removed from one, as `git log -S` has it."""
    content_pattern: str
    """A regular expression that a changed line of a file matches, as `git log -G` has it."""
    span: str
    """A range, as in `git envlog a..b`."""
    every: bool
    """On every timeline, by time."""
    reverse: bool
    """Oldest first."""


class Looking(AroundHistory):
    """What there is, and what was of late."""

    def log(
        self, limit: int | None = None, timeline: str | None = None, **sought: Unpack[LogKeywords]
    ) -> list[Snapshot]:
        """The snapshots of a timeline, newest first; those that were asked for.

        Several words of one kind are alternatives, several kinds must all hold: `since` and `until` (times as
        `git envlog` reads them), `grep` (patterns; `ignore_case`), `summary` (whose summary contains it), `content` and
        `content_pattern` (as `git log -S` and `-G`), `verdicts` (pass, fail, error, none), `triggers`, `paths` (git's
        pathspecs, as from the top: those that changed them), `span` (a range, `a..b`), `every` (on every timeline, by
        time), `reverse` (oldest first).

        >>> _ = history.capture("not checked")
        >>> _ = history.capture("checked", verify="true")
        >>> [one.intent for one in history.log(since="1h", verdicts=["pass"])]
        ['checked']
        >>> [one.intent for one in history.log(grep=["^not"], paths=["*.md"])]
        []
        >>> [one.intent for one in history.log(span="@~1..", reverse=True)]
        ['checked']
        """
        if not sought:
            return super().log(limit, timeline)
        from git_envhist.history.timeline import Choice, choose  # loaded late: most lists are whole

        refuse_unknown("log", sought, LogKeywords.__annotations__)

        found = self._reached(sought, timeline)
        choice = Choice(
            sought.get("since"),
            sought.get("until"),
            as_sequence(sought.get("grep", ())),
            sought.get("ignore_case", False),
            _known(sought.get("verdicts", ()), VERDICTS),
            _known(sought.get("triggers", ()), tuple(one.value for one in Trigger)),
            sought.get("summary"),
            sought.get("content"),
            sought.get("content_pattern"),
        )
        chosen = choose(found, choice, self.now)
        paths = tuple(map(os.fsencode, as_sequence(sought.get("paths", ()))))
        if paths:
            chosen = self._that_changed(chosen, paths)
        if choice.summary is not None:
            from git_envhist.history.timeline import filter_by_summary  # loaded late: likewise

            chosen = filter_by_summary(self.repository.git, chosen, choice.summary, self.keys.opening)
        if choice.searches_content:
            from git_envhist.history.content_search import those_with_content  # loaded late: likewise

            chosen = those_with_content(self, chosen, choice, paths)
        shown = chosen if limit is None else chosen[:limit]
        return shown[::-1] if sought.get("reverse") else shown

    def recent(self, span: str = "1h") -> RecentChanges:
        """What changed within a span, without any snapshot: by change times, and by what installers and logs say."""
        from datetime import datetime  # loaded late: hardly ever asked for

        from git_envhist.git.config import LocalZone  # loaded late: likewise
        from git_envhist.history.times import read_moment  # loaded late: likewise
        from git_envhist.recent import look  # loaded late: likewise
        from git_envhist.worktree.ignore import left_out_of  # loaded late: likewise

        now = datetime.now(LocalZone())
        since = read_moment(span, now).start.astimezone(now.tzinfo)
        root = os.path.realpath(self.repository.root)
        left_out = left_out_of(root, self.settings.exclude)
        return look(root, since, now, self.repository.git, left_out, self._environ)

    def _reached(self, sought: LogKeywords, timeline: str | None) -> Iterable[Snapshot]:
        span, every = sought.get("span"), sought.get("every")
        if span is None:
            return self._everywhere() if every else super().log(None, timeline)
        if every:
            raise UsageError("every timeline and a range exclude each other")
        from git_envhist.history.resolve import resolve_range, snapshots_in_range  # loaded late: likewise

        self.forget_world()
        line = self.world.own if timeline is None else self.world.timeline(timeline)
        if line is None:
            raise SnapshotNotFound(timeline or "", hint="'git envlog --all' lists what there is")
        found = snapshots_in_range(resolve_range(span, self.world, self.now), line)
        return [self.judge(one) for one in found]

    def _everywhere(self) -> list[Snapshot]:
        self.forget_world()
        # What was fetched may be ours: it is told once, by our own copy.
        found: dict[str, Snapshot] = {}
        for line in self.world.timelines():
            for snapshot in line.snapshots:
                found.setdefault(snapshot.id, snapshot)
        return sorted(found.values(), key=lambda snapshot: snapshot.at, reverse=True)

    def _that_changed(self, found: Sequence[Snapshot], pathspecs: tuple[bytes, ...]) -> list[Snapshot]:
        from git_envhist.diff.compare import commits_changing_paths  # loaded late: likewise

        refuse_endless_trees(self, found)
        steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
        changed = commits_changing_paths(self.repository.git, steps, pathspecs)
        return [snapshot for snapshot in found if snapshot.commit in changed]


def _known(said: Sequence[str], words: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [one for one in as_sequence(said) if one not in words]
    if wrong:
        raise UsageError(f"no such word: '{wrong[0]}'", hint=f"there are: {', '.join(words)}")
    return as_sequence(said)


P = ParamSpec("P")
R = TypeVar("R")
MAX_LENGTH = 200
"""So much of the words of a call stands with the moments around it."""


class GuardedWork:
    """One piece of work; `with history.around("refactor") as moment:` gives it."""

    def __init__(self, history: AroundHistory, intent: str, rollback: bool, asked: CaptureKeywords) -> None:
        self._history = history
        self.intent = intent
        self._rollback = rollback
        self._asked = asked
        self._before: Snapshot | None = None
        self.after: CaptureResult | None = None
        """What is there afterwards, failed or not; None while the work goes on."""
        self.restored: RestoreResult | None = None
        """How it went back, where it did."""

    @property
    def before(self) -> Snapshot:
        """What was there before; it has to be begun."""
        if self._before is None:
            raise EnvhistError(
                "the work has not begun: nothing is captured", hint="with history.around(…) as moment:"
            )
        return self._before

    @property
    def passed(self) -> bool | None:
        """Whether the check passed; None where there was none."""
        verdict = self.after.verdict if self.after else None
        return None if verdict is None else verdict.status is VerdictStatus.PASS

    def __enter__(self) -> GuardedWork:
        asked = self._less(AFTER)
        taken = self._history.capture(f"before: {subject(self.intent)}", **asked)
        self._before = taken.snapshot or self._history.resolve("@")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        # Whoever goes through a generator and stops has heard enough: nothing failed.
        if error is None or isinstance(error, GeneratorExit):
            self.after = self._history.capture(self.intent, **self._asked)
            if self._rollback and self.passed is False:
                self.restored = self._history.restore(self.before)
            return False
        try:
            self._failed(error)
        except EnvhistError as failed:
            # What the work raised is what its caller waits for.
            error.add_note(
                f"git-envhist: {failed}; what was here before: git envrestore {self.before.id[:7]}"
            )
        return False

    def _failed(self, error: BaseException) -> None:
        from git_envhist.capture.pipeline import pairs  # loaded late: with the capture itself

        asked = self._less(frozenset(("verify",)))
        asked["meta"] = (*pairs(asked.get("meta", ())), ("failed", type(error).__name__))
        # What it left is kept as well: the way back is no reason to lose it.
        self.after = self._history.capture(f"{self.intent}\n\nfailed: {type(error).__name__}", **asked)
        if self._rollback:
            self.restored = self._history.restore(self.before)

    def _less(self, keys: frozenset[str]) -> CaptureKeywords:
        kept = {key: value for key, value in self._asked.items() if key not in keys}
        return cast("CaptureKeywords", {**kept, "if_changed": True})


AFTER = frozenset(("verify", "attach", "attached", "conversation", "tool_outputs", "name", "external_id"))
"""What is said of a piece of work is said of the moment after it."""


class Rounds(AroundHistory):
    """Work between two moments."""

    def as_tool(self, name: str) -> CaptureKeywords:
        """What a capture is asked that an agent's tool is the cause of."""
        actor = replace(current_actor(self.settings, self._environ), tool=name)
        return {"trigger": Trigger.AGENT, "actor": actor}

    def around(self, intent: str, *, rollback: bool = False, **asked: Unpack[CaptureKeywords]) -> GuardedWork:
        """Capture before and after a piece of work, also where it fails.

        `rollback`: where it raises, or the check of `verify` does not pass, what was there before is restored; what it
        left is kept as a moment all the same. Everything else that is asked is what `capture` takes.

        >>> from pathlib import Path
        >>> with history.around("refactor", verify="test -f app.py") as moment:
        ...     _ = Path("app.py").write_text("refactored")
        >>> moment.before.intent, moment.after.snapshot.intent, moment.passed
        ('before: refactor', 'refactor', True)
        >>> with history.around("go too far", rollback=True) as moment:
        ...     _ = Path("app.py").write_text("broken")
        ...     raise ValueError("that was wrong")
        Traceback (most recent call last):
            ...
        ValueError: that was wrong
        >>> Path("app.py").read_text(), moment.restored.exact
        ('refactored', True)
        """
        return GuardedWork(self, intent, rollback, asked)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        called: str | None = None,
        rollback: bool = False,
        **asked: Unpack[CaptureKeywords],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        called: str | None = None,
        rollback: bool = False,
        **asked: Unpack[CaptureKeywords],
    ) -> Callable[..., Any]:
        """A decorator: what an agent calls has a moment before and after each call.

        It may be a function, a coroutine, or a generator of either kind: then from its first step to its end.

        Nothing is captured where nothing changed. The call stands in the intent, and with the actor the tool: `called`,
        or the name of the function.

        >>> from pathlib import Path
        >>> @history.tool(rollback=True)
        ... def write_file(path: str, text: str) -> int:
        ...     return Path(path).write_text(text)
        >>> write_file("app.py", text="by a tool")
        9
        >>> history.log(limit=1)[0].intent
        "write_file('app.py', text='by a tool')"
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            tool = called or str(getattr(function, "__name__", "tool"))

            def begin(args: tuple[object, ...], kwargs: dict[str, object]) -> GuardedWork:
                whole = cast("CaptureKeywords", {**self.as_tool(tool), "if_changed": True, **asked})
                return self.around(call_words(tool, args, kwargs), rollback=rollback, **whole)

            return _wrapped(function, begin)

        return decorate if function is None else decorate(function)


def _wrapped(
    function: Callable[..., Any], begin: Callable[[tuple[object, ...], dict[str, object]], GuardedWork]
) -> Callable[..., Any]:
    import inspect  # loaded late: only a tool needs it

    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yielded(*args: Any, **kwargs: Any) -> Any:
            # It works as it is gone through: what it came to is there at its end.
            with begin(args, kwargs):
                return (yield from function(*args, **kwargs))

        return yielded

    if inspect.isasyncgenfunction(function):
        return _wrapped_stream(function, begin)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            from git_envhist.aio import around  # loaded late: its host has asyncio already

            async with around(begin(args, kwargs)):
                return await function(*args, **kwargs)

        return awaited

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with begin(args, kwargs):
            return function(*args, **kwargs)

    return called


def _wrapped_stream(
    function: Callable[..., Any], begin: Callable[[tuple[object, ...], dict[str, object]], GuardedWork]
) -> Callable[..., Any]:
    @wraps(function)
    async def streamed(*args: Any, **kwargs: Any) -> Any:
        from contextlib import aclosing  # loaded late: its host has asyncio already

        from git_envhist.aio import around  # loaded late: likewise

        async with around(begin(args, kwargs)), aclosing(function(*args, **kwargs)) as stream:
            async for one in stream:
                yield one

    return streamed


def call_words(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """A call in the words of Python, cut where it is long; without the secret part of any token."""
    from git_envhist.secrets.masking import mask_text  # loaded late: only a tool needs it

    told = [*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())]
    words = mask_text(f"{name}({', '.join(told)})")
    return words if len(words) <= MAX_LENGTH else words[: MAX_LENGTH - 1] + "…"


def _short(value: object) -> str:
    # Longer than what is shown, so that no token is cut in two and not known as one any more.
    if isinstance(value, str | bytes):
        value = value[: 4 * MAX_LENGTH]
    try:
        return repr(value)[: 8 * MAX_LENGTH]
    except Exception:
        # What a tool is given is no business of ours to fail at.
        return f"<{type(value).__name__}>"


# The page for a browser, as a program of others gets it: our own program draws it, and says what went wrong.

TO_OUTPUT = "-"


class PageFailed(EnvhistError):
    """The program that draws said no; `code` and `exit_code` are those of its own error."""

    def __init__(self, message: str, code: str, status: int, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = status


class Showing(AroundHistory):
    """A history to look at."""

    def page(
        self,
        file: str | os.PathLike[str] | None = None,
        span: str | None = None,
        *,
        paths: Sequence[str | bytes] = (),
        every: bool = False,
    ) -> str:
        """One self-contained page of moments for a browser, as text; with a file it is written there, too.

        `span`: a range, as in `git envlog a..b`; `paths`: the moments that changed what these mean, as from the top;
        `every`: those of all timelines.

        >>> _ = history.capture("to look at")
        >>> history.page()[:15], "to look at" in history.page("history.html")
        ('<!DOCTYPE html>', True)
        """
        target = TO_OUTPUT if file is None else os.path.abspath(os.fspath(file))
        words: list[str | bytes] = ["-C", self.repository.root, "--json", "--html", target]
        words += ["--all"] * every
        words += ([] if span is None else [span]) + (["--", *as_sequence(paths)] if paths else [])
        drawn = _run([*own_command("envlog"), *words], self._environ)
        if file is not None:
            with open(target, "rb") as written:
                drawn = written.read()
        return drawn.decode("utf-8")


def _run(words: Sequence[str | bytes], environ: dict[str, str]) -> bytes:
    import json  # loaded late: hardly any host draws
    import subprocess  # loaded late: likewise

    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environ, check=False)
    if done.returncode == 0:
        return done.stdout
    try:
        said = json.loads(done.stdout)["error"]
        raise PageFailed(said["message"], said["code"], said["status"], said["hint"])
    except (ValueError, KeyError, TypeError):
        told = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
        raise PageFailed(f"no page was drawn: {told}", "failed", done.returncode, None) from None


# `EnvHistory` as a program of others has it: it outlives a verb, tells what happens, and serves many threads.

COPIES.watch()


class _ThreadCache(local):
    """What a verb has looked up, of each thread its own: what another one found earlier is not the world of now."""

    world: Catalog | None = None
    now: datetime | None = None


class EnvHistory(ConfiguredHistory, Rounds, Causing, Looking, Showing):
    """The history of one environment, for as long as a program needs it, in as many threads as it has.

    >>> from git_envhist import EnvHistory
    >>> history = EnvHistory.open(".")
    >>> moment = history.capture("before auth refactor", verify="test -f app.py")
    >>> moment.verdict.status.value
    'pass'
    >>> [(one.intent, one.changed.added) for one in history.log(limit=1)]
    [('before auth refactor', 1)]
    """

    def __init__(
        self,
        opened: OpenedRepository,
        environ: Mapping[str, str],
        *,
        workers: str = "spawn",
        directory: str = ".",
    ) -> None:
        # From the beginning: two threads that ask first, at once, ask the same.
        self._handlers = Handlers(self._tell)
        self._seen = _ThreadCache()
        super().__init__(opened, environ, workers=workers, directory=directory)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.repository.root!r})"

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        agent: AgentName | None = None,
        bare: bool = False,
    ) -> Self:
        """Return the history of the working tree that a directory is in.

        `agent`: the agent in whose name captures and tasks are recorded. `workers`: a host program is forked only with
        "fork". `bare`: open a bare repository too; its snapshots can be read, and written into a new directory.
        """
        history = super().open(
            os.fspath(directory), environ=_named(environ, agent), workers=workers, bare=bare
        )
        # A later chdir of the host program changes nothing.
        history.directory = os.path.abspath(history.directory)
        return history

    @classmethod
    def init(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        workers: str = "spawn",
        agent: AgentName | None = None,
        **wish: Unpack[InitKeywords],
    ) -> Self:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's.

        `storage`: where its repository is to be made; `adopt`: the name of a history, its repository, or where its
        directory was; `anew`: begun without it; `force`: also in a home directory; `environ`: as for `open`.
        """
        wish["environ"] = _named(wish.get("environ"), agent)
        history = super().init(os.fspath(directory), workers=workers, **wish)
        history.directory = os.path.abspath(history.directory)
        return history

    def on(self, event: str, handler: Handler) -> Forget:
        """Have a handler called whenever something happens (`HistoryEvent` says what); given back is what ends that.

        >>> heard = []
        >>> forget = history.on("captured", lambda captured: heard.append(captured.files))
        >>> _ = history.capture("heard")
        >>> forget()
        >>> _ = history.capture("not heard")
        >>> heard
        [1]
        """
        return self.handlers.add(event, handler)

    @property
    def handlers(self) -> Handlers:
        """Who wants to hear what happens."""
        return self._handlers

    def happened(self, event: str, *about: object) -> None:
        """Tell whoever wants to hear of it."""
        self.handlers.tell(event, *about)

    @property
    def progress(self) -> Callable[[CaptureProgress], None] | None:
        """Told how far a verb has come that was given nobody else to tell."""
        if not self.handlers.has(HistoryEvent.PROGRESS):
            return None
        return lambda progress: self.happened(HistoryEvent.PROGRESS, progress)

    def resolve(self, text: str) -> Snapshot:
        """The snapshot that some words mean now."""
        self.forget_world()
        return super().resolve(replace_surrogates(text))

    @property
    def world(self) -> Catalog:
        """All that a revision can speak of, as the verb that this thread is in has found it."""
        found = self._seen.world
        if found is None:
            found = self._seen.world = self._read_world()
        return found

    @property
    def now(self) -> datetime:
        """This moment, or the one that GIT_COMMITTER_DATE sets, the same for all that one verb does."""
        found = self._seen.now
        if found is None:
            found = self._seen.now = self._read_clock()
        return found

    def forget_world(self) -> None:
        """Words mean what is there now, and now is now."""
        self._seen.world = self._seen.now = None

    def _snapshot(self, revision: SnapshotRef) -> Snapshot:
        self.forget_world()
        return super()._snapshot(revision)

    def _snapshots(self, revisions: tuple[SnapshotRef, ...]) -> list[Snapshot]:
        self.forget_world()
        return super()._snapshots(revisions)

    def remove_name(self, name: str) -> Snapshot:
        """Take a name away from the moment that bears it."""
        self.forget_world()
        return super().remove_name(name)


def _named(environ: Mapping[str, str] | None, agent: AgentName | None) -> Mapping[str, str]:
    chosen = os.environ if environ is None else environ
    return chosen if agent is None else {**chosen, **agent_variables(agent)}
