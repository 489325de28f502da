"""What a restore says: its plan, folded by directory, and what came of it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from git_envhist.checks.verdicts import answer_status
from git_envhist.cli.command import Session
from git_envhist.cli.errors import ask_for, print_error_line, warn
from git_envhist.cli.formats import FormatContext, count, effect_words, seconds
from git_envhist.cli.paths import quoted
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.views.details import verdict_line, warn_of, watching
from git_envhist.diff.compare import compare
from git_envhist.diff.facts import outside_words
from git_envhist.diff.summary import SummaryRow, describe_marks, fold_by_directory
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.git.process import Git
from git_envhist.history.times import printed_time
from git_envhist.model import (
    Change,
    ChangeSide,
    CheckResult,
    Entry,
    EntryKind,
    PlanAction,
    PlanStep,
    RestorePlan,
    RestoreResult,
    RestoreRole,
    Role,
    SkippedPath,
    Snapshot,
    VerdictStatus,
)
from git_envhist.probes import PACKAGES, kinds
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan import SkipReason
from git_envhist.text import escape

# What `--only` takes beside the names of classes: the words at the left of what `git envdiff` tells.

ALSO = {
    "db": "databases",
    "database": "databases",
    "package": "packages",
    "file": "files",
    "service": "services",
}


def class_for_option(word: str) -> str:
    """The class that a restore is to bring back. Of `packages` a word like `pip` means no more than some: their paths
    do not say who installed them, and nothing that was not asked for is brought back."""
    found = class_of_label(word)
    if found != PACKAGES or word in (PACKAGES, "package"):
        return found
    raise UsageError(
        f"what '{word}' installed is not told apart from other packages by a path",
        hint="all of them: --only=packages; one place: git envrestore <rev> -- .venv",
    )


def class_of_label(word: str) -> str:
    """`packages` of `pip`; the word itself where it is no label."""
    return kinds().get(word) or ALSO.get(word, word)


# The id of a plan: who was shown one can ask for that very one, and is refused where it would be another by now.

LENGTH = 16


class StalePlan(Refused):
    """What a restore would do is not what was shown."""

    code = "stale-plan"

    def __init__(self, shown: str, again: str = "git envrestore --dry-run --json") -> None:
        super().__init__(
            f"the plan '{shown}' is stale: what is here, or what is wanted, has changed since",
            hint=f"look at the plan again: {again}",
        )


def plan_id(planned: RestoreResult) -> str:
    """Equal for two plans that do the same to the same files, as they stand here."""
    digest = hashlib.sha256(planned.target.id.encode())
    for step in planned.plan.steps:
        told = (step.root, step.path, step.action.value, step.before, step.after, len(step.below), step.unit)
        digest.update(repr(told).encode("utf-8", "surrogateescape"))
    for directory in planned.plan.directories:
        digest.update(
            repr((directory.root, directory.path, directory.after)).encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()[:LENGTH]


def require_plan(
    shown: str | None, also: Callable[[RestoreResult], None] | None
) -> Callable[[RestoreResult], None] | None:
    """What to do with a plan before it is carried out: refuse another than the one that was shown."""
    if shown is None:
        return also

    def look(planned: RestoreResult) -> None:
        if plan_id(planned) != shown:
            raise StalePlan(shown)
        if also is not None:
            also(planned)

    return look


# What of a moment did not come back, where a part of it was wanted.
#
# That part is the newest moment then: whoever goes to `@` next would believe that all is well.


def not_restored_line(session: Session, restored: RestoreResult, *, partly: bool) -> str:
    """One line where anything beside the part is not as it was in the moment; nothing else."""
    target, now = restored.target, restored.snapshot
    if now is None and target.restore is RestoreRole.TO and target.restored_from:
        # What is here is what the restore of a part left.
        source = _find(session, target.restored_from)
        return _told(session, source, target) if source is not None else ""
    return _told(session, target, now) if partly and now is not None else ""


def _find(session: Session, name: str) -> Snapshot | None:
    try:
        return session.history.resolve(name)
    except SnapshotNotFound:
        return None


def _told(session: Session, target: Snapshot, now: Snapshot) -> str:
    if now.content == target.content:
        return ""
    differing = len(compare(session.history.repository.git, target.commit, now.commit, brief=True))
    if not differing:
        return ""
    rest = "1 path beside differs" if differing == 1 else f"{differing:,} paths beside differ"
    return f"{rest} from {target.id[:7]}; to bring all of it back: git envrestore {target.id[:7]}"


# The lines of a plan about additional roots.


def root_lines(roots: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Name each additional root in which something changes, and its directory."""
    for name, place in roots:
        yield f"  changes the additional root '{escape(name)}': {escape(place)}"


