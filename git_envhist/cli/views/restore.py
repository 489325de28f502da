"""The texts of a restore: its plan, grouped by directory, its result, and the check after it.

`plan_lines` and `dry_run_lines` print a plan, `done_lines` the result with the command that reverses it. `plan_id` is
the id that `--plan` compares.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from git_envhist.checks.verdicts import answer_status
from git_envhist.cli.command import Session
from git_envhist.cli.errors import ask_for, print_error_line, warn
from git_envhist.cli.formats import FormatContext, count, effect_words
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.quote_path import quoted
from git_envhist.cli.views.details import make_check_listener, verdict_line, warn_of_verdict
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.facts import outside_words
from git_envhist.diff.summary import SummaryRow, describe_marks, fold_by_directory
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.git.process import Git
from git_envhist.history.times import printed_time
from git_envhist.lazy import replace
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
from git_envhist.printable_text import escape, format_duration
from git_envhist.probes import PACKAGES, kinds
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan_steps import SkipReason

# The words that `--only` accepts besides the names of classes: the labels of `git envdiff`.

ALSO = {
    "db": "databases",
    "database": "databases",
    "package": "packages",
    "file": "files",
    "service": "services",
}


def class_for_option(word: str) -> str:
    """Return the class to restore; raise UsageError for a single installer such as `pip`.

    Paths do not show who installed a package, and nothing is restored that was not asked for.
    """
    found = class_of_label(word)
    if found != PACKAGES or word in (PACKAGES, "package"):
        return found
    raise UsageError(
        f"cannot restore the packages of '{word}' alone",
        hint="all packages: --only=packages; one directory: git envrestore <rev> -- .venv",
    )


def class_of_label(word: str) -> str:
    """Return `packages` for `pip`; the word itself if it is no label."""
    return kinds().get(word) or ALSO.get(word, word)


# The id of a plan: a restore with `--plan` is refused if its plan has another id.

LENGTH = 16


class StalePlan(Refused):
    """The plan of a restore has changed since it was printed."""

    code = "stale-plan"

    def __init__(self, shown: str, again: str = "git envrestore --dry-run --json") -> None:
        super().__init__(
            f"the plan '{shown}' is stale: the files or the options have changed",
            hint=f"print the new plan: {again}",
        )


def plan_id(planned: RestoreResult) -> str:
    """Return an id that is equal for plans that do the same to the same files."""
    digest = hashlib.sha256(planned.target.id.encode())
    has_own_times = bool(planned.reverted or planned.merged)
    for step in planned.plan.steps:
        after = step.after
        if after is not None and has_own_times:
            # A merged file gets the time at which it is written.
            after = replace(after, mtime_ns=0)
        step_key = (
            step.root,
            step.path,
            step.action.value,
            step.before,
            after,
            len(step.below),
            step.unit,
        )
        digest.update(repr(step_key).encode("utf-8", "surrogateescape"))
    for directory in planned.plan.directories:
        digest.update(
            repr((directory.root, directory.path, directory.after)).encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()[:LENGTH]


def require_plan(
    shown: str | None,
    also: Callable[[RestoreResult], None] | None,
    again: str = "git envrestore --dry-run --json",
) -> Callable[[RestoreResult], None] | None:
    """Return the callback that refuses any other plan than the given one; `again` is the command that makes it."""
    if shown is None:
        return also

    def context(planned: RestoreResult) -> None:
        if plan_id(planned) != shown:
            raise StalePlan(shown, again)
        if also is not None:
            also(planned)

    return context


# After a restore of paths: how many other paths differ. The newest snapshot contains only this part, and `@` would
# not restore the rest.


def not_restored_line(session: Session, restored: RestoreResult, *, partly: bool) -> str:
    """Return a line if other paths differ from the snapshot after a restore of paths, else an empty text."""
    target, now = restored.target, restored.snapshot
    if now is None and target.restore is RestoreRole.TO and target.restored_from:
        # Nothing changed since an earlier restore of some paths, so compare what that one restored from.
        source = _find(session, target.restored_from)
        return _difference_line(session, source, target) if source is not None else ""
    return _difference_line(session, target, now) if partly and now is not None else ""


def _find(session: Session, name: str) -> Snapshot | None:
    try:
        return session.history.resolve(name)
    except SnapshotNotFound:
        return None


def _difference_line(session: Session, target: Snapshot, now: Snapshot) -> str:
    if now.content == target.content:
        return ""
    differing = len(compare(session.history.repository.git, target.commit, now.commit, brief=True))
    if not differing:
        return ""
    rest = "1 other path differs" if differing == 1 else f"{differing:,} other paths differ"
    return f"{rest} from {target.id[:7]}; to restore all: git envrestore {target.id[:7]}"


# Lines about additional roots.


def root_lines(roots: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each additional root in which something changes, with its directory."""
    for name, place in roots:
        yield f"  changes the additional root '{escape(name)}': {escape(place)}"


