"""One restore, decided and done, when what is here is captured.

Only when every byte that will be replaced has been read back from the moment to come back to is anything touched; what
comes is staged meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.capture.pipeline import CaptureOptions, CapturePipeline
from git_envhist.capture.scope import CaptureScope
from git_envhist.capture.worker import KnownWrites
from git_envhist.discovery import refuse_home
from git_envhist.disk import Durability, remove_if_present, replace_file, state_directory, sync_directory
from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.git.status import GitStatus
from git_envhist.history.titles import operation_words
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
from git_envhist.objects.reader import ObjectReader
from git_envhist.platform import open_file_only
from git_envhist.restore.execute import (
    ExecuteResult,
    JournalElsewhere,
    Last,
    RestoreTarget,
    discard_journal,
    execute,
    finish_interrupted,
    revert_interrupted,
)
from git_envhist.restore.git_state import (
    MissingSubmoduleCommit,
    Move,
    carry_out,
    catch_up,
    fetch_missing_commits,
    go_back,
    is_there,
    missing_commits,
    plan_move,
    remembered,
)
from git_envhist.restore.guards import (
    hidden_by_mounts,
    refuse_left_out,
    refuse_locked_repositories,
    refuse_mounted,
    refuse_names,
    refuse_open_databases,
    refuse_unsaved,
    refuse_without_room,
)
from git_envhist.restore.journal import Phase, RestoreJournal, read_journal, read_phase
from git_envhist.restore.options import STOPPED, RestoreOptions
from git_envhist.restore.planning import (
    CapturedRows,
    Planner,
    PredictedPlan,
    changed_since,
    closed_paths,
    read_again,
    roots_changed,
    written_records,
)
from git_envhist.restore.processes import AffectedPaths, still_running
from git_envhist.restore.report import (
    add_machine_facts,
    differing,
    report_damage_in_safety,
    report_damage_in_target,
    unstable_path_warnings,
)
from git_envhist.restore.untrusted import (
    Findings,
    inspect,
    names_in,
    room_at,
    untrusted_warnings,
    write_blobs,
)
from git_envhist.trace import step
from git_envhist.worktree.unfinished_restore import restore_directory

# What a plan would come to: whether there is anything to do, what else would change, and what would be refused.


def changes_files(planned: RestoreResult) -> bool:
    """Whether anything in the environment would differ."""
    return bool(planned.plan.steps or planned.plan.directories)


def is_idle(planned: RestoreResult, wish: RestoreOptions, repository: Repository) -> bool:
    """Whether there is nothing to do, for the files or beside them."""
    if changes_files(planned) or wish.stopped:
        return False
    return not wish.head or is_there(repository, planned.target)


def preview(
    planned: RestoreResult, wish: RestoreOptions, held: CapturedTree, guard: Callable[[], object]
) -> RestoreResult:
    """A plan that is only shown, with where HEAD would go; what stands in its way is said, and refuses nothing yet."""
    moves: list[str] = []

    def try_all() -> None:
        guard()
        repository = held.context.repository
        if wish.head and (move := plan_move(repository, planned.target, held.view, force=wish.force)):
            moves.append(str(move))

    planned = preview_refusals(planned, try_all)
    return replace(planned, head=moves[0]) if moves else planned


def preview_refusals(planned: RestoreResult, guard: Callable[[], object]) -> RestoreResult:
    """A plan that is only shown, and what would refuse it."""
    try:
        guard()
    except Refused as refused:
        warning = f"as it is now, this would be refused: {refused.message}"
        return replace(planned, warnings=(*planned.warnings, warning))
    return planned


# A working tree that is to be restored, and what that takes.

UNLIMITED = 1 << 62
Choose = Callable[["Now | None"], Snapshot]
"""Return the snapshot to restore; None: nothing is known yet of the environment now."""
Judge = Callable[[Snapshot], Snapshot]
Find = Callable[[str], Snapshot]
Unseal = Callable[[EnvPath, bytes], bytes]


class Now(NamedTuple):
    """The environment now, captured and not yet published."""

    content: str
    tree: str
    git: Git
    """Reads its objects, too."""
    further: int = 0
    """How many more states back undo has to look, because a restore would change nothing in those between."""


@dataclass(frozen=True, slots=True)
class RestoreContext:
    """Whose environment it is, who judges a moment, finds one by its id, and opens what is sealed."""

    capturing: CapturePipeline
    judge: Judge
    unseal: Unseal
    find: Find

    @property
    def how(self) -> str:
        return "fork" if self.capturing.how == "fork" else "here"

    def unbounded(self) -> CapturePipeline:
        """What captures here; what a restore saves is saved whole, whatever a capture may add."""
        mine = self.capturing
        settings = replace(mine.settings, budget=UNLIMITED)
        return replace(mine, settings=settings)

    def place(self, extent: CaptureScope) -> RestoreTarget:
        """Where the environment stands, and where a restore of it works."""
        from git_envhist.restore.execute import RestoreTarget  # loaded late: while the workers look
        from git_envhist.restore.planning import forbidden_places  # loaded late: likewise

        repository = self.capturing.repository
        return RestoreTarget(
            restore_directory(repository.state),
            extent.bases,
            forbidden_places(extent),
            lambda: self.contents(repository.git),
            self.how,
        )

    def contents(self, git: Git, made: Mapping[bytes, bytes] | None = None) -> ObjectReader:
        """The objects of snapshots; `made`: blobs that stand in none."""
        repository = self.capturing.repository
        return ObjectReader(git, repository.pack_dir, repository.object_format, self.unseal, made=made)


# The moment that records where a restore arrived.

NOT_RECORDED = "the restore is done, but could not be recorded"


@step("the moment after is recorded")
def publish_now(
    capturing: CapturePipeline,
    source: SnapshotId | None,
    part: RestoreRole,
    since: KnownWrites | None = None,
    target: Snapshot | None = None,
    *,
    undone: SnapshotId | None = None,
    paths: str = "",
) -> tuple[Snapshot | None, frozenset[bytes] | None]:
    """The environment as it is now, as a moment that says where it comes from; which tracked files differ.

    `target`: the moment that should be here now. Where it is, what it says of the files holds. `undone`: the
    snapshot that an undo undoes. `paths`: how many paths came back, if not all were asked for.
    """
    words = os.fsencode(operation_words(part, undone or source, paths))
    request = CaptureOptions(words, trigger=Trigger.RESTORE, restore=part, restored_from=source)
    with capturing.capture_tree(request, since) as held:
        if target is not None:
            held.reuse_facts_of(target)
        return held.publish(request).snapshot, differing(held)


# What a restore does besides the files, while its journal still stands: whoever is killed here can go on with it.

HEAD, ORIGIN = "head", "origin"
"""The words of a journal for it."""


class FollowUp(NamedTuple):
    """Where HEAD goes, as it is remembered, and the place that is no longer to be named; empty where there is none."""

    head: str = ""
    origin: str = ""

    @classmethod
    def read(cls, notes: Mapping[str, object]) -> FollowUp:
        """What a journal says of it."""
        return cls(str(notes.get(HEAD) or ""), str(notes.get(ORIGIN) or ""))

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """What is to be said of it in a journal."""
        return tuple((word, told) for word, told in ((HEAD, self.head), (ORIGIN, self.origin)) if told)

    def do(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        """All of it; which of the paths that came name this place now."""
        if self.head:
            carry_out(here.repository, Move.read(self.head))
        return self._relocate(here, steps)

    def catch_up(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> Iterator[str]:
        """What of it is not done yet; why HEAD was not moved, where something would be lost by now."""
        if self.head:
            yield from catch_up(here.repository, self.head)
        self._relocate(here, steps)

    def take_back(self, here: CapturePipeline, before: Snapshot) -> Iterator[str]:
        """Where HEAD was moved already, back to where it was; the files that were rewritten are gone."""
        if self.head:
            yield from go_back(here.repository, self.head, before)

    @property
    def words(self) -> str | None:
        """Where HEAD is then; None where it does not move."""
        return str(Move.read(self.head)) if self.head else None

    def _relocate(self, here: CapturePipeline, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
        from git_envhist.restore.relocate import relocate_here  # loaded late: hardly any restore needs it

        return relocate_here(here, self.origin, steps) if self.origin else ()


def plan_rest(here: CapturePipeline, target: Snapshot, view: GitStatus, wish: RestoreOptions) -> FollowUp:
    """What is wished besides the files; `Refused` where it cannot be had."""
    head = plan_move(here.repository, target, view, force=wish.force) if wish.head else None
    origin = ""
    if wish.relocate:
        from git_envhist.restore.relocate import original_root  # loaded late: hardly any restore needs it

        origin = original_root(here, target)
    return FollowUp(remembered(head) if head else "", origin)


# Ends a restore that was broken off: at its target, or where it began, whichever is asked for, however often.
#
# Most often the journal leads there. Where the restore had come to its other end already and only its rest was to be
# thrown away, the way leads back from there by a restore of its own; that this is under way is written down first, so
# that whoever comes after a kill knows which end was meant.

WAY = "way"
TARGET, SAFETY, GOAL = "target", "safety", "goal"
LINKS = "links"
"""Says that links of others may lead anywhere, as whoever began it wished."""
Notes = tuple[tuple[str, str], ...]


class RecoveryGoal(NamedTuple):
    """Which end is meant, and the moments at both."""

    goal: str
    target: str
    safety: str
    links: bool = False
    head: str = ""
    origin: str = ""

    @property
    def source(self) -> str:
        """The moment to go to."""
        return self.target if self.goal == TARGET else self.safety

    @property
    def rest(self) -> FollowUp:
        """What belongs to the target besides the files."""
        return FollowUp(self.head, self.origin)

    @property
    def notes(self) -> Notes:
        """What the journal of this way has to say."""
        told = ((TARGET, self.target), (SAFETY, self.safety), (GOAL, self.goal), *self.rest.notes)
        return (*told, (LINKS, "any")) if self.links else told


class RecoveryStep(NamedTuple):
    """What came of the journal; and the way that is still to be gone."""

    carried: ExecuteResult | None
    way: RecoveryGoal | None


def end(place: RestoreTarget, goal: str, last: Last) -> RecoveryStep:
    """Follow the journal to one of its ends; `Refused` where nothing was broken off."""
    journal = read_journal(place.private)
    if journal is None:
        way = read_way(place.private)
        if way is None:
            raise Refused(
                "no restore was broken off here", hint="'git envrestore --undo' takes back one that is done"
            )
        # How far that way was gone is told by what is here now.
        return RecoveryStep(None, way._replace(goal=goal))
    told = dict(journal.notes)
    way = RecoveryGoal(goal, told.get(TARGET, ""), told.get(SAFETY, ""), LINKS in told, *FollowUp.read(told))
    leads_to = told.get(GOAL, TARGET)
    at = _stands_at(read_phase(place.private), leads_to)
    try:
        if at is None or at == goal:
            return RecoveryStep(
                finish_interrupted(place, last) if leads_to == goal else revert_interrupted(place, last), None
            )
        write_way(place.private, way)
        return RecoveryStep(finish_interrupted(place), way)
    except JournalElsewhere:
        # The bytes that both ends need are in the snapshots: whatever stands here, a way leads from it.
        write_way(place.private, way)
        return RecoveryStep(discard_journal(place), way)


def settle(
    here: CapturePipeline, find: Callable[[str], Snapshot], journal: RestoreJournal, goal: str
) -> Iterator[str]:
    """Bring what belongs to a restore besides the files to the same end; what could not be had."""
    told, steps = dict(journal.notes), [staged.step for staged in journal.staged]
    if goal == TARGET:
        yield from FollowUp.read(told).catch_up(here, steps)
    elif told.get(SAFETY):
        yield from FollowUp.read(told).take_back(here, find(told[SAFETY]))


def _stands_at(phase: Phase, leads_to: str) -> str | None:
    """The end that a restore has come to; None where it is between them."""
    if phase is Phase.DONE:
        return leads_to
    if phase is Phase.UNDONE:
        return SAFETY if leads_to == TARGET else TARGET
    return None


def write_way(private: str, way: RecoveryGoal) -> None:
    """Make it durable that a way is being gone."""
    path = os.path.join(state_directory(private), WAY)
    replace_file(path, json.dumps(way._asdict()).encode("ascii"), durability=Durability.FULL)


def read_way(private: str) -> RecoveryGoal | None:
    """The way that is being gone; None where there is none, or none that can be read."""
    try:
        with open(os.path.join(private, WAY), encoding="ascii", opener=open_file_only) as file:
            told = json.load(file)
        ends = (str(told["goal"]), str(told["target"]), str(told["safety"]))
        return RecoveryGoal(*ends, told.get("links") is True, *FollowUp.read(told))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_way(private: str) -> None:
    """It came to its end."""
    if remove_if_present(os.path.join(private, WAY)):
        # Back from a power cut it would lead away from whatever was made here since.
        sync_directory(private)


# A restore from the locks to the moment that records it.
#
# What is here now is captured once: the plan is made on it, and it becomes the moment to come back to. What that takes
# is loaded while the workers look.


@dataclass(slots=True)
class RestoreRunner:
    """One working tree, and how it is brought back to a moment."""

    here: RestoreContext
    changed: Snapshot | None = None
    """Once something was changed: the moment that holds what was here."""

    def restore(self, wish: RestoreOptions, part: RestoreRole, choose: Choose) -> RestoreResult:
        """Go to a moment, chosen once it is known what is here now."""
        repository = self._stay_at_top()
        if not (wish.force or self.here.capturing.settings.named_only):
            refuse_home(repository.root, self.here.capturing.environ)
        capturing = self.here.unbounded()
        with capturing.locked(CaptureOptions(waiting=wish.waiting, dry_run=wish.dry_run)):
            capturing.refuse_unfinished_restore()
            capturing.sweep_staged()
            return self.go(capturing, wish, part, choose)

    def go(
        self,
        capturing: CapturePipeline,
        wish: RestoreOptions,
        part: RestoreRole,
        choose: Choose,
        beside: ExtraSteps | None = None,
    ) -> RestoreResult:
        """The same under locks that are held. `beside`: what belongs to it that another restore began."""
        started = time.monotonic()
        courses: list[RestoreOperation] = []

        def meanwhile(tip: str | None) -> None:

            courses.append(RestoreOperation(self.here, capturing, wish, part, choose, beside))
            courses[0].foresee(tip)

        request = CaptureOptions(progress=wish.progress, dumps=wish.dumps, dry_run=wish.dry_run)
        with capturing.capture_tree(request, meanwhile=meanwhile) as held:
            course = courses[0]
            decided = course.decide(held)
        if decided.saved is None:
            return decided.planned
        done = course.carry_out(decided.planned, decided.saved, decided.rest, self._note_change)
        return replace(done, seconds=time.monotonic() - started)

    def _stay_at_top(self) -> Repository:
        """Run git at the top of the working tree: a restore may remove the directory of this process."""
        repository = self.here.capturing.repository
        repository.git.directory = repository.root
        return repository

    def _note_change(self, saved: Snapshot) -> None:
        self.changed = saved

    def write_to(self, snapshot: Snapshot, directory: str, wish: RestoreOptions) -> RestoreResult:
        """Write a moment into a directory of its own."""
        from git_envhist.restore.clone_files import WorktreeReader  # loaded late: likewise
        from git_envhist.restore.report import unstable_path_warnings  # loaded late: --to alone
        from git_envhist.restore.untrusted import refuse_obeyed_place  # loaded late: likewise
        from git_envhist.restore.write_tree import Source, write_elsewhere  # loaded late: likewise

        own = self.here.capturing.repository
        judged = self.here.judge(snapshot)
        if not judged.trusted:
            refuse_obeyed_place(directory, own.git, own.root)
        source = Source(own.git, own.state, partial(WorktreeReader.of, own, self.here.unseal), self.here.how)
        written = write_elsewhere(judged, directory, source, wish)
        return replace(written, warnings=(*written.warnings, *unstable_path_warnings(own.git, snapshot.tree)))

    def go_on(self) -> ExecuteResult:
        """Finish a restore that was broken off, and record it."""
        from git_envhist.restore.recover import go_on  # loaded late: hardly any is broken off

        self._stay_at_top()
        return go_on(self)

    def take_back(self) -> ExecuteResult:
        """Bring back what stood here before a restore that was broken off."""
        from git_envhist.restore.recover import take_back  # loaded late: likewise

        self._stay_at_top()
        return take_back(self)


# What a restore has to know of what was here, from the moment that holds it, before anything changes.


class SafetyCapture(NamedTuple):
    """The moment to come back to, and what was seen when it was taken."""

    safety: Snapshot
    place: RestoreTarget
    known: CapturedRows
    since: KnownWrites
    differed: frozenset[bytes] | None
    """The tracked files that differed from HEAD already."""

    @classmethod
    def of(
        cls, held: CapturedTree, safety: Snapshot, place: RestoreTarget, plan: RestorePlan
    ) -> SafetyCapture:
        """While what was captured is still held."""
        return cls(
            safety,
            place,
            CapturedRows(held.taken.records),
            changed_since(held, safety.id, plan),
            differing(held),
        )


def verify_safety_capture(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> None:
    """Read back all that is about to be replaced; `Damaged`, with its paths, where any of it is not to be had."""
    with report_damage_in_safety(plan, open_contents), closing(open_contents()) as contents:
        read_again(contents, plan)


PART = "part"
SAVED_BEFORE = {RestoreRole.TO: "restore of", RestoreRole.UNDO: "undo to", RestoreRole.REDO: "redo to"}
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
        planned = replace(planned, roots=roots_changed(planned.plan, held.taken.scope.bases))
        refuse_names(planned.plan, held.taken.scope.bases)
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
        saved = SafetyCapture.of(held, safety, self.here.place(held.taken.scope), planned.plan)
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
        pairs, findings = self._inspect(target, held.taken.scope.bases)
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
        bases = held.taken.scope.bases
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
        words = f"before the {SAVED_BEFORE[self.part]} {target.id[:7]}"
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
            if not step.root and step.before is not None and step.path in (saved.differed or ())
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
