"""From two snapshots and what was asked for to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

from git_envhist.capturing.survey import Survey
from git_envhist.capturing.taken import Taken
from git_envhist.errors import EnvhistError
from git_envhist.history.classes import class_of
from git_envhist.model import TOP, EntryKind, EnvPath, LeftAlone, Pair, Plan, shown_path
from git_envhist.restore.plan import Rules, make_plan
from git_envhist.restoring.foreign import Findings
from git_envhist.restoring.pointers import Pointers, Spared, sparing
from git_envhist.restoring.resealed import as_sealed_then
from git_envhist.restoring.scope import (
    HOLDS_LEFT_OUT,
    IMMUTABLE,
    Extent,
    Scope,
    extent_of,
    holding_left_out,
    holding_mounts,
)
from git_envhist.restoring.sincetip import since_tip
from git_envhist.restoring.unreadattributes import keeping_unread
from git_envhist.restoring.wish import Wish
from git_envhist.store.contents import Contents
from git_envhist.store.git import Git
from git_envhist.store.layout import RESERVED
from git_envhist.store.listings import ROOT_MARK
from git_envhist.store.manifest import BUDGET
from git_envhist.store.names import true_path
from git_envhist.store.objects import CatFile
from git_envhist.store.pairs import read_pairs, read_these, same_environment
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


class Guess:
    """What a plan starts from where nothing was changed since the newest snapshot: found out before that is known."""

    def __init__(self) -> None:
        self._tip = self._after = b""
        self._pairs: list[Pair] | None = None

    def make(self, contents: Contents, tip: str | None, after: str) -> None:
        """Compare the newest snapshot with a tree."""
        self._tip, self._after = bytes.fromhex(tip or ""), bytes.fromhex(after)
        # What cannot be read is told when it is known to be needed.
        with closing(contents), suppress(EnvhistError):
            self._pairs = list(read_pairs(contents, self._tip, self._after)) if tip else None

    def pairs(
        self, contents: Contents, before: bytes, after: bytes, taken: Taken | None = None
    ) -> list[Pair]:
        """The pairs of two trees; read now, where the guess was wrong. `taken`: how what is here was found."""
        if self._pairs is not None and self._after == after:
            if taken is not None and taken.base is not None and bytes.fromhex(taken.base) == self._tip:
                known = since_tip(self._pairs, taken.merged, partial(read_these, contents, self._tip, after))
                if known is not None:
                    return known
            if same_environment(contents, self._tip, before):
                return self._pairs
        return list(read_pairs(contents, before, after))


class Planner:
    """Plans a way from one tree to another."""

    def __init__(self, git: Git, contents: Contents, taken: Taken, guess: Guess) -> None:
        self._git = git
        self._contents = contents
        self._survey = survey = taken.survey
        self._now = Extent.of(survey.ignore, survey.exclude, taken.out_of_reach)
        self._guess = guess
        self._taken = taken
        self.spared: dict[EnvPath, Spared] = {}
        """The `.git` files of submodules that the plan does not bring."""
        self.unreached: tuple[LeftAlone, ...] = ()
        """What cannot come to where it was, for what stands there and is no part of the environment."""

    @step("the plan is made")
    def plan(self, before: str, after: str, wish: Wish, findings: Findings | None = None) -> Plan:
        """What leads from the tree of what is here now to that of a moment; `findings`: no key of ours signed it."""
        with closing(self._contents) as contents:
            pairs = self._guess.pairs(contents, bytes.fromhex(before), bytes.fromhex(after), self._taken)
            pairs = as_sealed_then(pairs, contents)
            self.spared = Pointers(self._git.git_dir, self._survey.bases, contents).left_alone(pairs)
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
        rules = Rules(scope.keep_standing, wish.keep_new, self._what_holds(pairs))
        rules = sparing(rules, self.spared)
        if findings is None:
            plan = make_plan(pairs, rules)
        else:
            mine = pairs if wish.roots else [pair for pair in pairs if not pair.realm]
            plan = make_plan(map(findings.sanitised, mine), findings.rules(rules))
            others = sorted({pair.realm for pair in pairs}.difference(pair.realm for pair in mine))
            left = tuple(LeftAlone(EnvPath(realm + ROOT_MARK), ROOTS_UNASKED) for realm in others)
            plan = replace(plan, left_alone=(*plan.left_alone, *left))
        self.unreached = tuple(_unreached(plan, pairs))
        return plan if chosen is None or plan.steps else _without_ways(plan, frozenset(chosen))

    def _what_holds(self, pairs: Sequence[Pair]) -> Callable[[EnvPath], str | None]:
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


def _unreached(plan: Plan, pairs: Iterable[Pair]) -> Iterator[LeftAlone]:
    """What the moment holds at the place of a directory that stays for what is in it: that is not as it was."""
    held = {left.path: left for left in plan.left_alone if left.why == HOLDS_LEFT_OUT}
    for pair in pairs if held else ():
        for entry in pair.after.entries.values() if pair.after is not None else ():
            left = held.get(shown_path(pair.realm, entry.path))
            if left is not None and entry.kind is not EntryKind.DIRECTORY:
                yield left


def _without_ways(plan: Plan, chosen: frozenset[bytes]) -> Plan:
    """Where none of what was chosen changes, nothing is done to the directories that it lies in."""
    own = (one for one in plan.directories if shown_path(one.realm, one.path) in chosen)
    return replace(plan, directories=tuple(own))


def chosen_paths(
    git: Git, pairs: Sequence[Pair], wish: Wish, trees: Sequence[str]
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


def closed_paths(plan: Plan) -> tuple[LeftAlone, ...]:
    """What would be changed and cannot be: that is not as it was."""
    return tuple(item for item in plan.left_alone if item.why == IMMUTABLE)


def roots_changed(plan: Plan, bases: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the additional roots in which a plan changes something, each with its directory."""
    realms = {step.realm for step in plan.steps} | {own.realm for own in plan.directories}
    return tuple((os.fsdecode(realm), os.fsdecode(bases[realm])) for realm in sorted(realms) if realm)


def tracked(git: Git) -> frozenset[bytes]:
    """The paths that HEAD tracks."""
    listed = git.ask("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
    return frozenset(listed.out.split(b"\0")[:-1]) if listed.status == 0 else frozenset()


def _paths(pairs: Iterable[Pair]) -> Iterator[tuple[bytes, bool]]:
    """Every path that may differ, and whether it is a directory; a directory may differ though its entries do not."""
    for pair in pairs:
        if pair.path != TOP:
            yield shown_path(pair.realm, pair.path), True
        for listing in (pair.before, pair.after):
            if listing is not None:
                for entry in listing.entries.values():
                    yield shown_path(pair.realm, entry.path), entry.kind is EntryKind.DIRECTORY


def forbidden_places(survey: Survey) -> frozenset[tuple[int, int]]:
    """(device, inode) of each directory inside the environment that is none of it: git's own, other working trees."""
    from git_envhist.capture.descent import below_realm, realm_of  # loaded late: as the survey spells them

    found = set()
    for path in survey.pruned:
        base = survey.bases.get(realm_of(path))
        if base is None:
            continue
        try:
            seen = os.lstat(os.path.join(base, below_realm(path)))
        except OSError:
            continue
        found.add((seen.st_dev, seen.st_ino))
    return frozenset(found)
