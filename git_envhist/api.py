"""EnvHistory: the history of one environment, with every verb of the programs.

Each verb checks its arguments, finds the snapshots that are meant, and calls the package that does the work; this is
the one module that knows all of these packages. A verb that nothing else uses loads its package when it is called, so
that `git envlog` starts quickly. What the verbs have in common (repository, settings, keys, catalog of timelines) is
`HistoryContext`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from git_envhist.context import HistoryContext, refuse_oversized_trees, version_reader
from git_envhist.discovery import open_repository
from git_envhist.disk import system_errors
from git_envhist.errors import EnvhistError, SnapshotNotFound, UsageError
from git_envhist.git.current_actor import agent_variables, current_actor
from git_envhist.git.repository import TRASH_REFS
from git_envhist.guarded_work import (
    Forget,
    GuardedWork,
    Handler,
    Handlers,
    HistoryEvent,
    call_text,
    wrap_tool,
)
from git_envhist.history.catalog import as_sequence, path_below, refuse_unknown
from git_envhist.history.timeline import by_name, next_name_time
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    AgentName,
    CaptureResult,
    EnvPath,
    Snapshot,
    SnapshotDiff,
    SnapshotRef,
    Trigger,
)
from git_envhist.platform import FORK_GUARD
from git_envhist.printable_text import replace_surrogates
from git_envhist.snapshots.fetched_store import is_fetched, without_fetched_objects
from git_envhist.snapshots.note_records import name_record, remark_record

if TYPE_CHECKING:
    from typing import Self, Unpack

    from git_envhist.capture.captured_tree import LiveTree
    from git_envhist.capture.pipeline import CaptureKeywords, CapturePipeline
    from git_envhist.checks.verify_and_bisect import Checks
    from git_envhist.config import Settings
    from git_envhist.discovery import InitKeywords, OpenedRepository
    from git_envhist.git.process import Git
    from git_envhist.git.repository import Repository
    from git_envhist.history.failure import FailureAnswer
    from git_envhist.history.search import LogKeywords
    from git_envhist.history.why import LineOrigin, Origin, OriginReader, WhyKeywords
    from git_envhist.integrations.base import InstallTarget
    from git_envhist.model import (
        BisectResult,
        CaptureProgress,
        CheckResult,
        DiskUsage,
        ForkPlan,
        FsckReport,
        GcResult,
        RecoveryResult,
        RestorePlan,
        RestoreResult,
        RunResult,
        SnapshotExtras,
        SnapshotId,
    )
    from git_envhist.model.integrations import IntegrationChange, IntegrationStatus
    from git_envhist.model.recent import RecentChanges
    from git_envhist.model.retention import DropResult, PruneResult, PurgeResult
    from git_envhist.model.sharing import ExportResult, FetchResult, ImportResult, PushResult
    from git_envhist.remote.sign_heads import Signing
    from git_envhist.restore.decisions import Decisions
    from git_envhist.restore.merge_sources import MergeSources
    from git_envhist.restore.options import (
        MergeKeywords,
        RestoreKeywords,
        RestoreOptions,
        RevertKeywords,
    )
    from git_envhist.restore.undo_and_redo import Restorer
    from git_envhist.retention.drop import SnapshotDropper
    from git_envhist.retention.prune import Pruner
    from git_envhist.snapshots.reader import FileReader
    from git_envhist.tracking.attachments import Value
    from git_envhist.tracking.effects import Effects, Observations
    from git_envhist.tracking.tasks import Tasks

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Report = Callable[[str], None]
"""Called with what a long verb is doing, in a few words."""
TO_OUTPUT = "-"
FETCH, PUSH, EXPORT = "another fetch or import", "another push", "another export"

# A copy of this process that a host program makes during a verb must hold none of our locks and pipes.
FORK_GUARD.watch()


class EnvHistory(HistoryContext):
    """The history of one environment, for as long as a program needs it, in any number of threads.

    >>> from git_envhist import EnvHistory
    >>> history = EnvHistory.open(".")
    >>> captured = history.capture("before auth refactor", verify="test -f app.py")
    >>> captured.verdict.status.value
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
        one_command: bool = False,
    ) -> None:
        super().__init__(opened, environ, workers=workers, directory=directory, one_command=one_command)
        self.handlers = Handlers(self.warn)
        self._made: dict[str, tuple[Settings, Repository, Any]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.repository.root!r})"

    # Open.

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        agent: AgentName | None = None,
        bare: bool = False,
        one_command: bool = False,
    ) -> Self:
        """Return the history of the working tree that contains a directory.

        `agent`: the agent that captures and records tasks. `workers`: a host program is forked only with
        "fork". `bare`: open a bare repository too; its snapshots can be read, and written into a new directory.
        `one_command`: this process ends after one command, so that settings and timelines are read once.
        """
        place = os.fspath(directory)
        environ = _with_agent(environ, agent)
        with system_errors(place):
            opened = open_repository(place, environ, bare=bare)
            # The host program may change its current directory later.
            directory = place if one_command else os.path.abspath(place)
            return cls(opened, environ, workers=workers, directory=directory, one_command=one_command)

    @classmethod
    def init(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        workers: str = "spawn",
        agent: AgentName | None = None,
        one_command: bool = False,
        **keywords: Unpack[InitKeywords],
    ) -> Self:
        """Return the history of a plain directory, created if there is none; inside a git repository, that one's.

        `storage`: where the repository is created; `adopt`: an existing history, given by name, repository or old
        directory; `new`: create one even if another could be adopted; `force`: also for a home directory;
        `environ`: as for `open`.
        """
        from git_envhist.discovery import InitKeywords, init_history  # loaded late: keeps envlog fast

        refuse_unknown("init", keywords, InitKeywords.__annotations__)
        place = os.fspath(directory)
        environ = keywords["environ"] = _with_agent(keywords.get("environ"), agent)
        with system_errors(place):
            opened = init_history(place, environ, keywords)
            directory = place if one_command else os.path.abspath(place)
            return cls(opened, environ, workers=workers, directory=directory, one_command=one_command)

    # Events.

    def on(self, event: str, handler: Handler) -> Forget:
        """Call a handler whenever an event of `HistoryEvent` happens; return the function that removes it.

        >>> heard = []
        >>> forget = history.on("captured", lambda captured: heard.append(captured.files))
        >>> _ = history.capture("heard")
        >>> forget()
        >>> _ = history.capture("not heard")
        >>> heard
        [1]
        """
        return self.handlers.add(event, handler)

    def notify(self, event: str, *about: object) -> None:
        """Call the handlers of an event."""
        self.handlers.call(event, *about)

    @property
    def progress_handler(self) -> Callable[[CaptureProgress], None] | None:
        """The function that reports a verb's progress as an event; None without a handler."""
        if not self.handlers.has(HistoryEvent.PROGRESS):
            return None
        return lambda progress: self.notify(HistoryEvent.PROGRESS, progress)

    def _report_waiting(self, subject: str) -> Callable[[], None]:
        def report() -> None:
            if self.waiting is not None:
                self.waiting(subject)
            self.notify(HistoryEvent.WAITING, subject)

        return report

    # Capture and compare.

    def capture(
        self, intent: bytes | str | None = None, **keywords: Unpack[CaptureKeywords]
    ) -> CaptureResult:
        """Take a snapshot of the whole environment; then run a check, if one is given or configured.

        Keywords as of `git envlog capture`: `name`; `verify`, the command that checks whether the environment works;
        `if_changed`, no snapshot if nothing changed; `strict`, refuse if something cannot be read; `dry_run`, store
        nothing; `force`, also in a home directory; `meta`, values by keys; `external_id`, another program's id.

        Stored with it, sealed: `attach` (files), `attached` ((name, bytes)), `conversation` and `tool_outputs` (lists
        of plain values). Its author: `trigger`, `actor`, and `intent_source`, where the intent comes from. Callbacks:
        `progress`; `waiting`, before it waits for another process; `captured`, before the check; `watching`, while the
        check runs.
        """
        from git_envhist.capture.pipeline import capture_options  # loaded late: keeps envlog fast

        if keywords.get("conversation") is not None or keywords.get("tool_outputs") is not None:
            from git_envhist.tracking.attachments import encode_lists  # loaded late: few captures have them

            lists = encode_lists(keywords.get("conversation"), keywords.get("tool_outputs"))
            keywords["attached"] = (*keywords.get("attached", ()), *lists)
        keywords.setdefault("progress", self.progress_handler)
        options = capture_options(intent, keywords)
        with system_errors(self.repository.git_dir):
            captured = self.capturing.capture(options)
        self.refresh()
        options.captured(captured)
        if keywords.get("verify") or self.settings.verify:
            captured = self.checks.after_capture(captured, options, keywords)
        self.notify(HistoryEvent.CAPTURED, captured)
        return captured

    def diff(
        self,
        before: SnapshotRef | None = "@",
        after: SnapshotRef = "now",
        pathspecs: Sequence[str | bytes] = (),
        *,
        renames: int | None = None,
    ) -> SnapshotDiff:
        """Compare two snapshots, or a snapshot with `now`, the working tree; git's pathspecs start at the top.

        `renames`: report a removed and an added file as one change if at least this percentage of them is equal.
        """
        from git_envhist.diff.facts import compare_snapshots  # loaded late: keeps envlog fast

        chosen = tuple(map(os.fsencode, as_sequence(pathspecs)))
        for one in (before, after) if renames is not None else ():
            if one is not None and one != "now":
                # Renames are found by contents.
                self.with_contents(self.snapshot_of(one), TOP)
        with self.sides(before, after) as (git, old, new):
            changes = compare_snapshots(git, old, new, chosen, renames, self.keys.opening)
            return SnapshotDiff(_revision_text(before), _revision_text(after), *changes)

    @contextmanager
    def sides(self, before: SnapshotRef | None, after: SnapshotRef) -> Iterator[tuple[Git, str | None, str]]:
        """Yield a git and the two trees to compare; a tree of `now` exists as long as the context is open."""
        if "now" not in (before, after):
            yield self.repository.git, self.tree_of(before), self.tree_of(after) or ""
            return
        with self.present() as present:
            old = present.tree if before == "now" else self.tree_of(before)
            new = present.tree if after == "now" else self.tree_of(after)
            yield present.git, old, new or ""

    @contextmanager
    def present(self) -> Iterator[LiveTree]:
        """Capture the working tree into a staging directory that is deleted at the end."""
        from git_envhist.capture.captured_tree import LiveTree  # loaded late: with the capture itself

        with self.capturing.current_tree() as captured:
            git = self.repository.git.with_objects(captured.staging.path)
            yield LiveTree(git, captured.finish().tree)

    @property
    def capturing(self) -> CapturePipeline:
        """The pipeline that captures this environment; it reads our own snapshots only."""
        return self._made_of_settings("capturing", self._make_capturing)

    @property
    def capturing_fetched(self) -> CapturePipeline:
        """The same, and it reads fetched snapshots too."""
        return self._made_of_settings(
            "capturing_fetched", lambda: replace(self.capturing, repository=self.repository)
        )

    def _make_capturing(self) -> CapturePipeline:
        from git_envhist.capture.pipeline import CapturePipeline  # loaded late: keeps envlog fast

        return CapturePipeline(
            without_fetched_objects(self.repository),
            self.settings,
            self.keys,
            self.workers,
            self.environ,
            _merge_packs,
            _sweep_restore,
        )

    def _made_of_settings(self, name: str, make: Callable[[], T]) -> T:
        """Return an object made of the current settings and repository; make it again when these changed."""
        settings, repository = self.settings, self.repository
        made = self._made.get(name)
        if made is None or made[0] is not settings or made[1] is not repository:
            made = self._made[name] = (settings, repository, make())
        return cast("T", made[2])

    def _capture(self, intent: str, keywords: CaptureKeywords) -> CaptureResult:
        return self.capture(intent, **keywords)

    # List.

    def log(
        self, limit: int | None = None, timeline: str | None = None, **keywords: Unpack[LogKeywords]
    ) -> list[Snapshot]:
        """Return the snapshots of a timeline, newest first; only those that the keywords select.

        All keywords must hold; of several words for one keyword, one: `since` and `until` (times as `git envlog` reads
        them), `grep` (patterns in intent, names or notes; `ignore_case`), `summary` (a text in the summary), `content`
        and `content_pattern` (as `git log -S` and `-G`; `reveal`: in sealed files too), `verdicts` (pass, fail, error,
        none), `triggers`, `sessions`
        and `agent_ids` (of agents and subagents; the beginning of an id is enough), `paths` (git's pathspecs from the
        top: snapshots that changed them), `span` (a range, `a..b`), `all_timelines` (by time), `reverse` (oldest
        first).

        >>> _ = history.capture("not checked")
        >>> _ = history.capture("checked", verify="true")
        >>> [one.intent for one in history.log(since="1h", verdicts=["pass"])]
        ['checked']
        >>> [one.intent for one in history.log(grep=["^not"], paths=["*.md"])]
        []
        >>> [one.intent for one in history.log(span="@~1..", reverse=True)]
        ['checked']
        """
        if not keywords:
            return super().log(limit, timeline)
        from git_envhist.history.search import LogKeywords, search  # loaded late: most lists are whole

        refuse_unknown("log", keywords, LogKeywords.__annotations__)
        git, find_key = self.repository.git, self.keys.opening
        found = self._in_span(keywords.get("span"), timeline, bool(keywords.get("all_timelines")))
        found = search(
            git,
            found,
            keywords,
            self.now,
            find_key,
            lambda some: refuse_oversized_trees(self, some),
            version_reader(self),
        )
        found = found if limit is None else found[:limit]
        return found[::-1] if keywords.get("reverse") else found

    def _in_span(self, span: str | None, timeline: str | None, all_timelines: bool) -> Iterable[Snapshot]:
        if span is None:
            return self._of_all_timelines() if all_timelines else super().log(None, timeline)
        if all_timelines:
            raise UsageError("all timelines and a range exclude each other")
        from git_envhist.history.resolve import (  # loaded late: keeps envlog fast
            resolve_range,
            snapshots_in_range,
        )

        self.refresh()
        line = self.catalog.own if timeline is None else self.catalog.timeline(timeline)
        if line is None:
            raise SnapshotNotFound(timeline or "", hint="'git envlog --all' lists all timelines")
        found = snapshots_in_range(resolve_range(span, self.catalog, self.now), line)
        return [self.judge(one) for one in found]

    def _of_all_timelines(self) -> list[Snapshot]:
        self.refresh()
        # A fetched snapshot may be a copy of our own: ours comes first.
        found: dict[str, Snapshot] = {}
        for line in self.catalog.timelines():
            for snapshot in line.snapshots:
                found.setdefault(snapshot.id, snapshot)
        return sorted(found.values(), key=lambda snapshot: snapshot.at, reverse=True)

    def why(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        line: int | None = None,
        at: SnapshotRef = "@",
        limit: int | None = None,
        **keywords: Unpack[WhyKeywords],
    ) -> list[Origin]:
        """Return the steps that gave something its form in a snapshot, newest first, at most `limit`.

        One of: `path` (from the top; `line`: only this line of it), or a keyword: `path_gone`, `package`, `var`,
        `table`, `row` (`<table>:<key>`), `service`. `Origin.attribution` names the call of an agent's tool that made
        the change, or is uncertain, with the calls that come into question.

        >>> _ = history.capture("with a file")
        >>> [(one.change, one.attribution.certainty.value) for one in history.why("app.py", limit=1)]
        [('present', 'first')]
        """
        from itertools import islice  # loaded late: few programs ask

        from git_envhist.history.why import WhyKeywords, subject_of  # loaded late: few programs ask

        refuse_unknown("why", keywords, WhyKeywords.__annotations__)
        subject = subject_of(None if path is None else os.fspath(path), line, keywords)
        with self.origins(at) as origins:
            return list(islice(origins.of(subject), limit))

    def blame(
        self,
        path: str | bytes | os.PathLike[str],
        *,
        at: SnapshotRef = "@",
        lines: str | None = None,
        reveal: bool = False,
    ) -> list[LineOrigin]:
        """Return each line of a file of a snapshot with the step that brought it; the path starts at the top.

        `lines`: a part of them, as for `git blame -L`; `reveal`: also of a sealed file.

        >>> _ = history.capture("with a file")
        >>> [(line.number, line.origin.change) for line in history.blame("app.py")]
        [(1, 'present')]
        """
        with self.origins(at) as origins:
            return origins.blame(EnvPath(os.fsencode(path)), lines, reveal=reveal)

    def why_failed(self, command: str | None = None, *, limit: int | None = None) -> FailureAnswer:
        """Return the step that broke a check (default: the last that failed), and its likeliest changes.

        `limit`: how many changes. Raise `NoFailure` if no snapshot failed the check, and `ValueError` for a negative
        limit.
        """
        from git_envhist.checks.verdicts import with_output  # loaded late: few programs ask
        from git_envhist.history import failure  # loaded late: few programs ask

        self._begin_verb()
        if limit is not None and limit < 0:
            raise ValueError(f"not a number of changes: {limit}")
        line = self.catalog.own.snapshots
        found = failure.must_find_failure(line, command)
        base = found.passed or next((one for one in line if one.commit == found.first.parent), None)
        compared = None if base is None else self.diff(base, found.first)
        checked = with_output(found.first, self.keys.opening)
        suspects = failure.suspects_of(found, checked, compared)
        with self.origins(found.first) as origins:
            shown = [failure.with_attribution(found, one, origins.at) for one in suspects[:limit]]
        return failure.FailureAnswer(found, base, tuple(shown), len(suspects))

    @contextmanager
    def origins(self, at: SnapshotRef = "@") -> Iterator[OriginReader]:
        """Yield a reader of the steps along the timeline of a snapshot, up to that snapshot."""
        from git_envhist.history.versions import VersionReader  # loaded late: few programs ask
        from git_envhist.history.why import OriginReader  # loaded late: few programs ask

        newest = self.snapshot_of(at)
        line = next(
            (one for one in self.catalog.timelines() if any(newest.id == each.id for each in one.snapshots)),
            None,
        )
        snapshots = [newest] if line is None else list(line.snapshots)
        place = next(number for number, one in enumerate(snapshots) if one.id == newest.id)
        refuse_oversized_trees(self, snapshots[place:])
        git = self.repository.git
        with VersionReader(git, newest.tree, self.keys.opening, self.read_file) as reader:
            yield OriginReader(git, snapshots[place:], reader, self.judge, snapshots[:place])

    def recent(self, span: str = "1h") -> RecentChanges:
        """Return what changed within a span without any snapshot: by change times, and by logs of installers."""
        from git_envhist.recent_changes import recent_changes  # loaded late: keeps envlog fast

        return recent_changes(self.repository, self.settings, span, self.environ)

    def page(
        self,
        file: str | os.PathLike[str] | None = None,
        span: str | None = None,
        *,
        paths: Sequence[str | bytes] = (),
        all_timelines: bool = False,
    ) -> str:
        """Return a self-contained HTML page of snapshots, and write it to a file if one is given.

        `span`: a range, as in `git envlog a..b`; `paths`: only snapshots that changed these paths from the top.

        >>> _ = history.capture("to look at")
        >>> history.page()[:15], "to look at" in history.page("history.html")
        ('<!DOCTYPE html>', True)
        """
        from git_envhist.platform import (
            own_program_output,  # loaded late: a page is drawn by a program of ours
        )

        target = TO_OUTPUT if file is None else os.path.abspath(os.fspath(file))
        words: list[str | bytes] = ["-C", self.repository.root, "--json", "--html", target]
        words += ["--all"] * all_timelines
        words += ([] if span is None else [span]) + (["--", *as_sequence(paths)] if paths else [])
        page = own_program_output("envlog", words, self.environ)
        if file is not None:
            with open(target, encoding="utf-8", newline="") as written:
                page = written.read()
        return page

    # One snapshot.

    def name(self, name: str, revision: SnapshotRef = "@", *, remove: bool = False) -> Snapshot:
        """Give a snapshot a name, or remove it."""
        name = replace_surrogates(name)
        snapshot = self.snapshot_of(revision)
        line = self.catalog.timeline(snapshot.timeline) or self.catalog.own
        self.add_records(snapshot, name_record(name, next_name_time(line, name, self.now), removed=remove))
        return snapshot

    def remove_name(self, name: str) -> Snapshot:
        """Remove a name from the snapshot that has it."""
        self._begin_verb()
        places = [place for line in self.catalog.timelines() for place in by_name(line, name)]
        if not places:
            raise SnapshotNotFound(name, hint="to list all names: git envlog name")
        return self.name(name, places[0].snapshot, remove=True)

    def note(self, text: str, revision: SnapshotRef = "@") -> Snapshot:
        """Add a remark to a snapshot."""
        from git_envhist.secrets.masking import mask_text  # loaded late: keeps envlog fast

        snapshot = self.snapshot_of(revision)
        self.add_records(snapshot, remark_record(mask_text(text), self.now))
        return snapshot

    def attach(
        self,
        revision: SnapshotRef = "@",
        *,
        conversation: Sequence[Value] | None = None,
        tool_outputs: Sequence[Value] | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        attached: Sequence[tuple[str, bytes]] = (),
    ) -> Snapshot:
        """Store something with an existing snapshot, sealed; it replaces an attachment of the same name.

        `files` are read, `attached` is (name, bytes); a conversation and outputs of tools are lists of plain values.
        """
        from git_envhist.capture.pipeline import (
            read_attachment,  # loaded late: few snapshots have attachments
        )
        from git_envhist.tracking.attachments import attach, encode_lists  # loaded late: as above

        read = [read_attachment(os.fspath(file)) for file in as_sequence(files)]
        lists = encode_lists(conversation, tool_outputs)
        return attach(self, self.snapshot_of(revision), [*lists, *read, *attached])

    def attachments(self, revision: SnapshotRef = "@") -> tuple[tuple[str, bytes], ...]:
        """Return (name, bytes) of everything attached to a snapshot: conversation, outputs of tools, files."""
        from git_envhist.tracking.attachments import (
            attachments_of,  # loaded late: few snapshots have attachments
        )

        return attachments_of(self, self.snapshot_of(revision))

    def get(self, revision: SnapshotRef = "@") -> SnapshotExtras:
        """Return a snapshot with its current notes, and everything attached to it."""
        from git_envhist.tracking.attachments import snapshot_with_attachments  # loaded late: as above

        self.refresh()
        # The notes of a snapshot may have changed since the caller got it.
        text = revision if isinstance(revision, str) else revision.id or "@"
        return snapshot_with_attachments(self, self.resolve(text))

    def read_file(self, revision: SnapshotRef, path: str | bytes | os.PathLike[str]) -> bytes:
        """Return the bytes of a file in a snapshot; the path starts at the top."""
        wanted = EnvPath(os.fsencode(path))
        with closing(self.reader(self.with_contents(self.snapshot_of(revision), wanted))) as reader:
            return b"".join(reader.read(wanted))

    def reader(self, snapshot: Snapshot) -> FileReader:
        """Return a reader of a snapshot's files; the caller closes it."""
        from git_envhist.snapshots.reader import FileReader  # loaded late: keeps envlog fast

        return FileReader(self.repository.git, snapshot.tree, self.open_sealed, self.repository.pack_dir)

    def environment_path(self, path: bytes) -> EnvPath:
        """Return the path from the top for a path given on the command line."""
        return path_below(os.fsencode(self.repository.root), os.fsencode(self.directory), path)

    # Restore.

    @overload
    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[True],
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: bool = False,
        verify: bool | str = False,
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestoreResult | RestorePlan:
        """Restore a snapshot; the current state is captured first, and `undo` restores it. A dry run returns the plan.

        `verify`: afterwards run this command, or the check that judged the snapshot; `RestoreResult.checked` has its
        result, and `undo` reverts a restore that did not pass.

        Keywords as of `git envrestore`: `paths` (git's pathspecs from the top) and `only` (packages, env, databases,
        files) select; `keep_new` removes nothing, `keep_tracked` leaves what HEAD tracks; `head` also moves HEAD;
        `relocate` rewrites paths of another working tree; `services` restores their state; `force` and `allow_unsigned`
        override a refusal that names them (`roots`: in additional roots too). Callbacks: `progress`; `waiting`, before
        it waits for another process; `planned`, with the plan, before anything is captured (an exception stops the
        restore); `saved`, with the snapshot of the state before. `options`: all of it as one value.
        """
        snapshot = self.snapshot_of(revision)
        if dry_run:
            return self.restorer.to(snapshot, self._restore_options(keywords, options, dry_run=True)).plan
        # Find the check before anything changes. A capture's result is older than its check: read the notes again.
        command = self.checks.recorded(self.resolve(snapshot.id)) if verify is True else verify or None
        restored = self.restorer.to(snapshot, self._restore_options(keywords, options))
        self.notify(HistoryEvent.RESTORED, restored)
        if command is None:
            return restored
        checked = self.checks.after_restore(restored, command)
        self.notify(HistoryEvent.VERIFIED, checked)
        return replace(restored, checked=checked)

    def preview(self, revision: SnapshotRef, **keywords: Unpack[RestoreKeywords]) -> RestoreResult:
        """Return what a restore with these keywords would do, with its plan; nothing is changed."""
        return self.restorer.to(self.snapshot_of(revision), self._restore_options(keywords, dry_run=True))

    def write_to(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        **keywords: Unpack[RestoreKeywords],
    ) -> RestoreResult:
        """Write a snapshot into another directory; the environment is not changed. Keywords as of `restore`."""
        return self.restorer.write_to(
            self.snapshot_of(revision), str(directory), self._restore_options(keywords)
        )

    def revert(
        self,
        revision: SnapshotRef | None = None,
        *,
        turn: bool = False,
        session: str | None = None,
        conflict: str = "",
        resolve: Mapping[str, str] | None = None,
        verify: bool | str = False,
        dry_run: bool = False,
        **keywords: Unpack[RevertKeywords],
    ) -> RestoreResult:
        """Take what one step changed out of the environment and keep what came later.

        `revision`: a snapshot (its step begins at the one before it), or a range `a..b`; with `turn`, the whole turn of
        the agent that took it. `session`: instead, all steps of an agent's session, given the beginning of its id.

        `conflict`: the side of paths that later work changed too: `ours` (the present version), `theirs` (the version
        before the step), `both` (the other one beside it), `markers` (both, in text files) or `skip` (leave the path as
        it is); without it `MergeConflicts` is raised and nothing is changed. `resolve`: the side of some paths, by git
        pathspec or `class:<class>`. After a dry run, `RestoreResult.conflicts` lists them. `verify`: afterwards run
        this command, or the recorded check. `paths` and `only` select; `force` and `allow_unsigned` override a refusal
        that names them. Callbacks as of `restore`: `progress`, `waiting`, `planned`, `saved`.
        """
        from git_envhist.restore.merge_sources import find_revert  # loaded late: keeps envlog fast
        from git_envhist.restore.options import RevertKeywords  # loaded late: keeps envlog fast

        refuse_unknown("revert", keywords, RevertKeywords.__annotations__)
        sources = find_revert(self, revision, turn, session, _decisions(conflict, resolve))
        return self._merge(sources, cast("RestoreKeywords", keywords), verify, dry_run)

    def merge(
        self,
        revision: SnapshotRef,
        *,
        base: SnapshotRef | None = None,
        conflict: str = "",
        resolve: Mapping[str, str] | None = None,
        verify: bool | str = False,
        dry_run: bool = False,
        **keywords: Unpack[MergeKeywords],
    ) -> RestoreResult:
        """Add what changed in another timeline since the newest common snapshot, e.g. in a fork.

        `revision`: a timeline, or a snapshot of one; `base`: the snapshot from which on both sides are compared.
        `conflict` (`theirs` is the other timeline), `resolve`, `verify` and a dry run as of `revert`.
        `paths` and `only` select; `relocate` rewrites paths of the other working tree; `force` and `allow_unsigned`
        override a refusal that names them. Callbacks as of `restore`: `progress`, `waiting`, `planned`, `saved`.

        >>> from pathlib import Path
        >>> start = history.capture("before two attempts")
        >>> attempt = history.fork(start, "../second-attempt")
        >>> _ = Path("../second-attempt/page.html").write_text("<p>")
        >>> _ = attempt.capture("add a page")
        >>> merged = history.merge(attempt.timeline)
        >>> merged.exact, [step.path for step in merged.plan.steps]
        (True, [b'page.html'])
        """
        from git_envhist.restore.merge_sources import find_merge  # loaded late: keeps envlog fast
        from git_envhist.restore.options import MergeKeywords  # loaded late: keeps envlog fast

        refuse_unknown("merge", keywords, MergeKeywords.__annotations__)
        sources = find_merge(self, revision, base, _decisions(conflict, resolve))
        return self._merge(sources, cast("RestoreKeywords", keywords), verify, dry_run)

    def _merge(
        self, sources: MergeSources, keywords: RestoreKeywords, verify: bool | str, dry_run: bool
    ) -> RestoreResult:
        options = self._restore_options(keywords, dry_run=dry_run)
        target = sources.target.id
        command = self.checks.recorded(self.resolve(target)) if verify is True else verify or None
        merged = self.restorer.merge(sources, options)
        if dry_run:
            return merged
        self.notify(HistoryEvent.RESTORED, merged)
        if command is None or merged.snapshot is None:
            return merged
        from git_envhist.checks.merged_check_warning import (
            merged_check_warning,  # loaded late: few merges are checked
        )

        checked = self.checks.after_restore(merged, command)
        self.notify(HistoryEvent.VERIFIED, checked)
        warning = merged_check_warning(self, merged, checked)
        warnings = (*merged.warnings, *((warning,) if warning is not None else ()))
        return replace(merged, checked=checked, warnings=warnings)

    def undo(self, steps: int = 1, **keywords: Unpack[RestoreKeywords]) -> RestoreResult:
        """Restore the newest earlier state that differs from the current one, `steps` times; keywords of `restore`."""
        restored = self.restorer.undo(steps, self._restore_options(keywords))
        self.notify(HistoryEvent.RESTORED, restored)
        return restored

    def redo(self, steps: int = 1, **keywords: Unpack[RestoreKeywords]) -> RestoreResult:
        """Revert the last undo, unless something changed since; keywords of `restore`."""
        restored = self.restorer.redo(steps, self._restore_options(keywords))
        self.notify(HistoryEvent.RESTORED, restored)
        return restored

    def continue_restore(self) -> RecoveryResult:
        """Finish an interrupted restore."""
        return self.restorer.recovery_result(self.restorer.continue_restore())

    def abort_restore(self) -> RecoveryResult:
        """Undo an interrupted restore: the environment is as it was before."""
        return self.restorer.recovery_result(self.restorer.abort_restore())

    @property
    def restorer(self) -> Restorer:
        """Restore, undo, redo, and the end of an interrupted restore."""
        return self._made_of_settings("restorer", self._make_restorer)

    def _make_restorer(self) -> Restorer:
        from git_envhist.restore.undo_and_redo import Restorer  # loaded late: keeps envlog fast

        def with_trash(timeline: str) -> tuple[list[Snapshot], frozenset[SnapshotId]]:
            return self.dropper.timeline_with_trash(timeline)

        return Restorer(self, self.capturing_fetched, with_trash, _merge_packs_after_restore)

    def _restore_options(
        self, keywords: RestoreKeywords, options: RestoreOptions | None = None, *, dry_run: bool = False
    ) -> RestoreOptions:
        from git_envhist.restore.options import restore_options  # loaded late: keeps envlog fast

        if self.progress_handler is not None:
            keywords.setdefault("progress", self.progress_handler)
        return restore_options(options, keywords, dry_run)

    # Fork.

    def fork(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        allow_unsigned: bool = False,
        trigger: Trigger = Trigger.API,
        progress: Callable[[CaptureProgress], None] | None = None,
    ) -> Self:
        """Create a directory with the environment of a snapshot, on a new timeline; return its history.

        `branch`: create a branch at the code commit of the snapshot; `relocate`: rewrite paths of the old directory;
        `allow_unsigned`: also a snapshot that none of your keys signed. `.forked` has the result.

        >>> start = history.capture("to try two ways from")
        >>> attempt = history.fork(start, "../attempt", branch="attempt")
        >>> attempt.forked.branch, attempt.forked.exact, attempt.log(limit=1)[0].intent
        ('attempt', True, 'forked from ...')
        """
        from git_envhist.fork import ForkOptions, fork  # loaded late: keeps envlog fast

        options = ForkOptions(branch, relocate, allow_unsigned, trigger, progress or self.progress_handler)
        source = self.with_contents(self.judge(self.snapshot_of(revision)), TOP)
        forked, opened = fork(self.capturing_fetched, self.open_sealed, source, os.fspath(directory), options)
        history = type(self)(
            opened,
            self.environ,
            workers=self.workers,
            directory=forked.root,
            one_command=self.one_command,
        )
        history.forked = forked
        self.notify(HistoryEvent.FORKED, history)
        return history

    def plan_fork(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        allow_unsigned: bool = False,
    ) -> ForkPlan:
        """Return what `fork` with these arguments would do, or raise its refusal; nothing is written."""
        from git_envhist.fork import ForkOptions, plan_fork  # loaded late: keeps envlog fast

        source = self.judge(self.snapshot_of(revision))
        options = ForkOptions(branch, relocate, allow_unsigned)
        return plan_fork(self.capturing_fetched, source, os.fspath(directory), options)

    # Checks.

    def verify(self, revision: SnapshotRef = "now", command: str | None = None) -> CheckResult:
        """Run a check in the working tree, or in a temporary copy of an older snapshot."""
        target = revision if isinstance(revision, str) else self.snapshot_of(revision)
        checked = self.checks.run(target, command)
        self.notify(HistoryEvent.VERIFIED, checked)
        return checked

    def bisect(
        self, good: SnapshotRef | None = None, bad: SnapshotRef | None = None, command: str | None = None
    ) -> BisectResult:
        """Find the first snapshot where a check fails; by default between `good` and `@`."""
        ends = [one if one is None or isinstance(one, str) else self.snapshot_of(one) for one in (good, bad)]
        return self.checks.bisect(ends[0], ends[1], command)

    @property
    def checks(self) -> Checks:
        """Run checks, and read their results."""
        return self._made_of_settings("checks", self._make_checks)

    def _make_checks(self) -> Checks:
        from git_envhist.checks.verify_and_bisect import Checks  # loaded late: most captures check nothing

        return Checks(self, self.capturing, lambda: self.restorer)

    # Work around a verb.

    def around(
        self, intent: str, *, rollback: bool = False, **keywords: Unpack[CaptureKeywords]
    ) -> GuardedWork:
        """Capture before and after a piece of work, also if it fails.

        `rollback`: if the work raises, or the check of `verify` does not pass, restore the state before; the failed
        state is captured all the same. Other keywords as of `capture`.

        >>> from pathlib import Path
        >>> with history.around("refactor", verify="test -f app.py") as work:
        ...     _ = Path("app.py").write_text("refactored")
        >>> work.before.intent, work.after.snapshot.intent, work.passed
        ('before: refactor', 'refactor', True)
        >>> with history.around("go too far", rollback=True) as work:
        ...     _ = Path("app.py").write_text("broken")
        ...     raise ValueError("that was wrong")
        Traceback (most recent call last):
            ...
        ValueError: that was wrong
        >>> Path("app.py").read_text(), work.restored.exact
        ('refactored', True)
        """
        return GuardedWork(self._capture, self.resolve, self.restore, intent, rollback, keywords)

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
        **keywords: Unpack[CaptureKeywords],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        called: str | None = None,
        rollback: bool = False,
        **keywords: Unpack[CaptureKeywords],
    ) -> Callable[..., Any]:
        """Decorate a tool of an agent: capture before and after each call, if something changed.

        It may be a function, a coroutine, or a generator of either kind, which runs from its first step to its end.
        The call is the intent; the actor has the name of the tool: `called`, or the function's. Other keywords as of
        `around`.

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
            name = called or str(getattr(function, "__name__", "tool"))

            def begin(args: tuple[object, ...], kwargs: dict[str, object]) -> GuardedWork:
                defaults = {**self.tool_keywords(name), "if_changed": True}
                whole = cast("CaptureKeywords", {**defaults, **keywords})
                return self.around(call_text(name, args, kwargs), rollback=rollback, **whole)

            return wrap_tool(function, begin)

        return decorate if function is None else decorate(function)

    def tool_keywords(self, name: str) -> CaptureKeywords:
        """Return the keywords of a capture that an agent's tool causes."""
        actor = replace(current_actor(self.settings, self.environ), tool=name)
        return {"trigger": Trigger.AGENT, "actor": actor}

    def run(self, words: Sequence[str], intent: str | None = None, *, verify: str | None = None) -> RunResult:
        """Run a command at the top between two snapshots; the second has its output and its exit status.

        >>> ran = history.run(["sh", "-c", "echo built > out; echo done"], "build it")
        >>> ran.status, ran.output, ran.after.snapshot.intent
        (0, b'done\\n', 'build it')
        """
        from git_envhist.integrations.run_with_snapshots import (  # loaded late: keeps envlog fast
            run_quietly,
            run_with_snapshots,
        )

        if isinstance(words, str | bytes) or not words:
            raise UsageError(
                "a command is given word by word", hint='run(["npm", "test"]), or run(["sh", "-c", "…"])'
            )

        def run(words: Sequence[str], keep: Callable[[bytes], None]) -> int:
            return run_quietly(words, keep, self.repository.root, self.environ)

        return run_with_snapshots(self._capture, words, intent, verify, run)

    def watch(self, *, settle: float = 2.0) -> Iterator[CaptureResult]:
        """Capture whenever the environment has settled after a change, until the caller stops; yield each capture."""
        with closing(self.watch_or_timeout(settle)) as found:
            yield from (one for one in found if one is not None)

    def watch_or_timeout(
        self, settle: float, timeout: float | None = None
    ) -> Generator[CaptureResult | None]:
        """Yield as `watch`, and None at least every `timeout` seconds."""
        from git_envhist.integrations.watch import watch_captures  # loaded late: only a watch needs it

        def open_history() -> EnvHistory:
            return type(self).open(
                self.repository.root,
                environ=self.environ,
                workers=self.workers,
                one_command=self.one_command,
            )

        def capture() -> CaptureResult:
            return open_history().capture(trigger=Trigger.WATCH, if_changed=True)

        return watch_captures(open_history(), capture, self.warn, settle, timeout)

    # Tasks, effects, checkpoints of a platform.

    @property
    def tasks(self) -> Tasks:
        """The tasks of this timeline."""
        from git_envhist.tracking.tasks import Tasks  # loaded late: most commands need no tasks

        return Tasks(self, self._capture_now)

    @property
    def effects(self) -> Effects:
        """The effects outside the machine."""
        from git_envhist.tracking.effects import Effects  # loaded late: most commands need no effects

        return Effects(self, self._capture_now)

    @property
    def observed(self) -> Observations:
        """Checkpoints that the platform below took without us."""
        from git_envhist.tracking.effects import Observations  # loaded late: most commands need none

        return Observations(self, self._capture_now)

    def _capture_now(self, intent: str) -> Snapshot:
        captured = self.capture(intent, if_changed=True, trigger=Trigger.API)
        return captured.snapshot or self.resolve("@")

    # Share.

    def push(
        self,
        remote: str | None = None,
        *timelines: str,
        delete: Sequence[str] = (),
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
        yes: bool = False,
        dry_run: bool = False,
        max_bytes: int | None = None,
    ) -> PushResult:
        """Send timelines (by default this working tree's) with their notes and names to a remote.

        The first push to a remote lists what would be sent unencrypted and is refused without `yes`; `dry_run` lists
        the same and sends nothing. `delete`: timelines to delete there; `allow`: paths that may be sent although they
        contain a token or are too large; `max_bytes`: the limit of one transfer. A refused push sends nothing.

        >>> import subprocess
        >>> _ = subprocess.run(["git", "init", "-q", "--bare", "../shared.git"], check=True)
        >>> _ = history.capture("to be shared")
        >>> history.push("../shared.git", dry_run=True).first
        True
        >>> history.push("../shared.git")
        Traceback (most recent call last):
            ...
        git_envhist.remote.push.FirstPush: the first push to 'shared-...' (...) needs your ...: nothing was sent
        >>> [one.outcome.value for one in history.push("../shared.git", yes=True).timelines]
        ['new']
        """
        from git_envhist.remote.push import PushOptions, push  # loaded late: most commands send nothing

        paths = tuple(map(os.fsencode, as_sequence(allow)))
        options = PushOptions(remote, timelines, as_sequence(delete), paths, yes, dry_run, max_bytes)
        self._reload_remotes()
        return push(
            self.repository,
            self.environ,
            self.directory,
            self.timeline,
            options,
            self._report_waiting(PUSH),
            self.step,
            self._signing(),
        )

    def _signing(self) -> Signing:
        from git_envhist.remote.sign_heads import Signing  # loaded late: most commands send nothing
        from git_envhist.secrets.ssh_signatures import SshSettings  # loaded late: as above

        ssh = SshSettings.of(self.repository.read_config())
        current = self.keys.current_id()
        key = self.keys.get(current) if current is not None else None
        return Signing(key, ssh, self.environ, self.signature, self.keys)

    def fetch(
        self, remote: str | None = None, *, full: bool = False, accept_rollback: bool = False
    ) -> FetchResult:
        """Fetch the timelines of a remote; `full`: with all their contents.

        A timeline that differs from its signed head is refused (`FetchResult.bad`) without `accept_rollback`.
        """
        from git_envhist.remote.fetch import fetch  # loaded late: most commands fetch nothing

        self._reload_remotes()
        fetched = fetch(
            self.repository,
            self.environ,
            self.directory,
            remote,
            full=full,
            find_key=self.keys.get,
            accept_rollback=accept_rollback,
            waiting=self._report_waiting(FETCH),
            step=self.step,
        )
        self._reopen_fetched()
        return fetched

    def fetch_missing(self, snapshot: Snapshot, paths: Sequence[EnvPath]) -> None:
        """Fetch the missing objects of a fetched snapshot: its list of paths, and the contents of the given paths."""
        from git_envhist.remote.fetch import fetch_missing  # loaded late: most snapshots are ours

        fetch_missing(self.repository, self.environ, snapshot, paths, self._report_waiting(FETCH))

    def fetch_blobs(self, snapshot: Snapshot, blobs: Sequence[str]) -> None:
        """Fetch blobs of a fetched snapshot that are not stored yet."""
        from git_envhist.remote.fetch import fetch_blobs  # loaded late: most snapshots are ours

        fetch_blobs(self.repository, self.environ, snapshot, blobs)

    def pushed_tip(self, remote: str, timeline: str) -> str | None:
        """Return the commit that a push left as the tip of a timeline at a remote; None if nothing was pushed."""
        from git_envhist.remote.remotes import pushed_tip  # loaded late: few revisions name a remote

        return pushed_tip(self.repository, remote, timeline)

    def export(
        self,
        file: str | os.PathLike[str],
        *revisions: str,
        force: bool = False,
        allow: Sequence[str | bytes | os.PathLike[str]] = (),
    ) -> ExportResult:
        """Write snapshots (revisions, ranges; by default this timeline) with notes and names into an archive.

        `force`: replace an existing file; `allow`: paths that may be exported although they contain a token.

        >>> _ = history.capture("to go along", name="there")
        >>> history.export("../moments.envhist.tar.zst", "there").timelines[0][1][0].intent
        'to go along'
        >>> [(came, moments) for _, came, moments in history.import_("../moments.envhist.tar.zst").timelines]
        [(<FetchOutcome.NEW: 'new'>, 1)]
        """
        from git_envhist.remote.export_and_import import (  # loaded late: most commands export nothing
            ExportOptions,
            export,
            snapshots_to_export,
        )

        self.refresh()
        chosen = snapshots_to_export(revisions, self.catalog, self.now)
        for snapshot in chosen:
            self.with_contents(snapshot, TOP)
        options = ExportOptions(force, tuple(map(os.fsencode, as_sequence(allow))))
        return export(
            self.repository,
            os.fspath(file),
            chosen,
            self.catalog,
            self.keys,
            self.signature,
            options,
            self._report_waiting(EXPORT),
        )

    def import_(self, file: str | os.PathLike[str], *, name: str | None = None) -> ImportResult:
        """Import the timelines of an exported archive as `<name>/<timeline>`."""
        from git_envhist.remote.export_and_import import (
            import_archive,  # loaded late: most commands import nothing
        )

        self._reload_remotes()
        waiting = self._report_waiting(FETCH)
        imported = import_archive(self.repository, os.fspath(file), name, self.warn, waiting)
        self._reopen_fetched()
        return imported

    def _reload_remotes(self) -> None:
        # Reading `settings` reads a changed configuration again, and with it the remotes.
        _ = self.settings

    # Retention.

    def drop(self, *revisions: SnapshotRef, dry_run: bool = False) -> DropResult:
        """Drop snapshots, or all snapshots of ranges; `undrop` restores them within 30 days."""
        return self.dropper.drop(self.snapshots_of(revisions), dry_run=dry_run)

    def undrop(self, *revisions: str) -> DropResult:
        """Restore dropped snapshots to their timelines."""
        dropper = self.dropper
        return dropper.undrop([dropper.find(one) for one in revisions])

    def prune(
        self,
        *,
        keep_last: int | None = None,
        keep_hourly: int | None = None,
        keep_daily: int | None = None,
        keep_weekly: int | None = None,
        all_timelines: bool = False,
        dry_run: bool = False,
    ) -> PruneResult:
        """Drop the snapshots of this timeline that a policy does not keep; a note, a name or a check keeps one.

        Kept are the `keep_last` newest, the `keep_last` newest with an intent, and the newest of each of that many
        hours, days and weeks, one with an intent preferred. An omitted number is 0; if all are omitted, `envhist.keep*`
        is the policy. Dropped snapshots stay in the trash for 30 days.

        >>> for number in range(4):
        ...     _ = history.capture(f"step {number}")
        >>> pruned = history.prune(keep_last=2, dry_run=True)
        >>> pruned.gone, [(one.snapshot.intent, one.why) for one in pruned.timelines[0].decisions][1:3]
        (2, [('step 2', 'among the 2 newest'), ('step 1', 'no rule keeps it')])
        >>> history.prune(keep_last=2).gone, len(history.log())
        (2, 2)
        """
        from git_envhist.retention.prune import (  # loaded late: keeps envlog fast
            own_timelines,
            policy_from_options,
            policy_of,
        )

        names = own_timelines(self) if all_timelines else [self.timeline] if self.timeline else []
        policy = policy_from_options(keep_last, keep_hourly, keep_daily, keep_weekly)
        return self.pruner.prune(policy or policy_of(self.settings), names, dry_run=dry_run)

    def thin(self) -> None:
        """Prune by the configured policy and to `envhist.maxSize`, as the daily maintenance does."""
        from git_envhist.retention.prune import Pruner  # loaded late: once a day

        Pruner(self, wait_for_captures=True).prune_daily()

    def purge(
        self,
        *paths: str | os.PathLike[str],
        variable_names: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> PurgeResult:
        """Erase paths from every snapshot and from the trash, for good.

        `variable_names`: erase the names of variables that earlier versions stored without sealing them. `force`:
        ignore a git of another user if the system hides in which repository it works.
        """
        from git_envhist.retention.purge import Purger  # loaded late: keeps envlog fast

        chosen = [self.environment_path(os.fsencode(path)) for path in paths]
        return Purger(self).purge(chosen, variable_names=variable_names, dry_run=dry_run, force=force)

    @property
    def pruner(self) -> Pruner:
        """Prune timelines by a policy."""
        from git_envhist.retention.prune import Pruner  # loaded late: keeps envlog fast

        return Pruner(self)

    @property
    def dropper(self) -> SnapshotDropper:
        """Drop snapshots, list the trash, and restore snapshots from it."""
        from git_envhist.retention.drop import SnapshotDropper  # loaded late: keeps envlog fast

        return SnapshotDropper(self)

    # Maintenance.

    def gc(
        self,
        prune: str | None = None,
        *,
        empty_trash: bool = False,
        force: bool = False,
        report: Report | None = None,
    ) -> GcResult:
        """Delete unreachable objects and merge packs.

        `prune`: delete objects whose pack was not used since then (`now`, `never`, `3 days ago`; by default two weeks).
        `empty_trash`: purge dropped snapshots first, and `prune` is `now`. `force`: ignore a git of another user if the
        system hides in which repository it works.
        """
        from git_envhist.maintenance.gc import run_gc  # loaded late: keeps envlog fast

        if empty_trash:
            self.dropper.empty_trash()
            self.refresh()
            prune = prune or "now"
        repository = replace(self.capturing.repository, ignores_hidden=force)
        return run_gc(repository, prune, report or _ignore)

    def fsck(self, *, quick: bool = False, repair: bool = False, report: Report | None = None) -> FsckReport:
        """Verify every byte of every snapshot; `quick`: only that all objects exist.

        `repair`: recover lost objects where that is possible, and set damaged ones aside; nothing is deleted.
        """
        from git_envhist.maintenance.found_problems import clear_problems  # loaded late: keeps envlog fast

        if repair:
            from git_envhist.maintenance.repair import Repair  # loaded late: hardly ever

            health = Repair(self, self.capturing, report or _ignore).run()
        else:
            from git_envhist.maintenance.fsck import check_history  # loaded late: keeps envlog fast

            found = check_history(self.capturing.repository, quick=quick, progress=report or _ignore)
            health = found.health(quick=quick)
        if health.is_whole and not quick:
            clear_problems(self.repository.common_state)
        self.refresh()
        return health

    def du(
        self, *revisions: SnapshotRef, paths: Sequence[bytes] = (), report: Report | None = None
    ) -> DiskUsage:
        """Measure disk usage: of snapshots, directories and classes, and what each of them alone would free.

        `revisions`: what dropping these together would free; `paths`: what the history would lose without them.
        """
        from git_envhist.maintenance.disk_usage import (  # loaded late: keeps envlog fast
            SnapshotSet,
            measure_disk_usage,
        )

        lines = {name: self.log(timeline=name) for name in self.timelines() if not is_fetched(name)}
        repository = self.capturing.repository
        trash = list(repository.list_refs(TRASH_REFS).values())
        listed = repository.git.run("rev-list", *trash).split() if trash else []
        stored = SnapshotSet(lines, [commit.decode("ascii") for commit in listed])
        return measure_disk_usage(repository, stored, self.snapshots_of(revisions), paths, report or _ignore)

    @property
    def problems(self) -> list[str]:
        """The problems that the daily check found, a sentence each."""
        from git_envhist.maintenance.found_problems import read_problems  # loaded late: keeps a capture fast

        return read_problems(self.repository.common_state)

    def daily(self) -> None:
        """Run the daily maintenance, as far as it is worthwhile; it waits for no other process."""
        from git_envhist.maintenance.gc import run_daily_gc  # loaded late: once a day

        run_daily_gc(self.capturing.repository, self.thin)

    # Integrations.

    def install(
        self,
        agents: Sequence[str] = (),
        *,
        everywhere: bool = False,
        worktrees: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[IntegrationChange, ...]:
        """Install hooks of git, or of coding agents, that capture; return every file that was or would be changed.

        `worktrees`: Claude Code makes its worktrees as forks, and a snapshot is taken before it removes one.
        """
        from git_envhist.integrations.install import (  # loaded late: hardly ever used
            install,
            named_integrations,
        )

        return install(
            self._install_target(everywhere, force, worktrees=worktrees),
            named_integrations(as_sequence(agents)),
            dry_run=dry_run,
        )

    def uninstall(
        self, agents: Sequence[str] = (), *, everywhere: bool = False, dry_run: bool = False
    ) -> tuple[IntegrationChange, ...]:
        """Remove what `install` added; a file that was not changed since is as it was before."""
        from git_envhist.integrations.install import (  # loaded late: hardly ever used
            all_integrations,
            named_integrations,
            uninstall,
        )

        integrations = named_integrations(as_sequence(agents)) if agents else all_integrations()
        return uninstall(self._install_target(everywhere), integrations, dry_run=dry_run)

    def status(self) -> IntegrationStatus:
        """Return which integrations capture here, when they last did, and their errors."""
        from git_envhist.integrations.status import read_status  # loaded late: hardly ever used

        return read_status(self._install_target(reads_only=True), self.settings)

    def _install_target(
        self,
        everywhere: bool = False,
        force: bool = False,
        *,
        worktrees: bool = False,
        reads_only: bool = False,
    ) -> InstallTarget:
        from git_envhist.integrations.base import (  # loaded late: hardly ever used
            InstallTarget,
            installed_program,
        )

        if self.repository.plain and not (everywhere or reads_only):
            raise EnvhistError(
                f"'{self.repository.root}' is no git repository: git calls no hook there",
                hint="capture by hand, or by an agent: install(agents=[…], everywhere=True)",
            )
        program = installed_program(self.environ)
        return InstallTarget(self.repository, self.environ, program, everywhere, worktrees, force)


def _with_agent(environ: Mapping[str, str] | None, agent: AgentName | None) -> Mapping[str, str]:
    chosen = os.environ if environ is None else environ
    return chosen if agent is None else {**chosen, **agent_variables(agent)}


def _revision_text(revision: SnapshotRef | None) -> str:
    return revision or "" if isinstance(revision, str | None) else revision.id or "@"


def _decisions(conflict: str, resolve: Mapping[str, str] | None) -> Decisions:
    from git_envhist.restore.decisions import decisions_of  # loaded late: keeps envlog fast

    return decisions_of(conflict, [(side, os.fsencode(where)) for where, side in (resolve or {}).items()])


def _ignore(_: str) -> None:
    pass


def _merge_packs(repository: Repository) -> None:
    from git_envhist.maintenance.merge_packs import merge_packs_after  # loaded late: after a capture

    merge_packs_after(repository)


def _merge_packs_after_restore(repository: Repository) -> None:
    from git_envhist.maintenance.merge_packs import (  # loaded late: after a restore
        AFTER_RESTORE,
        merge_packs_after,
    )

    merge_packs_after(repository, AFTER_RESTORE)


def _sweep_restore(private: str, bases: Mapping[bytes, bytes]) -> None:
    from git_envhist.restore.sweep_staged import sweep_staged  # loaded late: before a capture

    sweep_staged(private, bases)
