"""From two snapshots and what was asked for to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

from git_envhist.capturing.survey import CaptureScope
from git_envhist.capturing.taken import CapturedEnvironment
from git_envhist.errors import EnvhistError
from git_envhist.history.classes import class_of
from git_envhist.model import TOP, DirectoryPair, EntryKind, EnvPath, RestorePlan, SkippedPath, shown_path
from git_envhist.restore.plan import PlanRules, make_plan
from git_envhist.restoring.foreign import Findings
from git_envhist.restoring.pointers import SkippedSubmodule, SubmodulePointers, skip_submodules
from git_envhist.restoring.resealed import as_sealed_then
from git_envhist.restoring.scope import (
    HOLDS_LEFT_OUT,
    IMMUTABLE,
    CapturedExtent,
    Scope,
    extent_of,
    holding_left_out,
    holding_mounts,
)
from git_envhist.restoring.sincetip import pairs_from_scan
from git_envhist.restoring.unreadattributes import keeping_unread
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.store.contents import ObjectReader
from git_envhist.store.git import Git
from git_envhist.store.layout import RESERVED
from git_envhist.store.listings import ROOT_MARK
from git_envhist.store.manifest import BUDGET
from git_envhist.store.names import true_path
from git_envhist.store.objects import CatFile
from git_envhist.store.pairs import compare_directories, differing_directories, same_environment
from git_envhist.store.pathspecs import matching, patterns_of
from git_envhist.trace import step
from git_envhist.values import replace


class NoSuchPath(EnvhistError):
    """A pathspec that nothing matches, neither now nor then."""

    exit_code = 4
    code = "no-such-path"

    def __init__(self, pathspecs: Sequence[bytes]) -> None:
        shown = " ".join(os.fsdecode(spec).rpartition(")")[2] or "." for spec in pathspecs)
        super().__init__(
            f"nothing matches '{shown}', neither now nor then",
            hint="'git envdiff <rev>' tells what differs",
        )


ROOTS_UNASKED = "an additional root: only --roots changes it"


class PredictedPlan:
    """What a plan starts from where nothing was changed since the newest snapshot: found out before that is known."""

    def __init__(self) -> None:
        self._tip = self._after = b""
        self._pairs: list[DirectoryPair] | None = None

    def make(self, contents: ObjectReader, tip: str | None, after: str) -> None:
        """Compare the newest snapshot with a tree."""
        self._tip, self._after = bytes.fromhex(tip or ""), bytes.fromhex(after)
        # What cannot be read is told when it is known to be needed.
        with closing(contents), suppress(EnvhistError):
            self._pairs = list(differing_directories(contents, self._tip, self._after)) if tip else None

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """The pairs of two trees; read now, where the guess was wrong. `taken`: how what is here was found."""
        if self._pairs is not None and self._after == after:
            if taken is not None and taken.base is not None and bytes.fromhex(taken.base) == self._tip:
                known = pairs_from_scan(
                    self._pairs, taken.merged, partial(compare_directories, contents, self._tip, after)
                )
                if known is not None:
                    return known
            if same_environment(contents, self._tip, before):
                return self._pairs
        return list(differing_directories(contents, before, after))


class Planner:
    """Plans a way from one tree to another."""

    def __init__(
        self, git: Git, contents: ObjectReader, taken: CapturedEnvironment, guess: PredictedPlan
    ) -> None:
        self._git = git
        self._contents = contents
        self._survey = survey = taken.survey
        self._now = CapturedExtent.of(survey.ignore, survey.exclude, taken.out_of_reach)
        self._guess = guess
        self._taken = taken
        self.spared: dict[EnvPath, SkippedSubmodule] = {}
        """The `.git` files of submodules that the plan does not bring."""
        self.unreached: tuple[SkippedPath, ...] = ()
        """What cannot come to where it was, for what stands there and is no part of the environment."""

    @step("the plan is made")
    def plan(
        self, before: str, after: str, wish: RestoreOptions, findings: Findings | None = None
    ) -> RestorePlan:
        """What leads from the tree of what is here now to that of a moment; `findings`: no key of ours signed it."""
        with closing(self._contents) as contents:
            pairs = self._guess.pairs(contents, bytes.fromhex(before), bytes.fromhex(after), self._taken)
            pairs = as_sealed_then(pairs, contents)
            self.spared = SubmodulePointers(self._git.git_dir, self._survey.bases, contents).left_alone(pairs)
        with CatFile(self._git, largest=BUDGET.size) as reader:
            then = extent_of(reader, after)
        pairs = keeping_unread(pairs, then.unread)
        chosen = chosen_paths(self._git, pairs, wish, (before, after))
        scope = Scope(
            then,
            self._now,
            roots=self._survey.bases,
            chosen=chosen,
            code=tracked(self._git) if wish.keep_code else (),
        )
        rules = PlanRules(scope.keep_standing, wish.keep_new, self._what_holds(pairs))
        rules = skip_submodules(rules, self.spared)
        if findings is None:
            plan = make_plan(pairs, rules)
        else:
            mine = pairs if wish.roots else [pair for pair in pairs if not pair.realm]
            plan = make_plan(map(findings.sanitised, mine), findings.rules(rules))
            others = sorted({pair.realm for pair in pairs}.difference(pair.realm for pair in mine))
            left = tuple(SkippedPath(EnvPath(realm + ROOT_MARK), ROOTS_UNASKED) for realm in others)
            plan = replace(plan, left_alone=(*plan.left_alone, *left))
        self.unreached = tuple(_unreached(plan, pairs))
        return plan if chosen is None or plan.steps else _without_ways(plan, frozenset(chosen))

    def _what_holds(self, pairs: Sequence[DirectoryPair]) -> Callable[[EnvPath], str | None]:
        """Why a directory cannot go, for something in it that no moment holds."""
        mounts = holding_mounts(self._taken.out_of_reach)
        if self._now.ignored is None:
            return mounts
        captured = {
            shown_path(pair.realm, pair.path): pair.before.entries
            for pair in pairs
            if pair.before is not None
        }
        left_out = holding_left_out(self._now, self._survey.bases, captured)
        return lambda path: mounts(path) or left_out(path)


def _unreached(plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
    """What the moment holds at the place of a directory that stays for what is in it: that is not as it was."""
    held = {left.path: left for left in plan.left_alone if left.why == HOLDS_LEFT_OUT}
    for pair in pairs if held else ():
        for entry in pair.after.entries.values() if pair.after is not None else ():
            left = held.get(shown_path(pair.realm, entry.path))
            if left is not None and entry.kind is not EntryKind.DIRECTORY:
                yield left


def _without_ways(plan: RestorePlan, chosen: frozenset[bytes]) -> RestorePlan:
    """Where none of what was chosen changes, nothing is done to the directories that it lies in."""
    own = (one for one in plan.directories if shown_path(one.realm, one.path) in chosen)
    return replace(plan, directories=tuple(own))


def chosen_paths(
    git: Git, pairs: Sequence[DirectoryPair], wish: RestoreOptions, trees: Sequence[str]
) -> Collection[bytes] | None:
    """The paths that were asked for, of those that differ; None: all. `NoSuchPath` where no tree has any such."""
    if not wish.pathspecs and wish.classes is None:
        return None
    paths = dict(_paths(pairs))
    tops = {shown_path(pair.realm, TOP) for pair in pairs if pair.path == TOP}
    chosen: Collection[bytes] = {*paths, *tops}
    if wish.pathspecs:
        directories = [path for path, is_directory in paths.items() if is_directory]
        # No pattern matches a top, which git has no path for: only its name means it, and what means everything.
        named = tops.intersection(patterns_of(wish.pathspecs))
        if TOP in patterns_of(wish.pathspecs):
            named = tops
        chosen = {*matching(git, paths, directories, wish.pathspecs), *named}
        if not chosen:
            _refuse_unmatched(git, trees, wish.pathspecs)
    return [path for path in chosen if wish.classes is None or class_of(path) in wish.classes]


def _refuse_unmatched(git: Git, trees: Sequence[str], pathspecs: Sequence[bytes]) -> None:
    """Where nothing differs there is nothing to do; a path that neither moment has is a slip of the pen."""
    known: set[bytes] = set()
    directories: set[bytes] = set()
    for tree in trees:
        listed = git.run("ls-tree", "-r", "-t", "-z", "--full-tree", tree).split(b"\0")[:-1]
        for line in listed:
            head, _, stored = line.partition(b"\t")
            if stored.partition(b"/")[0] != RESERVED:
                path = true_path(stored)
                known.add(path)
                if head.startswith(b"040000"):
                    directories.add(path)
    if matching(git, known, directories, pathspecs):
        return
    from git_envhist.restoring.manifested import manifested_paths  # loaded late: only a rare path needs it

    paths = dict(one for tree in trees for one in manifested_paths(git, tree))
    if not matching(git, paths, [path for path, is_directory in paths.items() if is_directory], pathspecs):
        raise NoSuchPath(pathspecs)


def closed_paths(plan: RestorePlan) -> tuple[SkippedPath, ...]:
    """What would be changed and cannot be: that is not as it was."""
    return tuple(item for item in plan.left_alone if item.why == IMMUTABLE)


def roots_changed(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the additional roots in which a plan changes something, each with its directory."""
    realms = {step.realm for step in plan.steps} | {own.realm for own in plan.directories}
    return tuple((os.fsdecode(realm), os.fsdecode(bases[realm])) for realm in sorted(realms) if realm)


def tracked(git: Git) -> frozenset[bytes]:
    """The paths that HEAD tracks."""
    listed = git.ask("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
    return frozenset(listed.out.split(b"\0")[:-1]) if listed.status == 0 else frozenset()


def _paths(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, bool]]:
    """Every path that may differ, and whether it is a directory; a directory may differ though its entries do not."""
    for pair in pairs:
        if pair.path != TOP:
            yield shown_path(pair.realm, pair.path), True
        for listing in (pair.before, pair.after):
            if listing is not None:
                for entry in listing.entries.values():
                    yield shown_path(pair.realm, entry.path), entry.kind is EntryKind.DIRECTORY


def forbidden_places(survey: CaptureScope) -> frozenset[tuple[int, int]]:
    """(device, inode) of each directory inside the environment that is none of it: git's own, other working trees."""
    from git_envhist.capture.descent import (  # loaded late: as the survey spells them
        path_below_root,
        root_name_of,
    )

    found = set()
    for path in survey.pruned:
        base = survey.bases.get(root_name_of(path))
        if base is None:
            continue
        try:
            seen = os.lstat(os.path.join(base, path_below_root(path)))
        except OSError:
            continue
        found.add((seen.st_dev, seen.st_ino))
    return frozenset(found)