MAX_ROWS = 12
FEW_ROWS = 5
MAX_LISTED = 20
MAX_OUTSIDE = 3
Signed = Callable[[str], str]
UNDO = "git envrestore --undo"
SHORT_REASONS: dict[str, str] = dict.fromkeys(
    (SkipReason.NOT_CAPTURED, SkipReason.LEFT_OUT_THEN), "not captured"
)
"""Short forms of reasons, printed after a count."""
TITLES = (
    (PlanAction.WRITE, "write"),
    (PlanAction.REPLACE, "replace"),
    (PlanAction.ADJUST, "set modes and times"),
    (PlanAction.REMOVE, "remove"),
)


def plan_lines(restored: RestoreResult, description: str, signed: Signed) -> Iterator[str]:
    """Yield the short plan that is printed before a restore; `signed` writes the signs of counts."""
    yield f"  restore {description}"
    yield "  " + counts_line(restored)
    gone = [change for change in _of_action(restored.plan, PlanAction.REMOVE) if not _is_directory(change)]
    rows = fold_by_directory(gone, FEW_ROWS)
    if rows:
        named = (f"{row.more:,} more" if row.more else _row(row, signed) for row in rows)
        yield f"  removes {', '.join(named)}"
    yield from root_lines(restored.roots)


def dry_run_lines(
    restored: RestoreResult,
    description: str,
    signed: Signed,
    back: str | None = UNDO,
    story: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the whole plan; `back` is None for a restore elsewhere, `story` are the changed facts."""
    if back is not None and _is_idle(restored):
        yield from _idle_lines(restored)
        return
    yield f"  restore {description}"
    yield "  " + counts_line(restored)
    yield from root_lines(restored.roots)
    yield from story
    yield from step_lines(restored.plan, signed)
    yield from skipped_lines(restored)
    yield from (f"service {escape(line)}" for line in restored.services)
    if restored.head is not None:
        yield f"then: {escape(restored.head)}"
    yield from _outside_lines(restored)
    if back is None:
        yield "nothing was written"
    else:
        yield f"nothing was changed; your files would be saved first; {_return_words(back)}"


def step_lines(plan: RestorePlan, signed: Signed) -> Iterator[str]:
    """Yield the paths of a plan, by what is done with them."""
    for action, title in TITLES:
        rows = _rows(plan, action)
        if rows:
            yield f"{title}:"
            yield from (f"    {_row(row, signed)}" for row in rows)


def skipped_lines(restored: RestoreResult) -> Iterator[str]:
    """Yield the paths that are not changed, with the reason."""
    yield from _left_lines(notable_skips(restored.plan.skipped))


def done_lines(
    restored: RestoreResult, back: str | None = UNDO, rest: str = "", *, did: str = "restored"
) -> Iterator[str]:
    """Yield the result; `back` is the command that reverses it, `rest` the line about other paths."""
    if restored.snapshot is None:
        yield from _idle_lines(restored, rest)
        return
    # A restore that only removed files has nothing to verify.
    verified = f", verified {count(restored.verified, 'path')}" if restored.verified else ""
    yield f"{did} in {format_duration(restored.seconds)}{verified}"
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
        yield _tracked_line(restored, restored.tracked_differing, restored.tracked_differed or 0)
    if restored.services:
        yield f"services: {escape('; '.join(restored.services))}"
    yield from _outside_lines(restored)
    if back is not None:
        yield _return_words(back)


def _return_words(back: str) -> str:
    """Return the label and the command that reverses a restore: `to undo: git envrestore --undo`."""
    return f"to {'redo' if '--redo' in back else 'undo'}: {back}"


def unrestored_service_lines(
    session: Session, restored: RestoreResult, services: Sequence[str]
) -> Iterator[str]:
    """Yield which states of services the snapshot contains and the restore does not change."""
    at = printed_time(restored.target.at, session.history.now)
    names = ", ".join(map(escape, services))
    yield f"services neither compared nor restored: {names}; to restore their state from {at}, add --services"
    settings = {service.name: service for service in session.history.settings.services}
    for name in services:
        if name not in settings or settings[name].restore is None:
            yield (
                f"  to restore {escape(name)}, first set: "
                f"git config envhist.service.{escape(name)}.restore '<command>'"
            )


def undo_command(restored: RestoreResult, back: str, *, head: bool, services: bool) -> str:
    """Return the command that reverses the restore; `back` alone restores only files."""
    others = " --services" if services else ""
    if head:
        # An undo chooses a state of the files, which may exist at several code commits, so the saved snapshot is
        # named. In a dry run it does not exist yet and will be `@~1`.
        return f"git envrestore --head{others} {restored.safety.id[:7] if restored.safety else '@~1'}"
    is_without_files = not (restored.plan.steps or restored.plan.directories)
    if is_without_files and (services or restored.safety is not None):
        # Undo searches for a state with different files. This restore changed none, so undo would pass over it.
        return f"git envrestore{others} {restored.safety.id[:7] if restored.safety else '@~1'}"
    return back + others


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
    """Yield differences that no restore changes: packages of the machine, running programs, effects."""
    used = [change for change in restored.outside if change.role is Role.DIRECT]
    parts = [escape(outside_words(change)) for change in used[:MAX_OUTSIDE]]
    if len(used) > MAX_OUTSIDE:
        parts.append(f"{len(used) - MAX_OUTSIDE:,} more packages and services")
    unused = len(restored.outside) - len(used)
    if unused:
        parts.append(f"{count(unused, 'package')} of this machine that your project does not name")
    parts += [f"{escape(process)} still runs the old files" for process in restored.running[:MAX_LISTED]]
    if len(restored.running) > MAX_LISTED:
        parts.append(f"and {len(restored.running) - MAX_LISTED:,} more")
    if parts:
        yield "not restored: " + "; ".join(parts)
    # The list is cut, so irreversible effects come first, then the newest.
    effects = sorted(restored.effects, key=lambda effect: (effect.irreversible, effect.mark), reverse=True)
    for effect in effects[:MAX_LISTED]:
        yield f"outside this machine, not undone: {escape(effect_words(effect))}"
    if len(effects) > MAX_LISTED:
        yield f"outside this machine, not undone: {len(effects) - MAX_LISTED:,} more effects"


def _staying(number: int) -> str:
    return "1 path that is not in it" if number == 1 else f"{number:,} paths that are not in it"


def _is_idle(restored: RestoreResult) -> bool:
    return not (restored.plan.steps or restored.plan.directories or restored.services or restored.head)


def _idle_lines(restored: RestoreResult, rest: str = "") -> Iterator[str]:
    left = notable_skips(restored.plan.skipped)
    if left:
        yield "nothing to restore: the paths that differ are skipped"
        yield from _left_lines(left)
    elif rest:
        yield "nothing to restore: nothing changed since the last restore of paths"
    else:
        yield "nothing to restore: all files are as in this snapshot"
        yield from _failed_restore_lines(restored.target)
    if rest:
        yield rest
    yield from _outside_lines(restored)


def _failed_restore_lines(target: Snapshot) -> Iterator[str]:
    """Yield a hint for a snapshot saved before a failed restore: the user may mean the target of that restore."""
    from git_envhist.history.titles import restored_snapshot_id  # loaded late: seldom needed

    meant = restored_snapshot_id(target) if target.restore is RestoreRole.BEFORE else None
    if meant is not None:
        yield f"it was saved before a restore of {meant[:7]}; to restore that: git envrestore {meant[:7]}"


def _how_to_keep_code(restored: RestoreResult) -> str:
    # A revert has no such option.
    return "" if restored.reverted or restored.merged else "to keep your code: --keep-tracked"


def _tracked_line(restored: RestoreResult, now: int, before: int) -> str:
    """Return `5 tracked files now differ from HEAD (3 did before; to keep your code: --keep-tracked)`."""
    files = count(now, "tracked file")
    if before == now:
        return f"{files} {'differs' if now == 1 else 'differ'} from HEAD, as before"
    remarks = [f"{before:,} did before" if before else "", _how_to_keep_code(restored)]
    remark = "; ".join(filter(None, remarks))
    return f"{files} now {'differs' if now == 1 else 'differ'} from HEAD" + (f" ({remark})" if remark else "")


def _edits_line(restored: RestoreResult) -> str:
    """Return `uncommitted changes of app.py were replaced; they are saved in 906b11a (to keep ...)`."""
    paths = [escape(quoted(path, quote_all=False)) for path in restored.edits_replaced[:FEW_ROWS]]
    more = len(restored.edits_replaced) - len(paths)
    named = ", ".join(paths) + (f" and {more:,} more" if more else "")
    where = restored.safety.id[:7] if restored.safety is not None else "@~1"
    how = _how_to_keep_code(restored)
    return f"uncommitted changes of {named} were replaced; they are saved in {where}" + (
        f" ({how})" if how else ""
    )


def later_changes_line(restored: RestoreResult, steps: int, *, dry_run: bool) -> str:
    """Return a line about undoing the restore too, if this undo only undid changes after it."""
    target = (restored.target.restored_from or restored.target.id)[:7]
    if dry_run:
        return (
            f"this goes back to the state after the restore of {target}; "
            f"to undo that restore too: git envrestore --undo {steps + 1}"
        )
    return f"this is the state after the restore of {target}; to undo that restore too: git envrestore --undo"


def saved_line(safety: Snapshot) -> str:
    text = f"saved your files as {safety.id[:7]}"
    return text if safety.complete else f"{text}, but for {_staying(safety.missing_count)}"


def describe_snapshot(snapshot: Snapshot, verdict: str, context: FormatContext) -> str:
    """Return `9ac31f2 "working version" (✓ npm test, 10:27)`."""
    time, words = context.time(snapshot), context.words(snapshot)
    if snapshot.restore is not None:
        # The title contains another intent in quotes.
        words = words.replace('"', "'")
    remark = f"{verdict}, {time}" if verdict else time
    if not snapshot.complete:
        # Missing paths cannot be restored, and nothing else in a plan shows them.
        remark += f", partial: {count(snapshot.missing_count, 'path')} missing"
    return f'{snapshot.id[:7]} "{words}" ({remark})'


def counts_line(restored: RestoreResult) -> str:
    """Return `write 3 · remove 1,187 · replace 11 · unchanged 94,102 · skipped 2 (not captured)`."""
    counts = restored.plan.counts
    named = (
        ("write", PlanAction.WRITE),
        ("remove", PlanAction.REMOVE),
        ("replace", PlanAction.REPLACE),
        ("set modes or times", PlanAction.ADJUST),
    )
    words = [f"{word} {counts[action]:,}" for word, action in named if counts[action]]
    # Removed directories are counted, but files only make up the number of unchanged ones.
    touched = sum(
        step.before is not None and step.before.kind is not EntryKind.DIRECTORY
        for step in restored.plan.steps
    )
    words.append(f"unchanged {max(0, restored.files - touched):,}")
    left = notable_skips(restored.plan.skipped)
    if left:
        reasons = sorted({SHORT_REASONS.get(item.why.partition(" (")[0], item.why) for item in left})
        words.append(f"skipped {len(left):,} ({'; '.join(map(escape, reasons[:2]))})")
    return " · ".join(words)


def notable_skips(left: tuple[SkippedPath, ...]) -> tuple[SkippedPath, ...]:
    """Return the skipped paths that have a reason; the others were not selected."""
    return tuple(item for item in left if item.why)


def problems(restored: RestoreResult) -> Iterator[str]:
    """Yield a line for each path that is not exactly restored."""
    yield from (f"not changed: '{_shown(item)}': {item.why}" for item in restored.kept[:MAX_LISTED])
    yield from (
        f"not restored exactly: '{_shown(item)}': {item.why}" for item in restored.losses[:MAX_LISTED]
    )
    more = sum(max(0, len(items) - MAX_LISTED) for items in (restored.kept, restored.losses))
    if more:
        yield f"and {more:,} more; --json lists them all"


def _left_lines(left: tuple[SkippedPath, ...]) -> Iterator[str]:
    if left:
        yield "skipped:"
        yield from (f"    {escape(_shown(item))}: {escape(item.why)}" for item in left[:MAX_LISTED])
        if len(left) > MAX_LISTED:
            yield f"    and {len(left) - MAX_LISTED:,} more"


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


# The check after a restore.

YES = ("y", "yes")


def check_restored(session: Session, restored: RestoreResult, command: str) -> CheckResult:
    """Run the check; its output goes to standard error."""
    return session.history.checks.after_restore(restored, command, make_check_listener(session))


def print_check(session: Session, checked: CheckResult, restored: RestoreResult, status: int) -> int:
    """Print the result, offer an undo if the check did not pass, and return the exit status."""
    for warning in checked.warnings:
        warn(warning)
    if checked.verdict.status is VerdictStatus.PASS:
        if not session.json:
            session.line(verdict_line(checked.verdict))
        return status
    warn_of_verdict(checked.verdict)
    if restored.safety is None:
        return answer_status(checked.verdict)
    if not session.json and _is_wanted(session):
        with shown_progress("reading your files") as progress:
            undone = session.history.restorer.undo(1, RestoreOptions(progress=progress))
        session.line(f"undone: all files are as in {undone.target.id[:7]}")
    else:
        print_error_line(f"hint: to undo: {UNDO}")
    return answer_status(checked.verdict)


def _is_wanted(session: Session) -> bool:
    """Return whether the user confirms the undo."""
    if not (os.isatty(0) and os.isatty(2)):
        return False
    session.output.flush()
    ask_for("undo the restore? [y/N] ")
    return sys.stdin.readline().strip().lower() in YES