MAX_ROWS = 12
FEW_ROWS = 5
MAX_TOLD = 20
MAX_OUTSIDE = 3
Signed = Callable[[str], str]
WAY_BACK = "git envrestore --undo"
SHORTER: dict[str, str] = dict.fromkeys((SkipReason.NOT_CAPTURED, SkipReason.LEFT_OUT_THEN), "never captured")
"""What of a reason stands behind a count."""
TITLES = (
    (PlanAction.WRITE, "write"),
    (PlanAction.REPLACE, "replace"),
    (PlanAction.ADJUST, "set modes and times"),
    (PlanAction.REMOVE, "remove"),
)


def plan_lines(restored: RestoreResult, moment: str, signed: Signed) -> Iterator[str]:
    """Yield the plan in two lines, as a restore prints them before it begins; `signed`: the signs of counts."""
    yield f"  restore {moment}"
    yield "  " + counts_line(restored)
    gone = [change for change in _of_action(restored.plan, PlanAction.REMOVE) if not _is_directory(change)]
    rows = fold_by_directory(gone, FEW_ROWS)
    if rows:
        named = (f"{row.more:,} more" if row.more else _row(row, signed) for row in rows)
        yield f"  removes {', '.join(named)}"
    yield from root_lines(restored.roots)


def dry_run_lines(
    restored: RestoreResult,
    moment: str,
    signed: Signed,
    back: str | None = WAY_BACK,
    story: Iterable[str] = (),
) -> Iterator[str]:
    """The whole plan; `back`: None where it would be written elsewhere; `story`: what it changes beyond files."""
    if back is not None and _is_idle(restored):
        yield from _idle_lines(restored)
        return
    yield f"  restore {moment}"
    yield "  " + counts_line(restored)
    yield from root_lines(restored.roots)
    yield from story
    for action, title in TITLES:
        rows = _rows(restored.plan, action)
        if rows:
            yield f"{title}:"
            yield from (f"    {_row(row, signed)}" for row in rows)
    yield from _left_lines(notable_skips(restored.plan.skipped))
    yield from (f"service {escape(line)}" for line in restored.services)
    if restored.head is not None:
        yield f"then: {escape(restored.head)}"
    yield from _outside_lines(restored)
    if back is None:
        yield "nothing was written"
    else:
        yield "nothing was changed; what is here now would be saved first, and come back with: " + back


def done_lines(
    restored: RestoreResult, back: str | None = WAY_BACK, rest: str = "", *, did: str = "restored"
) -> Iterator[str]:
    """What came of it; `back` is the command that takes it back, `rest` says what of the moment did not come."""
    if restored.snapshot is None:
        yield from _idle_lines(restored, rest)
        return
    # Where all that was to be done was to remove, there is nothing to read back.
    verified = f", verified {count(restored.verified, 'path')}" if restored.verified else ""
    yield f"{did} in {seconds(restored.seconds)}{verified}"
    if rest:
        yield rest
    if not restored.plan.steps:
        yield from _left_lines(notable_skips(restored.plan.skipped))
    if restored.head is not None:
        yield escape(restored.head)
    if restored.relocated:
        yield f"relocated {count(len(restored.relocated), 'path')}"
    if restored.edits_replaced:
        yield _edits_line(restored)
    if restored.tracked_differing:
        yield _tracked_line(restored.tracked_differing, restored.tracked_differed or 0)
    if restored.services:
        yield f"services: {escape('; '.join(restored.services))}"
    yield from _outside_lines(restored)
    if back is not None:
        yield f"go back with: {back}"


