"""Export chosen snapshots to one file, and import such a file.

An export scans everything before it writes the file, as a push does. An import is treated like a fetch from an
unknown server: the file is checked completely, its timelines are stored in the repository of fetched timelines under
a name of their own, and snapshots that none of our keys signed are unsigned. It never overwrites a stored timeline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from git_envhist.errors import Damaged, Refused, SnapshotNotFound, UsageError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import SYNCED, Repository
from git_envhist.history.resolve import resolve_range, snapshots_in_range
from git_envhist.history.revisions import WorkingTree
from git_envhist.history.timeline import Catalog
from git_envhist.lazy import dataclass
from git_envhist.model import Snapshot
from git_envhist.model.sharing import ExportResult, FetchOutcome, ImportResult
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.remote.bundle import (
    CheckedBundle,
    FileExists,
    bundle_refs,
    check_bundle,
    create_temporary_repository,
    move_checked_packs,
    read_archive,
    working_directory,
    write_archive,
    write_bundle,
)
from git_envhist.remote.export_chain import SelectedSnapshots, build_selected_chain
from git_envhist.remote.push import TokensFound
from git_envhist.remote.push_plan import HEADS_PREFIX, NOTES
from git_envhist.remote.remotes import NAME, last_value
from git_envhist.remote.upload import ANONYMOUS, OutgoingObject, is_allowed, objects_to_send, scan_outgoing
from git_envhist.remote.wrap_keys import recipients_of, wrapped_for
from git_envhist.secrets.keys import KeyRing
from git_envhist.snapshots.fetched_store import FETCHED_NOTES, REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.snapshots.log import Warn, read_chain

EXPORT_DIRECTORY = "export"
MAX_SIZE = 1 << 30
"""Larger objects are not scanned; a capture splits them into chunks."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export."""

    force: bool = False
    """Replace an existing file."""
    allow: tuple[bytes, ...] = ()
    """Paths that may be exported although they contain a token."""


def snapshots_to_export(words: Sequence[str], world: Catalog, now: datetime) -> list[Snapshot]:
    """Return the snapshots that revisions and ranges name, each once; without any, all of this working tree's
    timeline.
    """
    found = {} if words else {snapshot.id: snapshot for snapshot in world.own.snapshots}
    for word in words:
        span = resolve_range(word, world, now)
        if isinstance(span.end, WorkingTree):
            raise UsageError(
                "the current state is not a snapshot yet", hint="run git envlog capture, then use @"
            )
        here = (span.end.snapshot,) if span.start is None else snapshots_in_range(span, world.own)
        found.update({snapshot.id: snapshot for snapshot in here})
    if not found:
        raise SnapshotNotFound(" ".join(words) or "@", hint="'git envlog --all' lists the snapshots")
    return list(found.values())


def export(
    repository: Repository,
    path: str,
    chosen: Iterable[Snapshot],
    world: Catalog,
    ring: KeyRing,
    identity: bytes,
    options: ExportOptions,
    waiting: Callable[[], None] | None = None,
) -> ExportResult:
    """Write chosen snapshots with their notes and names to a file; all their contents must be stored here."""
    if not options.force and os.path.lexists(path):
        raise FileExists(path)
    timelines = _chosen_timelines(chosen, world)
    fetched = FetchedStore.of(repository)
    alternates = [repository.objects_dir, *([fetched.objects_dir] if fetched.exists else [])]
    with working_directory(repository.common_state, EXPORT_DIRECTORY, waiting) as work:
        git = create_temporary_repository(
            os.path.join(work, "export.git"), repository.object_format, alternates
        )
        bundle_content = _chains(git, repository, timelines, ring, identity)
        objects = _objects_to_export(git, bundle_content)
        scan = scan_outgoing(git, objects, MAX_SIZE)
        tokens = [token for token in scan.tokens if not is_allowed(token.path, options.allow)]
        if tokens:
            raise TokensFound(tokens, "written")
        bundle = os.path.join(work, "history.bundle")
        write_bundle(git, bundle, bundle_content)
        size = write_archive(path, bundle, force=options.force)
    outcomes = tuple((one.timeline, one.snapshots) for one in bundle_content)
    return ExportResult(path, size, len(objects), outcomes, scan)


