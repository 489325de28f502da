"""Decide the conflicts of a revert or a merge: one side for all, or a side for each path or class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from git_envhist.diff.path_classes import CLASSES, class_of
from git_envhist.errors import UsageError
from git_envhist.git.pathspecs import match_paths
from git_envhist.git.process import Git
from git_envhist.model import EnvPath, MergeConflict
from git_envhist.restore.three_way import Prefer

CLASS = "class:"
FORM = "<side>=<pathspec> or <side>=class:<class>"


class Rule(NamedTuple):
    """The side of the conflicts of a class, or of the paths that a pathspec matches."""

    side: Prefer
    pathspec: bytes = b""
    class_name: str = ""

    def matched(self, git: Git, paths: Collection[bytes]) -> Collection[bytes]:
        """Return the paths that the rule is for."""
        if self.class_name:
            return {path for path in paths if class_of(path) == self.class_name}
        return match_paths(git, paths, (), (self.pathspec,))


class Decisions(NamedTuple):
    """The side of each conflict; the last rule that matches counts."""

    prefer: Prefer = Prefer.NEITHER
    """The side of conflicts that no rule matches."""
    rules: tuple[Rule, ...] = ()

    @property
    def is_uniform(self) -> bool:
        """Return whether one pass can decide everything: the same side for all, which changes no other path."""
        return not self.rules and self.prefer not in (Prefer.BOTH, Prefer.SKIP)

    def sides(
        self, git: Git, conflicts: Mapping[MergeConflict, Collection[EnvPath]]
    ) -> dict[EnvPath, Prefer]:
        """Return the side of each conflict by its path; `conflicts`: each with the paths that it is about."""
        found = {conflict.path: self.prefer for conflict in conflicts}
        everything = {path for paths in conflicts.values() for path in paths}
        for rule in self.rules if everything else ():
            matched = set(rule.matched(git, everything))
            for conflict, paths in conflicts.items():
                if not matched.isdisjoint(paths):
                    found[conflict.path] = rule.side
        return found


UNDECIDED = Decisions()


def prefer_of(word: str) -> Prefer:
    """Return the side of conflicts by its name."""
    try:
        return Prefer(word)
    except ValueError:
        names = ", ".join(side.value for side in Prefer if side)
        raise UsageError(f"unknown side of conflicts: '{word}'", hint=f"one of: {names}") from None


def decisions_of(prefer: str, rules: Iterable[tuple[str, bytes]]) -> Decisions:
    """Return the decisions by their names; raise `UsageError` for an unknown one. A rule: `("ours", b"src")`."""
    return Decisions(prefer_of(prefer), tuple(_rule(side, where) for side, where in rules))


def _rule(side: str, where: bytes) -> Rule:
    prefer = prefer_of(side)
    if not prefer or not where:
        raise UsageError(
            f"no side and path of conflicts: '{side}={where.decode('utf-8', 'replace')}'", hint=FORM
        )
    if not where.startswith(CLASS.encode()):
        return Rule(prefer, where)
    name = where.decode("utf-8", "replace").removeprefix(CLASS)
    if name not in CLASSES:
        raise UsageError(f"unknown class of paths: '{name}'", hint=f"use one of: {', '.join(CLASSES)}")
    return Rule(prefer, class_name=name)