def held_lines(session: Session, restored: RestoreResult, held: Sequence[str]) -> Iterator[str]:
    """Say that the snapshot holds states of services, which this restore leaves as they are now."""
    at = printed_time(restored.target.at, session.history.now)
    names = ", ".join(map(escape, held))
    yield f"services left as they are; the snapshot holds the state of {names} from {at}: add --services"
    settings = {service.name: service for service in session.history.settings.services}
    for name in held:
        if name not in settings or settings[name].restore is None:
            yield f"  to restore {escape(name)}: git config envhist.service.{escape(name)}.restore '<command>'"


def way_back(restored: RestoreResult, back: str, *, head: bool, services: bool) -> str:
    """The command that takes all of it back: `back` alone knows of files."""
    others = " --services" if services else ""
    if head:
        # An undo looks for a state of the files, which may have stood at several code commits: the moment that is
        # saved knows which. Before there is one, it is said where it will stand.
        return f"git envrestore --head{others} {restored.safety.id[:7] if restored.safety else '@~1'}"
    if restored.safety is None or restored.plan.steps or restored.plan.directories:
        return back + others
    return f"git envrestore{others} {restored.safety.id[:7]}"


def head_lines(restored: RestoreResult, git: Git, *, dry_run: bool) -> Iterator[str]:
    """Yield a line if HEAD is not the code commit of the snapshot that an undo returned to."""
    there = restored.target.head
    here = git.ask("rev-parse", "--verify", "--quiet", "HEAD") if there else None
    if there is None or here is None or here.status != 0 or here.out.strip().decode("ascii") == there:
        return
    verb = "would not be" if dry_run else "was not"
    command = f"git envrestore --head {restored.target.id[:7]}"
    yield f"HEAD {verb} moved; it was at {there[:7]} then: {command}"


def _outside_lines(restored: RestoreResult) -> Iterator[str]:
    """What is not as it was, and no restore's to change: packages of the machine, programs that go on."""
    used = [change for change in restored.outside if change.role is Role.DIRECT]
    told = [escape(outside_words(change)) for change in used[:MAX_OUTSIDE]]
    if len(used) > MAX_OUTSIDE:
        told.append(f"{len(used) - MAX_OUTSIDE:,} more packages and services")
    unused = len(restored.outside) - len(used)
    if unused:
        told.append(f"{count(unused, 'package')} of the machine that nothing here names")
    told += [f"{escape(process)} still runs the old code" for process in restored.running[:MAX_TOLD]]
    if len(restored.running) > MAX_TOLD:
        told.append(f"and {len(restored.running) - MAX_TOLD:,} more")
    if told:
        yield "not restored: " + "; ".join(told)
    # The newest first, and the list is cut: what cannot be undone at all is told in any case.
    effects = sorted(restored.effects, key=lambda effect: (effect.irreversible, effect.mark), reverse=True)
    for effect in effects[:MAX_TOLD]:
        yield f"not undone: {escape(effect_words(effect))}"
    if len(effects) > MAX_TOLD:
        yield f"not undone: {len(effects) - MAX_TOLD:,} more effects outside the machine"


def _staying(number: int) -> str:
    return "1 path that stays as it is" if number == 1 else f"{number:,} paths that stay as they are"


def _is_idle(restored: RestoreResult) -> bool:
    return not (restored.plan.steps or restored.plan.directories or restored.services or restored.head)


def _idle_lines(restored: RestoreResult, rest: str = "") -> Iterator[str]:
    left = notable_skips(restored.plan.skipped)
    if left:
        yield "nothing to restore: what differs stays as it is"
        yield from _left_lines(left)
    elif rest:
        yield "nothing to restore: all is as the restore of a part has left it"
    else:
        yield "nothing to restore: the environment is as it was then"
        yield from _goal_lines(restored.target)
    if rest:
        yield rest
    yield from _outside_lines(restored)