def _chosen_timelines(chosen: Iterable[Snapshot], world: Catalog) -> dict[str, tuple[Snapshot, ...]]:
    """Return the chosen snapshots of each timeline, oldest first, by the name that the timeline has where it was
    written.
    """
    wanted: dict[str, set[str]] = {}
    for snapshot in chosen:
        wanted.setdefault(snapshot.timeline, set()).add(snapshot.commit)
    found: dict[str, tuple[Snapshot, ...]] = {}
    for name, commits in wanted.items():
        line = world.timeline(name)
        assert line is not None, "it was found there"
        short = split_name(name)[1] if is_fetched(name) else name
        if short in found:
            raise UsageError(
                f"two timelines would be called '{short}'", hint="export them one after the other"
            )
        found[short] = tuple(one for one in reversed(line.snapshots) if one.commit in commits)
    return found


def _chains(
    git: Git,
    repository: Repository,
    timelines: dict[str, tuple[Snapshot, ...]],
    ring: KeyRing,
    identity: bytes,
) -> list[SelectedSnapshots]:
    place = os.path.join(git.git_dir, "objects", "pack")
    os.makedirs(place, exist_ok=True)
    form = repository.object_format
    own = wrapped_for(ring, recipients_of(ring)[0] or ())
    with PackWriter(place, form) as writer, CatFile(git) as reader:
        chains = [
            build_selected_chain(
                reader,
                writer,
                name,
                line,
                ring.get,
                identity=identity,
                object_format=form,
                extra_files={} if is_fetched(line[0].timeline) else own,
            )
            for name, line in timelines.items()
        ]
        writer.finish()
    return chains


def _objects_to_export(git: Git, chosen: Sequence[SelectedSnapshots]) -> list[OutgoingObject]:
    refs = bundle_refs(chosen)
    heads = [oid for ref, oid in refs.items() if ref.startswith(HEADS_PREFIX)]
    notes = [oid for ref, oid in refs.items() if ref.startswith(NOTES)]
    return objects_to_send(git, heads, notes, (), {})


IMPORT_DIRECTORY = "import"
SUFFIX = re.compile(r"(\.envhist)?(\.tar)?(\.zst)?\Z")
MAX_NAMES = 1000


class NameTaken(Refused):
    """The name of an import is already in use."""

    code = "name-taken"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"'{name}' {why}", hint="git envlog import --as <another name> <file>")


def import_archive(
    repository: Repository, path: str, name: str | None, warn: Warn, waiting: Callable[[], None] | None = None
) -> ImportResult:
    """Store the timelines of a file as `<name>/<timeline>`; the default name is that of the file."""
    fetched = FetchedStore.of(repository)
    if name is not None:
        _refuse_remote(repository, fetched, name)
    with (
        read_archive(path) as bundle,
        working_directory(repository.common_state, IMPORT_DIRECTORY, waiting) as work,
    ):
        objects = os.path.join(work, "objects")
        fetched.ensure()
        bundle_content = check_bundle(bundle, fetched.path, objects, repository.object_format)
        counts = {timeline: _count(bundle_content, timeline, warn) for timeline in bundle_content.heads}
        with fetched.lock_for_receiving(waiting):
            chosen = name or _free_name(repository, fetched, path, bundle_content)
            moves = _moves(fetched, chosen, bundle_content)
            before = fetched.packs()
            move_checked_packs(objects, fetched.objects_dir)
            fetched.add_checked_packs(fetched.packs() - before)
            _store_refs(fetched, chosen, bundle_content)
    outcomes = tuple(
        (f"{chosen}/{timeline}", moves[timeline], counts[timeline]) for timeline in sorted(counts)
    )
    return ImportResult(path, chosen, outcomes)


def _count(bundle_content: CheckedBundle, timeline: str, warn: Warn) -> int:
    """Return the number of snapshots; reads each one, and reports those that cannot be read."""
    count = sum(
        1 for _ in read_chain(bundle_content.git, bundle_content.heads[timeline], notes=False, warn=warn)
    )
    if not count:
        raise Damaged(f"'{timeline}' contains no readable snapshot: nothing was imported")
    return count


