"""One restore, decided and done, when what is here is captured.

Only when every byte that will be replaced has been read back from the moment to come back to is anything touched; what
comes is staged meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.holding import CapturedTree
from git_envhist.capturing.request import CaptureOptions
from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.model import (
    DirectoryPair,
    EnvPath,
    RestoreResult,
    RestoreRole,
    Snapshot,
    SnapshotId,
    Trigger,
)
from git_envhist.restoring.carrying import ExecuteResult, Last, execute
from git_envhist.restoring.damage import report_damage_in_target
from git_envhist.restoring.doubts import unstable_path_warnings
from git_envhist.restoring.ending import TARGET, RecoveryGoal
from git_envhist.restoring.foreign import Findings
from git_envhist.restoring.foresight import changes_files, is_idle, preview, preview_refusals
from git_envhist.restoring.guards import (
    hidden_by_mounts,
    refuse_left_out,
    refuse_locked_repositories,
    refuse_mounted,
    refuse_open_databases,
    refuse_unsaved,
)
from git_envhist.restoring.here import Choose, Now, RestoreContext
from git_envhist.restoring.inspection import inspect, names_in, room_at
from git_envhist.restoring.names import refuse_names
from git_envhist.restoring.outside import add_machine_facts
from git_envhist.restoring.planning import Planner, PredictedPlan, closed_paths, roots_changed
from git_envhist.restoring.processes import AffectedPaths, still_running
from git_envhist.restoring.recording import NOT_RECORDED, publish_now
from git_envhist.restoring.rest import FollowUp, plan_rest
from git_envhist.restoring.room import refuse_without_room
from git_envhist.restoring.saved import SafetyCapture, verify_safety_capture
from git_envhist.restoring.seen import written_records
from git_envhist.restoring.trust import untrusted_warnings, write_blobs
from git_envhist.restoring.unfetched import MissingSubmoduleCommit, fetch_missing_commits, missing_commits
from git_envhist.restoring.wish import STOPPED, RestoreOptions
from git_envhist.values import dataclass, field, replace

PART = "part"
LESS = "less"
"""Of the moment not all was asked for."""


class ExtraSteps(NamedTuple):
    """What belongs to a restore that another one began: the way it goes, and what is to be done at its very end."""

    way: RecoveryGoal
    last: Last


class RestoreDecision(NamedTuple):
    """What is going to happen."""

    planned: RestoreResult
    saved: SafetyCapture | None = None
    """What was here; None where nothing is to be done."""
    rest: FollowUp = FollowUp()


@dataclass(slots=True)
class RestoreOperation:
    """One restore."""

    here: RestoreContext
    capturing: CapturePipeline
    wish: RestoreOptions
    part: RestoreRole
    choose: Choose
    beside: ExtraSteps | None = None
    guess: PredictedPlan = field(default_factory=PredictedPlan)
    unfetched: tuple[MissingSubmoduleCommit, ...] = ()
    """What submodules committed in the working tree that the moment comes from."""

    def foresee(self, tip: str | None) -> None:
        """Find out what differs between the newest snapshot and the moment that is probably meant."""
        if self.part is not RestoreRole.TO:
            return
        likely = self.here.judge(self.choose(None))
        if likely.trusted is not False:
            self.guess.make(self.here.contents(self.capturing.repository.git), tip, likely.tree)

    def decide(self, held: CapturedTree) -> RestoreDecision:
        """What is to be done, and what is here saved; nothing to be done after a dry run, and where nothing differs."""
        wish = self.wish
        planned = self._plan_from(held)
        planned = replace(planned, roots=roots_changed(planned.plan, held.taken.survey.bases))
        refuse_names(planned.plan, held.taken.survey.bases)
        planned = add_machine_facts(planned, held, wish)
        if wish.planned is not None:
            wish.planned(planned)
        if is_idle(planned, wish, self.capturing.repository):
            refuse_left_out(planned.plan, wish)
            return RestoreDecision(self._idle(held, self._untold(planned)))
        guard = partial(self._guard, held, planned)
        if wish.dry_run:
            return RestoreDecision(preview(self._untold(planned), wish, held, guard))
        rest = guard()
        safety = self._save(held, planned.target)
        if wish.saved is not None:
            wish.saved(safety)
        saved = SafetyCapture.of(held, safety, self.here.place(held.taken.survey), planned.plan)
        return RestoreDecision(planned, saved, rest if self.beside is None else self.beside.way.rest)

    def carry_out(
        self,
        planned: RestoreResult,
        saved: SafetyCapture,
        rest: FollowUp,
        changed: Callable[[Snapshot], None],
    ) -> RestoreResult:
        """Do what was decided, and record it; `changed` is told what holds what was here, once that is not here."""
        running: list[str] = []

        def look_around() -> None:
            running.extend(map(str, still_running(AffectedPaths.by(planned.plan, saved.place.bases))))

        relocated: list[EnvPath] = []
        last = self.beside.last if self.beside is not None else None
        last = last or (lambda _: relocated.extend(rest.do(self.capturing, planned.plan.steps)))
        with report_damage_in_target(planned.plan, saved.place.open_contents):
            notes = self._notes(planned, saved, rest)
            carried = execute(
                saved.place,
                planned.plan,
                notes,
                known=saved.known,
                last=last,
                meanwhile=lambda: verify_safety_capture(planned.plan, saved.place.open_contents),
                beside=look_around,
            )
        changed(saved.safety)
        planned = replace(planned, safety=saved.safety, head=rest.words, relocated=tuple(relocated))
        done = self._record(planned, carried, saved)
        # Last of all: whoever stops that has what is recorded.
        brought = tuple(fetch_missing_commits(self.capturing.repository.git, self.unfetched))
        return replace(done, running=tuple(running), warnings=(*done.warnings, *brought))

    def _untold(self, planned: RestoreResult) -> RestoreResult:
        """A plan that brings no commits of submodules, with how they could be had."""
        return replace(planned, warnings=(*planned.warnings, *map(str, self.unfetched)))

    def _notes(
        self, planned: RestoreResult, saved: SafetyCapture, rest: FollowUp
    ) -> tuple[tuple[str, str], ...]:
        """What a journal says of it."""
        wish = self.wish
        links = wish.foreign and wish.force and wish.links
        way = RecoveryGoal(TARGET, planned.target.id, saved.safety.id, links, *rest)
        notes = (self.beside.way if self.beside is not None else way).notes
        stopped = ((STOPPED, " ".join(wish.stopped)),) if wish.stopped else ()
        less = ((LESS, "yes"),) if wish.is_part else ()
        return (*notes, *stopped, *less, (PART, self.part.value))

    def _idle(self, held: CapturedTree, planned: RestoreResult) -> RestoreResult:
        """Nothing is to be done; but what cannot be reached is not as it was, even if all the rest is."""
        refuse = partial(refuse_mounted, planned.plan, held.taken.out_of_reach)
        if self.wish.dry_run:
            return planned if self.wish.force else preview_refusals(planned, refuse)
        if not self.wish.force:
            refuse()
        return planned

    def _plan_from(self, held: CapturedTree) -> RestoreResult:
        git = held.context.repository.git.with_objects(held.staging.path)
        now = Now(held.content, held.finish().tree, git)
        planned = self._plan(held, self.here.judge(self.choose(now)))
        if self.part is RestoreRole.UNDO and not changes_files(planned):
            # A restore touches nothing of that state which differs: it is as good as the one now.
            planned = self._plan(held, self.here.judge(self.choose(now._replace(further=1))))
        return planned

    def _plan(self, held: CapturedTree, target: Snapshot) -> RestoreResult:
        wish = self.wish
        if target.trusted is False and not wish.foreign:
            raise Refused(
                f"no key that is here signed '{target.id[:7]}': what it holds is somebody else's word",
                hint="write it elsewhere: --to <directory>; --allow-unsigned, if you trust who made it; "
                "where it is your own: git envlog key import",
            )
        finished = held.finish()
        git = held.context.repository.git.with_objects(held.staging.path)
        planner = Planner(git, self.here.contents(git), held.taken, self.guess)
        warnings = tuple(held.warnings)
        if target.trusted is not False:
            plan = planner.plan(finished.tree, target.tree, wish)
            warnings += unstable_path_warnings(git, target.tree, plan)
            self.unfetched = missing_commits(self.capturing.repository.git, plan, planner.spared)
            hidden = hidden_by_mounts(plan, held.taken.out_of_reach)
            losses = (*closed_paths(plan), *planner.unreached, *hidden)
            return RestoreResult(target, plan, held.taken.files, losses=losses, warnings=warnings)
        pairs, findings = self._inspect(target, held.taken.survey.bases)
        plan = planner.plan(finished.tree, target.tree, wish, findings)
        if not wish.dry_run:
            write_blobs(held.context.repository.git, findings.blobs)
        warnings += unstable_path_warnings(git, target.tree, plan)
        return untrusted_warnings(
            RestoreResult(target, plan, files=held.taken.files, warnings=warnings), findings, pairs
        )

    def _inspect(
        self, target: Snapshot, bases: Mapping[bytes, bytes]
    ) -> tuple[list[DirectoryPair], Findings]:
        repository, wish = self.capturing.repository, self.wish
        with closing(self.here.contents(repository.git)) as contents:
            room = room_at(repository.root)
            return inspect(
                repository.git,
                contents,
                target.tree,
                room=room,
                force=wish.force,
                links=wish.links,
                standing=names_in(bases),
            )

    def _guard(self, held: CapturedTree, planned: RestoreResult) -> FollowUp:
        bases = held.taken.survey.bases
        refuse_unsaved(planned.plan, held.taken.gathered.missing)
        refuse_locked_repositories(planned.plan, bases)
        git = held.context.repository.git
        with closing(self.here.contents(git)) as contents:
            refuse_without_room(planned.plan, bases, held.staging.path, git, contents)
        if not self.wish.force:
            refuse_mounted(planned.plan, held.taken.out_of_reach)
            refuse_open_databases(planned.plan, bases)
        return plan_rest(self.here.capturing, planned.target, held.view, self.wish)

    def _save(self, held: CapturedTree, target: Snapshot) -> Snapshot:
        # Without the words of the target: who looks for these does not mean this moment.
        words = f"before the restore of {target.id[:7]}"
        request = CaptureOptions(os.fsencode(words), trigger=Trigger.RESTORE, restore=RestoreRole.BEFORE)
        safety = held.publish(request).snapshot
        assert safety is not None
        return safety

    def _undone(self, safety: Snapshot) -> SnapshotId:
        """Return the snapshot of the state that an undo leaves: the safety snapshot if that state was new."""
        left = self.wish.left() if self.wish.left is not None else None
        return left or safety.id

    def _record(self, planned: RestoreResult, carried: ExecuteResult, saved: SafetyCapture) -> RestoreResult:
        done = replace(planned, verified=carried.verified, kept=carried.kept)
        done = replace(done, losses=(*planned.losses, *carried.losses))
        since = written_records(saved.since, planned.plan, carried)
        try:
            moment, differing = publish_now(
                self.capturing,
                planned.target.id,
                self.part,
                since,
                planned.target,
                undone=self._undone(saved.safety) if self.part is RestoreRole.UNDO else None,
                paths=_count_of_paths(planned) if self.wish.is_part else "",
            )
        except (EnvhistError, OSError) as error:
            warning = f"{NOT_RECORDED}: {in_words(error)}"
            return replace(done, moment=planned.safety, warnings=(*done.warnings, warning))
        if differing is None:
            return replace(done, moment=moment)
        before = len(differing & saved.differed) if saved.differed is not None else None
        edits = tuple(
            step.path
            for step in planned.plan.steps
            if not step.realm and step.before is not None and step.path in (saved.differed or ())
        )
        return replace(
            done,
            moment=moment,
            tracked_differing=len(differing),
            tracked_differed=before,
            edits_replaced=edits,
        )


def _count_of_paths(planned: RestoreResult) -> str:
    number = len(planned.plan.steps)
    return f"{number:,} path{'' if number == 1 else 's'}"