def _goal_lines(target: Snapshot) -> Iterator[str]:
    """Who goes to what was saved before a restore that did not come about may mean where that one was to go."""
    from git_envhist.history.titles import restored_snapshot_id  # loaded late: few go where they are

    meant = restored_snapshot_id(target) if target.restore is RestoreRole.BEFORE else None
    if meant is not None:
        yield f"it was saved before a restore of {meant[:7]}; to that: git envrestore {meant[:7]}"


def _tracked_line(now: int, before: int) -> str:
    """`5 tracked files now differ from HEAD (to keep your code: --keep-tracked)`; counts files that differed before."""
    told = count(now, "tracked file")
    if before == now:
        return f"{told} {'differs' if now == 1 else 'differ'} from HEAD, as before"
    did = f"{before:,} did before; " if before else ""
    return (
        f"{told} now {'differs' if now == 1 else 'differ'} from HEAD ({did}to keep your code: --keep-tracked)"
    )


def _edits_line(restored: RestoreResult) -> str:
    """`uncommitted changes of app.py were replaced: they are in 906b11a (to keep your code: --keep-tracked)`."""
    paths = [escape(quoted(path, quote_all=False)) for path in restored.edits_replaced[:FEW_ROWS]]
    more = len(restored.edits_replaced) - len(paths)
    named = ", ".join(paths) + (f" and {more:,} more" if more else "")
    where = restored.safety.id[:7] if restored.safety is not None else "@~1"
    return f"uncommitted changes of {named} were replaced: they are in {where} (to keep your code: --keep-tracked)"


def since_restore_line(restored: RestoreResult, steps: int, *, dry_run: bool) -> str:
    """Whoever wants a restore back, and has changed something since, is one step short of it."""
    target = (restored.target.restored_from or restored.target.id)[:7]
    if dry_run:
        return f"this leads to where the restore of {target} had led; before it: git envrestore --undo {steps + 1}"
    return f"this is where the restore of {target} had led; to take that back, too: git envrestore --undo"


def saved_line(safety: Snapshot) -> str:
    told = f"saved what was here as {safety.id[:7]}"
    return told if safety.complete else f"{told}, but for {_staying(safety.missing_count)}"


def moment_words(snapshot: Snapshot, verdict: str, look: FormatContext) -> str:
    """`9ac31f2 "working version" (✓ npm test, 10:27)`, `5d0c1aa "restored 'working version'" (10:31)`."""
    time, words = look.time(snapshot), look.words(snapshot)
    if snapshot.restore is not None:
        # These words hold others' in quotes.
        words = words.replace('"', "'")
    told = f"{verdict}, {time}" if verdict else time
    if not snapshot.complete:
        # What it never held comes back from nowhere, and nothing else in a plan would say so.
        told += f", partial: {count(snapshot.missing_count, 'path')} missing"
    return f'{snapshot.id[:7]} "{words}" ({told})'


def counts_line(restored: RestoreResult) -> str:
    """`write 3 · remove 1,187 · replace 11 · unchanged 94,102 · left alone 2 (never captured)`."""
    counts = restored.plan.counts
    named = (
        ("write", PlanAction.WRITE),
        ("remove", PlanAction.REMOVE),
        ("replace", PlanAction.REPLACE),
        ("adjust", PlanAction.ADJUST),
    )
    words = [f"{word} {counts[action]:,}" for word, action in named if counts[action]]
    # Directories are counted where they go, but are no files of which some are unchanged.
    touched = sum(
        step.before is not None and step.before.kind is not EntryKind.DIRECTORY
        for step in restored.plan.steps
    )
    words.append(f"unchanged {max(0, restored.files - touched):,}")
    left = notable_skips(restored.plan.skipped)
    if left:
        reasons = sorted({SHORTER.get(item.why.partition(" (")[0], item.why) for item in left})
        words.append(f"left alone {len(left):,} ({'; '.join(map(escape, reasons[:2]))})")
    return " · ".join(words)