def _free_name(
    repository: Repository, fetched: FetchedStore, path: str, bundle_content: CheckedBundle
) -> str:
    """Return the file's name, with a number if needed: a name that is free, or whose timelines this file extends."""
    stem = SUFFIX.sub("", os.path.basename(path))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.").replace("..", "-")[:60] or "import"
    plain = plain if NAME.fullmatch(plain) and not plain.endswith(".lock") else "import"
    for number in range(1, MAX_NAMES):
        name = plain if number == 1 else f"{plain}-{number}"
        if not _is_remote(repository, fetched, name) and _only_extends(fetched, name, bundle_content):
            return name
    raise NameTaken(plain, "and similar names are in use")


def _only_extends(fetched: FetchedStore, name: str, bundle_content: CheckedBundle) -> bool:
    stored = _stored_heads(fetched, name)
    return all(
        stored.get(line) in (None, oid) or _is_ancestor(fetched, bundle_content, stored[line], oid)
        for line, oid in bundle_content.heads.items()
    )


def _moves(fetched: FetchedStore, name: str, bundle_content: CheckedBundle) -> Mapping[str, FetchOutcome]:
    if not _only_extends(fetched, name, bundle_content):
        raise NameTaken(name, "has other snapshots of the same timeline")
    stored = _stored_heads(fetched, name)
    return {line: _outcome(stored.get(line), oid) for line, oid in bundle_content.heads.items()}


def _outcome(before: str | None, after: str) -> FetchOutcome:
    if before is None:
        return FetchOutcome.NEW
    return FetchOutcome.SAME if before == after else FetchOutcome.UPDATED


def _stored_heads(fetched: FetchedStore, name: str) -> dict[str, str]:
    place = f"{REMOTES}{name}/"
    return {ref.removeprefix(place): oid for ref, oid in fetched.refs(place).items()}


def _is_ancestor(fetched: FetchedStore, bundle_content: CheckedBundle, old: str, new: str) -> bool:
    both = Git(
        fetched.path, None, alternates=(os.fsdecode(bundle_content.git.environment[b"GIT_OBJECT_DIRECTORY"]),)
    )
    return both.ask("merge-base", "--is-ancestor", old, new).status == 0


def _store_refs(fetched: FetchedStore, name: str, bundle_content: CheckedBundle) -> None:
    fetched.mark_imported(name)
    timelines = [f"update {REMOTES}{name}/{line} {oid}\n" for line, oid in bundle_content.heads.items()]
    fetched.git.run(*SYNCED, "update-ref", "--no-deref", "--stdin", stdin="".join(timelines).encode("ascii"))
    for line, oid in bundle_content.notes.items():
        _join_notes(fetched, f"{FETCHED_NOTES}{name}/{line}", oid)
    # The file may be deleted later, so keep nothing that refers to it.
    fetched.sync(
        [f"{REMOTES}{name}/{line}" for line in bundle_content.heads]
        + [f"{FETCHED_NOTES}{name}/{line}" for line in bundle_content.notes]
    )


def _join_notes(fetched: FetchedStore, ref: str, new: str) -> None:
    """Merge the notes with those of an earlier file: records are lines, and each is kept once."""
    if ref not in fetched.refs(ref):
        fetched.git.run(*SYNCED, "update-ref", "--no-deref", ref, new)
        return
    imported_ref = f"{FETCHED_NOTES}import-{os.urandom(6).hex()}"
    fetched.git.run("update-ref", "--no-deref", imported_ref, new)
    words = (*SYNCED, "notes", f"--ref={ref}", "merge", "--quiet", "--strategy=cat_sort_uniq", imported_ref)
    try:
        fetched.git.run(*words, environment=ANONYMOUS)
    finally:
        fetched.git.run("update-ref", "-d", imported_ref)


def _refuse_remote(repository: Repository, fetched: FetchedStore, name: str) -> None:
    if not NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
        raise UsageError(f"not a valid name: '{name}'", hint="use letters, digits, dots and dashes")
    if _is_remote(repository, fetched, name):
        raise NameTaken(name, "is a remote")


def _is_remote(repository: Repository, fetched: FetchedStore, name: str) -> bool:
    return last_value(repository.read_config(), f"remote.{name}.url") is not None or fetched.has_remote(name)
