"""Run one restore: plan, guards, safety snapshot, execution, record.

Nothing in the environment changes before every byte that the restore will replace has been read back from the safety
snapshot; new files are staged meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from git_envhist.capture.capture_worker import KnownWrites
from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.capture.pipeline import CaptureOptions, CapturePipeline
from git_envhist.capture.scope import CaptureScope
from git_envhist.discovery import refuse_home
from git_envhist.disk import Durability, remove_if_present, replace_file, state_directory, sync_directory
from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.git.status import GitStatus
from git_envhist.history.titles import MERGES, operation_words
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import (
    DirectoryPair,
    EnvPath,
    PlanStep,
    RestorePlan,
    RestoreResult,
    RestoreRole,
    Snapshot,
    SnapshotId,
    Trigger,
)
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.platform import open_file_only
from git_envhist.restore.execute import (
    ExecuteResult,
    FinalAction,
    JournalElsewhere,
    RestoreTarget,
    discard_journal,
    execute,
    finish_interrupted,
    revert_interrupted,
)
from git_envhist.restore.git_state import (
    HeadMove,
    MissingSubmoduleCommit,
    encoded_move,
    fetch_missing_commits,
    finish_move,
    head_is_at,
    missing_commits,
    move_head,
    plan_move,
    revert_move,
)
from git_envhist.restore.guards import (
    hidden_by_mounts,
    refuse_left_out,
    refuse_locked_repositories,
    refuse_mounted,
    refuse_names,
    refuse_open_databases,
    refuse_unsaved,
    refuse_without_space,
)
from git_envhist.restore.inspect_unsigned import (
    Findings,
    InspectedSources,
    free_bytes_at,
    inspect,
    names_lister,
    untrusted_warnings,
    write_blobs,
)
from git_envhist.restore.journal import Phase, RestoreJournal, read_journal, read_phase
from git_envhist.restore.merge_pairs import RevertMerge, conflict_error
from git_envhist.restore.merge_sources import MergeSources
from git_envhist.restore.options import STOPPED, RestoreOptions
from git_envhist.restore.plan_steps import SkipReason
from git_envhist.restore.planner import (
    CapturedRows,
    Planner,
    PredictedPairs,
    changed_since,
    immutable_paths,
    read_again,
    roots_changed,
    written_records,
)
from git_envhist.restore.processes import AffectedPaths, still_running
from git_envhist.restore.report_damage import report_damage_in_safety, report_damage_in_target
from git_envhist.restore.result_facts import add_machine_facts, tracked_differences, unstable_path_warnings
from git_envhist.trace import trace_step
from git_envhist.worktree.unfinished_restore import restore_directory

# Checks of a plan: whether it changes anything, and what would refuse it.


def changes_files(planned: RestoreResult) -> bool:
    """Return whether the restore would change anything in the environment."""
    return bool(planned.plan.steps or planned.plan.directories)


def changes_nothing(planned: RestoreResult, options: RestoreOptions, repository: Repository) -> bool:
    """Return whether the restore has nothing to do, neither for files nor for HEAD and services."""
    if changes_files(planned) or options.stopped:
        return False
    return not options.head or head_is_at(repository, planned.target)


def preview(
    planned: RestoreResult, options: RestoreOptions, captured: CapturedTree, guard: Callable[[], object]
) -> RestoreResult:
    """Return a plan for display, with the new HEAD; a refusal becomes a warning."""
    moves: list[str] = []

    def try_all() -> None:
        guard()
        repository = captured.context.repository
        if options.head and (
            move := plan_move(repository, planned.target, captured.view, force=options.force)
        ):
            moves.append(str(move))

    planned = preview_refusals(planned, try_all)
    return replace(planned, head=moves[0]) if moves else planned


def preview_refusals(planned: RestoreResult, guard: Callable[[], object]) -> RestoreResult:
    """Return a plan for display, with a warning if the guards would refuse it."""
    try:
        guard()
    except Refused as refused:
        warning = f"this restore would be refused: {refused.message}"
        return replace(planned, warnings=(*planned.warnings, warning))
    return planned


# The context of a restore.

UNLIMITED = 1 << 62
Choose = Callable[["PresentState | None"], Snapshot]
"""Return the snapshot to restore; None: the environment has not been captured yet."""
Judge = Callable[[Snapshot], Snapshot]
Find = Callable[[str], Snapshot]
Unseal = Callable[[EnvPath, bytes], bytes]


SAVED_BEFORE = {
    RestoreRole.TO: "restore of",
    RestoreRole.UNDO: "undo to",
    RestoreRole.REDO: "redo to",
    RestoreRole.REVERT: "revert of",
    RestoreRole.MERGE: "merge of",
}
"""The intent of the snapshot of the present files, by the operation that it precedes."""


class PresentState(NamedTuple):
    """The environment now, captured and not yet published."""

    content: str
    tree: str
    git: Git
    """Also reads the objects of the new capture."""
    further: int = 0
    """The number of further states to undo, because a restore would change nothing in those between."""


@dataclass(frozen=True, slots=True)
class RestoreContext:
    """The environment to restore, and functions to check signatures, decrypt, and find snapshots by id."""

    capturing: CapturePipeline
    judge: Judge
    unseal: Unseal
    find: Find

    @property
    def how(self) -> str:
        return "fork" if self.capturing.how == "fork" else "here"

    def unbounded(self) -> CapturePipeline:
        """Return a capture pipeline without a size budget: the safety snapshot must be complete."""
        settings = replace(self.capturing.settings, budget=UNLIMITED)
        return replace(self.capturing, settings=settings)

    def place(self, extent: CaptureScope) -> RestoreTarget:
        """Return the roots of the environment and the directory in which the restore works."""
        from git_envhist.restore.execute import RestoreTarget  # loaded late: while the workers scan
        from git_envhist.restore.planner import forbidden_places  # loaded late: while the workers scan

        repository = self.capturing.repository
        return RestoreTarget(
            restore_directory(repository.state),
            extent.bases,
            forbidden_places(extent),
            lambda: self.contents(repository.git),
            self.how,
        )

    def contents(self, git: Git, made: Mapping[bytes, bytes] | None = None) -> ObjectReader:
        """Return a reader of snapshot objects; `made`: blobs that are in no snapshot."""
        repository = self.capturing.repository
        return ObjectReader(
            git, repository.pack_dir, repository.object_format, self.unseal, verify=Verify.ID, made=made
        )


# The snapshot that records the result of a restore.

NOT_RECORDED = "the restore is done, but could not be recorded"


@trace_step("record the restore")
def capture_restored_state(
    capturing: CapturePipeline,
    source: str | None,
    role: RestoreRole,
    since: KnownWrites | None = None,
    target: Snapshot | None = None,
    *,
    undone: SnapshotId | None = None,
    paths: str = "",
    services: bool = False,
    merged: str | None = None,
    applied: tuple[tuple[str, str], ...] = (),
) -> tuple[Snapshot | None, frozenset[bytes] | None]:
    """Capture the environment after a restore; return the snapshot and the tracked files that differ from HEAD.

    `source`: the restored snapshot; for a revert or a merge, its sources as printed. `target`: the restored snapshot;
    its summary is reused if the environment equals it. `undone`: the snapshot that an undo undoes. `paths`: how many
    paths were restored, if not all. `services`: the services are restored too. `merged`: the snapshot that was merged.
    `applied`: the snapshots (from, to) whose differences a revert or a merge applied.
    """
    words = os.fsencode(operation_words(role, undone or source, paths, services=services))
    restored_from = None if role in MERGES else source
    request = CaptureOptions(
        words,
        trigger=Trigger.RESTORE,
        restore=role,
        restored_from=restored_from,
        merged=merged,
        applied=applied,
    )
    with capturing.capture_tree(request, since) as captured:
        if target is not None:
            captured.reuse_facts_of(target)
        return captured.publish(request).snapshot, tracked_differences(captured)


# Steps besides the files, done while the journal exists, so that an interrupted restore can be continued.

HEAD, ORIGIN = "head", "origin"
"""Keys in the notes of a journal."""


class FollowUp(NamedTuple):
    """Encoded move of HEAD, and the path of the original working tree to replace in restored files; empty if none."""

    head: str = ""
    origin: str = ""

    @classmethod
    def read(cls, notes: Mapping[str, object]) -> FollowUp:
        """Read the follow-up from the notes of a journal."""
        return cls(str(notes.get(HEAD) or ""), str(notes.get(ORIGIN) or ""))

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """Return the notes to write in the journal."""
        return tuple((word, value) for word, value in ((HEAD, self.head), (ORIGIN, self.origin)) if value)

    def do(self, capturing: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        """Move HEAD and relocate files; return the paths that were rewritten."""
        if self.head:
            move_head(capturing.repository, HeadMove.read(self.head))
        return self._relocate_files(capturing, steps)

    def finish(self, capturing: CapturePipeline, steps: Iterable[PlanStep]) -> Iterator[str]:
        """Do what is not done yet; yield why HEAD was not moved, if that would lose something."""
        if self.head:
            yield from finish_move(capturing.repository, self.head)
        self._relocate_files(capturing, steps)

    def revert(self, capturing: CapturePipeline, before: Snapshot) -> Iterator[str]:
        """Move HEAD back if it was moved; the rewritten files have been replaced already."""
        if self.head:
            yield from revert_move(capturing.repository, self.head, before)

    @property
    def words(self) -> str | None:
        """Describe HEAD after the restore; None if it does not move."""
        return str(HeadMove.read(self.head)) if self.head else None

    def _relocate_files(self, capturing: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        from git_envhist.restore.relocate import relocate_here  # loaded late: hardly any restore needs it

        return relocate_here(capturing, self.origin, steps) if self.origin else ()


def plan_follow_up(
    capturing: CapturePipeline, target: Snapshot, view: GitStatus, options: RestoreOptions
) -> FollowUp:
    """Plan the steps besides the files; raise `Refused` if one is impossible."""
    head = plan_move(capturing.repository, target, view, force=options.force) if options.head else None
    origin = ""
    if options.relocate:
        from git_envhist.restore.relocate import original_root  # loaded late: hardly any restore needs it

        origin = original_root(capturing, target)
    return FollowUp(encoded_move(head) if head else "", origin)


# Recovery from an interrupted restore: continue to the target, or abort to the safety snapshot.
#
# Usually the journal leads there. If the restore had already reached the other end, a new restore leads back. Its goal
# is written to disk first, so that recovery can itself be interrupted.

RECOVERY_FILE = "way"
TARGET, SAFETY, GOAL = "target", "safety", "goal"
REVERTED = "reverted"
"""The sources of a revert or a merge, as printed. Its result is no snapshot, so that only the journal leads there."""
MERGED = "merged"
"""The snapshot that a whole merge adds."""
LINKS = "links"
"""Set if symbolic links of an unsigned snapshot may lead outside the environment."""
Notes = tuple[tuple[str, str], ...]


class RecoveryGoal(NamedTuple):
    """The end that a recovery must reach (target or safety), and the snapshots of both ends."""

    goal: str
    target: str
    safety: str
    links: bool = False
    head: str = ""
    origin: str = ""

    @property
    def source(self) -> str:
        """Return the id of the snapshot to restore."""
        return self.target if self.goal == TARGET else self.safety

    @property
    def follow_up(self) -> FollowUp:
        """Return the steps besides the files that belong to the target."""
        return FollowUp(self.head, self.origin)

    @property
    def notes(self) -> Notes:
        """Return the notes for the journal of the recovery restore."""
        notes = ((TARGET, self.target), (SAFETY, self.safety), (GOAL, self.goal), *self.follow_up.notes)
        return (*notes, (LINKS, "any")) if self.links else notes


class RecoveryStep(NamedTuple):
    """The result of following the journal; and the goal still to be reached by a restore of its own."""

    carried: ExecuteResult | None
    recovery: RecoveryGoal | None


def follow_journal(place: RestoreTarget, goal: str, final_action: FinalAction) -> RecoveryStep:
    """Follow the journal to one of its ends; raise `Refused` if no restore was interrupted."""
    journal = read_journal(place.private)
    if journal is None:
        recovery = read_recovery(place.private)
        if recovery is None:
            raise Refused(
                "no restore was interrupted", hint="to undo a finished restore: git envrestore --undo"
            )
        # The next capture finds out how far the recovery got.
        _refuse_without_snapshot(recovery._replace(goal=goal))
        return RecoveryStep(None, recovery._replace(goal=goal))
    notes = dict(journal.notes)
    recovery = RecoveryGoal(
        goal, notes.get(TARGET, ""), notes.get(SAFETY, ""), LINKS in notes, *FollowUp.read(notes)
    )
    leads_to = notes.get(GOAL, TARGET)
    at = _reached_end(read_phase(place.private), leads_to)
    try:
        if at is None or at == goal:
            return RecoveryStep(
                finish_interrupted(place, final_action)
                if leads_to == goal
                else revert_interrupted(place, final_action),
                None,
            )
        _refuse_without_snapshot(recovery)
        write_recovery(place.private, recovery)
        return RecoveryStep(finish_interrupted(place), recovery)
    except JournalElsewhere:
        # Both ends are complete snapshots, so a restore can lead to either from the present state.
        _refuse_without_snapshot(recovery)
        write_recovery(place.private, recovery)
        return RecoveryStep(discard_journal(place), recovery)


def _refuse_without_snapshot(recovery: RecoveryGoal) -> None:
    """Raise `Refused` if the goal is the result of a revert or a merge, which no snapshot has."""
    if not recovery.source:
        raise Refused(
            "this revert or merge cannot be continued: its result is in no snapshot",
            hint="undo it, then start it again: git envrestore --abort",
        )


def finish_follow_up(
    capturing: CapturePipeline, find: Callable[[str], Snapshot], journal: RestoreJournal, goal: str
) -> Iterator[str]:
    """Bring HEAD and relocated files to the same end as the environment; yield what failed."""
    notes, steps = dict(journal.notes), [staged.step for staged in journal.staged]
    if goal == TARGET:
        yield from FollowUp.read(notes).finish(capturing, steps)
    elif notes.get(SAFETY):
        yield from FollowUp.read(notes).revert(capturing, find(notes[SAFETY]))


def _reached_end(phase: Phase, leads_to: str) -> str | None:
    """Return the end that the restore has reached; None between the ends."""
    if phase is Phase.DONE:
        return leads_to
    if phase is Phase.UNDONE:
        return SAFETY if leads_to == TARGET else TARGET
    return None


def write_recovery(private: str, recovery: RecoveryGoal) -> None:
    """Write the recovery goal durably."""
    path = os.path.join(state_directory(private), RECOVERY_FILE)
    replace_file(path, json.dumps(recovery._asdict()).encode("ascii"), durability=Durability.FULL)


def read_recovery(private: str) -> RecoveryGoal | None:
    """Return the recovery goal; None if there is none, or it cannot be read."""
    try:
        with open(os.path.join(private, RECOVERY_FILE), encoding="ascii", opener=open_file_only) as file:
            notes = json.load(file)
        ends = (str(notes["goal"]), str(notes["target"]), str(notes["safety"]))
        return RecoveryGoal(*ends, notes.get("links") is True, *FollowUp.read(notes))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def delete_recovery_goal(private: str) -> None:
    """Delete the recovery goal."""
    if remove_if_present(os.path.join(private, RECOVERY_FILE)):
        # After a power failure, a stale goal would undo later work.
        sync_directory(private)


# The restore itself, from the locks to the snapshot that records it. The environment is captured once: the plan is made
# from that capture, and it becomes the safety snapshot. Modules are imported while the workers scan.


@dataclass(slots=True)
class RestoreRunner:
    """Restores of one working tree."""

    context: RestoreContext
    changed: Snapshot | None = None
    """The safety snapshot, once something was changed."""

    def restore(
        self, options: RestoreOptions, role: RestoreRole, choose: Choose, sources: MergeSources | None = None
    ) -> RestoreResult:
        """Restore the snapshot that `choose` returns; with `sources`, revert or merge them."""
        repository = self._stay_at_top()
        if not (options.force or self.context.capturing.settings.named_only):
            refuse_home(repository.root, self.context.capturing.environ)
        capturing = self.context.unbounded()
        with capturing.locked(CaptureOptions(waiting=options.waiting, dry_run=options.dry_run)):
            capturing.refuse_unfinished_restore()
            capturing.sweep_staged()
            return self.run(capturing, options, role, choose, sources=sources)

    def run(
        self,
        capturing: CapturePipeline,
        options: RestoreOptions,
        role: RestoreRole,
        choose: Choose,
        extra: ExtraSteps | None = None,
        sources: MergeSources | None = None,
    ) -> RestoreResult:
        """Restore under locks that are already locked. `extra`: steps of a recovery; `sources`: to revert or merge."""
        started = time.monotonic()
        operations: list[RestoreOperation] = []

        def meanwhile(tip: str | None) -> None:

            operations.append(
                RestoreOperation(self.context, capturing, options, role, choose, extra, sources)
            )
            operations[0].predict(tip)

        request = CaptureOptions(progress=options.progress, dumps=options.dumps, dry_run=options.dry_run)
        with capturing.capture_tree(request, meanwhile=meanwhile) as captured:
            operation = operations[0]
            decided = operation.decide(captured)
        if decided.saved is None:
            return decided.planned
        done = operation.execute_decision(
            decided.planned, decided.saved, decided.follow_up, self._note_change
        )
        return replace(done, seconds=time.monotonic() - started)

    def _stay_at_top(self) -> Repository:
        """Run git at the top of the working tree: a restore may remove the directory of this process."""
        repository = self.context.capturing.repository
        repository.git.directory = repository.root
        return repository

    def _note_change(self, saved: Snapshot) -> None:
        self.changed = saved

    def write_to(self, snapshot: Snapshot, directory: str, options: RestoreOptions) -> RestoreResult:
        """Write a snapshot into another directory."""
        from git_envhist.restore.inspect_unsigned import refuse_obeyed_place  # loaded late: --to alone
        from git_envhist.restore.result_facts import unstable_path_warnings  # loaded late: --to alone
        from git_envhist.restore.worktree_reader import WorktreeReader  # loaded late: --to alone
        from git_envhist.restore.write_elsewhere import (  # loaded late: --to alone
            SourceRepository,
            write_elsewhere,
        )

        own = self.context.capturing.repository
        judged = self.context.judge(snapshot)
        if not judged.trusted:
            refuse_obeyed_place(directory, own.git, own.root)
        source = SourceRepository(
            own.git, own.state, partial(WorktreeReader.of, own, self.context.unseal), self.context.how
        )
        written = write_elsewhere(judged, directory, source, options)
        return replace(written, warnings=(*written.warnings, *unstable_path_warnings(own.git, snapshot.tree)))

    def continue_restore(self) -> ExecuteResult:
        """Finish an interrupted restore and record it."""
        from git_envhist.restore.recover import continue_restore  # loaded late: few restores are interrupted

        self._stay_at_top()
        return continue_restore(self)

    def abort_restore(self) -> ExecuteResult:
        """Undo an interrupted restore."""
        from git_envhist.restore.recover import abort_restore  # loaded late: few restores are interrupted

        self._stay_at_top()
        return abort_restore(self)


# Facts about the environment before the restore, taken from its safety snapshot.


class SafetyCapture(NamedTuple):
    """The safety snapshot, and the scan results of its capture."""

    safety: Snapshot
    place: RestoreTarget
    known: CapturedRows
    since: KnownWrites
    differed: frozenset[bytes] | None
    """The tracked files that differed from HEAD before the restore."""

    @classmethod
    def of(
        cls, captured: CapturedTree, safety: Snapshot, place: RestoreTarget, plan: RestorePlan
    ) -> SafetyCapture:
        """Collect the facts; must be called while the capture is open."""
        return cls(
            safety,
            place,
            CapturedRows(captured.environment.records),
            changed_since(captured, safety.id, plan),
            tracked_differences(captured),
        )


def verify_safety_capture(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> None:
    """Read back all contents that the restore will replace; raise `Damaged` with the paths that fail."""
    with report_damage_in_safety(plan, open_contents), closing(open_contents()) as contents:
        read_again(contents, plan)


PART = "part"
LESS = "less"
"""Set if only a part of the snapshot is restored."""


class ExtraSteps(NamedTuple):
    """Extra steps that a recovery adds to a restore: its goal, and a final action."""

    recovery: RecoveryGoal
    final_action: FinalAction


class RestoreDecision(NamedTuple):
    """The decision before execution: the plan, the safety snapshot and the follow-up."""

    planned: RestoreResult
    saved: SafetyCapture | None = None
    """The safety snapshot; None if there is nothing to do."""
    follow_up: FollowUp = FollowUp()


NOTHING_LEFT = (SkipReason.OWN_FILES, SkipReason.OTHER_TREE, SkipReason.LEFT_OUT_THEN)
"""Reasons for skipping a path that leave nothing of the merged snapshot."""


@dataclass(slots=True)
class RestoreOperation:
    """One restore under its locks."""

    context: RestoreContext
    capturing: CapturePipeline
    options: RestoreOptions
    role: RestoreRole
    choose: Choose
    extra: ExtraSteps | None = None
    sources: MergeSources | None = None
    prediction: PredictedPairs = field(default_factory=PredictedPairs)
    merged: Mapping[bytes, bytes] = field(default_factory=dict)
    """Contents that are in no snapshot: merged texts and reduced settings, by the id of their blob."""
    unfetched: tuple[MissingSubmoduleCommit, ...] = ()
    """Commits that submodules made in the snapshot's working tree and that this repository lacks."""

    def predict(self, tip: str | None) -> None:
        """Compare the newest snapshot with the probable target while the capture runs."""
        if self.role is not RestoreRole.TO:
            return
        likely = self.context.judge(self.choose(None))
        if likely.trusted is not False:
            self.prediction.make(self.context.contents(self.capturing.repository.git), tip, likely.tree)

    def decide(self, captured: CapturedTree) -> RestoreDecision:
        """Plan, check and publish the safety snapshot; a dry run or an idle restore publishes nothing."""
        options = self.options
        planned = self._plan_from(captured)
        planned = replace(planned, roots=roots_changed(planned.plan, captured.environment.scope.bases))
        refuse_names(planned.plan, captured.environment.scope.bases)
        if self.sources is None:
            planned = add_machine_facts(planned, captured, options)
        if options.planned is not None:
            options.planned(planned)
        if self.sources is not None and planned.conflicts and not options.dry_run:
            raise conflict_error(self.sources, planned.conflicts)
        if changes_nothing(planned, options, self.capturing.repository):
            refuse_left_out(planned.plan, options)
            return RestoreDecision(self._idle(captured, self._with_missing_commits(planned)))
        guard = partial(self._check, captured, planned)
        if options.dry_run:
            return RestoreDecision(preview(self._with_missing_commits(planned), options, captured, guard))
        follow_up = guard()
        write_blobs(self.capturing.repository.git, self._planned_blobs(planned.plan))
        safety = self._save(captured, planned)
        if options.saved is not None:
            options.saved(safety)
        saved = SafetyCapture.of(
            captured, safety, self.context.place(captured.environment.scope), planned.plan
        )
        return RestoreDecision(
            planned, saved, follow_up if self.extra is None else self.extra.recovery.follow_up
        )

    def execute_decision(
        self,
        planned: RestoreResult,
        saved: SafetyCapture,
        follow_up: FollowUp,
        changed: Callable[[Snapshot], None],
    ) -> RestoreResult:
        """Execute the plan and record the result; call `changed` with the safety snapshot after the swap."""
        running: list[str] = []

        def check_running() -> None:
            running.extend(map(str, still_running(AffectedPaths.by(planned.plan, saved.place.bases))))

        relocated: list[EnvPath] = []
        final_action = self.extra.final_action if self.extra is not None else None
        final_action = final_action or (
            lambda _: relocated.extend(follow_up.do(self.capturing, planned.plan.steps))
        )
        with report_damage_in_target(planned.plan, saved.place.open_contents):
            notes = self._notes(planned, saved, follow_up)
            carried = execute(
                saved.place,
                planned.plan,
                notes,
                known=saved.known,
                final_action=final_action,
                meanwhile=lambda: verify_safety_capture(planned.plan, saved.place.open_contents),
                while_waiting=check_running,
            )
        changed(saved.safety)
        planned = replace(planned, safety=saved.safety, head=follow_up.words, relocated=tuple(relocated))
        done = self._record(planned, carried, saved)
        # Last, so that the restore is recorded if fetching is interrupted.
        fetched = tuple(fetch_missing_commits(self.capturing.repository.git, self.unfetched))
        return replace(done, running=tuple(running), warnings=(*done.warnings, *fetched))

    def _with_missing_commits(self, planned: RestoreResult) -> RestoreResult:
        """Return an unexecuted plan with warnings about missing commits of submodules."""
        return replace(planned, warnings=(*planned.warnings, *map(str, self.unfetched)))

    def _notes(
        self, planned: RestoreResult, saved: SafetyCapture, follow_up: FollowUp
    ) -> tuple[tuple[str, str], ...]:
        """Return the notes of the journal."""
        options = self.options
        links = options.allow_unsigned and options.force and options.links
        target = "" if self.sources is not None else planned.target.id
        recovery = RecoveryGoal(TARGET, target, saved.safety.id, links, *follow_up)
        notes = (self.extra.recovery if self.extra is not None else recovery).notes
        stopped = ((STOPPED, " ".join(options.stopped)),) if options.stopped else ()
        less = ((LESS, "yes"),) if self._is_part(planned) else ()
        sources = ((REVERTED, self.sources.words),) if self.sources is not None else ()
        merged = self._merged(planned)
        more = ((MERGED, merged),) if merged is not None else ()
        return (*notes, *stopped, *less, *sources, *more, (PART, self.role.value))

    def _is_part(self, planned: RestoreResult) -> bool:
        """Return whether paths were left out by the options, or because of their conflicts."""
        return self.options.is_part or bool(planned.kept)

    def _merged(self, planned: RestoreResult) -> SnapshotId | None:
        """Return the snapshot that the result contains afterwards as a whole."""
        sources = self.sources
        if sources is None or sources.role is not RestoreRole.MERGE or not sources.is_whole:
            return None
        # A path that was left must come with a later merge, which begins before all that this snapshot names.
        is_left = planned.losses or any(one.why not in NOTHING_LEFT for one in planned.plan.skipped)
        return None if self._is_part(planned) or is_left else sources.target.id

    def _idle(self, captured: CapturedTree, planned: RestoreResult) -> RestoreResult:
        """Return a plan with nothing to do; refuse if the restore skips mounted directories."""
        refuse = partial(refuse_mounted, planned.plan, captured.environment.out_of_reach)
        if self.options.dry_run:
            return planned if self.options.force else preview_refusals(planned, refuse)
        if not self.options.force:
            refuse()
        return planned

    def _plan_from(self, captured: CapturedTree) -> RestoreResult:
        if self.sources is not None:
            return self._plan_merge(captured, self.sources)
        git = captured.context.repository.git.with_objects(captured.staging.path)
        now = PresentState(captured.content, captured.finish().tree, git)
        planned = self._plan(captured, self.context.judge(self.choose(now)))
        if self.role is RestoreRole.UNDO and not changes_files(planned):
            # The differences cannot be restored, so that state counts as the current one.
            planned = self._plan(captured, self.context.judge(self.choose(now._replace(further=1))))
        return planned

    def _plan(self, captured: CapturedTree, target: Snapshot) -> RestoreResult:
        options = self.options
        if target.trusted is False and not options.allow_unsigned:
            raise Refused(
                f"'{target.id[:7]}' is unsigned: none of your keys signed it",
                hint="write it to another directory with --to <directory>, or restore it with --allow-unsigned; "
                "if it is your own: git envlog key import",
            )
        finished = captured.finish()
        git = captured.context.repository.git.with_objects(captured.staging.path)
        planner = Planner(git, self.context.contents(git), captured.environment, self.prediction)
        warnings = tuple(captured.warnings)
        if target.trusted is not False:
            plan = planner.plan(finished.tree, target.tree, options)
            warnings += unstable_path_warnings(git, target.tree, plan)
            self.unfetched = missing_commits(self.capturing.repository.git, plan, planner.spared)
            hidden = hidden_by_mounts(plan, captured.environment.out_of_reach)
            losses = (*immutable_paths(plan), *planner.unreached, *hidden)
            return RestoreResult(target, plan, captured.environment.files, losses=losses, warnings=warnings)
        pairs, findings = self._inspect(target, captured.environment.scope.bases)
        plan = planner.plan(finished.tree, target.tree, options, findings)
        self.merged = findings.blobs
        warnings += unstable_path_warnings(git, target.tree, plan)
        return untrusted_warnings(
            RestoreResult(target, plan, files=captured.environment.files, warnings=warnings), findings, pairs
        )

    def _plan_merge(self, captured: CapturedTree, sources: MergeSources) -> RestoreResult:
        """Plan a revert or a merge; an unsigned side is inspected and reduced as for a restore of it."""
        judged = {one.id: self.context.judge(one) for one in sources.snapshots}
        unsigned = [one for one in judged.values() if one.trusted is False]
        if unsigned and not self.options.allow_unsigned:
            raise _unsigned_source(unsigned[0], sources.role)
        repository, scope = captured.context.repository, captured.environment.scope
        inspected = self._inspect_sources(sources, unsigned, scope.bases)
        findings = None if inspected is None else inspected.findings
        git = repository.git.with_objects(captured.staging.path)
        merge = RevertMerge(
            git,
            repository.object_format,
            sources,
            time.time_ns(),
            captured.key,
            captured.context.settings.merge_limit,
            names_lister(scope.bases),
            () if findings is None else findings.dropped,
        )
        contents = self.context.contents(git, merge.blobs)
        planner = Planner(git, contents, captured.environment, merge, merge.together)
        target = judged[sources.target.id]
        plan = planner.plan(captured.finish().tree, target.tree, self.options, findings)
        conflicts = merge.conflicts(self.options)
        self.merged = {**merge.blobs, **(findings.blobs if findings is not None else {})}
        hidden = hidden_by_mounts(plan, captured.environment.out_of_reach)
        is_merge = sources.role is RestoreRole.MERGE
        disagreeing = () if self.options.is_part else merge.lock_warnings
        planned = RestoreResult(
            target,
            plan,
            captured.environment.files,
            losses=(*immutable_paths(plan), *planner.unreached, *hidden),
            kept=merge.skipped(self.options),
            warnings=(
                *captured.warnings,
                *sources.warnings,
                *unstable_path_warnings(git, target.tree, plan),
                *disagreeing,
                *merge.marker_warnings(self.options),
            ),
            reverted="" if is_merge else sources.words,
            merged=sources.words if is_merge else "",
            base=sources.spans[0].base if is_merge else None,
            conflicts=conflicts,
        )
        return planned if inspected is None else inspected.with_warnings(planned)

    def _inspect_sources(
        self, sources: MergeSources, unsigned: Sequence[Snapshot], bases: Mapping[bytes, bytes]
    ) -> InspectedSources | None:
        """Inspect the unsigned snapshots of a merge; None if all are signed."""
        if not unsigned:
            return None
        inspected = [self._inspect(one, bases) for one in unsigned]
        found, pairs = [found for _, found in inspected], [pairs for pairs, _ in inspected]
        return InspectedSources.of(found, pairs, names_lister(bases))

    def _inspect(
        self, target: Snapshot, bases: Mapping[bytes, bytes]
    ) -> tuple[list[DirectoryPair], Findings]:
        repository, options = self.capturing.repository, self.options
        with closing(self.context.contents(repository.git)) as contents:
            free_bytes = free_bytes_at(repository.root)
            return inspect(
                repository.git,
                contents,
                target.tree,
                free_bytes=free_bytes,
                force=options.force,
                links=options.links,
                existing=names_lister(bases),
            )

    def _check(self, captured: CapturedTree, planned: RestoreResult) -> FollowUp:
        bases = captured.environment.scope.bases
        refuse_unsaved(planned.plan, captured.environment.scan_result.missing)
        refuse_locked_repositories(planned.plan, bases)
        git = captured.context.repository.git
        with closing(self.context.contents(git, self.merged)) as contents:
            refuse_without_space(planned.plan, bases, captured.staging.path, git, contents)
        if not self.options.force:
            refuse_mounted(planned.plan, captured.environment.out_of_reach)
            refuse_open_databases(planned.plan, bases)
        return plan_follow_up(self.context.capturing, planned.target, captured.view, self.options)

    def _planned_blobs(self, plan: RestorePlan) -> dict[bytes, bytes]:
        """Return the contents that are in no snapshot and that the plan writes."""
        entries = (entry for step in plan.steps for entry in (step.after, *step.below) if entry is not None)
        found = {entry.oid for entry in entries if entry.oid is not None}
        return {oid: data for oid, data in self.merged.items() if oid in found}

    def _save(self, captured: CapturedTree, planned: RestoreResult) -> Snapshot:
        # The intent of the target is not repeated, so that a search for it does not find this snapshot.
        meant = planned.target.id[:7] if self.sources is None else self.sources.words
        words = f"before the {SAVED_BEFORE[self.role]} {meant}"
        request = CaptureOptions(os.fsencode(words), trigger=Trigger.RESTORE, restore=RestoreRole.BEFORE)
        safety = captured.publish(request).snapshot
        assert safety is not None
        return safety

    def _undone(self, safety: Snapshot) -> SnapshotId:
        """Return the snapshot of the state that an undo leaves: the safety snapshot if that state was new."""
        left = self.options.left() if self.options.left is not None else None
        return left or safety.id

    def _record(self, planned: RestoreResult, carried: ExecuteResult, saved: SafetyCapture) -> RestoreResult:
        done = replace(planned, verified=carried.verified, kept=(*planned.kept, *carried.kept))
        done = replace(done, losses=(*planned.losses, *carried.losses))
        since = written_records(saved.since, planned.plan, carried)
        try:
            recorded, differing = capture_restored_state(
                self.capturing,
                planned.target.id if self.sources is None else self.sources.words,
                self.role,
                since,
                planned.target if self.sources is None else None,
                undone=self._undone(saved.safety) if self.role is RestoreRole.UNDO else None,
                paths=_count_of_paths(planned) if self._is_part(planned) else "",
                services=bool(self.options.stopped),
                merged=self._merged(done),
                applied=() if self.sources is None else self.sources.applied,
            )
        except (EnvhistError, OSError) as error:
            warning = f"{NOT_RECORDED}: {in_words(error)}"
            return replace(done, snapshot=planned.safety, warnings=(*done.warnings, warning))
        if differing is None:
            return replace(done, snapshot=recorded)
        before = len(differing & saved.differed) if saved.differed is not None else None
        edits = tuple(
            step.path
            for step in planned.plan.steps
            if not step.root and step.before is not None and step.path in (saved.differed or ())
        )
        return replace(
            done,
            snapshot=recorded,
            tracked_differing=len(differing),
            tracked_differed=before,
            edits_replaced=edits,
        )


def _unsigned_source(snapshot: Snapshot, role: RestoreRole) -> Refused:
    return Refused(
        f"'{snapshot.id[:7]}' is unsigned: none of your keys signed it",
        hint=f"{role.value} it with --allow-unsigned if you trust its author; "
        "or import the key of its author: git envlog key import <file>",
    )


def _count_of_paths(planned: RestoreResult) -> str:
    number = len(planned.plan.steps)
    return f"{number:,} path{'' if number == 1 else 's'}"