def notable_skips(left: tuple[SkippedPath, ...]) -> tuple[SkippedPath, ...]:
    """What is left alone and worth a word: not what nobody asked for."""
    return tuple(item for item in left if item.why)


def problems(restored: RestoreResult) -> Iterator[str]:
    """What is not as it was, a line each."""
    yield from (f"kept as it is: '{_shown(item)}': {item.why}" for item in restored.kept[:MAX_TOLD])
    yield from (f"not as it was: '{_shown(item)}': {item.why}" for item in restored.losses[:MAX_TOLD])
    more = sum(max(0, len(items) - MAX_TOLD) for items in (restored.kept, restored.losses))
    if more:
        yield f"and {more:,} more; --json lists them all"


def _left_lines(left: tuple[SkippedPath, ...]) -> Iterator[str]:
    if left:
        yield "left alone:"
        yield from (f"    {escape(_shown(item))}: {escape(item.why)}" for item in left[:MAX_TOLD])
        if len(left) > MAX_TOLD:
            yield f"    and {len(left) - MAX_TOLD:,} more"


def _shown(item: SkippedPath) -> str:
    return item.path.decode("utf-8", "surrogateescape") or "."


def _rows(plan: RestorePlan, action: PlanAction) -> tuple[SummaryRow, ...]:
    return fold_by_directory(_of_action(plan, action), MAX_ROWS)


def _of_action(plan: RestorePlan, action: PlanAction) -> list[Change]:
    return [change for step in plan.steps if step.action is action for change in _changes(step)]


def _is_directory(change: Change) -> bool:
    return change.before is not None and change.before.kind is EntryKind.DIRECTORY


def _row(row: SummaryRow, signed: Signed) -> str:
    path = escape(quoted(row.path, quote_all=False)) or "."
    if row.more:
        return f"{path} and {row.more} more: {signed(describe_marks(row.count))}"
    return path if row.change is not None else f"{path} {signed(describe_marks(row.count))}"


def _changes(step: PlanStep) -> Iterator[Change]:
    yield Change(_side(step, step.before), _side(step, step.after))
    for entry in step.below:
        yield Change(None, _side(step, entry))


def _side(step: PlanStep, entry: Entry | None) -> ChangeSide | None:
    if entry is None:
        return None
    path = step.shown if entry in (step.before, step.after) else entry.path
    return ChangeSide(path, entry.kind, entry.mode, entry.oid, entry.stored)


# The check after a restore: what the moment was judged by is run on what came of it, and undo is offered.

YES = ("y", "yes")


def check(session: Session, restored: RestoreResult, command: str) -> CheckResult:
    """Run it; whatever it says of itself goes to standard error."""
    return session.history.checks.after_restore(restored, command, watching(session))


def tell_check(session: Session, checked: CheckResult, restored: RestoreResult, status: int) -> int:
    """Say what it came to, offer the way back where it did not pass; the status to end with."""
    for warning in checked.warnings:
        warn(warning)
    if checked.verdict.status is VerdictStatus.PASS:
        if not session.json:
            session.line(verdict_line(checked.verdict))
        return status
    warn_of(checked.verdict)
    if restored.safety is None:
        return answer_status(checked.verdict)
    if not session.json and _is_wanted(session):
        with shown_progress("reading what is here") as progress:
            undone = session.history.restorer.undo(1, RestoreOptions(progress=progress))
        session.line(f"taken back: the environment is as it was, {undone.target.id[:7]}")
    else:
        print_error_line(f"hint: take it back: {WAY_BACK}")
    return answer_status(checked.verdict)


def _is_wanted(session: Session) -> bool:
    """Whether somebody who was asked says yes."""
    if not (os.isatty(0) and os.isatty(2)):
        return False
    session.output.flush()
    ask_for("take the restore back? [y/N] ")
    return sys.stdin.readline().strip().lower() in YES
