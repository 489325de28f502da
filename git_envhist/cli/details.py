"""What a snapshot's tree says beside the files, and how it differs from the snapshot before: for cards, JSON, diffs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from git_envhist.cli.ondemand import fetch_sides, the_one_before, with_lists
from git_envhist.model import Change, FactChange, MissingPath, Snapshot
from git_envhist.store.layout import GIT_CHANGED, MISSING, RESERVED, UNSTABLE
from git_envhist.store.objects import CatFile

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session
    from git_envhist.cli.diffview import DiffSource, DiffStyle
    from git_envhist.cli.jsonform import Details

T = TypeVar("T")
LABEL = 11


def read_details(history: EnvHistory, snapshot: Snapshot) -> Details:
    """What is missing, what git saw, and every path that differs from the snapshot before."""
    with CatFile(history.repository.git) as reader:
        return details_of(history, reader, snapshot, changes_of(history, snapshot))


def details_of(
    history: EnvHistory, reader: CatFile, snapshot: Snapshot, changes: tuple[Change, ...]
) -> Details:
    """The same, where it is known what differs."""
    from git_envhist.capturing.factdiff import facts_between  # loaded late: a diff needs none of it
    from git_envhist.cli.jsonform import Details  # loaded late: likewise
    from git_envhist.history.facts import without_secrets  # loaded late: likewise
    from git_envhist.services.keeping import kept_services  # loaded late: likewise
    from git_envhist.store.listings import read_git_changes  # loaded late: likewise

    missing = _missing(reader, snapshot)
    git_changed = _listing(reader, snapshot, GIT_CHANGED, read_git_changes)
    services = tuple(kept_services(reader, snapshot.tree))
    facts = without_secrets(facts_between(reader, snapshot.parent, snapshot.commit, history.keys.opening))
    return Details(missing, git_changed, changes, facts, services)


def services_of(history: EnvHistory, snapshot: Snapshot) -> tuple[str, ...]:
    """The services whose state a snapshot holds."""
    from git_envhist.services.keeping import kept_services  # loaded late: a diff needs none of it

    with CatFile(history.repository.git) as reader:
        return tuple(kept_services(reader, snapshot.tree))


def facts_of(history: EnvHistory, snapshot: Snapshot) -> tuple[FactChange, ...]:
    """What differs beside the files from the snapshot before; nothing for the first."""
    from git_envhist.capturing.factdiff import changed_facts  # loaded late: keeps envlog fast

    return changed_facts(
        history.repository.git, snapshot.parent, snapshot.commit, find_key=history.keys.opening
    )


def file_facts(history: EnvHistory, snapshot: Snapshot) -> tuple[FactChange, ...]:
    """What files say that differ from the snapshot before: keys of configuration, programs; nothing for the first."""
    from git_envhist.cli.configview import config_facts  # loaded late: keeps envlog fast
    from git_envhist.history.programs import programs  # loaded late: likewise

    if not snapshot.parent:
        return ()
    source = diff_source(history, snapshot, ())
    return (*programs(source.changes), *config_facts(source))


def fact_lines(session: Session, changes: Sequence[FactChange], indent: int = LABEL) -> list[str]:
    """The same as the rows of a story."""
    if not changes:
        return []
    from git_envhist.cli.diffview import DiffStyle  # loaded late: keeps envlog fast
    from git_envhist.cli.factview import fact_texts  # loaded late: likewise

    manner = DiffStyle(
        session.palette, session.columns and session.columns - indent, plain=session.output.plain
    )
    texts = b"".join(fact_texts(changes, manner, secrets=True))
    return [" " * indent + line for line in texts.decode("utf-8", "surrogateescape").splitlines()]


def with_outputs(history: EnvHistory, snapshot: Snapshot) -> Snapshot:
    """The snapshot, with what its checks wrote as far as the keys are here."""
    if not any(verdict.sealed_output for verdict in snapshot.verdicts):
        return snapshot
    from git_envhist.verifying.outputs import with_output  # loaded late: keeps envlog fast

    return with_output(snapshot, history.keys.opening)


def missing_of(history: EnvHistory, snapshot: Snapshot) -> tuple[MissingPath, ...]:
    """The paths that are not in a snapshot, and why."""
    if snapshot.complete:
        return ()
    with CatFile(history.repository.git) as reader:
        return _missing(reader, snapshot)


def changes_of(
    history: EnvHistory, snapshot: Snapshot, pathspecs: Sequence[bytes] = ()
) -> tuple[Change, ...]:
    """Every path in which a snapshot differs from the one before it."""
    from git_envhist.store.compare import compare  # loaded late: keeps envlog fast

    snapshot = with_lists(history, snapshot)
    return compare(history.repository.git, snapshot.parent, snapshot.commit, pathspecs=pathspecs)


def diff_source(history: EnvHistory, snapshot: Snapshot, pathspecs: Sequence[bytes]) -> DiffSource:
    """A snapshot and the one before it, side by side."""
    from git_envhist.cli.diffview import DiffSource  # loaded late: keeps envlog fast
    from git_envhist.store.rows import empty_tree  # loaded late: likewise

    git = history.repository.git
    before = snapshot.parent or empty_tree(git, snapshot.commit)
    changes = changes_of(history, snapshot, pathspecs)
    fetch_sides(history, the_one_before(snapshot), snapshot, changes, "patch")
    return DiffSource(git, before, snapshot.commit, changes, history.open_sealed)


def diff_manner(session: Session, *, ended_by_nul: bool, whole_ids: bool = False) -> DiffStyle:
    """How a diff below a snapshot's line is to look."""
    from git_envhist.cli.diffview import DiffStyle  # loaded late: keeps envlog fast

    quote_all = dict(session.history.repository.read_config()).get("core.quotepath") != "false"
    plain = session.output.plain
    return DiffStyle(
        session.palette, session.columns, ended_by_nul, quote_all, plain=plain, whole_ids=whole_ids
    )


def anchored_paths(session: Session) -> tuple[bytes, ...]:
    """The pathspecs of the command line, spelled as from the top of the environment."""
    if not session.paths:
        return ()
    from git_envhist.store.pathspecs import anchored, directory_prefix  # loaded late: keeps envlog fast

    root = os.fsencode(session.history.repository.root)
    prefix = directory_prefix(os.getcwdb(), root)
    return tuple(anchored(os.fsencode(path), prefix, root) for path in session.paths)


def _missing(reader: CatFile, snapshot: Snapshot) -> tuple[MissingPath, ...]:
    from git_envhist.store.listings import read_missing  # loaded late: a diff needs none of it

    unstable = _listing(reader, snapshot, UNSTABLE, read_missing)
    return (*_listing(reader, snapshot, MISSING, read_missing), *unstable)


def _listing(
    reader: CatFile, snapshot: Snapshot, name: bytes, read: Callable[[bytes], tuple[T, ...]]
) -> tuple[T, ...]:
    found = reader.read(f"{snapshot.tree}:{os.fsdecode(RESERVED)}/{os.fsdecode(name)}")
    return read(found[1]) if found is not None else ()
