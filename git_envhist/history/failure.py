"""Find the step that broke a check, and order its changes by how likely they matter (pure).

A change that the failing output names comes first, then direct packages, settings, rows and tables, files, other
packages. Within a rank, changes keep the order of a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from git_envhist.diff.facts import path_of_fact_change, without_secrets
from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.errors import EnvhistError
from git_envhist.history.attribution import Attribution
from git_envhist.history.timeline import own_verdict
from git_envhist.history.why import Origin
from git_envhist.lazy import dataclass, replace
from git_envhist.model import (
    Change,
    EnvPath,
    FactChange,
    Role,
    Snapshot,
    SnapshotDiff,
    Verdict,
    VerdictStatus,
)
from git_envhist.probes import PACKAGES, kinds, package_directories

MIN_NAME = 3
"""The length from which on a name in the output counts as named."""
WORD = re.compile(r"[\w./@+-]+")


class Rank(Enum):
    """Why a change may matter, the likeliest first."""

    NAMED = "named in the failing output"
    PACKAGE = "direct package"
    SETTING = "setting"
    DATABASE = "rows and tables"
    FILE = "file"
    OTHER = "other package or service"


ORDER = tuple(Rank)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first failing snapshot of a check, and the newest before it that passed."""

    first: Snapshot
    passed: Snapshot | None
    """None if no earlier snapshot passed the check."""
    verdict: Verdict
    unchecked: int
    """How many snapshots between the two were not checked."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A change of the step, and its rank."""

    rank: Rank
    change: Change | FactChange
    attribution: Attribution | None = None
    """Who made the change; None if several steps come into question."""


@dataclass(frozen=True, slots=True)
class FailureAnswer:
    """The answer to what broke a check."""

    failure: Failure
    compared_with: Snapshot | None
    """The snapshot that passed, or the one before the first that failed."""
    suspects: tuple[Suspect, ...]
    """The likeliest changes."""
    total: int
    """How many changes there are."""


class NoFailure(EnvhistError):
    """No snapshot has a failing result of the check."""

    code = "no-failure"
    exit_code = 4


def must_find_failure(snapshots: Sequence[Snapshot], command: str | None) -> Failure:
    """Return the failure that the newest failing check belongs to; raise `NoFailure` if there is none."""
    found = find_failure(snapshots, command)
    if found is None:
        what = (
            "no snapshot failed a check" if command is None else f"no snapshot failed this check: '{command}'"
        )
        raise NoFailure(what, hint="run one: git envlog verify -- <command>")
    return found


def find_failure(snapshots: Sequence[Snapshot], command: str | None) -> Failure | None:
    """Return the failure that the newest failing check belongs to; `snapshots`: the newest first.

    Without a command, the check is the newest failing one.
    """
    last: tuple[Snapshot, Verdict] | None = None
    unchecked = 0
    for snapshot in snapshots:
        verdict = own_verdict(snapshot)
        is_meant = verdict is not None and (command is None or verdict.command == command)
        if verdict is None or not is_meant or verdict.status is VerdictStatus.ERROR:
            unchecked += last is not None
        elif verdict.status is VerdictStatus.FAIL:
            command = verdict.command
            last, unchecked = (snapshot, verdict), 0
        elif last is not None:
            return Failure(last[0], snapshot, last[1], unchecked)
    return None if last is None else Failure(last[0], None, last[1], 0)


def suspects_of(found: Failure, checked: Snapshot, compared: SnapshotDiff | None) -> list[Suspect]:
    """Return the changes of the step that broke a check, the likeliest first; `checked` has the outputs."""
    if compared is None:
        return []
    output = "\n".join(one.output_tail for one in checked.verdicts if one.command == found.verdict.command)
    facts = without_secrets(compared.facts)
    return order_suspects(compared.files, facts, output, kinds(), package_directories())


def with_attribution(found: Failure, suspect: Suspect, origin_at: OriginAt) -> Suspect:
    """Return a suspect with who made the change, if only one step comes into question."""
    if found.unchecked:
        return suspect
    change = suspect.change
    path = change.path if isinstance(change, Change) else EnvPath(path_of_fact_change(change))
    is_package = isinstance(change, FactChange) and kinds().get(change.probe) == PACKAGES
    origin = origin_at(found.first.commit, path or None, is_package=is_package)
    return replace(suspect, attribution=origin.attribution)


class OriginAt(Protocol):
    """Return the step that ends at a commit, about a path, or about the package in a directory."""

    def __call__(self, commit: str, path: EnvPath | None, *, is_package: bool = False) -> Origin: ...


def order_suspects(
    changes: Iterable[Change],
    facts: Iterable[FactChange],
    output: str,
    kinds: Mapping[str, str],
    packages: Container[bytes],
) -> list[Suspect]:
    """Return all changes, the likeliest first.

    `kinds`: the class of facts of each probe; `packages`: names of directories that package managers fill.
    """
    words = set(WORD.findall(output))
    found = [Suspect(_rank_of_fact(fact, words, kinds), fact) for fact in facts]
    found += [Suspect(_rank_of_file(change, words, packages), change) for change in changes]
    return sorted(found, key=lambda suspect: ORDER.index(suspect.rank))


def _rank_of_fact(fact: FactChange, words: set[str], kinds: Mapping[str, str]) -> Rank:
    name = name_of(fact)
    if _is_named(name, words) or _is_named(name.replace("-", "_"), words) or _is_named(place_of(fact), words):
        return Rank.NAMED
    kind = kinds.get(fact.probe, "")
    if kind == "packages":
        return Rank.PACKAGE if fact.role is Role.DIRECT else Rank.OTHER
    return {"env": Rank.SETTING, "tools": Rank.SETTING, "databases": Rank.DATABASE}.get(kind, Rank.OTHER)


def _rank_of_file(change: Change, words: set[str], packages: Container[bytes]) -> Rank:
    path = change.path.decode("utf-8", "surrogateescape")
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    is_named = any(_is_named(one, words) for one in (path, name, stem))
    if any(part in packages for part in change.path.split(b"/")[:-1]):
        # Its package is listed; only a file that the output names by its path is of interest.
        return Rank.NAMED if _is_named(path, words) else Rank.OTHER
    return Rank.NAMED if is_named else Rank.FILE


def _is_named(name: str, words: set[str]) -> bool:
    if len(name) < MIN_NAME:
        return False
    return name in words or any(name in word.split("/") or word.endswith(f"/{name}") for word in words)
